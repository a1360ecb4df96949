//! Chapter 16.4: schedules, whose values are computed in binary64 and compared within a bound.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{here, said};
use super::held::{Wrong, files, record, right_forms, wrong_forms};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    computed(cases);
    bounds(cases);
    forms(cases);
}

fn f64_tree(value: f64) -> Value {
    json!({"f64": format!("{:016x}", value.to_bits())})
}

fn f32_tree(value: f32) -> Value {
    json!({"f32": format!("{:08x}", value.to_bits())})
}

/// A schedule at a position, with the values in force there.
fn schedule(algorithm: &str, parameters: &[(&str, Value)], position: u64, last: &[Value]) -> Value {
    let parameters: Vec<Value> =
        parameters.iter().map(|(key, value)| json!([key, value])).collect();
    let value = json!({"algorithm": algorithm, "last_value": last, "parameters": {"map": parameters},
        "position": {"unit": "optimizer_steps", "value": position}});
    record("schedule", "lr", value)
}

/// From 0.5 over a warmup of 100 to 0.0625 at 1100: all values below are exact in binary64.
fn falling(shape: &str, position: u64, last: f64) -> Value {
    let parameters = [
        ("base", f64_tree(0.5)),
        ("floor", f64_tree(0.0625)),
        ("warmup", json!(100)),
        ("total", json!(1100)),
    ];
    schedule(&format!("linear-warmup+{shape}"), &parameters, position, &[f64_tree(last)])
}

fn restored(cases: &mut Cases, slug: &str, what: &str, record: Value) {
    cases
        .case(&format!("resume/schedule-{slug}"), &["schedule.canary", "schedule.form"], what)
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .request(here().request())
        .answers_files(files(&[record]), said(&[], &[], &[]));
}

fn refused(cases: &mut Cases, slug: &str, fault: &str, record: Value) {
    cases
        .case(&format!("resume/schedule-{slug}"), &["schedule.canary"], fault)
        .over("bare")
        .effect(Effect::WrongResume)
        .request(here().request())
        .rejects_files(files(&[record]), &[Code::CanaryMismatch]);
}

