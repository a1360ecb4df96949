//! Canonical JSON against a naive model: accepted is what parsing and writing again leaves as it
//! is, and the offset of a rejection is where the text stops being the beginning of any such text.

// Numbers and indices here are the tests' own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use proptest::prelude::*;
use serde_json::Value;
use waystation_format::json::{Cursor, Value as Tree, check_canonical, check_canonical_value};
use waystation_format::{Code, rule};

const MAX: i64 = 9_007_199_254_740_991;

#[test]
fn every_deviation_has_its_offset_and_rule() {
    use rule::*;
    let cases: &[(&[u8], usize, &str)] = &[
        (b"", 0, JSON_ONE_VALUE),
        (b"[]", 0, JSON_ONE_VALUE),
        (b"null", 0, JSON_LITERALS),
        (b" {}", 0, JSON_ONE_VALUE),
        (b"{} ", 2, JSON_ONE_VALUE),
        (b"{}\n", 2, JSON_ONE_VALUE),
        (b"{}{}", 2, JSON_ONE_VALUE),
        (b"\xef\xbb\xbf{}", 0, JSON_ENCODING),
        (b"{", 1, JSON_CANONICAL),
        (b"{\"a\"", 4, JSON_CANONICAL),
        (b"{\"a\":1", 6, JSON_CANONICAL),
        (b"{\"a\":1,}", 7, JSON_CANONICAL),
        (b"{\"a\":1]", 6, JSON_CANONICAL),
        (b"{\"a\":[1}", 7, JSON_CANONICAL),
        (b"{\"a\":[1,]}", 8, JSON_CANONICAL),
        (b"{\"a\":[,1]}", 6, JSON_CANONICAL),
        (b"{,\"a\":1}", 1, JSON_CANONICAL),
        (b"{a:1}", 1, JSON_LITERALS),
        (b"{\"a\" :1}", 4, JSON_ONE_VALUE),
        (b"{\"a\": 1}", 5, JSON_ONE_VALUE),
        (b"{\"a\":1 }", 6, JSON_ONE_VALUE),
        (b"{\"a\":[1,\t2]}", 8, JSON_ONE_VALUE),
        (b"{\"a\":1/*x*/}", 6, JSON_LITERALS),
        // members: the first byte with which the name cannot come behind the one before
        (b"{\"b\":1,\"a\":2}", 8, JSON_MEMBERS),
        (b"{\"a\":1,\"a\":2}", 9, JSON_MEMBERS),
        (b"{\"ab\":1,\"a\":2}", 10, JSON_MEMBERS),
        (b"{\"ab\":1,\"aaz\":2}", 10, JSON_MEMBERS),
        (b"{\"\":1,\"\":2}", 7, JSON_MEMBERS),
        (b"{\"\\\"\":1,\"!\":2}", 9, JSON_MEMBERS),
        (b"{\"\\\\\":1,\"\\\"\":2}", 10, JSON_MEMBERS),
        (b"{\"a\":1,\"\\\\\":2}", 8, JSON_MEMBERS),
        (b"{\"a\":{\"z\":1},\"a\":2}", 15, JSON_MEMBERS),
        (b"{\"\xc3\xa9\":1}", 2, JSON_ASCII_MEMBERS),
        (b"{\"\x7f\":1}", 2, JSON_ASCII_MEMBERS),
        (b"{\"\\n\":1}", 3, JSON_ASCII_MEMBERS),
        // numbers
        (b"{\"a\":01}", 6, JSON_INTEGERS),
        (b"{\"a\":-0}", 6, JSON_INTEGERS),
        (b"{\"a\":-}", 6, JSON_INTEGERS),
        (b"{\"a\":+1}", 5, JSON_INTEGERS),
        (b"{\"a\":.5}", 5, JSON_INTEGERS),
        (b"{\"a\":1.0}", 6, JSON_INTEGERS),
        (b"{\"a\":1e3}", 6, JSON_INTEGERS),
        (b"{\"a\":0x1}", 6, JSON_LITERALS),
        (b"{\"a\":9007199254740992}", 20, JSON_INTEGERS),
        (b"{\"a\":-9007199254740992}", 21, JSON_INTEGERS),
        (b"{\"a\":90071992547409910}", 21, JSON_INTEGERS),
        // strings
        (b"{\"a\":\"\n\"}", 6, JSON_STRINGS),
        (b"{\"a\":\"\\/\"}", 7, JSON_STRINGS),
        (b"{\"a\":\"\\u0041\"}", 10, JSON_STRINGS),
        (b"{\"a\":\"\\u0008\"}", 11, JSON_STRINGS),
        (b"{\"a\":\"\\u000a\"}", 11, JSON_STRINGS),
        (b"{\"a\":\"\\u000B\"}", 11, JSON_STRINGS),
        (b"{\"a\":\"\\u001F\"}", 11, JSON_STRINGS),
        (b"{\"a\":\"\\u0020\"}", 10, JSON_STRINGS),
        (b"{\"a\":\"\\ud83d\"}", 8, JSON_STRINGS),
        (b"{\"a\":\"\\x\"}", 7, JSON_STRINGS),
        (b"{\"a\":\"x", 7, JSON_STRINGS),
        // literals
        (b"{\"a\":NaN}", 5, JSON_LITERALS),
        (b"{\"a\":Infinity}", 5, JSON_LITERALS),
        (b"{\"a\":nul}", 8, JSON_LITERALS),
        (b"{\"a\":True}", 5, JSON_LITERALS),
        // encoding
        (b"{\"a\":\"\xff\"}", 6, JSON_ENCODING),
        (b"{\"a\":\"\x80\"}", 6, JSON_ENCODING),
        (b"{\"a\":\"\xc0\x80\"}", 6, JSON_ENCODING),
        (b"{\"a\":\"\xe0\x80\x80\"}", 7, JSON_ENCODING),
        (b"{\"a\":\"\xed\xa0\x80\"}", 7, JSON_ENCODING),
        (b"{\"a\":\"\xf4\x90\x80\x80\"}", 7, JSON_ENCODING),
        (b"{\"a\":\"\xc3(\"}", 7, JSON_ENCODING),
        (b"{\"a\":\"\xe2\x82(\"}", 8, JSON_ENCODING),
        (b"{\"a\":01,\"b\":\"\xff\"}", 6, JSON_INTEGERS),
    ];
    for (text, offset, rule) in cases {
        let shown = String::from_utf8_lossy(text);
        let error = check_canonical(text).expect_err(&shown);
        assert_eq!(error.location().offset, Some(*offset as u64), "{shown}: {error}");
        assert_eq!((error.code(), error.rule_id()), (Code::NotCanonical, Some(*rule)), "{shown}");
        assert_viable_to(text, *offset);
    }
}

