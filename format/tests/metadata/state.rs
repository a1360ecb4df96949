//! Every rule about the value of a record of a registered kind, cursors aside, broken once.

use serde_json::{Value, json};
use waystation_format::json::Value as Tree;
use waystation_format::records::Typed;
use waystation_format::registry::record_kinds::RECORD_KINDS;
use waystation_format::{Code, Part, Record, Result, RngAlgorithm, rule};

use crate::cases::Edit::{Add, Remove, Set};
use crate::cases::{Case, answers, check, long};
use crate::fixture;

/// Makes the record, and reads it in a part: both must answer the same.
fn parse(record: &Value) -> Result<Record> {
    let text = |member: &str| record[member].as_str().unwrap();
    let coordinate = record.get("coordinate").map_or_else(Vec::new, |coordinate| {
        let place =
            |pair: &Value| (pair[0].as_str().unwrap().to_owned(), pair[1].as_u64().unwrap());
        coordinate.as_array().unwrap().iter().map(place).collect()
    });
    let value = Tree::parse(&record["value"].to_string()).unwrap();
    let made = Record::new(text("kind"), text("name"), coordinate, &value);

    let mut part = fixture::part();
    part["records"] = json!([record]);
    match (&made, Part::parse(fixture::bytes(&part))) {
        (Ok(made), Ok(_)) => assert_eq!(*made.json, record.to_string()),
        (Err(made), Err(read)) => {
            assert_eq!((made.code(), made.rule_id()), (read.code(), read.rule_id()), "{record}");
            let pointer = made.location().pointer.as_deref().unwrap();
            let within = format!("/records/0{pointer}");
            assert_eq!(read.location().pointer.as_deref(), Some(within.as_str()), "{record}");
        }
        (made, read) => panic!("{record}: {made:?}, but in a part {read:?}"),
    }
    made
}

fn record(kind: &str, value: Value) -> Value {
    json!({"kind": kind, "name": "main", "value": value})
}

/// As the typed form writes it.
fn rewritten(record: &Value) -> String {
    let record = parse(record).unwrap();
    let typed = record.typed().unwrap();
    assert_eq!(typed.kind(), Some(record.key.kind.as_str()));
    let again = Record::of(&record.key.name, record.key.coordinate.clone(), &typed).unwrap();
    assert_eq!(again, record);
    again.json.into_string()
}

fn float() -> Value {
    json!({"f64": "3f50624dd2f1a9fc"})
}

/// For members that are counts: `"7"`, −1 and so on.
fn counts(members: &'static [&'static str]) -> Vec<Case> {
    let bad = [json!("7"), json!(-1), json!(null), float(), json!({"int": "9007199254740992"})];
    let each = |member: &&'static str| {
        bad.clone().map(|bad| (*member, Set(bad), Code::BadMember, rule::JSON_TYPES, *member))
    };
    members.iter().flat_map(each).collect()
}

/// For members that are floats.
fn floats(members: &'static [&'static str], rule: &'static str) -> Vec<Case> {
    let bad = [
        json!(1),
        json!("0.5"),
        json!(null),
        json!({"list": [float()]}),
        json!({"int": "9007199254740992"}),
    ];
    let each = |member: &&'static str| {
        bad.clone().map(|bad| (*member, Set(bad), Code::BadMember, rule, *member))
    };
    members.iter().flat_map(each).collect()
}

