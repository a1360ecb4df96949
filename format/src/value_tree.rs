//! Value trees: what a framework's state holds beside tensors, without loss.
//!
//! It knows the forms of section 9.1 and their limits. It must not know what a framework means
//! by a type's name, and never resolves one.

use std::collections::HashSet;

use crate::identity::Identity;
use crate::json::{Map, Value};
use crate::{Code, Error, Result, limits, rule};

/// Largest magnitude of an integer that stands bare.
const LARGEST: i64 = 9_007_199_254_740_991;
/// The member that holds a bare value at the top of a record.
const TREE: &str = "tree";

/// A value of a framework's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A string.
    Str(String),
    /// An integer within ±(2^53 − 1).
    Int(i64),
    /// An integer beyond ±(2^53 − 1), in decimal.
    BigInt(String),
    /// The bits of an IEEE 754 binary64.
    F64(u64),
    /// The bits of an IEEE 754 binary32.
    F32(u32),
    /// At most `inline-bytes` bytes.
    Bytes(Vec<u8>),
    /// A sequence that can change.
    List(Vec<Tree>),
    /// A sequence that cannot.
    Tuple(Vec<Tree>),
    /// Keys, each once, and their values, in the framework's order.
    Map(Vec<(MapKey, Tree)>),
    /// A tensor of the checkpoint.
    Tensor(Box<Identity>),
    /// A value of a named type, such as `torch.Size`.
    Type(String, Box<Tree>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MapKey {
    /// A string.
    Str(String),
    /// An integer within ±(2^53 − 1).
    Int(i64),
    /// An integer beyond ±(2^53 − 1), in decimal.
    BigInt(String),
}

impl Tree {
    /// An integer of any size up to 128 bits, in the one form that it has.
    #[must_use]
    pub fn int(value: i128) -> Self {
        match i64::try_from(value) {
            Ok(small) if (-LARGEST..=LARGEST).contains(&small) => Self::Int(small),
            _ => Self::BigInt(value.to_string()),
        }
    }

    /// A binary64, NaN payloads and all.
    #[must_use]
    pub fn f64(value: f64) -> Self {
        Self::F64(value.to_bits())
    }

    /// Reads a value tree.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`] for anything but a value tree, with the pointer from its top.
    pub fn parse(value: &Value) -> Result<Self> {
        parse(value, &Place { outer: None, step: Step::Top })
    }

    /// Reads the `value` of a record of kind `value`: a tree that is an object, or any tree that
    /// stands bare under the one member `tree`.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_record_value(value: &Value) -> Result<Self> {
        let top = Place { outer: None, step: Step::Top };
        let Some(members) = value.as_object() else {
            return Err(top.bad("expected an object"));
        };
        match members.sole() {
            Some((TREE, inner)) => {
                let place = Place { outer: Some(&top), step: Step::Member(TREE) };
                match inner {
                    Value::Object(_) => Err(place.bad("expected a bare value, found an object")),
                    _ => parse(inner, &place),
                }
            }
            _ => parse(value, &top),
        }
    }

    /// The tree as JSON; what the type leaves open is not checked, see [`check`](Self::check).
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Str(text) => Value::Str(text.clone()),
            Self::Int(value) => Value::Int(*value),
            Self::BigInt(digits) => one("int", Value::Str(digits.clone())),
            Self::F64(bits) => one("f64", Value::Str(format!("{bits:016x}"))),
            Self::F32(bits) => one("f32", Value::Str(format!("{bits:08x}"))),
            Self::Bytes(bytes) => one("bytes", Value::Str(hex(bytes))),
            Self::List(items) => one("list", list(items)),
            Self::Tuple(items) => one("tuple", list(items)),
            Self::Map(pairs) => {
                let pair = |(key, value): &(MapKey, Self)| {
                    Value::List(vec![key.to_value(), value.to_value()])
                };
                one("map", Value::List(pairs.iter().map(pair).collect()))
            }
            Self::Tensor(identity) => one("tensor", identity_value(identity)),
            Self::Type(name, inner) => {
                one("type", Value::List(vec![Value::Str(name.clone()), inner.to_value()]))
            }
        }
    }

    /// The tree as the `value` of a record of kind `value`.
    #[must_use]
    pub fn to_record_value(&self) -> Value {
        let value = self.to_value();
        if value.as_object().is_some() { value } else { one(TREE, value) }
    }

    /// Checks what the type leaves open: big integers, map keys, lengths.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn check(&self) -> Result<()> {
        Self::parse(&self.to_value()).map(|_| ())
    }
}

