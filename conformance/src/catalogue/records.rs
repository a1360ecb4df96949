//! Chapter 9: records by themselves, their order and their coordinates. What is within a `value` is in `values` and in the
//! catalogue of training state.

use serde_json::{Value, json};
use waystation_format::Code;

use super::group::Group;
use super::{Cases, bases};
use crate::bend::Bend;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    forms(cases);
    names(cases);
    coordinates(cases);
    unknown(cases);
    orders(cases);
}

/// The checkpoint with one record more.
fn with(record: Value) -> Bend {
    Bend::new("a record more").recipe(move |recipe| recipe.writers[0].records.push(record.clone()))
}

/// A record of a kind that no reader looks into, with one member set, or none where it is absent.
fn kindless(member: &str, value: Option<Value>) -> Value {
    let mut record = json!({"kind": "vendor/x", "name": "x", "value": {}});
    let members = record.as_object_mut().expect("an object");
    match value {
        Some(value) => _ = members.insert(member.into(), value),
        None => _ = members.remove(member),
    }
    record
}

fn forms(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume);
    let rules = &["record.value"];
    for (slug, what, value) in [
        ("list", "a list", json!([])),
        ("string", "a string", json!("{}")),
        ("null", "null", json!(null)),
        ("number", "a number", json!(1)),
        ("bool", "true", json!(true)),
    ] {
        group.bad(
            &format!("record-value-{slug}"),
            rules,
            &format!("The `value` of a record is {what}."),
            &with(kindless("value", Some(value))),
            Code::BadMember,
        );
    }
    for (slug, rule, what, record) in [
        ("without-value", "json.unknown-member", "lacks `value`", kindless("value", None)),
        (
            "unknown-member",
            "json.unknown-member",
            "has a member `version`",
            kindless("version", Some(json!(1))),
        ),
        (
            "scope",
            "json.unknown-member",
            "has a `scope`",
            kindless("scope", Some(json!([["dp", 0]]))),
        ),
        ("kind-number", "json.types", "has a number as `kind`", kindless("kind", Some(json!(1)))),
        (
            "coordinate-empty",
            "record.coordinate",
            "has a `coordinate` of no axes",
            kindless("coordinate", Some(json!([]))),
        ),
        (
            "coordinate-null",
            "json.types",
            "has null as `coordinate`",
            kindless("coordinate", Some(json!(null))),
        ),
        (
            "coordinate-object",
            "json.types",
            "has an object as `coordinate`",
            kindless("coordinate", Some(json!({"dp": 0}))),
        ),
        (
            "coordinate-negative",
            "json.types",
            "has a negative index",
            kindless("coordinate", Some(json!([["dp", -1]]))),
        ),
        (
            "coordinate-three",
            "json.types",
            "has an axis of three values",
            kindless("coordinate", Some(json!([["dp", 0, 1]]))),
        ),
    ] {
        group.bad(
            &format!("record-{slug}"),
            &[rule],
            &format!("A record {what}."),
            &with(record),
            Code::BadMember,
        );
    }
}

fn names(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Deception);
    for (slug, what, record) in [
        (
            "name-1025-bytes",
            "a name of 1025 bytes",
            kindless("name", Some(json!("n".repeat(1025)))),
        ),
        ("name-control", "a name with a newline", kindless("name", Some(json!("a\nb")))),
        (
            "name-isolate",
            "a name with an isolate of direction",
            kindless("name", Some(json!("a\u{2066}b"))),
        ),
        (
            "kind-1025-bytes",
            "a kind of 1025 bytes",
            kindless("kind", Some(json!("k".repeat(1025)))),
        ),
        ("kind-control", "a kind with a NUL", kindless("kind", Some(json!("rng\u{0}")))),
    ] {
        group.bad(
            &format!("record-{slug}"),
            &["identity.name"],
            &format!("A record has {what}."),
            &with(record),
            Code::BadName,
        );
    }
}