#[test]
fn progress_breaks_its_rule() {
    use Code::*;
    use rule::*;
    let whole = record(
        "progress",
        json!({"batch": 32, "epoch": 2, "iteration": 1007, "optimizer_step": 1000, "samples": 32000,
            "skipped": 7, "tokens": 0}),
    );
    assert_eq!(rewritten(&whole), whole.to_string());
    rewritten(&record("progress", json!({"optimizer_step": 0})));
    let mut cases = counts(&[
        "/value/batch",
        "/value/epoch",
        "/value/iteration",
        "/value/optimizer_step",
        "/value/samples",
        "/value/skipped",
        "/value/tokens",
    ]);
    cases.extend([
        ("/value/optimizer_step", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"),
        ("/value/steps", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/value/steps"),
        ("/value/a", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/value/a"),
        ("/value/z~1x", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/value/z~1x"),
        ("/name", Set(json!("other")), BadMember, PROGRESS_FORM, "/name"),
        ("/coordinate", Add(json!([["dp", 0]])), BadMember, PROGRESS_FORM, "/coordinate"),
        ("/value", Set(json!({})), BadMember, JSON_UNKNOWN_MEMBER, "/value"),
    ]);
    check(&whole, cases, parse);
    // The first breach in the order in which members stand.
    let two = record("progress", json!({"batch": "x", "aaa": 1}));
    let error = parse(&two).unwrap_err();
    assert_eq!(error.location().pointer.as_deref(), Some("/value/aaa"));
    let mut two = record("progress", json!({"batch": "x"}));
    two["name"] = json!("other");
    let error = parse(&two).unwrap_err();
    assert_eq!(error.location().pointer.as_deref(), Some("/value/batch"));
    let two = record("progress", json!({"batch": "x", "zzz": 1}));
    let error = parse(&two).unwrap_err();
    assert_eq!(error.location().pointer.as_deref(), Some("/value/batch"));
}

fn optimizer() -> Value {
    record(
        "optimizer",
        json!({
            "algorithm": "adamw",
            "groups": [
                {"hyper": [["lr", float()], ["betas", {"tuple": [float(), float()]}]],
                    "implementation": [["fused", true]], "name": "decay",
                    "params": [["main", "a"], ["main", "b"]]},
                {"hyper": [], "name": "rest", "params": [["critic", "a"]]},
            ],
            "masters": {"cast": "nearest-even"},
            "steps": [
                {"params": [["main", "a"]], "step": 3, "stored_as": "F32[]"},
                {"params": [["main", "b"], ["critic", "a"]], "step": 5, "stored_as": "int"},
            ],
        }),
    )
}

#[test]
fn an_optimizer_breaks_its_rule() {
    use Code::*;
    use rule::*;
    let form = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, OPTIMIZER_FORM, place)
    };
    let types = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_TYPES, place)
    };
    let unknown = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_UNKNOWN_MEMBER, place)
    };
    let whole = optimizer();
    assert_eq!(rewritten(&whole), whole.to_string());
    let all = json!([{"params": "all", "step": 3, "stored_as": "int"}]);
    let small = json!({"algorithm": "sgd", "groups": [], "steps": all});
    rewritten(&record("optimizer", small));
    for cast in ["nearest-even", "stochastic", "other"] {
        let mut other = whole.clone();
        other["value"]["masters"]["cast"] = json!(cast);
        assert_eq!(rewritten(&other), other.to_string());
    }
    let cases: Vec<Case> = vec![
        unknown("/value/algorithm", Remove, "/value"),
        ("/value/algorithm", Set(json!("")), BadName, IDENTITY_NAME, "/value/algorithm"),
        ("/value/algorithm", Set(long(1025)), BadName, IDENTITY_NAME, "/value/algorithm"),
        types("/value/algorithm", Set(json!(1)), "/value/algorithm"),
        unknown("/value/groups", Remove, "/value"),
        types("/value/groups", Set(json!({})), "/value/groups"),
        types("/value/groups/1", Set(json!([])), "/value/groups/1"),
        unknown("/value/groups/1/hyper", Remove, "/value/groups/1"),
        form("/value/groups/0/hyper/1/0", Set(json!("lr")), "/value/groups/0/hyper/1"),
        types("/value/groups/0/hyper/1/0", Set(json!(1)), "/value/groups/0/hyper/1/0"),
        form("/value/groups/0/hyper/1/1", Remove, "/value/groups/0/hyper/1"),
        form("/value/groups/0/hyper/1/2", Add(json!(1)), "/value/groups/0/hyper/1"),
        types("/value/groups/0/hyper/1", Set(json!({})), "/value/groups/0/hyper/1"),
        types("/value/groups/0/hyper", Set(json!({"lr": 1})), "/value/groups/0/hyper"),
        (
            "/value/groups/0/hyper/0/1/f64",
            Set(json!("0.001")),
            BadMember,
            VALUE_FORM,
            "/value/groups/0/hyper/0/1/f64",
        ),
        (
            "/value/groups/0/hyper/0/1",
            Set(json!([1])),
            BadMember,
            VALUE_FORM,
            "/value/groups/0/hyper/0/1",
        ),
        types("/value/groups/0/implementation", Set(json!(null)), "/value/groups/0/implementation"),
        form("/value/groups/1/name", Set(json!("decay")), "/value/groups/1/name"),
        ("/value/groups/1/name", Set(json!("a\n")), BadName, IDENTITY_NAME, "/value/groups/1/name"),
        form("/value/groups/0/params/1/1", Set(json!("a")), "/value/groups/0/params/1"),
        form("/value/groups/1/params/0", Set(json!(["main", "b"])), "/value/groups/1/params/0"),
        types("/value/groups/1/params/0", Set(json!("main")), "/value/groups/1/params/0"),
        form("/value/groups/1/params/0", Set(json!(["x"])), "/value/groups/1/params/0"),
        (
            "/value/groups/1/params/0/1",
            Set(json!("")),
            BadName,
            IDENTITY_NAME,
            "/value/groups/1/params/0/1",
        ),
        types("/value/groups/1/params", Set(json!("all")), "/value/groups/1/params"),
        unknown("/value/groups/1/lr", Add(json!(1)), "/value/groups/1/lr"),
        types("/value/masters", Set(json!("other")), "/value/masters"),
        form("/value/masters/cast", Set(json!("nearest")), "/value/masters/cast"),
        unknown("/value/masters/cast", Remove, "/value/masters"),
        unknown("/value/steps", Remove, "/value"),
        form("/value/steps/0/params", Set(json!("some")), "/value/steps/0/params"),
        types("/value/steps/0/params", Set(json!(1)), "/value/steps/0/params"),
        form("/value/steps/0/params", Set(json!("all")), "/value/steps/1/params"),
        form("/value/steps/1/params", Set(json!("all")), "/value/steps/1/params"),
        form("/value/steps/1/params/0", Set(json!(["main", "a"])), "/value/steps/1/params/0"),
        types("/value/steps/1/step", Set(json!(-5)), "/value/steps/1/step"),
        types("/value/steps/1/step", Set(float()), "/value/steps/1/step"),
        unknown("/value/steps/1/stored_as", Remove, "/value/steps/1"),
        unknown("/value/state", Add(json!({})), "/value/state"),
    ];
    check(&whole, cases, parse);
}