impl MapKey {
    fn to_value(&self) -> Value {
        match self {
            Self::Str(text) => Value::Str(text.clone()),
            Self::Int(value) => Value::Int(*value),
            Self::BigInt(digits) => one("int", Value::Str(digits.clone())),
        }
    }
}

/// Where in a tree a value stands; spelled only when something is wrong there.
#[derive(Clone, Copy)]
struct Place<'a> {
    outer: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Top,
    Member(&'a str),
    Item(usize),
}

impl Place<'_> {
    #[cold]
    fn bad(&self, message: impl Into<String>) -> Error {
        Error::rule(Code::BadMember, rule::VALUE_FORM, message).at_pointer(self.pointer())
    }

    /// JSON pointer from the top of the tree.
    fn pointer(&self) -> String {
        let mut text = self.outer.map(Place::pointer).unwrap_or_default();
        match self.step {
            Step::Top => {}
            Step::Member(name) => {
                text.push('/');
                text.push_str(&crate::json::pointer_step(name));
            }
            Step::Item(index) => {
                text.push('/');
                text.push_str(&index.to_string());
            }
        }
        text
    }
}

/// Recursion ends: values come from text that nests at most `json-depth` deep, or were built.
fn parse(value: &Value, place: &Place<'_>) -> Result<Tree> {
    match value {
        Value::Null => Ok(Tree::Null),
        Value::Bool(truth) => Ok(Tree::Bool(*truth)),
        Value::Str(text) => Ok(Tree::Str(text.clone())),
        Value::Int(value) if (-LARGEST..=LARGEST).contains(value) => Ok(Tree::Int(*value)),
        Value::Int(value) => Err(place.bad(format!("expected {value} under the member \"int\""))),
        Value::List(_) => {
            Err(place.bad("expected an array only under \"list\" or \"tuple\", found it bare"))
        }
        Value::Object(members) => match members.sole() {
            Some((name, inner)) => {
                parse_member(name, inner, &Place { outer: Some(place), step: Step::Member(name) })
            }
            None => Err(place.bad(format!("expected one member, found {}", members.len()))),
        },
    }
}

fn parse_member(name: &str, value: &Value, place: &Place<'_>) -> Result<Tree> {
    match name {
        "int" => Ok(Tree::BigInt(big_int(text(value, place)?, place)?)),
        "f64" => Ok(Tree::F64(bits(text(value, place)?, 16, place)?)),
        "f32" => {
            let bits = bits(text(value, place)?, 8, place)?;
            Ok(Tree::F32(u32::try_from(bits).unwrap_or(u32::MAX)))
        }
        "bytes" => Ok(Tree::Bytes(unhex(text(value, place)?, place)?)),
        "list" => Ok(Tree::List(trees(value, place)?)),
        "tuple" => Ok(Tree::Tuple(trees(value, place)?)),
        "map" => Ok(Tree::Map(map(value, place)?)),
        "tensor" => {
            let identity = value.encode().and_then(|key| Identity::parse_key(&key));
            // Whatever is wrong within a value tree breaks this one rule.
            Ok(Tree::Tensor(Box::new(identity.map_err(|error| place.bad(error.message()))?)))
        }
        "type" => match value {
            Value::List(pair) => match pair.as_slice() {
                [Value::Str(name), inner] => {
                    let inner = parse(inner, &Place { outer: Some(place), step: Step::Item(1) })?;
                    Ok(Tree::Type(name.clone(), Box::new(inner)))
                }
                _ => Err(place.bad("expected [name, value]")),
            },
            _ => Err(place.bad("expected [name, value]")),
        },
        _ => {
            Err(place.bad(format!("expected a member of the table of value trees, found {name:?}")))
        }
    }
}

