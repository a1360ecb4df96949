//! Cursors as records say them: what is read is written back, and each breach has its answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test says where it fails by panicking"
)]

#[path = "cursors/any.rs"]
mod any;

use proptest::prelude::*;
use waystation_format::json::{Map, Value};
use waystation_format::records::cursor::Cursor;
use waystation_format::{Code, Digest, Topology, rule};

use any::cursor;

fn topology() -> Topology {
    Topology(vec![("dp".to_owned(), 2), ("tp".to_owned(), 3)])
}

fn sha() -> String {
    Digest::of(b"").to_string()
}

/// A text in which `SHA` stands for a digest.
fn parse(text: &str) -> waystation_format::Result<Cursor> {
    let value = Value::parse(&text.replace("SHA", &sha())).unwrap();
    Cursor::parse(&value, Some(&topology()))
}

const NEXT: &str = r#""next":{"count":0,"first":[],"sha256":"SHA"}"#;
const LEAF: &str = r#"{"epoch":0,"epoch_end":{"rule":"stop"},"kind":"permuted-index","order":{"algorithm":"identity","n":7},"position":3,"source":{"records":7,"sha256":"SHA"}}"#;

fn permuted() -> String {
    format!(
        r#"{{"augment":"per-record","consumed":3,"epoch":0,"epoch_end":{{"rule":"pad","unit":4}},"kind":"permuted-index",{NEXT},"order":{{"algorithm":"torch.randperm-cpu","n":6,"seed":{{"int":"18446744073709551615"}},"seed_rule":"seed+epoch"}},"partition":{{"axes":["dp"],"batch":4,"rule":"round-robin"}},"position":3,"source":{{"name":"c4","records":7,"sha256":"SHA"}}}}"#
    )
}