#[test]
fn averages_and_scalers_break_their_rules() {
    use Code::*;
    use rule::*;
    let ema = record("ema", json!({"decay": {"f32": "3f7fbe77"}, "updates": 1000}));
    assert_eq!(rewritten(&ema), ema.to_string());
    let mut cases = counts(&["/value/updates"]);
    cases.extend(floats(&["/value/decay"], EMA_FORM));
    cases.extend([
        ("/value/updates", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"),
        ("/value/decay", Set(json!({"f64": "1"})), BadMember, VALUE_FORM, "/value/decay/f64"),
        ("/value/step", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/value/step"),
        ("/value/updates", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"),
    ]);
    check(&ema, cases, parse);

    let scaler = record(
        "scaler",
        json!({"backoff": float(), "good_steps": 3, "growth": float(), "hysteresis": 2,
            "interval": 2000, "scale": float(), "skipped": 4}),
    );
    assert_eq!(rewritten(&scaler), scaler.to_string());
    let mut small = scaler.clone();
    for member in ["hysteresis", "skipped"] {
        small["value"].as_object_mut().unwrap().remove(member);
    }
    assert_eq!(rewritten(&small), small.to_string());
    let mut cases =
        counts(&["/value/good_steps", "/value/hysteresis", "/value/interval", "/value/skipped"]);
    cases.extend(floats(&["/value/backoff", "/value/growth", "/value/scale"], SCALER_FORM));
    for member in
        ["/value/backoff", "/value/good_steps", "/value/growth", "/value/interval", "/value/scale"]
    {
        cases.push((member, Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"));
    }
    cases.push((
        "/value/enabled",
        Add(json!(true)),
        BadMember,
        JSON_UNKNOWN_MEMBER,
        "/value/enabled",
    ));
    check(&scaler, cases, parse);
}

#[test]
fn a_schedule_breaks_its_rule() {
    use Code::*;
    use rule::*;
    let form = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, SCHEDULE_FORM, place)
    };
    let types = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_TYPES, place)
    };
    let unknown = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_UNKNOWN_MEMBER, place)
    };
    let whole = record(
        "schedule",
        json!({
            "algorithm": "linear-warmup+cosine", "last_value": [float(), float()],
            "parameters": {"map": [["warmup", 10], ["base", {"list": [float(), {"f32": "3f800000"}]}],
                ["total", 10], ["floor", float()]]},
            "position": {"unit": "optimizer_steps", "value": 7},
        }),
    );
    assert_eq!(rewritten(&whole), whole.to_string());
    for unit in ["optimizer_steps", "samples", "tokens", "epochs"] {
        let mut other = whole.clone();
        other["value"]["position"]["unit"] = json!(unit);
        assert_eq!(rewritten(&other), other.to_string());
    }
    let cases: Vec<Case> = vec![
        unknown("/value/algorithm", Remove, "/value"),
        ("/value/algorithm", Set(json!("")), BadName, IDENTITY_NAME, "/value/algorithm"),
        types("/value/last_value", Set(float()), "/value/last_value"),
        form("/value/last_value/1", Set(json!(1)), "/value/last_value/1"),
        form("/value/last_value/1", Remove, "/value/parameters/map/1/1"),
        ("/value/last_value/1", Set(json!([])), BadMember, VALUE_FORM, "/value/last_value/1"),
        unknown("/value/parameters", Remove, "/value"),
        form("/value/parameters", Set(json!(7)), "/value/parameters"),
        form("/value/parameters/map/0", Remove, "/value/parameters/map"),
        form("/value/parameters/map/0/0", Set(json!("power")), "/value/parameters/map/0/0"),
        form("/value/parameters/map/0/0", Set(json!(1)), "/value/parameters/map/0/0"),
        (
            "/value/parameters/map/0/0",
            Set(json!("base")),
            BadMember,
            VALUE_FORM,
            "/value/parameters/map/1",
        ),
        form("/value/parameters/map/0/1", Set(json!(11)), "/value/parameters/map"),
        form("/value/parameters/map/0/1", Set(json!(-1)), "/value/parameters/map/0/1"),
        form("/value/parameters/map/2/1", Set(float()), "/value/parameters/map/2/1"),
        form("/value/parameters/map/3/1", Set(json!(0)), "/value/parameters/map/3/1"),
        form("/value/parameters/map/1/1/list/0", Set(json!(0)), "/value/parameters/map/1/1/list/0"),
        form("/value/parameters/map/1/1/list/0", Remove, "/value/parameters/map/1/1"),
        unknown("/value/position", Remove, "/value"),
        form("/value/position/unit", Set(json!("steps")), "/value/position/unit"),
        unknown("/value/position/unit", Remove, "/value/position"),
        types("/value/position/value", Set(json!(-1)), "/value/position/value"),
        types("/value/position/value", Set(float()), "/value/position/value"),
        unknown("/value/step", Add(json!(7)), "/value/step"),
        // The parameters are those of the algorithm.
        form("/value/algorithm", Set(json!("linear-warmup")), "/value/parameters/map/2/0"),
        form("/value/algorithm", Set(json!("constant")), "/value/parameters/map/0/0"),
    ];
    check(&whole, cases, parse);
    // Any other schedule is carried.
    let mut other = whole.clone();
    other["value"]["algorithm"] = json!("acme");
    other["value"]["last_value"] = json!([1, null, {"list": []}]);
    other["value"]["parameters"] = json!(null);
    assert_eq!(rewritten(&other), other.to_string());
}