fn items<'v>(value: &'v Value, place: &Place<'_>) -> Result<&'v [Value]> {
    match value {
        Value::List(items) => Ok(items),
        _ => Err(place.bad("expected an array")),
    }
}

fn trees(value: &Value, place: &Place<'_>) -> Result<Vec<Tree>> {
    let items = items(value, place)?;
    // Each is there already, so room for all of them is no guess.
    let mut trees = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        trees.push(parse(item, &Place { outer: Some(place), step: Step::Item(index) })?);
    }
    Ok(trees)
}

fn map(value: &Value, place: &Place<'_>) -> Result<Vec<(MapKey, Tree)>> {
    let mut seen = HashSet::new();
    let listed = items(value, place)?;
    let mut pairs = Vec::with_capacity(listed.len());
    for (index, item) in listed.iter().enumerate() {
        let place = Place { outer: Some(place), step: Step::Item(index) };
        let [key, value] = items(item, &place)? else {
            return Err(place.bad("expected [key, value]"));
        };
        let key = match parse(key, &Place { outer: Some(&place), step: Step::Item(0) })? {
            Tree::Str(text) => MapKey::Str(text),
            Tree::Int(value) => MapKey::Int(value),
            Tree::BigInt(digits) => MapKey::BigInt(digits),
            _ => return Err(place.bad("expected a string or an integer as key")),
        };
        if !seen.insert(key.clone()) {
            return Err(place.bad(format!("expected each key once, found {key:?} again")));
        }
        pairs.push((key, parse(value, &Place { outer: Some(&place), step: Step::Item(1) })?));
    }
    Ok(pairs)
}

fn text<'v>(value: &'v Value, place: &Place<'_>) -> Result<&'v str> {
    match value {
        Value::Str(text) => Ok(text),
        _ => Err(place.bad("expected a string")),
    }
}

/// `-?` and digits without leading zero, beyond what stands bare.
fn big_int(text: &str, place: &Place<'_>) -> Result<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let decimal = !digits.is_empty()
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !decimal {
        return Err(
            place.bad(format!("expected decimal digits without leading zero, found {text:?}"))
        );
    }
    if u64::try_from(digits.len()).is_ok_and(|count| count > limits::INTEGER_DIGITS) {
        let most = limits::INTEGER_DIGITS;
        let message = format!("expected at most {most} digits, found {}", digits.len());
        let error = Error::rule(Code::Limit, rule::VALUE_INTEGER, message);
        return Err(error.at_pointer(place.pointer()));
    }
    match digits.parse::<i64>() {
        Ok(small) if small <= LARGEST => Err(place.bad(format!("expected {text} to stand bare"))),
        _ => Ok(text.to_owned()),
    }
}

fn bits(text: &str, digits: usize, place: &Place<'_>) -> Result<u64> {
    let spelled = text.len() == digits && text.bytes().all(is_hex);
    match u64::from_str_radix(text, 16) {
        Ok(bits) if spelled => Ok(bits),
        _ => Err(place.bad(format!("expected {digits} hex digits, found {text:?}"))),
    }
}

