//! Chapter 9.1: value trees, each form and each way to miss it.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use crate::bend::Bend;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    right(cases);
    wrong(cases);
    integers(cases);
    maps(cases);
    tensors(cases);
}

/// The checkpoint with a record of kind `value`.
fn with(value: Value) -> Bend {
    let record = json!({"kind": "value", "name": "x", "value": value});
    Bend::new("a value").recipe(move |recipe| recipe.writers[0].records.push(record.clone()))
}

/// A tree within a list.
fn listed(tree: &Value) -> Bend {
    with(json!({"list": [tree]}))
}

fn nested(levels: usize) -> Value {
    let mut value = json!({"list": []});
    for _ in 1..levels {
        value = json!({"list": [value]});
    }
    value
}

fn right(cases: &mut Cases) {
    let digits = format!("-{}", "9".repeat(4300));
    let every = json!({"map": [
        ["b", true], ["a", null], [0, false], ["0", 0], [{"int": "9007199254740992"}, "beyond"],
        [-1, 9_007_199_254_740_991_i64], ["", -9_007_199_254_740_991_i64],
        ["nan", {"f64": "7ff80000deadbeef"}], ["signalling", {"f32": "7fa00001"}],
        ["minus zero", {"f64": "8000000000000000"}], ["subnormal", {"f32": "00000001"}],
        ["long", {"int": digits}], ["minus", {"int": "-9007199254740992"}],
        ["bytes", {"bytes": "00ff"}], ["none", {"bytes": ""}], ["list", {"list": []}],
        ["tuple", {"tuple": [1, {"tuple": []}, "x"]}], ["map", {"map": []}],
        ["size", {"type": ["torch.Size", {"tuple": [2, 3]}]}], ["unnamed", {"type": ["", null]}],
        ["code", {"type": ["os.system", "true"]}], ["text", "\u{0}\u{1f}\u{7f}\u{2028}\u{feff}\u{10ffff}"],
        ["tensor", {"tensor": ["main", "param", "none", "", "", []]}],
    ]});
    let trees: [(&str, &str, Value); 11] = [
        ("every", "Every form of a value tree, with numbers at the bounds of its own.", every),
        ("tree-null", "A record's value is the bare value null.", json!({"tree": null})),
        ("tree-string", "A record's value is a bare string.", json!({"tree": "x"})),
        (
            "tree-integer",
            "A record's value is the least bare integer.",
            json!({"tree": -9_007_199_254_740_991_i64}),
        ),
        ("tree-false", "A record's value is false.", json!({"tree": false})),
        ("float", "A record's value is a NaN with a payload.", json!({"f64": "fff0000000000001"})),
        ("bytes-limit", "A record's value is 8192 bytes.", json!({"bytes": "ab".repeat(8192)})),
        (
            "type-long",
            "The name of a type has 2000 characters, and is no name.",
            json!({"type": ["\n".repeat(2000), 1]}),
        ),
        (
            "tuple",
            "A record's value is a tuple of tuples.",
            json!({"tuple": [{"tuple": [{"tuple": []}]}]}),
        ),
        // A page, its records, a record and its value are levels 1 to 4; each list is an object and an array.
        ("depth-limit", "A tree nests as deep as metadata may.", nested(48)),
        (
            "map-order",
            "The keys of a map are in no order, which is kept.",
            json!({"map": [["z", 1], ["a", 2], [3, 3], [-3, 4]]}),
        ),
    ];
    for (slug, special, value) in trees {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::WrongResume).good(
                &format!("tree-{slug}"),
                &["value.form", "intro.bytes"],
                special,
                &with(value.clone()),
            );
        }
    }
    Group::new(cases, "core", "bare", Effect::Exhaustion).bad(
        "tree-depth-above",
        &["json.depth"],
        "A tree nests deeper than metadata may.",
        &with(nested(49)),
        Code::Limit,
    );
}