#[test]
fn what_was_not_captured_breaks_its_rule() {
    use Code::*;
    use rule::*;
    let whole = record("uncaptured", json!({"kind": "rng", "reason": "no state in this version"}));
    assert_eq!(rewritten(&whole), whole.to_string());
    let cases: Vec<Case> = vec![
        ("/value/kind", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"),
        ("/value/kind", Set(json!("")), BadName, IDENTITY_NAME, "/value/kind"),
        ("/value/reason", Set(json!(7)), BadMember, JSON_TYPES, "/value/reason"),
        ("/value/reason", Set(json!("a\u{202e}")), BadName, IDENTITY_NAME, "/value/reason"),
        ("/value/reason", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/value"),
        ("/value/name", Add(json!("x")), BadMember, JSON_UNKNOWN_MEMBER, "/value/name"),
    ];
    check(&whole, cases, parse);
}

fn stream() -> Value {
    json!({
        "coordinate": [["dp", 1]], "kind": "rng", "name": "dropout",
        "value": {
            "algorithm": "mt19937",
            "caches": [{"bits": "", "kind": "acme/x"}, {"bits": "3f800000", "kind": "torch/normal-f32"},
                {"bits": "3ff0000000000000", "kind": "torch/normal-f64"}],
            "fork": {"coordinate": [["dp", 3]], "manifest": "0f".repeat(32), "step": 500},
            "next_raw": ["00000001", "00000002", "00000003", "ffffffff"],
            "on_reshape": "fork",
            "origin": {"form": "get_rng_state", "framework": "torch",
                "initial_seed": {"int": "18446744073709551615"}, "version": "2.9"},
            "purpose": "dropout", "seed_rule": {"root": 7, "rule": "root+rank"},
            "state": {"tensor": ["main", "blob", "dropout", "", "", [["dp", 1]]]},
        },
    })
}

#[test]
fn a_stream_breaks_its_rule() {
    use Code::*;
    use rule::*;
    let form = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, RNG_FORM, place)
    };
    let types = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_TYPES, place)
    };
    let unknown = |edit: &'static str, change, place: &'static str| {
        (edit, change, BadMember, JSON_UNKNOWN_MEMBER, place)
    };
    let whole = stream();
    assert_eq!(rewritten(&whole), whole.to_string());
    for word in ["require", "fork", "reinit"] {
        let mut other = whole.clone();
        other["value"]["on_reshape"] = json!(word);
        assert_eq!(rewritten(&other), other.to_string());
    }
    let outputs = |count: usize| json!(vec!["00000000"; count]);
    let cases: Vec<Case> = vec![
        unknown("/value/algorithm", Remove, "/value"),
        ("/value/algorithm", Set(json!("")), BadName, IDENTITY_NAME, "/value/algorithm"),
        unknown("/value/caches", Remove, "/value"),
        types("/value/caches", Set(json!({})), "/value/caches"),
        form("/value/caches/0/bits", Set(json!("3f8")), "/value/caches/0/bits"),
        form("/value/caches/0/bits", Set(json!("3F80")), "/value/caches/0/bits"),
        form("/value/caches/0/bits", Set(json!("0".repeat(130))), "/value/caches/0/bits"),
        form("/value/caches/1/bits", Set(json!("3f8000")), "/value/caches/1/bits"),
        form("/value/caches/2/bits", Set(json!("3f800000")), "/value/caches/2/bits"),
        form("/value/caches/2/kind", Set(json!("torch/normal-f32")), "/value/caches/2/bits"),
        form("/value/caches/2/kind", Set(json!("a")), "/value/caches/2/kind"),
        form("/value/caches/0/kind", Set(json!("torch/x")), "/value/caches/1/kind"),
        unknown("/value/caches/0/kind", Remove, "/value/caches/0"),
        unknown("/value/caches/0/valid", Add(json!(true)), "/value/caches/0/valid"),
        form(
            "/value/fork/coordinate",
            Set(json!([["dp", 1], ["dp", 2]])),
            "/value/fork/coordinate/1",
        ),
        form("/value/fork/coordinate/0", Set(json!(["dp"])), "/value/fork/coordinate/0"),
        types("/value/fork/coordinate/0/1", Set(json!(-1)), "/value/fork/coordinate/0/1"),
        form("/value/fork/manifest", Set(json!("0f")), "/value/fork/manifest"),
        unknown("/value/fork/step", Remove, "/value/fork"),
        (
            "/value/fork/step",
            Set(json!(1_000_000_000_000_u64)),
            Limit,
            RNG_FORM,
            "/value/fork/step",
        ),
        unknown("/value/next_raw", Remove, "/value"),
        form("/value/next_raw/0", Set(json!("0000001")), "/value/next_raw/0"),
        form("/value/next_raw/3", Set(json!("FFFFFFFF")), "/value/next_raw/3"),
        types("/value/next_raw/3", Set(json!(7)), "/value/next_raw/3"),
        ("/value/next_raw/3", Remove, BadMember, RNG_CANARY_THERE, "/value/next_raw"),
        ("/value/next_raw", Set(json!([])), BadMember, RNG_CANARY_THERE, "/value/next_raw"),
        ("/value/next_raw", Set(outputs(65)), Limit, RNG_FORM, "/value/next_raw/64"),
        ("/value/algorithm", Set(json!("jax-rbg")), BadMember, RNG_CANARY_THERE, "/value/next_raw"),
        form("/value/algorithm", Set(json!("sfc64")), "/value/next_raw/0"),
        form("/value/on_reshape", Set(json!("split")), "/value/on_reshape"),
        unknown("/value/on_reshape", Remove, "/value"),
        unknown("/value/origin/framework", Remove, "/value/origin"),
        form("/value/origin/initial_seed", Set(float()), "/value/origin/initial_seed"),
        (
            "/value/origin/initial_seed/int",
            Set(json!("7")),
            BadMember,
            VALUE_FORM,
            "/value/origin/initial_seed/int",
        ),
        unknown("/value/origin/stream", Add(json!("cuda")), "/value/origin/stream"),
        ("/value/purpose", Set(json!("")), BadName, IDENTITY_NAME, "/value/purpose"),
        form("/value/seed_rule/root", Set(json!("7")), "/value/seed_rule/root"),
        unknown("/value/seed_rule/rule", Remove, "/value/seed_rule"),
        unknown("/value/seed", Add(json!(1)), "/value/seed"),
        unknown("/value/state", Remove, "/value"),
        form("/value/state", Set(json!("0")), "/value/state"),
        form("/value/state", Set(json!("0G")), "/value/state"),
        types("/value/state", Set(json!(["00"])), "/value/state"),
        ("/value/state", Set(long(1)), BadMember, RNG_FORM, "/value/state"),
        ("/value/state", Set(json!("00".repeat(8193))), Limit, RNG_FORM, "/value/state"),
        types("/value/state/tensor", Set(json!("dropout")), "/value/state/tensor"),
        types("/value/state/tensor/5", Remove, "/value/state/tensor"),
        ("/value/state/tensor/2", Set(json!("")), BadName, IDENTITY_NAME, "/value/state/tensor/2"),
        (
            "/value/state/tensor/1",
            Set(json!("weights")),
            UnsupportedRole,
            IDENTITY_ROLE,
            "/value/state/tensor/1",
        ),
        (
            "/value/state/tensor/3",
            Set(json!("adam.m")),
            BadIdentity,
            IDENTITY_SLOT,
            "/value/state/tensor",
        ),
        unknown("/value/state/more", Add(json!(1)), "/value/state/more"),
    ];
    check(&whole, cases, parse);
    // How wide outputs are is a rule about two members, and comes after all of them.
    let mut two = whole.clone();
    two["value"]["next_raw"][0] = json!("0");
    two["value"]["purpose"] = json!("");
    assert!(answers(&parse(&two).unwrap_err(), BadName, IDENTITY_NAME, "/value/purpose"));
}