#[test]
fn what_is_canonical_passes() {
    for text in [
        "{}",
        r#"{"":0}"#,
        r#"{"!":1,"\"":2,"[":3,"\\":4,"]":5,"a":6,"aa":7,"~":8}"#,
        r#"{"a":[-9007199254740991,9007199254740991,0,-1,true,false,null,[],{}]}"#,
        r#"{"a":{"z":1},"b":{"a":1}}"#,
        "{\"a\":\"\\u0000\\u000b\\u001f\\b\\t\\n\\f\\r\\\"\\\\/\u{7f}é😀\u{10ffff}\"}",
    ] {
        assert_eq!(check_canonical(text.as_bytes()).unwrap(), text);
        assert!(model(text.as_bytes()), "{text}");
    }
}

#[test]
fn a_hundred_levels_are_allowed_and_no_more() {
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(check_canonical(nested(99).as_bytes()).is_ok());
    let error = check_canonical(nested(100).as_bytes()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some(rule::JSON_DEPTH)));
    assert_eq!(error.location().offset, Some(5 + 99));
    // Nesting is counted at a place, not over the text.
    let wide = format!("[{}{{}}]", format!("{},", nested(97)).repeat(200));
    assert!(check_canonical_value(wide.as_bytes()).is_ok());
    let mut tree = Tree::Null;
    for _ in 0..100 {
        tree = Tree::List(vec![tree]);
    }
    assert_eq!(Tree::parse(&tree.encode().unwrap()).unwrap(), tree);
    assert_eq!(Tree::List(vec![tree]).encode().unwrap_err().code(), Code::Limit);
}

#[test]
fn deep_hostile_nesting_is_refused_at_once() {
    let error = check_canonical(&b"{\"a\":".repeat(1_000_000)).unwrap_err();
    assert_eq!(error.code(), Code::Limit);
}

/// Accepted are values that parse and that are written as they were, within the narrower form.
fn model(bytes: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return false };
    value.is_object() && narrow(&value, 1) && serde_json::to_vec(&value).unwrap() == bytes
}

