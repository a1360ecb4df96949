//! Who reads what whom wrote, and how a recipe fares between the two adapters of this project.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ffi::OsString;
use std::path::Path;

use support::{adapter, case, options, verdicts};
use waystation_conformance::case::{Case, Profile};
use waystation_conformance::catalogue::{Cases, bases};
use waystation_conformance::runner::matrix::{Party, matrix};
use waystation_conformance::runner::{self, Limits, Unwatched, Verdict};

fn ours() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_waystation-adapter").into()]
}

fn python() -> Vec<OsString> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters/python/adapter.py");
    vec!["python3".into(), "-B".into(), script.into()]
}

fn party(name: &str, command: Vec<OsString>) -> Party {
    Party { name: name.to_owned(), command }
}

/// Two recipes to write.
fn recipes() -> Vec<Case> {
    let mut cases = Cases::default();
    for base in ["small", "two"] {
        let id = format!("writer/{base}-as-it-is");
        cases
            .case(&id, &["intro.depth"], "Nothing is special.")
            .writes(&bases::named(base).unwrap());
    }
    cases.finish()
}

#[test]
fn what_is_written_is_judged_by_the_reference_reader() {
    for adapter in [ours(), python()] {
        let mut options = options();
        options.adapter = adapter;
        let mut cases = recipes();
        let mut other = cases[0].clone();
        other.expect.id = "writer/other".to_owned();
        let recipe = other.expect.request.get_mut("recipe").unwrap();
        recipe["run"] = "another".into();
        cases.push(other);
        let report = runner::run(&cases, &options, None, &Unwatched).unwrap();
        let (pass, fail) = (Verdict::Pass, Verdict::Fail);
        assert_eq!(verdicts(&report), [pass, pass, fail], "{}", runner::report::text(&report));
        let why = &report.results[2].why;
        assert!(why.len() == 1 && why[0].starts_with("/run: expected"), "{why:?}");
    }
}

#[test]
fn a_real_writer_survives_being_killed() {
    let mut options = options();
    options.adapter = ours();
    options.kills = 12;
    let mut cases = recipes();
    for case in &mut cases {
        case.expect.id = case.expect.id.replace("writer/", "durability/");
        case.expect.profile = Profile::Durability;
    }
    let report = runner::run(&cases, &options, None, &Unwatched).unwrap();
    if report.adapter.profiles.contains(&Profile::Durability) {
        assert_eq!(verdicts(&report), [Verdict::Pass; 2], "{}", runner::report::text(&report));
    }
}

#[test]
fn a_table_of_all_pairs() {
    let cases = recipes();
    let parties = [party("ours", ours()), party("py", python())];
    let found = matrix(&cases, &parties, Limits::default(), &Unwatched).unwrap();
    assert!(found.is_fine(), "{}", found.text());
    assert_eq!(found.cells.len(), 4);
    assert!(found.cells.iter().all(|cell| cell.same == 2), "{}", found.text());
    assert!(found.markdown().contains("| ours | 2/2 | 2/2 |"), "{}", found.markdown());
    // One that knows no format reads nothing that others write.
    let parties = [party("ours", ours()), party("none", adapter(""))];
    let found = matrix(&cases, &parties, Limits::default(), &Unwatched).unwrap();
    assert!(!found.is_fine());
    let fine: Vec<bool> = found.cells.iter().map(|cell| cell.different.is_empty()).collect();
    assert_eq!(fine, [true, false, false, false], "{}", found.text());
    assert!(found.text().contains("reading: its output ended"), "{}", found.text());
    let none = matrix(&[case("ok")], &parties, Limits::default(), &Unwatched).unwrap_err();
    assert!(none.to_string().contains("some recipe"), "{none}");
}