#[test]
fn a_canary_has_the_digits_of_its_algorithm() {
    for algorithm in RngAlgorithm::ALL {
        let mut record = stream();
        record["value"]["algorithm"] = json!(algorithm.as_str());
        let digits = algorithm.width() as usize / 4;
        let count = if algorithm.has_canary() { 4 } else { 0 };
        record["value"]["next_raw"] = json!(vec!["0".repeat(digits); count]);
        record["value"]["state"] = json!("00".repeat(algorithm.state_bytes()));
        assert_eq!(rewritten(&record), record.to_string(), "{algorithm}");
        record["value"]["next_raw"] = json!(vec!["0".repeat(digits + 1); 4]);
        parse(&record).unwrap_err();
    }
}

#[test]
fn a_stream_of_an_unknown_algorithm_is_carried() {
    let mut record = stream();
    record["value"]["algorithm"] = json!("acme/lfsr");
    for next_raw in [json!([]), json!(["0"]), json!(["0".repeat(128), "f"])] {
        record["value"]["next_raw"] = next_raw;
        assert_eq!(rewritten(&record), record.to_string());
    }
    for digits in [0, 129] {
        record["value"]["next_raw"] = json!(["0".repeat(digits)]);
        let error = parse(&record).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::BadMember, Some("rng.form")));
    }
}