fn drop_last() -> String {
    permuted().replace("pad", "drop-last").replace(r#":3"#, r#":4"#)
}

fn lanes() -> String {
    format!(
        r#"{{"consumed":3,"epoch":0,"epoch_end":{{"rule":"wrap"}},"kind":"sharded-lanes","lanes":[[2,1],[5,0]],{NEXT},"next_lane":1,"order":{{"algorithm":"explicit","n":4,"ordinals":[3,2,1,0]}},"partition":{{"axes":["dp"],"batch":4,"rule":"by-lane"}},"source":{{"records":9,"sha256":"SHA","shards":[2,3,4,0]}}}}"#
    )
}

fn mixture() -> String {
    format!(
        r#"{{"children":[{LEAF},{LEAF}],"consumed":3,"kind":"mixture",{NEXT},"selection":{{"algorithm":"deficit","end":"first","taken":[2,1],"weights":[4294967295,1]}}}}"#
    )
}

fn shuffle() -> String {
    format!(
        r#"{{"anchor":{LEAF},"consumed":3,"index":5,"kind":"window-shuffle",{NEXT},"order":{{"algorithm":"grain.index_shuffle","rounds":4,"seed":7,"seed_rule":"seed"}},"replay":2,"reverse":true,"window":4}}"#
    )
}

fn stored() -> String {
    format!(
        r#"{{"buffer":[1,[0,2]],"child":{LEAF},"consumed":3,"kind":"window-shuffle","order":{{"algorithm":"vendor/buffer","state":[]}}}}"#
    )
}

fn pack() -> String {
    format!(
        r#"{{"algorithm":"concat-then-split","child":{LEAF},"consumed":3,"kind":"pack","leftover":[2,1,5],"length":4,"tail":"keep","tokenizer":"SHA"}}"#
    )
}

fn opaque() -> String {
    r#"{"fingerprint":{"map":[["workers",2]]},"kind":"opaque","media_type":"application/json","state":{"list":[]}}"#.to_owned()
}

#[test]
fn every_kind_is_read_and_written_back() {
    for (text, computed) in [
        (permuted(), true),
        (lanes(), true),
        (mixture(), true),
        (shuffle(), true),
        (stored(), false),
        (pack(), false),
        (opaque(), false),
    ] {
        let cursor = parse(&text).unwrap();
        assert_eq!(cursor.to_value().encode().unwrap(), text.replace("SHA", &sha()));
        assert_eq!(cursor.is_computed(), computed, "{text}");
    }
}

/// A good text, what is replaced in it and by what; the answer and its pointer.
type Bad = (fn() -> String, &'static str, &'static str, Code, &'static str, &'static str);

#[test]
fn each_bad_form_has_its_answer() {
    use Code::{BadMember, BadPosition};
    let form = rule::CURSOR_FORM;
    let order = rule::ORDER_FORM;
    let (types, unknown) = (rule::JSON_TYPES, rule::JSON_UNKNOWN_MEMBER);
    let cases: &[Bad] = &[
        // cursor.form
        (permuted, r#""kind":"permuted-index","#, "", BadMember, unknown, ""),
        (permuted, r#""permuted-index""#, r#""permuted""#, BadMember, form, "/kind"),
        (permuted, r#""permuted-index""#, "1", BadMember, types, "/kind"),
        (permuted, r#""consumed":3,"#, "", BadMember, unknown, ""),
        (permuted, r#""consumed":3"#, r#""consumed":-3"#, BadMember, types, "/consumed"),
        (permuted, "per-record", "some", BadMember, form, "/augment"),
        (permuted, r#""epoch":0,"#, "", BadMember, unknown, ""),
        (permuted, r#""epoch":0,"#, r#""epoch":0,"epoch1":0,"#, BadMember, unknown, "/epoch1"),
        (permuted, r#""unit":4"#, r#""unit":0"#, BadMember, form, "/epoch_end/unit"),
        (permuted, r#","unit":4"#, "", BadMember, unknown, "/epoch_end"),
        (permuted, r#""pad""#, r#""wrap""#, BadMember, unknown, "/epoch_end/unit"),
        (permuted, r#""pad""#, r#""round""#, BadMember, form, "/epoch_end/rule"),
        (permuted, r#""records":7"#, r#""records":0"#, BadMember, form, "/source/records"),
        (permuted, r#""sha256":"SHA"}}"#, r#""sha256":"00"}}"#, BadMember, form, "/source/sha256"),
        (
            permuted,
            r#""name":"c4""#,
            r#""name":"""#,
            Code::BadName,
            rule::IDENTITY_NAME,
            "/source/name",
        ),
        (permuted, r#""records":7"#, r#""records":7,"rows":7"#, BadMember, unknown, "/source/rows"),
        (permuted, r#""first":[]"#, r#""first":[[1]]"#, BadMember, form, "/next/first/0"),
        (permuted, r#""first":[]"#, r#""first":[[]]"#, BadMember, form, "/next/first/0"),
        (permuted, r#""first":[]"#, r#""first":[["1",2]]"#, BadMember, types, "/next/first/0/0"),
        (permuted, "round-robin", "random", BadMember, form, "/partition/rule"),
        (permuted, r#"["dp"]"#, "[1]", BadMember, types, "/partition/axes/0"),
        (lanes, "[2,1],", "[2,1,1],", BadMember, form, "/lanes/0"),
        (lanes, "[2,1],", "[2],", BadMember, form, "/lanes/0"),
        (lanes, "[2,1],", r#"[2,"1"],"#, BadMember, types, "/lanes/0/1"),
        (lanes, r#""wrap""#, r#""pad""#, BadMember, form, "/epoch_end/rule"),
        (lanes, r#","shards":[2,3,4,0]"#, "", BadMember, unknown, "/source"),
        (lanes, "[2,3,4,0]", "7", BadMember, types, "/source/shards"),
        (lanes, "[2,3,4,0]", r#"{"tensors":[]}"#, BadMember, unknown, "/source/shards"),
        (mixture, r#""taken":[2,1]"#, r#""taken":[2]"#, BadMember, form, "/selection/taken"),
        (mixture, "4294967295,1]", "1,1,1]", BadMember, form, "/selection/weights"),
        (mixture, "4294967295,1]", "4294967296,1]", BadMember, form, "/selection/weights/0"),
        (mixture, "4294967295,1]", "1,0]", BadMember, form, "/selection/weights/1"),
        (mixture, r#""first","taken""#, r#""last","taken""#, BadMember, form, "/selection/end"),
        (mixture, r#""algorithm":"deficit","#, "", BadMember, unknown, "/selection"),
        (
            mixture,
            r#"[{"epoch":0"#,
            r#"[{"consumed":3,"epoch":0"#,
            BadMember,
            unknown,
            "/children/0/consumed",
        ),
        (shuffle, r#""index":5,"#, "", BadMember, unknown, ""),
        (shuffle, r#""reverse":true"#, r#""reverse":1"#, BadMember, types, "/reverse"),
        (shuffle, r#""window":4"#, r#""window":0"#, BadMember, form, "/window"),
        (shuffle, r#"{"anchor""#, r#"{"buffer":[],"anchor""#, BadMember, unknown, "/anchor"),
        (stored, "[0,2]", "[0]", BadMember, form, "/buffer/1"),
        (pack, r#""length":4"#, r#""length":0"#, BadMember, form, "/length"),
        (pack, r#""keep""#, r#""kept""#, BadMember, form, "/tail"),
        (pack, "[2,1,5]", "[2,1]", BadMember, form, "/leftover"),
        (pack, "[2,1,5]", "[[2,1,5]]", BadMember, form, "/leftover"),
        (pack, "[2,1,5]", "[[],1,5]", BadMember, form, "/leftover/0"),
        (pack, "concat-then-split", "vendor/fit", BadMember, types, "/leftover/0"),
        (opaque, r#"[["workers",2]]"#, "[[1,2]]", BadMember, form, "/fingerprint"),
        (opaque, r#"{"map":[["workers",2]]}"#, "1", BadMember, form, "/fingerprint"),
        (
            opaque,
            r#"{"fingerprint""#,
            r#"{"consumed":1,"fingerprint""#,
            BadMember,
            unknown,
            "/consumed",
        ),
        (opaque, "application/json", "", Code::BadName, rule::IDENTITY_NAME, "/media_type"),
        (opaque, r#"{"list":[]}"#, "[]", BadMember, rule::VALUE_FORM, "/state"),
        // cursor.position
        (
            permuted,
            r#""position":3"#,
            r#""position":9"#,
            BadPosition,
            rule::CURSOR_POSITION,
            "/position",
        ),
        (
            permuted,
            r#"{"rule":"pad","unit":4}"#,
            r#"{"rule":"drop-last","unit":7}"#,
            BadPosition,
            rule::CURSOR_POSITION,
            "/epoch_end",
        ),
        (
            drop_last,
            r#""position":4"#,
            r#""position":5"#,
            BadPosition,
            rule::CURSOR_POSITION,
            "/position",
        ),
        (
            permuted,
            r#""consumed":3"#,
            r#""consumed":2"#,
            BadPosition,
            rule::CURSOR_POSITION,
            "/consumed",
        ),
        // cursor.lanes
        (
            lanes,
            r#""next_lane":1"#,
            r#""next_lane":2"#,
            BadPosition,
            rule::CURSOR_LANES,
            "/next_lane",
        ),
        (lanes, "[2,1],", "[1,1],", BadPosition, rule::CURSOR_LANES, "/lanes/0/0"),
        (lanes, "[5,0]", "[7,0]", BadPosition, rule::CURSOR_LANES, "/lanes/1/0"),
        (lanes, "[5,0]", "[0,0]", BadPosition, rule::CURSOR_LANES, "/lanes/1/0"),
        (lanes, "[5,0]", "[5,1]", BadPosition, rule::CURSOR_LANES, "/lanes/1/1"),
        (lanes, "[2,3,4,0]", "[2,3,4]", BadPosition, rule::CURSOR_LANES, "/source/shards"),
        (lanes, "[2,3,4,0]", "[2,3,4,1]", BadPosition, rule::CURSOR_LANES, "/source/shards"),
        // cursor.replay and cursor.leftover
        (shuffle, r#""replay":2"#, r#""replay":5"#, BadPosition, rule::CURSOR_REPLAY, "/replay"),
        (pack, "[2,1,5]", "[2,1,0]", BadPosition, rule::CURSOR_LEFTOVER, "/leftover/2"),
        // cursor.canary-there
        (permuted, NEXT_COMMA, "", BadMember, rule::CURSOR_CANARY_THERE, ""),
        (
            permuted,
            r#""count":0"#,
            r#""count":65537"#,
            Code::Limit,
            rule::CURSOR_CANARY_THERE,
            "/next/count",
        ),
        (
            permuted,
            r#""count":0"#,
            r#""count":1"#,
            BadMember,
            rule::CURSOR_CANARY_THERE,
            "/next/first",
        ),
        (
            permuted,
            r#""first":[]"#,
            r#""first":[1]"#,
            BadMember,
            rule::CURSOR_CANARY_THERE,
            "/next/first",
        ),
        // order.form
        (permuted, r#""algorithm":"torch.randperm-cpu","#, "", BadMember, unknown, "/order"),
        (
            permuted,
            r#""seed_rule":"seed+epoch""#,
            r#""seed_rule":"epoch""#,
            BadMember,
            order,
            "/order/seed_rule",
        ),
        (permuted, "18446744073709551615", "18446744073709551616", BadMember, order, "/order/seed"),
        (permuted, r#"{"int":"18446744073709551615"}"#, "-1", BadMember, order, "/order/seed"),
        (
            permuted,
            r#"{"int":"18446744073709551615"}"#,
            r#"{"int":"1"}"#,
            BadMember,
            rule::VALUE_FORM,
            "/order/seed/int",
        ),
        (permuted, r#""n":6,"#, "", BadMember, unknown, "/order"),
        (permuted, r#""n":6,"#, r#""n":0,"#, BadMember, form, "/order/n"),
        (permuted, r#""n":6,"#, r#""m":6,"n":6,"#, BadMember, unknown, "/order/m"),
        (permuted, r#""n":6,"#, r#""n":6,"rounds":4,"#, BadMember, unknown, "/order/rounds"),
        (permuted, "torch.randperm-cpu", "identity", BadMember, unknown, "/order/seed"),
        (shuffle, r#""rounds":4,"#, r#""n":4,"rounds":4,"#, BadMember, unknown, "/order/n"),
        (shuffle, r#""seed":7"#, r#""seed":4294967296"#, BadMember, order, "/order/seed"),
        (shuffle, r#""rounds":4,"#, "", BadMember, unknown, "/order"),
        (shuffle, r#""rounds":4,"#, r#""rounds":5,"#, BadMember, order, "/order/rounds"),
        (shuffle, r#""rounds":4,"#, r#""rounds":1026,"#, BadMember, order, "/order/rounds"),
        (
            shuffle,
            r#"{"algorithm":"grain.index_shuffle","rounds":4,"seed":7,"seed_rule":"seed"}"#,
            r#"{"algorithm":"explicit","ordinals":[]}"#,
            BadMember,
            order,
            "/order/algorithm",
        ),
        (stored, r#""state":[]"#, r#""n":4,"state":[]"#, BadMember, unknown, "/order/n"),
        (lanes, "[3,2,1,0]", r#"[3,2,1,"0"]"#, BadMember, types, "/order/ordinals/3"),
        // order.domain
        (permuted, r#""n":6,"#, r#""n":8,"#, BadPosition, rule::ORDER_DOMAIN, "/order/n"),
        (lanes, "[3,2,1,0]", "[3,2,4,0]", BadPosition, rule::ORDER_DOMAIN, "/order/ordinals/2"),
        (lanes, "[3,2,1,0]", "[3,2,1]", BadPosition, rule::ORDER_DOMAIN, "/order/ordinals"),
        // cursor.partition
        (
            permuted,
            r#"["dp"]"#,
            r#"["tp","pp"]"#,
            BadMember,
            rule::CURSOR_PARTITION,
            "/partition/axes/1",
        ),
        (
            permuted,
            r#"["dp"]"#,
            r#"["dp","dp"]"#,
            BadMember,
            rule::CURSOR_PARTITION,
            "/partition/axes/1",
        ),
        (
            permuted,
            r#""batch":4"#,
            r#""batch":0"#,
            BadMember,
            rule::CURSOR_PARTITION,
            "/partition/batch",
        ),
        (permuted, "round-robin", "by-lane", BadMember, rule::CURSOR_PARTITION, "/partition/rule"),
    ];
    for (good, from, to, code, rule, pointer) in cases {
        let text = good();
        assert_eq!(text.matches(from).count(), 1, "{from} in {text}");
        let text = sorted(&text.replacen(from, to, 1));
        let error = parse(&text).expect_err(&text);
        let found = (
            error.code(),
            error.rule_id().unwrap(),
            error.location().pointer.as_deref().unwrap_or_default(),
        );
        assert_eq!(found, (*code, *rule, *pointer), "{error}\n{text}");
    }
}

/// Each member answers for itself before the next one, those of the root among them.
#[test]
fn the_first_breach_is_the_answer() {
    for (changes, pointer) in [
        (
            &[(r#""batch":4"#, r#""batch":0"#), (r#""records":7"#, r#""records":0"#)],
            "/partition/batch",
        ),
        (&[(r#"["dp"]"#, r#"["pp"]"#), (r#""records":7"#, r#""records":0"#)], "/partition/axes/0"),
        (
            &[(r#""count":0"#, r#""count":65537"#), (r#""first":[]"#, r#""first":"""#)],
            "/next/count",
        ),
        (&[("round-robin", "by-lane"), (r#""consumed":3"#, r#""consumed":2"#)], "/consumed"),
    ] {
        let mut text = permuted();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let error = parse(&text).expect_err(&text);
        assert_eq!(error.location().pointer.as_deref(), Some(pointer), "{error}");
    }
}

const NEXT_COMMA: &str = r#""next":{"count":0,"first":[],"sha256":"SHA"},"#;

/// Members in the order that JSON must have them; the table above puts them where it is easy.
fn sorted(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).unwrap().to_string()
}

#[test]
fn what_is_long_or_deep_is_refused() {
    let big = |count: usize| vec!["0"; count].join(",");
    let ordinals = |count: usize| {
        permuted()
            .replace(r#""algorithm":"torch.randperm-cpu","n":6,"seed":{"int":"18446744073709551615"},"seed_rule":"seed+epoch""#,
            &format!(r#""algorithm":"explicit","n":{count},"ordinals":[{}]"#, big(count)))
    };
    parse(&ordinals(65_536)).unwrap();
    let error = parse(&ordinals(65_537)).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("order.form")));
    assert_eq!(error.location().pointer.as_deref(), Some("/order/ordinals/65536"));

    let many = format!("[{}]", vec!["[0,0]"; 65_537].join(","));
    let error = parse(&lanes().replace("[[2,1],[5,0]]", &many)).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("cursor.form")));
    assert_eq!(error.location().pointer.as_deref(), Some("/lanes/65536"));

    let children = vec![LEAF; 1025].join(",");
    let error = parse(&mixture().replace(&format!("{LEAF},{LEAF}"), &children)).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::BadMember, Some("cursor.form")));
    assert_eq!(error.location().pointer.as_deref(), Some("/children/1024"));

    let mut deep = LEAF.to_owned();
    for _ in 0..6 {
        deep = stored().replace(r#""consumed":3,"#, "").replace(LEAF, &deep);
    }
    parse(&stored().replace(LEAF, &deep)).unwrap();
    let deep = stored().replace(r#""consumed":3,"#, "").replace(LEAF, &deep);
    let error = parse(&stored().replace(LEAF, &deep)).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("cursor.form")));
    assert_eq!(
        error.location().pointer.as_deref(),
        Some("/child/child/child/child/child/child/child/child")
    );
}

#[test]
fn axes_are_checked_where_a_topology_is_given() {
    let text = permuted().replace(r#"["dp"]"#, r#"["pp"]"#).replace("SHA", &sha());
    let value = Value::parse(&text).unwrap();
    Cursor::parse(&value, None).unwrap();
    Cursor::parse(&value, Some(&topology())).unwrap_err();
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(cursor in cursor()) {
        let value = cursor.to_value();
        prop_assert_eq!(&Cursor::parse(&value, Some(&topology())).unwrap(), &cursor);
        let text = value.encode().unwrap();
        prop_assert_eq!(Value::parse(&text).unwrap(), value);
    }

    /// Whatever one value in it becomes, there is an answer, and reading what is accepted again
    /// gives the same.
    #[test]
    fn nothing_panics(cursor in cursor(), at in any::<prop::sample::Index>(), other in 0..8_u8) {
        let mut value = cursor.to_value();
        let mut places = 0;
        visit(&mut value, &mut |_| places += 1);
        let (chosen, mut here) = (at.index(places), 0);
        visit(&mut value, &mut |value| {
            if here == chosen {
                *value = match other {
                    0 => Value::Null,
                    1 => Value::Int(0),
                    2 => Value::Int((1 << 53) - 1),
                    3 => Value::Str(String::new()),
                    4 => Value::List(Vec::new()),
                    5 => Value::Object(Map::new()),
                    6 => Value::Int(-1),
                    _ => Value::List(vec![Value::Int(1), Value::Int(2)]),
                };
            }
            here += 1;
        });
        match Cursor::parse(&value, Some(&topology())) {
            Ok(cursor) => prop_assert_eq!(cursor.to_value(), value),
            Err(error) => {
                prop_assert!(error.rule_id().is_some());
            }
        }
    }
}

/// Calls `with` on every value, a container before what it holds.
fn visit(value: &mut Value, with: &mut impl FnMut(&mut Value)) {
    with(value);
    match value {
        Value::List(items) => items.iter_mut().for_each(|item| visit(item, with)),
        Value::Object(members) => members.values_mut().for_each(|member| visit(member, with)),
        _ => {}
    }
}