fn unhex(text: &str, place: &Place<'_>) -> Result<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() || !text.bytes().all(is_hex) {
        return Err(place.bad("expected pairs of lower-case hex digits"));
    }
    if u64::try_from(pairs.len()).is_ok_and(|bytes| bytes > limits::INLINE_BYTES) {
        let message = format!(
            "expected at most {} bytes (inline-bytes), found {}",
            limits::INLINE_BYTES,
            pairs.len()
        );
        return Err(place.bad(message));
    }
    let byte = |pair: &[u8; 2]| {
        std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.ok_or_else(|| place.bad("expected hex digits"))
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Bytes as metadata has them: lower-case hex, two digits each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one(name: &str, value: Value) -> Value {
    Value::Object(Map::from([(name.to_owned(), value)]))
}

fn list(items: &[Tree]) -> Value {
    Value::List(items.iter().map(Tree::to_value).collect())
}

/// The identity key as a value.
pub(crate) fn identity_value(identity: &Identity) -> Value {
    let text = |text: &str| Value::Str(text.to_owned());
    let at = |(axis, index): &(String, u64)| {
        // An index above 2^63 is no coordinate, and the largest integer is no canonical one.
        Value::List(vec![text(axis), Value::Int(i64::try_from(*index).unwrap_or(i64::MAX))])
    };
    Value::List(vec![
        text(&identity.component),
        text(identity.role.as_str()),
        text(&identity.name),
        text(&identity.slot),
        text(&identity.owner),
        Value::List(identity.scope.iter().map(at).collect()),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Tree> {
        Tree::parse(&Value::parse(text).unwrap())
    }

    fn refused(text: &str) -> (Code, &'static str, String) {
        let error = parsed(text).unwrap_err();
        let pointer = error.location().pointer.clone().unwrap_or_default();
        (error.code(), error.rule_id().unwrap(), pointer)
    }

    #[test]
    fn every_form_of_the_table_round_trips() {
        for text in [
            "null",
            "true",
            "-9007199254740991",
            r#""é\n""#,
            r#"{"int":"9007199254740992"}"#,
            r#"{"int":"-123456789012345678901234567890123456789012345678901234567890"}"#,
            r#"{"f64":"7ff8000000000001"}"#,
            r#"{"f32":"80000000"}"#,
            r#"{"bytes":""}"#,
            r#"{"bytes":"00ff"}"#,
            r#"{"list":[]}"#,
            r#"{"list":[null,{"tuple":[1]}]}"#,
            r#"{"map":[["b",1],["a",2],[1,3],["1",4],[{"int":"9007199254740992"},5]]}"#,
            r#"{"tensor":["main","extension","x","","",[["dp",1]]]}"#,
            r#"{"type":["torch.Size",{"tuple":[2,3]}]}"#,
        ] {
            let tree = parsed(text).unwrap();
            assert_eq!(tree.to_value().encode().unwrap(), text);
            tree.check().unwrap();
        }
    }

    #[test]
    fn what_the_table_does_not_list_is_refused_at_its_place() {
        for (text, pointer) in [
            ("[]", ""),
            ("{}", ""),
            (r#"{"f32":"00000000","f64":"0000000000000000"}"#, ""),
            (r#"{"float":"1.0"}"#, "/float"),
            (r#"{"int":"9007199254740991"}"#, "/int"),
            (r#"{"int":"-9007199254740991"}"#, "/int"),
            (r#"{"int":"09007199254740992"}"#, "/int"),
            (r#"{"int":"+9007199254740992"}"#, "/int"),
            (r#"{"int":"--9007199254740992"}"#, "/int"),
            (r#"{"int":""}"#, "/int"),
            (r#"{"int":1}"#, "/int"),
            (r#"{"f64":"7FF8000000000001"}"#, "/f64"),
            (r#"{"f64":"+ff8000000000001"}"#, "/f64"),
            (r#"{"f32":"7ff8000000000001"}"#, "/f32"),
            (r#"{"bytes":"0"}"#, "/bytes"),
            (r#"{"bytes":"0G"}"#, "/bytes"),
            (r#"{"list":{"tuple":[]}}"#, "/list"),
            (r#"{"list":[1,[]]}"#, "/list/1"),
            (r#"{"tuple":"x"}"#, "/tuple"),
            (r#"{"map":[["a"]]}"#, "/map/0"),
            (r#"{"map":[["a",1],["a",2]]}"#, "/map/1"),
            (r#"{"map":[[null,1]]}"#, "/map/0"),
            (r#"{"map":[[1,{"x/y":1}]]}"#, "/map/0/1/x~1y"),
            (r#"{"type":["torch.Size"]}"#, "/type"),
            (r#"{"type":[1,2]}"#, "/type"),
            (r#"{"type":["t",[]]}"#, "/type/1"),
        ] {
            assert_eq!(
                refused(text),
                (Code::BadMember, "value.form", pointer.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn an_integer_has_so_many_digits() {
        let of = |digits: usize| format!(r#"{{"map":[[{{"int":"-{}"}},1]]}}"#, "9".repeat(digits));
        assert!(Tree::parse(&Value::parse(&of(4300)).unwrap()).is_ok());
        let expected = (Code::Limit, "value.integer", "/map/0/0/int".to_owned());
        assert_eq!(refused(&of(4301)), expected);
    }

    #[test]
    fn a_tensor_must_be_an_identity() {
        let (code, _, pointer) = refused(r#"{"list":[{"tensor":"main"}]}"#);
        assert_eq!((code, pointer.as_str()), (Code::BadMember, "/list/0/tensor"));
        let (code, rule, _) = refused(r#"{"tensor":["main","gradient","x","","",[]]}"#);
        assert_eq!((code, rule), (Code::BadMember, "value.form"));
        let (code, rule, _) = refused(r#"{"tensor":["main","param","x","adam.m","",[]]}"#);
        assert_eq!((code, rule), (Code::BadMember, "value.form"));
    }

    #[test]
    fn bytes_have_a_limit() {
        let text = |n: usize| format!(r#"{{"bytes":"{}"}}"#, "ab".repeat(n));
        assert_eq!(parsed(&text(8192)).unwrap(), Tree::Bytes(vec![0xab; 8192]));
        let (code, rule, pointer) = refused(&text(8193));
        assert_eq!((code, rule, pointer.as_str()), (Code::BadMember, "value.form", "/bytes"));
    }

    #[test]
    fn a_records_value_is_an_object() {
        let read = |text: &str| Tree::parse_record_value(&Value::parse(text).unwrap());
        assert_eq!(read(r#"{"tree":null}"#).unwrap(), Tree::Null);
        assert_eq!(read(r#"{"tuple":[]}"#).unwrap(), Tree::Tuple(Vec::new()));
        for text in [
            "null",
            "[]",
            "{}",
            r#"{"tree":{"tuple":[]}}"#,
            r#"{"tree":[]}"#,
            r#"{"list":[{"tree":1}]}"#,
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(
                (error.code(), error.rule_id()),
                (Code::BadMember, Some("value.form")),
                "{text}"
            );
        }
        for tree in [Tree::Null, Tree::int(3), Tree::List(vec![Tree::Bool(true)])] {
            assert_eq!(Tree::parse_record_value(&tree.to_record_value()).unwrap(), tree);
        }
    }

    #[test]
    fn integers_have_one_form() {
        assert_eq!(Tree::int(9_007_199_254_740_991), Tree::Int(9_007_199_254_740_991));
        assert_eq!(Tree::int(-9_007_199_254_740_992), Tree::BigInt("-9007199254740992".to_owned()));
        assert_eq!(Tree::int(i128::MIN), Tree::BigInt(i128::MIN.to_string()));
        assert!(Tree::BigInt("7".to_owned()).check().is_err());
        assert!(Tree::Int(i64::MAX).check().is_err());
    }

    fn trees() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            Just(Tree::Null),
            any::<bool>().prop_map(Tree::Bool),
            any::<String>().prop_map(Tree::Str),
            any::<i128>().prop_map(Tree::int),
            any::<i32>().prop_map(|value| Tree::int(value.into())),
            any::<u64>().prop_map(Tree::F64),
            any::<u32>().prop_map(Tree::F32),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Tree::Bytes),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let key = prop_oneof![
                any::<String>().prop_map(MapKey::Str),
                any::<i32>().prop_map(|value| MapKey::Int(value.into())),
            ];
            let map = prop::collection::hash_map(key, inner.clone(), 0..5);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::List),
                prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Tuple),
                map.prop_map(|pairs| Tree::Map(pairs.into_iter().collect())),
                (any::<String>(), inner).prop_map(|(name, tree)| Tree::Type(name, Box::new(tree))),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_tree_survives_its_text(tree in trees()) {
            let text = tree.to_record_value().encode().unwrap();
            let read = Tree::parse_record_value(&Value::parse(&text).unwrap()).unwrap();
            prop_assert_eq!(read, tree);
        }
    }
}
