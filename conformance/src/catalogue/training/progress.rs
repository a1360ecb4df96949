//! Chapter 16: progress, averages, loss scalers, and what was not captured.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::{Cases, bases};
use super::held::{Wrong, bent, placed, recipe, record, right_forms, wrong_forms};
use crate::bend::{Bend, straight};
use crate::case::{Effect, Op};

pub(super) fn add(cases: &mut Cases) {
    progress(cases);
    averages(cases);
    scalers(cases);
    uncaptured(cases);
    grids(cases);
}

const MAX: u64 = (1 << 53) - 1;

fn progress(cases: &mut Cases) {
    let form: &[&str] = &["progress.form"];
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let table = [
        wrong(
            "progress-without-step",
            "Progress does not say how many steps are completed.",
            "/value/optimizer_step",
            Value::Null,
        ),
        wrong(
            "progress-unknown-member",
            "Progress counts something that it has no member for.",
            "/value/steps",
            json!(1000),
        ),
        wrong(
            "progress-step-tree",
            "A count is a value tree of an integer.",
            "/value/tokens",
            json!({"int": "9007199254740992"}),
        ),
        wrong("progress-count-negative", "A count is negative.", "/value/samples", json!(-1)),
        wrong("progress-count-text", "A count is a string.", "/value/epoch", json!("3")),
        wrong(
            "progress-count-null",
            "A count that is not kept is null.",
            "/value/epoch",
            json!([null]),
        ),
        wrong(
            "progress-other-name",
            "Progress goes by another name than `main`.",
            "/name",
            json!("trainer"),
        ),
        wrong("progress-placed", "Progress has a coordinate.", "/coordinate", json!([["dp", 0]])),
    ];
    let bare = bases::bare();
    for (slug, rules, fault, pointer, value, code) in table {
        let bend = bent(&bare, &bases::progress(), pointer, &value);
        cases
            .case(&format!("resume/read-{slug}"), rules, fault)
            .op(Op::Read)
            .over("bare")
            .effect(Effect::WrongResume)
            .rejects_recipe(&bare, &bend, &[code]);
    }
    let with = |value: Value| {
        let mut recipe = bases::bare();
        recipe.writers[0].records[0]["value"] = value;
        recipe
    };
    let all = json!({"batch": 0, "epoch": MAX, "iteration": MAX, "optimizer_step": 1000,
        "samples": MAX, "skipped": 0, "tokens": MAX});
    cases
        .case(
            "resume/read-progress-every-member",
            form,
            "Progress with every member, some the largest.",
        )
        .op(Op::Read)
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&with(all.clone()));
    cases
        .case(
            "extended/progress",
            &["progress.step", "progress.form"],
            "Progress with every member, whose step is the checkpoint's.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&with(all));
    for (slug, what, step) in [("behind", "one behind", 999), ("ahead", "one ahead of", 1001)] {
        cases
            .case(
                &format!("extended/progress-{slug}"),
                &["progress.step"],
                &format!("The step of the progress is {what} the checkpoint's."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .rejects_recipe(
                &bare,
                &bent(&bare, &bases::progress(), "/value/optimizer_step", &json!(step)),
                &[Code::StateDisagree],
            );
    }
}

fn averages(cases: &mut Cases) {
    let form: &[&str] = &["ema.form"];
    let ema = |value: Value| record("ema", "ema", value);
    let full = ema(json!({"decay": {"f64": "3feff7ced916872b"}, "updates": 1000}));
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let table = [
        wrong("ema-decay-integer", "A decay is an integer.", "/value/decay", json!(1)),
        wrong("ema-decay-text", "A decay is a string.", "/value/decay", json!("0.999")),
        wrong(
            "ema-decay-upper-case",
            "The digits of a decay are upper-case.",
            "/value/decay/f64",
            json!("3FEFF7CED916872B"),
        ),
        wrong(
            "ema-decay-short",
            "A decay of 64 bits has eight digits.",
            "/value/decay/f64",
            json!("3feff7ce"),
        ),
        wrong(
            "ema-without-updates",
            "An average does not say how often it was updated.",
            "/value/updates",
            Value::Null,
        ),
        wrong("ema-unknown-member", "An average has a member more.", "/value/power", json!(1)),
    ];
    wrong_forms(cases, &full, &table);
    right_forms(
        cases,
        &[
            (
                "ema",
                form,
                "An average with a decay in 32 bits.",
                ema(json!({"decay": {"f32": "3f7fbe77"}, "updates": MAX})),
            ),
            (
                "ema-without-decay",
                form,
                "An average with equal weights.",
                ema(json!({"updates": 0})),
            ),
        ],
    );
}

fn scalers(cases: &mut Cases) {
    let form: &[&str] = &["scaler.form"];
    let full = || {
        record(
            "scaler",
            "main",
            json!({"backoff": {"f64": "3fe0000000000000"}, "good_steps": 7,
                "growth": {"f64": "4000000000000000"}, "hysteresis": 2, "interval": 2000,
                "scale": {"f32": "47800000"}, "skipped": 3}),
        )
    };
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let table = [
        wrong("scaler-scale-integer", "The scale is an integer.", "/value/scale", json!(65536)),
        wrong(
            "scaler-scale-list",
            "The scale is a list of one float.",
            "/value/scale",
            json!({"list": [{"f32": "47800000"}]}),
        ),
        wrong(
            "scaler-without-growth",
            "A scaler does not say how it grows.",
            "/value/growth",
            Value::Null,
        ),
        wrong(
            "scaler-without-interval",
            "A scaler does not say how often it grows.",
            "/value/interval",
            Value::Null,
        ),
        wrong(
            "scaler-count-float",
            "A count is a float.",
            "/value/good_steps",
            json!({"f64": "401c000000000000"}),
        ),
        wrong("scaler-count-negative", "A count is negative.", "/value/skipped", json!(-1)),
        wrong(
            "scaler-unknown-member",
            "A scaler has a member more.",
            "/value/enabled",
            json!(true),
        ),
    ];
    wrong_forms(cases, &full(), &table);
    let mut least = full();
    for member in ["hysteresis", "skipped"] {
        least["value"].as_object_mut().map(|members| members.remove(member));
    }
    least["value"]["scale"] = json!({"f64": "7ff0000000000000"});
    right_forms(
        cases,
        &[
            ("scaler", form, "A loss scaler with every member.", full()),
            (
                "scaler-least",
                form,
                "A loss scaler without what may be left out, whose scale is infinite.",
                least,
            ),
        ],
    );
}

fn uncaptured(cases: &mut Cases) {
    let form: &[&str] = &["uncaptured.form"];
    let full = record("uncaptured", "torch.dcp/rng", json!({"kind": "rng", "reason": "not said"}));
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let name: &[&str] = &["identity.name", "uncaptured.form"];
    let table = [
        wrong(
            "uncaptured-without-reason",
            "It is not said why something was not captured.",
            "/value/reason",
            Value::Null,
        ),
        wrong(
            "uncaptured-without-kind",
            "It is not said what was not captured.",
            "/value/kind",
            Value::Null,
        ),
        wrong(
            "uncaptured-unknown-member",
            "What was not captured has a member more.",
            "/value/state",
            json!(""),
        ),
        (
            "uncaptured-reason-empty",
            name,
            "The reason has no letter.",
            "/value/reason",
            json!(""),
            Code::BadName,
        ),
        (
            "uncaptured-reason-lines",
            name,
            "The reason has two lines.",
            "/value/reason",
            json!("a\nb"),
            Code::BadName,
        ),
    ];
    wrong_forms(cases, &full, &table);
    let other = record(
        "uncaptured",
        "inductor",
        json!({"kind": "vendor/compile-cache", "reason": "too large"}),
    );
    right_forms(
        cases,
        &[
            ("uncaptured", form, "A stream that was not captured.", full),
            (
                "uncaptured-other-kind",
                form,
                "Something of an unknown kind that was not captured.",
                other,
            ),
        ],
    );
}

/// Records of one name at all places.
fn grids(cases: &mut Cases) {
    let at = |coordinate: Value| placed("value", "rank", coordinate, json!({"tree": true}));
    let grid = |places: &[Value]| {
        let records: Vec<Value> = places.iter().cloned().map(at).collect();
        let mut recipe = recipe(&records);
        recipe.topology = vec![("dp".into(), 2), ("tp".into(), 2)];
        recipe
    };
    let whole = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dp, tp)| json!([["dp", dp], ["tp", tp]]));
    cases
        .case(
            "extended/record-grid",
            &["record.grid"],
            "Records of one name at every place of two axes.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&grid(&whole));
    let mut none = grid(&[json!([["dp", 0]]), json!([["dp", 1]])]);
    none.writers[0].records.push(record("value", "rank", json!({"tree": true})));
    let broken = [
        ("hole", "One place of four has no record.", grid(&whole[..3])),
        (
            "diagonal",
            "Every index stands once, and half of the places have no record.",
            grid(&[whole[0].clone(), whole[3].clone()]),
        ),
        (
            "axes",
            "Records of one name vary over different axes.",
            grid(&[json!([["dp", 0]]), json!([["dp", 1]]), json!([["tp", 0]]), json!([["tp", 1]])]),
        ),
        ("with-and-without", "A record of one name has no coordinate, others have.", none),
    ];
    for (slug, fault, recipe) in broken {
        cases
            .case(&format!("extended/record-grid-{slug}"), &["record.grid"], fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .rejects_recipe(&recipe, &Bend::new("other places"), &[Code::RecordGrid]);
    }
    let files = straight(&grid(&whole[..3]));
    let answer = crate::build::projection(&grid(&whole[..3]));
    cases
        .case("core/record-grid-hole", &["record.grid"], "One place of four has no record, which a reader need not look for.")
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .latitude("record.grid is a rule for committers and validators; a reader may look all the same (open.order)")
        .either_files(files, answer, &[Code::RecordGrid]);
}