fn computed(cases: &mut Cases) {
    let warmup = |position, last| {
        let parameters = [("base", f64_tree(0.5)), ("warmup", json!(100))];
        schedule("linear-warmup", &parameters, position, &[f64_tree(last)])
    };
    let constant = schedule(
        "constant",
        &[("base", f32_tree(0.1))],
        7,
        &[f32_tree(0.1), f64_tree(f64::from(0.1_f32))],
    );
    restored(cases, "constant", "A constant in 32 bits, converted exactly to 64.", constant);
    restored(cases, "warmup-start", "A warmup at position 0.", warmup(0, 0.0));
    restored(cases, "warmup-within", "A warmup at a quarter.", warmup(25, 0.125));
    restored(cases, "warmup-end", "A warmup at its end.", warmup(100, 0.5));
    restored(cases, "warmup-after", "A warmup long past its end.", warmup(100_000, 0.5));
    for shape in ["linear", "cosine"] {
        let what = |place: &str| format!("A schedule of {shape} decay {place}.");
        restored(
            cases,
            &format!("{shape}-warmup"),
            &what("in its warmup"),
            falling(shape, 50, 0.25),
        );
        restored(
            cases,
            &format!("{shape}-top"),
            &what("at the end of its warmup"),
            falling(shape, 100, 0.5),
        );
        // Half the way both are in the middle.
        restored(
            cases,
            &format!("{shape}-middle"),
            &what("in its middle"),
            falling(shape, 600, 0.28125),
        );
        restored(
            cases,
            &format!("{shape}-total"),
            &what("at its end"),
            falling(shape, 1100, 0.0625),
        );
        restored(
            cases,
            &format!("{shape}-past"),
            &what("past its end"),
            falling(shape, 5000, 0.0625),
        );
        refused(
            cases,
            &format!("{shape}-one-behind"),
            &what("whose value is that of one step before"),
            falling(shape, 601, 0.28125),
        );
        refused(
            cases,
            &format!("{shape}-no-floor"),
            &what("that ends at 0 instead of its floor"),
            falling(shape, 1100, 0.0),
        );
    }
    // At a quarter of the way: 0.5 - 0.4375 / 4; a cosine has fallen by less.
    restored(
        cases,
        "linear-quarter",
        "A schedule of linear decay at a quarter.",
        falling("linear", 350, 0.390_625),
    );
    refused(
        cases,
        "cosine-as-linear",
        "A schedule of cosine decay whose value is that of a linear one.",
        falling("cosine", 350, 0.390_625),
    );
    refused(
        cases,
        "warmup-one-ahead",
        "A warmup whose value is that of the next step.",
        warmup(25, 0.13),
    );
    let groups = |second: f64| {
        let parameters = [
            ("base", json!({"list": [f64_tree(0.5), f64_tree(0.25)]})),
            ("floor", f64_tree(0.0)),
            ("warmup", json!(0)),
            ("total", json!(8)),
        ];
        schedule("linear-warmup+linear", &parameters, 4, &[f64_tree(0.25), f64_tree(second)])
    };
    restored(
        cases,
        "groups",
        "Two groups with a base each and a floor for both, without warmup.",
        groups(0.125),
    );
    refused(
        cases,
        "groups-second",
        "The value of the second group is that of the first.",
        groups(0.25),
    );
    let at = |warmup: u64, total: u64, position: u64, last: f64| {
        let parameters = [
            ("total", json!(total)),
            ("warmup", json!(warmup)),
            ("floor", f64_tree(0.0)),
            ("base", f64_tree(1.0)),
        ];
        schedule("linear-warmup+cosine", &parameters, position, &[f64_tree(last)])
    };
    restored(
        cases,
        "no-length",
        "A schedule of no length at position 0 is at its floor; its parameters come in another order.",
        at(0, 0, 0, 0.0),
    );
    restored(
        cases,
        "warmup-is-total",
        "A schedule that is all warmup, one step before its end.",
        at(4, 4, 3, 0.75),
    );
    restored(
        cases,
        "no-values",
        "A schedule that drives no group.",
        schedule("constant", &[("base", f64_tree(1.0))], 0, &[]),
    );
    restored(
        cases,
        "other",
        "A schedule that nobody knows, with values that are no floats.",
        schedule(
            "vendor/later",
            &[("anything", json!(null))],
            3,
            &[json!("a"), json!({"list": []})],
        ),
    );
}

/// The bound itself, of a constant of 1: 2^-40 + 2^-48 in 64 bits, 2^-19 in 32.
fn bounds(cases: &mut Cases) {
    let of = |last: Value| schedule("constant", &[("base", f64_tree(1.0))], 0, &[last]);
    let small = |power: i32| 2_f64.powi(power);
    let bound = small(-40) + small(-48);
    restored(cases, "bound", "A value that is off by the whole bound.", of(f64_tree(1.0 + bound)));
    restored(
        cases,
        "bound-below",
        "A value that is too small by the whole bound.",
        of(f64_tree(1.0 - bound)),
    );
    refused(
        cases,
        "bound-above",
        "A value that is off by the bound and 2^-52.",
        of(f64_tree(1.0 + bound + small(-52))),
    );
    restored(
        cases,
        "bound-f32",
        "A value in 32 bits that is off by the whole bound.",
        of(f32_tree(1.0 + 2_f32.powi(-19))),
    );
    refused(
        cases,
        "bound-f32-above",
        "A value in 32 bits that is off by the bound and 2^-23.",
        of(f32_tree(1.0 + 2_f32.powi(-19) + 2_f32.powi(-23))),
    );
    refused(cases, "nan", "A value is no number.", of(json!({"f64": "7ff8000000000000"})));
    refused(cases, "infinite", "A value is infinite.", of(json!({"f64": "7ff0000000000000"})));
    let infinite = schedule(
        "constant",
        &[("base", json!({"f64": "7ff0000000000000"}))],
        0,
        &[json!({"f64": "7ff0000000000000"})],
    );
    refused(
        cases,
        "infinite-both",
        "Base and value are infinite: their difference is no number.",
        infinite,
    );
}