/// A record is made before its topology is known; the part that holds it knows.
#[test]
fn the_axes_of_a_cursor_are_held_against_the_topology_of_its_part() {
    let cursor = |axis: &str| {
        let text = format!(
            r#"{{"fingerprint":{{"map":[]}},"kind":"opaque","media_type":"x","partition":{{"axes":["{axis}"],"batch":8,"rule":"contiguous"}},"state":null}}"#
        );
        let value = Tree::parse(&text).unwrap();
        let record = Record::new("cursor", "train", Vec::new(), &value).unwrap();
        let mut content = fixture::content();
        content.records = vec![record];
        content.into_part()
    };
    cursor("dp").unwrap();
    let error = cursor("pp").unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::BadMember, Some("cursor.partition")));
    let pointer = error.location().pointer.as_deref();
    assert_eq!(pointer, Some("/records/0/value/partition/axes/0"));
}

#[test]
fn every_registered_kind_has_a_form_and_no_other() {
    let empty = Tree::parse("{}").unwrap();
    for kind in RECORD_KINDS {
        assert!(Typed::parse(kind.id, &empty, None).is_err(), "{}", kind.id);
    }
    assert_eq!(Typed::parse("acme/x", &empty, None).unwrap(), Typed::Unknown);
    assert_eq!(Typed::Unknown.to_value().unwrap_err().code(), Code::BadArgument);
    assert_eq!(
        rewritten(&record("value", json!({"tree": 7}))),
        record("value", json!({"tree": 7})).to_string()
    );
}
