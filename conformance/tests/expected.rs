//! The list of expected failures says no more and no less than is true.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod support;

use support::{case, options, verdicts};
use waystation_conformance::case::{Case, Outcome, Profile};
use waystation_conformance::runner::{self, Expectations, Report, Unwatched, Verdict};

fn listed(cases: &[Case], list: &str) -> (Report, Expectations) {
    let expected = Expectations::parse(list).unwrap();
    (runner::run(cases, &options(), Some(&expected), &Unwatched).unwrap(), expected)
}

fn entry(case: &str) -> String {
    format!("[[expected]]\ncase = \"{case}\"\nreason = \"known\"\n")
}

/// Three cases: one passes, one fails, one is skipped.
fn three() -> [Case; 3] {
    ["ok", "right-code", "skip"].map(case)
}

#[test]
fn a_listed_failure_is_an_expected_one() {
    let (report, _) = listed(&three(), &entry("core/right-code"));
    assert_eq!(verdicts(&report), [Verdict::Pass, Verdict::ExpectedFailure, Verdict::Skip]);
    assert_eq!(report.results[1].reason.as_deref(), Some("known"));
    assert!(report.fine, "{:?}", report.reasons());
    assert_eq!(report.profiles[0].required.expected_failure, 1);
}

#[test]
fn a_listed_failure_counts_for_the_level() {
    let rejects = |name: &str, code: &str| {
        let mut case = case(name);
        case.expect.outcome = Outcome::Reject;
        case.expect.codes = vec![code.to_owned()];
        case
    };
    let cases = [rejects("right-code", "crc-mismatch"), rejects("ok", "crc-mismatch")];
    let (report, _) = listed(&cases, &entry("core/ok"));
    assert_eq!(verdicts(&report), [Verdict::Pass, Verdict::ExpectedFailure]);
    assert_eq!(report.profiles[0].reached, Some(0), "one was no refusal");
}

#[test]
fn the_list_is_strict() {
    let failing = entry("core/right-code");
    for (list, words) in [
        (String::new(), "1 case failed"),
        (failing.clone() + &entry("core/ok"), "core/ok passes"),
        (failing.clone() + &entry("core/gone"), "no such case"),
        (failing.clone() + &entry("core/skip"), "core/skip is skipped"),
        (failing.clone() + &failing, "listed twice"),
        (failing.clone() + "code = \"io\"\n", "fails with crc-mismatch, not with io"),
        (entry("core/*"), "core/ok passes"),
    ] {
        let (report, _) = listed(&three(), &list);
        assert!(!report.fine);
        let reasons = report.reasons().join("\n");
        assert!(reasons.contains(words), "{list}: {reasons}");
    }
    let (report, _) = listed(&three(), &(failing + "code = \"crc-mismatch\"\n"));
    assert!(report.fine);
}

#[test]
fn a_pattern_does_not_stand_for_everything() {
    let cases: Vec<Case> = (0..21)
        .map(|n| {
            let mut case = case("right-code");
            case.expect.id = format!("core/c{n}");
            case
        })
        .collect();
    let (report, _) = listed(&cases, &entry("core/c*"));
    assert!(report.reasons().join("\n").contains("matches 21 cases"));
    let (report, _) = listed(&cases[..20], &entry("core/c*"));
    assert!(report.fine, "{:?}", report.reasons());
}

#[test]
fn a_crash_cannot_be_expected_in_core() {
    let mut elsewhere = case("exit");
    elsewhere.expect.id = "extended/exit".to_owned();
    elsewhere.expect.profile = Profile::Extended;
    let cases = [case("ok"), case("exit"), elsewhere];
    let (report, list) = listed(&cases, &(entry("core/exit") + &entry("extended/exit")));
    assert_eq!(verdicts(&report), [Verdict::Pass, Verdict::Crash, Verdict::ExpectedFailure]);
    assert!(report.reasons().join("\n").contains("cannot be expected in core"));
    assert_eq!(list.fixed(&cases, &report), entry("extended/exit"));
}

#[test]
fn what_is_no_list_is_refused() {
    for bad in [
        "[[expected]]\ncase = \"a\"\n",
        "[[expected]]\ncase = \"a\"\nreason = \" \"\n",
        "[[expected]]\ncase = \"a\"\nreason = \"b\"\nwhy = \"c\"\n",
        "[[expcted]]\ncase = \"a\"\nreason = \"b\"\n",
        "expected = [{case = \"a\", reason = \"b\"}]\n",
        "[[expected]\n",
    ] {
        assert!(Expectations::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_list_is_put_right_and_keeps_what_people_wrote() {
    let list = "\
# Ours.

# Passes by now.
[[expected]]
case = \"core/ok\"
reason = \"was broken\"

# Half of it.
[[expected]]
case = \"core/r*\" # both
reason = \"known\"
issue = \"https://example.org/1\"

[[expected]]
case = \"core/gone\"
reason = \"x\"
";
    let mut other = case("ok");
    other.expect.id = "core/r-ok".to_owned();
    let cases = [case("ok"), case("right-code"), other, case("skip"), case("other-code")];
    let (report, expected) = listed(&cases, list);
    let fixed = expected.fixed(&cases, &report);
    assert_eq!(
        fixed,
        "\
# Ours.

# Half of it.
[[expected]]
case = \"core/right-code\" # both
reason = \"known\"
issue = \"https://example.org/1\"

[[expected]]
case = \"core/other-code\"
reason = 'seen, not explained yet: expected ok, found a refusal: {\"code\":\"it is broken\"}'
code = \"it is broken\"
"
    );
    let (report, again) = listed(&cases, &fixed);
    assert!(report.fine, "{:?}", report.reasons());
    assert_eq!(again.fixed(&cases, &report), fixed);
}
