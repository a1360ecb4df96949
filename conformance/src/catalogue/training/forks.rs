//! Chapters 17.5 and 19: streams on another topology.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{Ask, place, said};
use super::held::{placed, recipe};
use super::streams::{exact, value};
use super::vectors::{self, Stream};
use crate::bend::straight;
use crate::build::{fork_seed, forked};
use crate::case::Effect;
use crate::files::Files;
use crate::recipe::hex;

pub(super) fn add(cases: &mut Cases) {
    every_algorithm(cases);
    coordinates(cases);
    on_reshape(cases);
    missing(cases);
    grades_alone(cases);
}

const RBG: &str = "jax-rbg/42";

/// A checkpoint of a stream that varies over axes, with the same state everywhere.
fn varying(stream: &Stream, name: &str, on_reshape: &str, axes: &[(&str, u64)]) -> Files {
    let mut places = vec![Vec::new()];
    for (axis, size) in axes {
        places = places
            .iter()
            .flat_map(|at: &Vec<Value>| {
                (0..*size).map(|index| [at.clone(), vec![json!([axis, index])]].concat())
            })
            .collect();
    }
    let record =
        |at: &Vec<Value>| placed("rng", name, at.clone().into(), value(stream, on_reshape));
    let mut recipe = recipe(&places.iter().map(record).collect::<Vec<_>>());
    recipe.run = "demo".into();
    recipe.topology = axes.iter().map(|(axis, size)| ((*axis).to_owned(), *size)).collect();
    if !axes.iter().any(|(axis, _)| *axis == "dp") {
        recipe.topology.insert(0, ("dp".into(), 1));
    }
    straight(&recipe)
}

fn grade(grade: &str, name: &str, stream: &Stream) -> Value {
    json!({"algorithm": stream.algorithm, "grade": grade, "name": name,
        "next_raw": stream.next_raw, "state": stream.state})
}

/// What becomes of a key of rbg, which has no outputs: the digest alone makes it.
fn rbg(name: &str, coordinate: Value) -> Value {
    let state = hex(&forked("jax-rbg", fork_seed("demo", 1000, name, &coordinate)));
    json!({"algorithm": "jax-rbg", "grade": "fork", "name": name, "next_raw": [], "state": state})
}

fn every_algorithm(cases: &mut Cases) {
    let streams = [
        ("mt19937", "python/42-gauss"),
        ("pcg64-xsl-rr", "numpy/PCG64/7-mid-half"),
        ("pcg64-dxsm", "numpy/PCG64DXSM/7-mid-half"),
        ("pcg32-xsh-rr", "rust/pcg32"),
        ("philox4x64", "numpy/Philox/7-mid-half"),
        ("philox-torch-cuda", "torch-cuda/2a-4"),
        ("philox-torch-key", "torch-key/2a-0"),
        ("philox-torch-mps", "torch-mps/2a-0"),
        ("sfc64", "numpy/SFC64/42"),
        ("threefry-partitionable", "jax/partitionable/42-5"),
        ("threefry-split", "jax/split/42-5"),
        ("jax-rbg", RBG),
        ("jax-unsafe-rbg", "jax-unsafe-rbg/42"),
        ("chacha8", "rust/chacha8/rand"),
        ("chacha12", "rust/chacha12/rand"),
        ("chacha20", "rust/chacha20/rand"),
        ("xoshiro256pp", "rust/xoshiro256++"),
    ];
    for (slug, id) in streams {
        let stream = vectors::stream(id);
        let new = vectors::forked(&stream.algorithm);
        cases
            .case(
                &format!("resume/fork-{slug}"),
                &["rng.fork", "restore.grade"],
                &format!("A {} of one rank is resumed on three, as rank 2.", stream.algorithm),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(place(&[("dp", 3, 2)]).demand("fork").request())
            .answers_files(
                varying(&stream, "dropout", "fork", &[("dp", 1)]),
                said(&[grade("fork", "dropout", &new)], &[], &[]),
            );
    }
}

/// What goes into the digest.
fn coordinates(cases: &mut Cases) {
    let stream = vectors::stream(RBG);
    let both: &[(&str, u64)] = &[("dp", 2), ("tp", 2)];
    let one: &[(&str, u64)] = &[("dp", 2)];
    type Row<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, u64)], Ask, Value);
    let rows: [Row<'_>; 7] = [
        (
            "old-place",
            "A place that there was before forks like any other.",
            "dropout",
            one,
            place(&[("dp", 3, 0)]),
            json!([["dp", 0]]),
        ),
        (
            "fewer",
            "Two ranks become one.",
            "dropout",
            one,
            place(&[("dp", 1, 0)]),
            json!([["dp", 0]]),
        ),
        (
            "only-its-axes",
            "Axes that the stream does not vary over are not in the new coordinate.",
            "dropout",
            one,
            place(&[("pp", 2, 1), ("dp", 3, 2), ("tp", 2, 1)]),
            json!([["dp", 2]]),
        ),
        (
            "other-order",
            "The new topology has the axes in another order, and the new coordinate has its order.",
            "dropout",
            both,
            place(&[("tp", 3, 1), ("dp", 2, 0)]),
            json!([["tp", 1], ["dp", 0]]),
        ),
        (
            "one-axis-gone",
            "One of the axes that the stream varies over is gone, the other as it was.",
            "dropout",
            both,
            place(&[("dp", 2, 1)]),
            json!([["dp", 1]]),
        ),
        (
            "all-axes-gone",
            "The only axis that the stream varies over is gone: the new coordinate is empty.",
            "dropout",
            one,
            place(&[("cp", 2, 1)]),
            json!([]),
        ),
        (
            "name-beyond-ascii",
            "The stream's name has letters beyond ASCII, an axis quotes: UTF-8 and canonical JSON.",
            "дропаут/é",
            &[("d\"p", 2)],
            place(&[("d\"p", 3, 2)]),
            json!([["d\"p", 2]]),
        ),
    ];
    for (slug, what, name, axes, ask, coordinate) in rows {
        cases
            .case(&format!("resume/fork-{slug}"), &["rng.fork"], what)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(ask.demand("fork").request())
            .answers_files(
                varying(&stream, name, "fork", axes),
                said(&[rbg(name, coordinate)], &[], &[]),
            );
    }
}