fn narrow(value: &Value, depth: usize) -> bool {
    let container = matches!(value, Value::Array(_) | Value::Object(_));
    if container && depth > 100 {
        return false;
    }
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|n| (-MAX..=MAX).contains(&n)),
        Value::Array(items) => items.iter().all(|item| narrow(item, depth + 1)),
        Value::Object(members) => {
            let ascii = |name: &String| name.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
            members.keys().all(ascii) && members.values().all(|value| narrow(value, depth + 1))
        }
        _ => true,
    }
}

/// Up to `offset` the text is the beginning of a canonical one, with one byte more it is not.
fn assert_viable_to(text: &[u8], offset: usize) {
    match check_canonical(&text[..offset]) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.location().offset, Some(offset as u64), "{error}"),
    }
    for end in offset + 1..=text.len() {
        let error = check_canonical(&text[..end]).unwrap_err();
        assert_eq!(error.location().offset, Some(offset as u64), "{error}");
    }
}

/// Names and strings of characters that have an escape, or nearly.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c\"\\\\~ !]{0,4}",
        prop::collection::vec(
            prop_oneof![0_u32..0x100, 0xd7f0..0xe010_u32, 0x1_fff0..0x2_0010_u32]
                .prop_map(|code| char::from_u32(code).unwrap_or('x')),
            0..4
        )
        .prop_map(|chars| chars.into_iter().collect()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-MAX - 2..=MAX + 2).prop_map(Value::from),
        prop_oneof![Just(MAX), Just(-MAX), Just(MAX + 1), Just(-MAX - 1)].prop_map(Value::from),
        (-3_i64..300).prop_map(Value::from),
        (-2.0..2.0_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-e\"\\\\]{0,3}", value(), 0..5)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn written_values_are_judged_as_the_model_judges(value in object()) {
        let bytes = serde_json::to_vec(&value).unwrap();
        let ours = check_canonical(&bytes);
        prop_assert_eq!(ours.is_ok(), model(&bytes), "{:?}", ours);
        if let Ok(text) = ours {
            let tree = Tree::parse(text).unwrap();
            prop_assert_eq!(tree.encode().unwrap(), text);
            prop_assert_eq!(Cursor::new(text).raw_value().unwrap(), text);
        }
    }

    #[test]
    fn changed_bytes_are_judged_as_the_model_judges(
        value in object(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![
            any::<u8>(),
            prop::sample::select(b"{}[]\",:\\-0123456789.eEtfnu \n/".to_vec()),
        ],
        edit in 0..3,
    ) {
        let mut bytes = serde_json::to_vec(&value).unwrap();
        let place = place.index(bytes.len());
        match edit {
            0 => bytes[place] = byte,
            1 => bytes.insert(place, byte),
            _ => { bytes.remove(place); }
        }
        let ours = check_canonical(&bytes);
        prop_assert_eq!(ours.is_ok(), model(&bytes), "{} {:?}", String::from_utf8_lossy(&bytes), ours);
        if let Err(error) = ours {
            let offset = usize::try_from(error.location().offset.unwrap()).unwrap();
            assert_viable_to(&bytes, offset);
            // What comes before the change was the beginning of a text that was sound, if it was.
            let before = serde_json::to_vec(&value).unwrap();
            prop_assert!(!model(&before) || offset >= place, "{}", error);
        }
    }

    #[test]
    fn names_ascend_or_are_refused_where_they_cease_to(
        names in prop::collection::vec("[a-c\"\\\\~ ]{0,3}", 1..4),
    ) {
        let members: Vec<String> =
            names.iter().map(|name| format!("{}:0", serde_json::to_string(name).unwrap())).collect();
        let text = format!("{{{}}}", members.join(","));
        let ascending = names.windows(2).all(|pair| pair[0] < pair[1]);
        match check_canonical(text.as_bytes()) {
            Ok(_) => prop_assert!(ascending, "{}", text),
            Err(error) => {
                prop_assert!(!ascending && error.rule_id() == Some(rule::JSON_MEMBERS), "{} {}", text, error);
                let offset = usize::try_from(error.location().offset.unwrap()).unwrap();
                assert_viable_to(text.as_bytes(), offset);
            }
        }
    }

    #[test]
    fn no_bytes_whatever_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(check_canonical(&bytes).is_ok(), model(&bytes));
    }
}