fn wrong(cases: &mut Cases) {
    let rules = &["value.form"];
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume);
    let long = "ab".repeat(8193);
    let trees: [(&str, &str, Value); 29] = [
        ("array", "is a bare array", json!([1, 2])),
        ("object-empty", "is an empty object", json!({})),
        ("two-members", "has two members", json!({"f32": "00000000", "f64": "0000000000000000"})),
        ("member-unknown", "has a member that there is not", json!({"float": "0000000000000000"})),
        ("member-case", "has a member in capitals", json!({"F64": "0000000000000000"})),
        (
            "tree-within",
            "has the member of bare values, which stands outermost only",
            json!({"tree": 1}),
        ),
        ("f64-short", "has a float of fifteen digits", json!({"f64": "000000000000000"})),
        ("f64-long", "has a float of seventeen digits", json!({"f64": "00000000000000000"})),
        ("f64-upper-case", "has a float in capitals", json!({"f64": "3FF0000000000000"})),
        ("f64-decimal", "has a float in decimal", json!({"f64": "1.0"})),
        ("f64-number", "has a float that is a number", json!({"f64": 1})),
        (
            "f32-of-f64",
            "has a float of another size than its member says",
            json!({"f32": "3ff0000000000000"}),
        ),
        ("f32-prefix", "has a float with a prefix", json!({"f32": "0x3f8000"})),
        ("bytes-odd", "has bytes of an odd number of digits", json!({"bytes": "abc"})),
        ("bytes-upper-case", "has bytes in capitals", json!({"bytes": "AB"})),
        ("bytes-space", "has bytes with a space", json!({"bytes": "ab cd "})),
        ("bytes-base64", "has bytes in base 64", json!({"bytes": "AA=="})),
        ("bytes-above", "has 8193 bytes", json!({"bytes": long})),
        ("bytes-null", "has null as bytes", json!({"bytes": null})),
        ("list-object", "has an object as list", json!({"list": {}})),
        ("list-null", "has null as list", json!({"list": null})),
        ("list-of-arrays", "has a list of bare arrays", json!({"list": [[1]]})),
        ("tuple-string", "has a string as tuple", json!({"tuple": "ab"})),
        ("type-one", "has a type without a value", json!({"type": ["x"]})),
        ("type-three", "has a type of three", json!({"type": ["x", 1, 2]})),
        ("type-name-number", "has a type whose name is a number", json!({"type": [1, 1]})),
        (
            "type-value-array",
            "has a type whose value is a bare array",
            json!({"type": ["torch.Size", [2, 3]]}),
        ),
        (
            "deep",
            "has a wrong float in a list in a tuple in a map",
            json!({"map": [["a", {"tuple": [{"list": [{"f64": ""}]}]}]]}),
        ),
        ("set", "has a set", json!({"set": [1]})),
    ];
    for (slug, what, tree) in trees {
        group.bad(
            &format!("tree-{slug}"),
            rules,
            &format!("A value tree {what}."),
            &listed(&tree),
            Code::BadMember,
        );
    }
    for (slug, what, value) in [
        ("outermost-empty", "is an empty object", json!({})),
        (
            "outermost-float",
            "has a float under `tree`",
            json!({"tree": {"f64": "3ff0000000000000"}}),
        ),
        ("outermost-list", "has an array under `tree`", json!({"tree": []})),
        ("outermost-two", "has two members", json!({"list": [], "tree": 1})),
        (
            "outermost-other",
            "is an object of a framework's own",
            json!({"lr": {"f64": "3ff0000000000000"}}),
        ),
    ] {
        group.bad(
            &format!("tree-{slug}"),
            rules,
            &format!("The value of a record of kind `value` {what}."),
            &with(value),
            Code::BadMember,
        );
    }
}

fn integers(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume);
    let rules = &["value.form"];
    for (slug, what, text) in [
        ("within", "is 2^53 - 1, which stands bare", json!("9007199254740991")),
        ("within-minus", "is 1 - 2^53, which stands bare", json!("-9007199254740991")),
        ("zero", "is zero", json!("0")),
        ("zero-minus", "is minus zero", json!("-0")),
        ("leading-zero", "has a leading zero", json!("09007199254740992")),
        ("leading-zeros", "is small and has many leading zeros", json!("00000000000000000007")),
        ("plus", "has a plus sign", json!("+9007199254740992")),
        ("space", "has a space before it", json!(" 9007199254740992")),
        ("underscore", "has underscores", json!("9_007_199_254_740_992")),
        ("exponent", "has an exponent", json!("1e300")),
        ("hex", "is in hex", json!("0x20000000000000")),
        ("wide", "has digits that are not ASCII", json!("\u{ff19}007199254740992")),
        ("newline", "has a newline after it", json!("9007199254740992\n")),
        ("empty", "is empty", json!("")),
        ("sign-alone", "is a sign", json!("-")),
        ("bare", "is a number", json!(1)),
    ] {
        group.bad(
            &format!("int-{slug}"),
            rules,
            &format!("The text of an `int` {what}."),
            &listed(&json!({"int": text})),
            Code::BadMember,
        );
    }
    let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion);
    for (slug, what, text) in [
        ("4301-digits", "4301 digits", "9".repeat(4301)),
        ("4301-digits-minus", "4301 digits and a sign", format!("-{}", "1".repeat(4301))),
        ("million-digits", "a million digits", "7".repeat(1_000_000)),
    ] {
        group.bad(
            &format!("int-{slug}"),
            &["value.integer"],
            &format!("An `int` has {what}."),
            &listed(&json!({"int": text})),
            Code::Limit,
        );
    }
    group.bad(
        "int-key-4301-digits",
        &["value.integer"],
        "A key of a map is an `int` of 4301 digits.",
        &with(json!({"map": [[{"int": "9".repeat(4301)}, 1]]})),
        Code::Limit,
    );
    Group::new(cases, "core", "bare", Effect::LostCheckpoint).good(
        "int-4300-digits",
        &["value.integer"],
        "An `int` has 4300 digits and a sign, as a key too.",
        &with(json!({"map": [[{"int": format!("-{}", "8".repeat(4300))}, {"int": "1".repeat(4300)}]]})),
    );
}