fn forms(cases: &mut Cases) {
    let form: &[&str] = &["schedule.form"];
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let map = |rows: Value| json!({"map": rows});
    let one = || f64_tree(1.0);
    let table = [
        wrong(
            "schedule-unit-other",
            "A position counts in a unit that there is not.",
            "/value/position/unit",
            json!("steps"),
        ),
        wrong(
            "schedule-position-negative",
            "A position is negative.",
            "/value/position/value",
            json!(-1),
        ),
        wrong(
            "schedule-position-number",
            "A position is a number alone.",
            "/value/position",
            json!(600),
        ),
        wrong(
            "schedule-without-position",
            "A schedule has no position.",
            "/value/position",
            Value::Null,
        ),
        wrong(
            "schedule-value-integer",
            "A value of a computed schedule is an integer.",
            "/value/last_value/0",
            json!(1),
        ),
        wrong(
            "schedule-value-null",
            "A value of a computed schedule is null.",
            "/value/last_value",
            json!([null]),
        ),
        wrong(
            "schedule-parameter-missing",
            "A parameter is missing.",
            "/value/parameters",
            map(json!([["base", one()], ["warmup", 100], ["total", 1100]])),
        ),
        wrong(
            "schedule-parameter-more",
            "A parameter more.",
            "/value/parameters",
            map(json!([
                ["base", one()],
                ["floor", one()],
                ["warmup", 100],
                ["total", 1100],
                ["power", one()]
            ])),
        ),
        wrong(
            "schedule-parameter-twice",
            "A parameter twice.",
            "/value/parameters",
            map(json!([
                ["base", one()],
                ["floor", one()],
                ["warmup", 100],
                ["total", 1100],
                ["base", one()]
            ])),
        ),
        wrong(
            "schedule-parameters-list",
            "Parameters are a list.",
            "/value/parameters",
            json!({"list": [one(), one(), 100, 1100]}),
        ),
        wrong(
            "schedule-warmup-beyond",
            "The warmup is longer than the whole.",
            "/value/parameters/map/2/1",
            json!(1101),
        ),
        wrong(
            "schedule-warmup-float",
            "The warmup is a float.",
            "/value/parameters/map/2/1",
            f64_tree(100.0),
        ),
        wrong(
            "schedule-total-negative",
            "The whole is negative.",
            "/value/parameters/map/3/1",
            json!(-1),
        ),
        wrong(
            "schedule-base-integer",
            "The base is an integer.",
            "/value/parameters/map/0/1",
            json!(1),
        ),
        wrong(
            "schedule-base-short",
            "There are two bases and one value.",
            "/value/parameters/map/0/1",
            json!({"list": [one(), one()]}),
        ),
        wrong(
            "schedule-base-tuple",
            "Bases are a tuple.",
            "/value/parameters/map/0/1",
            json!({"tuple": [one()]}),
        ),
        wrong(
            "schedule-unknown-member",
            "A schedule has a member more.",
            "/value/last_epoch",
            json!(600),
        ),
        (
            "schedule-algorithm-empty",
            &["identity.name", "schedule.form"],
            "The algorithm has no letter.",
            "/value/algorithm",
            json!(""),
            Code::BadName,
        ),
    ];
    wrong_forms(cases, &falling("linear", 600, 0.28125), &table);
    let mut samples = falling("cosine", 1 << 40, 0.0625);
    samples["value"]["position"]["unit"] = json!("tokens");
    right_forms(cases, &[("schedule", form, "A schedule that counts tokens.", samples)]);
}
