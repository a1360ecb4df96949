//! Cases and adapters for tests of the runner.
#![allow(dead_code, reason = "each test uses its part")]

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;
use waystation_conformance::case::{Case, Expect, Level, Made, Op, Outcome, Profile};
use waystation_conformance::files::Files;
use waystation_conformance::runner::{self, Options, Report, Selection, Unwatched, Verdict};

pub(crate) fn adapter(mode: &str) -> Vec<OsString> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/behaving.py");
    vec!["python3".into(), "-B".into(), script.into(), mode.into()]
}

pub(crate) fn options() -> Options {
    Options::new(adapter(""))
}

/// A case of core that is to be accepted; what is done with it its name says.
pub(crate) fn case(name: &str) -> Case {
    Case {
        expect: Expect {
            id: format!("core/{name}"),
            since: "1.0".to_owned(),
            profile: Profile::Core,
            level: Level::Required,
            op: Op::Read,
            request: serde_json::Map::new(),
            outcome: Outcome::Accept,
            answer: Some(json!({})),
            codes: Vec::new(),
            class: None,
            place: None,
            rules: vec!["intro.depth".to_owned()],
            latitude: None,
            features: Vec::new(),
            fault: "Nothing is wrong with it.".to_owned(),
            effect: None,
            origin: None,
            made: Made::default(),
            setup: Vec::new(),
        },
        given: Files::from([(name.to_owned(), Vec::new())]),
    }
}

pub(crate) fn run(cases: &[Case], options: &Options) -> Report {
    runner::run(cases, options, None, &Unwatched).unwrap()
}

pub(crate) fn only(pattern: &str) -> Selection {
    Selection { profiles: Vec::new(), cases: vec![pattern.to_owned()] }
}

pub(crate) fn verdicts(report: &Report) -> Vec<Verdict> {
    report.results.iter().map(|result| result.verdict).collect()
}