fn maps(cases: &mut Cases) {
    let rules = &["value.form"];
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    for (slug, what, map) in [
        ("key-twice", "has a string as key twice", json!([["a", 1], ["b", 2], ["a", 3]])),
        ("key-twice-equal", "has a pair twice", json!([["a", 1], ["a", 1]])),
        ("key-twice-number", "has a number as key twice", json!([[1, 1], [1, 2]])),
        (
            "key-twice-int",
            "has an `int` as key twice",
            json!([[{"int": "9007199254740992"}, 1], [{"int": "9007199254740992"}, 2]]),
        ),
        ("key-null", "has null as key", json!([[null, 1]])),
        ("key-bool", "has true as key", json!([[true, 1]])),
        ("key-float", "has a float as key", json!([[{"f64": "3ff0000000000000"}, 1]])),
        ("key-int-within", "has an `int` as key that stands bare", json!([[{"int": "1"}, 1]])),
        ("key-list", "has a list as key", json!([[{"list": []}, 1]])),
        ("key-type", "has a typed string as key", json!([[{"type": ["str", "a"]}, 1]])),
        ("pair-short", "has a key without a value", json!([["a"]])),
        ("pair-long", "has a pair of three", json!([["a", 1, 2]])),
        ("object", "is an object", json!({"a": 1})),
        ("flat", "is one flat list", json!(["a", 1])),
        ("value-array", "has a bare array as value", json!([["a", [1]]])),
    ] {
        group.bad(
            &format!("map-{slug}"),
            rules,
            &format!("A map {what}."),
            &listed(&json!({"map": map})),
            Code::BadMember,
        );
    }
    Group::new(cases, "core", "bare", Effect::LostCheckpoint).good(
        "map-keys-alike",
        rules,
        "A map has keys that look alike: a number and its text, letters in two forms, and a space.",
        &with(json!({"map": [[1, "n"], ["1", "s"], ["\u{e9}", 1], ["e\u{301}", 2], ["A", 3], ["a", 4], ["a ", 5], ["__proto__", 6]]})),
    );
}

fn tensors(cases: &mut Cases) {
    let rules = &["value.form"];
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume);
    for (slug, what, identity) in [
        ("text", "is the text of an identity", json!(r#"["main","param","none","","",[]]"#)),
        ("name", "is a name", json!("none")),
        ("of-five", "has five values", json!(["main", "param", "none", "", ""])),
        ("of-seven", "has seven values", json!(["main", "param", "none", "", "", [], []])),
        ("slot-null", "has null as slot", json!(["main", "param", "none", null, "", []])),
        ("name-empty", "has no name", json!(["main", "param", "", "", "", []])),
        ("role", "has a role that nobody knows", json!(["main", "weight", "none", "", "", []])),
        (
            "slot",
            "has a slot, and is a parameter",
            json!(["main", "param", "none", "adam.m", "", []]),
        ),
        (
            "scope-flat",
            "has a flat list as scope",
            json!(["main", "param", "none", "", "", ["dp", 0]]),
        ),
    ] {
        group.bad(
            &format!("tree-tensor-{slug}"),
            rules,
            &format!("The identity of a tensor in a tree {what}."),
            &listed(&json!({"tensor": identity})),
            Code::BadMember,
        );
    }
}