fn coordinates(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "two", Effect::WrongResume);
    let rules = &["record.coordinate"];
    for (slug, what, coordinate) in [
        ("axis-unknown", "has an axis that the topology lacks", json!([["pp", 0]])),
        ("axis-case", "has an axis in other letters", json!([["DP", 0]])),
        ("axis-twice", "has an axis twice", json!([["dp", 0], ["dp", 1]])),
        ("unsorted", "has axes in another order than the topology", json!([["tp", 0], ["dp", 0]])),
        ("index-size", "has an index that is the size of its axis", json!([["dp", 2]])),
        ("index-huge", "has an index of 2^53 - 1", json!([["dp", 9_007_199_254_740_991_u64]])),
        ("index-wraps", "has an index that is 0 in 32 bits", json!([["dp", 1_u64 << 32]])),
    ] {
        group.bad(
            &format!("record-coordinate-{slug}"),
            rules,
            &format!("The coordinate of a record {what}."),
            &with(kindless("coordinate", Some(coordinate))),
            Code::BadIdentity,
        );
    }
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "two", Effect::LostCheckpoint).good(
            "record-grid-whole",
            &["record.coordinate", "record.grid"],
            "Records of one name stand for every place of two axes, those of another for every place of the second.",
            &Bend::new("records more").recipe(|recipe| {
                for (dp, tp) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let coordinate = json!([["dp", dp], ["tp", tp]]);
                    recipe.writers[dp].records.push(kindless("coordinate", Some(coordinate)));
                }
                for tp in 0..2 {
                    let mut record = kindless("coordinate", Some(json!([["tp", tp]])));
                    record["name"] = json!("y");
                    recipe.writers[1 - tp].records.push(record);
                }
            }),
        );
    }
}

/// What no reader may look into.
fn unknown(cases: &mut Cases) {
    let strange = json!({
        "": null, "coordinate": [], "f64": "not hex", "int": "007", "list": [[], {}, [[[]]]],
        "optimizer_step": -1, "tensor": ["main", "no role"], "text": "\u{0}\u{7f}\u{202e}\u{feff}e\u{301}\u{1f680}\"\\/",
        "~": [9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64, true, false, null],
    });
    for profile in ["core", "extended"] {
        let mut group = Group::new(cases, profile, "bare", Effect::SilentCorruption);
        for (slug, what, kind) in [
            ("unknown", "of a kind that nobody knows", "vendor/later"),
            ("case", "whose kind differs from a registered one by case", "Progress"),
            ("space", "whose kind is a registered one and a space", "value "),
        ] {
            let record = json!({"kind": kind, "name": "x", "value": strange.clone()});
            group.good(
                &format!("record-kind-{slug}"),
                &["record.unknown-kind", "record.unknown-member"],
                &format!("A record {what} holds what would be wrong in others."),
                &with(record),
            );
        }
    }
}

/// Keys are compared as the bytes of their canonical JSON.
fn orders(cases: &mut Cases) {
    let lists: [(&str, &str, &[&str]); 4] = [
        // A quotation mark, which ends a name, is above a space and an exclamation mark.
        (
            "prefix",
            "begin with one another and go on with a space or an exclamation mark",
            &["a", "a ", "a!", "a b", "aa"],
        ),
        ("escaped", "have characters that JSON escapes", &["a", "a\"", "a\\", "a#", "a[", "a]"]),
        (
            "wide",
            "are ordered in another way by UTF-16 than by bytes",
            &["\u{ff5e}", "\u{1f600}", "\u{e000}", "z"],
        ),
        (
            "normal",
            "look alike, composed and decomposed, in capitals and not",
            &["\u{e9}", "e\u{301}", "\u{c9}", "E\u{301}"],
        ),
    ];
    for (slug, what, names) in lists {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        for profile in ["core", "extended"] {
            let names = names.clone();
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("records-order-{slug}"),
                &["record.order", "page.order"],
                &format!("Names of records {what}."),
                &Bend::new("records more").recipe(move |recipe| {
                    for name in &names {
                        let value = json!({"tree": name});
                        recipe.writers[0]
                            .records
                            .push(json!({"kind": "value", "name": name, "value": value}));
                    }
                }),
            );
        }
    }
    // The same names, sorted as a reader would that compares names or code units.
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    for (slug, what, names) in [
        ("by-name", "by name, a name before those that begin with it", ["a", "a b"]),
        ("utf16", "by UTF-16", ["\u{1f600}", "\u{ff5e}"]),
        ("case-folded", "without regard to case", ["a", "B"]),
    ] {
        let list: Vec<Value> = names
            .iter()
            .map(|name| json!({"kind": "value", "name": name, "value": {"tree": 1}}))
            .collect();
        group.bad(
            &format!("records-sorted-{slug}"),
            &["page.order", "record.order"],
            &format!("The records of a page are sorted {what}."),
            &Bend::new("records in another order").root(move |root| {
                let first = list[0].clone();
                root.records[0]["records"] = json!([bases::progress(), first, list[1]]);
            }),
            Code::BadOrder,
        );
    }
}