fn on_reshape(cases: &mut Cases) {
    let stream = vectors::stream("numpy/PCG64/42");
    let files = |on_reshape: &str| varying(&stream, "dropout", on_reshape, &[("dp", 2)]);
    let three = || place(&[("dp", 3, 2)]);
    let none = json!({"algorithm": stream.algorithm, "grade": "none", "name": "dropout",
        "next_raw": [], "state": null});
    let here = said(&[exact("dropout", &stream)], &[], &[]);
    for on_reshape in ["require", "fork", "reinit"] {
        cases
            .case(
                &format!("resume/{on_reshape}-fits"),
                &["restore.grade"],
                &format!("A stream with `{on_reshape}` on a topology whose other axes are new is what it was."),
            )
            .over("bare")
            .effect(Effect::LostCheckpoint)
            .request(place(&[("dp", 2, 1), ("tp", 4, 3)]).request())
            .answers_files(files(on_reshape), here.clone());
    }
    cases
        .case(
            "resume/reinit",
            &["restore.grade", "restore.demand"],
            "A stream with `reinit` on another topology is to be seeded anew by the trainer.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(three().demand("none").request())
        .answers_files(files("reinit"), said(std::slice::from_ref(&none), &[], &[]));
    cases
        .case(
            "resume/require-left-out",
            &["restore.require"],
            "A stream with `require` on another topology, which the caller does without.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .request(three().without(&["dropout"]).request())
        .answers_files(files("require"), said(&[none], &[], &[]));
    let refusals: [(&str, &[&str], &str, &str, Ask); 5] = [
        (
            "require-reshaped",
            &["restore.require", "restore.demand"],
            "A stream with `require` does not fit.",
            "require",
            three(),
        ),
        (
            "require-reshaped-any-grade",
            &["restore.require"],
            "A stream with `require` does not fit, and the caller puts up with `none`.",
            "require",
            three().demand("none"),
        ),
        (
            "require-axis-gone",
            &["restore.require"],
            "A stream with `require` varies over an axis that is gone.",
            "require",
            place(&[("tp", 2, 0)]).demand("none"),
        ),
        (
            "fork-demanded-exact",
            &["restore.demand"],
            "A stream would be forked, and `exact` is demanded where nothing is said.",
            "fork",
            three(),
        ),
        (
            "reinit-demanded-fork",
            &["restore.demand"],
            "A stream is to be seeded anew, and `fork` is demanded.",
            "reinit",
            three().demand("fork"),
        ),
    ];
    for (slug, rules, fault, on_reshape, ask) in refusals {
        cases
            .case(&format!("resume/{slug}"), rules, fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(ask.request())
            .rejects_files(files(on_reshape), &[Code::NotExact]);
    }
}

/// A hole in the grid, which only committers and validators look for.
fn missing(cases: &mut Cases) {
    let stream = vectors::stream("numpy/PCG64/42");
    let record = placed("rng", "dropout", json!([["dp", 0]]), value(&stream, "fork"));
    let mut recipe = recipe(&[record]);
    recipe.topology = vec![("dp".into(), 2)];
    let files = straight(&recipe);
    let none = json!({"algorithm": stream.algorithm, "grade": "none", "name": "dropout",
        "next_raw": [], "state": null});
    cases
        .case(
            "resume/stream-missing-here",
            &["restore.grade"],
            "A stream fits, and has no record for the place: it is not forked.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(place(&[("dp", 2, 1)]).demand("none").request())
        .answers_files(files.clone(), said(&[none], &[], &[]));
    cases
        .case(
            "resume/stream-missing-here-demanded",
            &["restore.demand"],
            "A stream has no record for the place, and `fork` is demanded.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(place(&[("dp", 2, 1)]).demand("fork").request())
        .rejects_files(files.clone(), &[Code::NotExact]);
    cases
        .case(
            "extended/stream-missing",
            &["record.grid"],
            "A stream varies over an axis of two and has a record for one place.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .rejects_files(files, &[Code::RecordGrid]);
}

fn grades_alone(cases: &mut Cases) {
    let stream = vectors::stream("numpy/PCG64/42");
    let graded = |index: u64| {
        json!({"algorithm": stream.algorithm, "coordinate": [["dp", index]],
            "grade": "exact-if-axes-unchanged", "name": "dropout"})
    };
    for on_reshape in ["require", "fork", "reinit"] {
        cases
            .case(
                &format!("resume/grades-of-{on_reshape}"),
                &["restore.grade"],
                &format!("No topology is asked about: a stream with `{on_reshape}` that varies is exact while its axes are unchanged."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(super::asking::no_topology().request())
            .answers_files(
                varying(&stream, "dropout", on_reshape, &[("dp", 2)]),
                said(&[graded(0), graded(1)], &[], &[]),
            );
    }
}
