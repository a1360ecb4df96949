//! The runner against adapters that do everything wrong that can be done, one thing each.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::{adapter, case, only, options, run, verdicts};
use waystation_conformance::case::{Case, Level, Op, Outcome, Profile, Step};
use waystation_conformance::runner::report::Status;
use waystation_conformance::runner::{self, Limits, Options, Unwatched, Verdict, Watcher};
use waystation_format::Code;
use waystation_state::Stop;

fn reject(name: &str) -> Case {
    let mut case = case(name);
    case.expect.outcome = Outcome::Reject;
    case.expect.codes = vec!["crc-mismatch".to_owned()];
    case.expect.class = Some("corrupt".to_owned());
    case
}

#[test]
fn each_verdict_has_its_answer() {
    let mut wrong = case("ok");
    wrong.expect.id = "core/wrong-content".to_owned();
    wrong.expect.answer = Some(json!({"step": 2, "tensors": [{"name": "w", "hex": "00"}]}));
    let mut either = case("other-code");
    either.expect.id = "core/either".to_owned();
    either.expect.outcome = Outcome::Either;
    let cases = [
        case("ok"),
        wrong,
        either,
        reject("right-code"),
        reject("ok"),
        case("right-code"),
        case("skip"),
    ];
    let mut cases = cases.to_vec();
    cases[4].expect.id = "core/taken".to_owned();
    cases[5].expect.id = "core/refused".to_owned();
    let report = run(&cases, &options());
    assert_eq!(
        verdicts(&report),
        [
            Verdict::Pass,
            Verdict::Fail,
            Verdict::Pass,
            Verdict::Pass,
            Verdict::Fail,
            Verdict::Fail,
            Verdict::Skip
        ]
    );
    assert_eq!(report.results[1].why, ["/step: expected 2, found 1"]);
    assert!(
        report.results[4].why[0].contains("crc-mismatch (corrupt), found none"),
        "{:?}",
        report.results[4].why
    );
    assert!(!report.fine);
}

#[test]
fn what_may_be_taken_or_refused_is_as_right_as_if_it_had_to() {
    let either = |name: &str| {
        let mut case = reject(name);
        case.expect.id = format!("core/either-{name}");
        case.expect.outcome = Outcome::Either;
        case
    };
    let mut taken = either("ok");
    taken.expect.answer = Some(json!({"step": 1}));
    let mut wrong = either("ok");
    wrong.expect.id = "core/either-wrong".to_owned();
    wrong.expect.answer = Some(json!({"step": 2}));
    let cases = [taken, wrong, either("right-code"), either("right-class")];
    let (pass, fail) = (Verdict::Pass, Verdict::Fail);
    let report = run(&cases, &options());
    assert_eq!(verdicts(&report), [pass, fail, pass, pass]);
    assert_eq!(report.results[1].why, ["/step: expected 2, found 1"]);
    let mut exact = options();
    exact.level = 3;
    let report = run(&cases, &exact);
    assert_eq!(verdicts(&report), [pass, fail, pass, fail]);
    let why = &report.results[3].why[0];
    assert!(why.contains("expected ok or a refusal, crc-mismatch (corrupt)"), "{why}");
}

#[test]
fn a_level_is_what_was_seen() {
    let reached = |cases: &[Case]| run(cases, &options()).profiles[0].reached;
    assert_eq!(reached(&[case("ok")]), None, "nothing was refused");
    assert_eq!(reached(&[case("ok"), reject("right-class")]), Some(2));
    assert_eq!(reached(&[case("right-code"), reject("right-class")]), Some(0));
    let text = waystation_conformance::runner::report::text(&run(&[case("ok")], &options()));
    let row = text.lines().find(|line| line.starts_with("core")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..4], ["core", "conformant", "1", "1"]);
}

#[test]
fn a_refusal_has_three_levels() {
    for (name, reached) in [("right-code", 3), ("right-class", 2), ("other-code", 1)] {
        for level in 1..=3 {
            let mut options = options();
            options.level = level;
            let report = run(&[reject(name)], &options);
            let verdict = if reached >= level { Verdict::Pass } else { Verdict::Fail };
            assert_eq!(verdicts(&report), [verdict], "{name} at {level}");
            assert_eq!(report.results[0].reached, Some(reached));
            assert_eq!(report.profiles[0].reached, Some(reached));
            assert_eq!(report.fine, verdict == Verdict::Pass);
        }
    }
}

#[test]
fn an_error_that_was_not_meant_is_a_crash_and_no_refusal() {
    let mut finding = reject("internal-finding");
    finding.expect.op = Op::Validate;
    finding.expect.profile = Profile::Extended;
    let mut either = case("internal");
    either.expect.outcome = Outcome::Either;
    let report = run(&[reject("internal"), either, finding, case("ok")], &options());
    assert_eq!(verdicts(&report)[..3], [Verdict::Crash; 3]);
    assert_eq!(verdicts(&report)[3], Verdict::Pass);
    assert!(report.results[0].got.contains("IndexError"), "{}", report.results[0].got);
}

#[test]
fn findings_are_refusals() {
    let validate = |mut case: Case| {
        case.expect.op = Op::Validate;
        case.expect.profile = Profile::Extended;
        case
    };
    let cases = [
        validate(reject("findings")),
        validate(reject("no-findings")),
        validate(reject("right-code")),
        validate(case("no-findings")),
        validate(case("findings")),
        validate(case("ok")),
    ];
    let report = run(&cases, &options());
    let (pass, fail) = (Verdict::Pass, Verdict::Fail);
    // The last answers no findings at all, which is no answer to this operation.
    assert_eq!(verdicts(&report), [pass, fail, pass, pass, fail, Verdict::Crash]);
    assert_eq!(report.results[0].reached, Some(3));
}

#[test]
fn every_other_end_is_a_crash_and_the_next_case_is_asked_all_the_same() {
    let cases: Vec<Case> = [
        "wrong-id",
        "garbage",
        "killed",
        "exit",
        "half-a-line",
        "long-line",
        "hang",
        "child-hangs",
    ]
    .into_iter()
    .flat_map(|name| [case(name), case("ok")])
    .collect();
    let mut options = options();
    options.limits = Limits { time: Duration::from_secs(5), line: 1 << 20, ..Limits::default() };
    let start = Instant::now();
    let report = run(&cases, &options);
    for pair in report.results.chunks(2) {
        assert_eq!(pair[0].verdict, Verdict::Crash, "{}: {}", pair[0].id, pair[0].got);
        assert_eq!(pair[1].verdict, Verdict::Pass, "after {}: {}", pair[0].id, pair[1].got);
    }
    let got: Vec<&str> =
        report.results.iter().step_by(2).map(|result| result.got.as_str()).collect();
    for (got, words) in got.iter().zip([
        "an answer to another request",
        "expected JSON",
        "signal 11",
        "exit status 4",
        "exit status 0",
        "a line of more than 1048576 bytes",
        "no answer within 5 s",
        "exit status 0",
    ]) {
        assert!(got.contains(words), "{got}");
    }
    assert_eq!(report.results[4].stderr.as_deref(), Some("about to fall\n"));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn processor_time_is_bounded() {
    let mut options = options();
    options.limits.time = Duration::from_secs(60);
    options.limits.processor = Duration::from_secs(1);
    let report = run(&[case("processor"), case("ok")], &options);
    assert_eq!(verdicts(&report), [Verdict::Crash, Verdict::Pass]);
    assert!(
        report.results[0].got.contains("more than 1 s of processor"),
        "{}",
        report.results[0].got
    );
    // Who has it done does it.
    let report = run(&[case("child-processor"), case("ok")], &options);
    assert_eq!(verdicts(&report), [Verdict::Crash, Verdict::Pass]);
}

#[test]
fn a_second_answer_is_the_fault_of_the_case_that_gave_it() {
    let cases = [case("twice"), case("ok"), case("twice")];
    let report = run(&cases, &options());
    assert_eq!(verdicts(&report), [Verdict::Crash, Verdict::Pass, Verdict::Crash]);
    let mut options = options();
    options.isolate = true;
    assert_eq!(verdicts(&run(&cases, &options)), verdicts(&report));
}

#[test]
fn a_process_that_goes_after_its_answer_is_the_fault_of_that_case() {
    let mut impossible = case("no-file");
    impossible.expect.setup =
        vec![Step::Link { path: "a".to_owned(), target: "nowhere".to_owned() }];
    let wrong = ["leaves", "falls-afterwards", "leaves-a-child", "stray", "takes-and-leaves"];
    let mut cases: Vec<Case> = wrong.iter().flat_map(|name| [case(name), case("ok")]).collect();
    // What could not be asked in between is not at fault.
    cases.extend([case("twice"), impossible, case("ok")]);
    let report = run(&cases, &options());
    let (pass, crash) = (Verdict::Pass, Verdict::Crash);
    for pair in report.results[..10].chunks(2) {
        let [wrong, right] = pair else { panic!() };
        assert_eq!(wrong.verdict, crash, "{}: {}", wrong.id, wrong.got);
        assert_eq!(right.verdict, pass, "after {}: {}", wrong.id, right.got);
    }
    assert_eq!(verdicts(&report)[10..], [crash, Verdict::NotRun, pass]);
    let mut alone = options();
    alone.isolate = true;
    let cases = ["leaves", "takes-and-leaves", "falls-afterwards", "ok"].map(case);
    let report = run(&cases, &alone);
    assert_eq!(verdicts(&report), [crash, crash, crash, pass], "{:?}", report.results);
}

#[test]
fn who_reads_changes_nothing() {
    let mut refuses = reject("writes-over");
    refuses.given.insert("writes-over".to_owned(), b"abc".to_vec());
    let report = run(&[case("adds-a-file"), refuses, case("deletes"), case("ok")], &options());
    let fail = Verdict::Fail;
    assert_eq!(verdicts(&report), [fail, fail, fail, Verdict::Pass]);
    for (result, path) in report.results.iter().zip(["more", "writes-over", "deletes"]) {
        let why = format!("it changed what it read: given/{path}");
        assert!(result.why.contains(&why), "{:?}", result.why);
    }
}

#[test]
fn nobody_waits_for_an_answer_when_the_run_is_stopped() {
    struct Impatient(Stop);
    impl Watcher for Impatient {
        fn stop(&self) -> Stop {
            self.0.clone()
        }
    }
    let mut patient = options();
    patient.limits.time = Duration::from_secs(300);
    patient.limits.hello = Duration::from_secs(300);
    let mut mute = patient.clone();
    mute.adapter = adapter("mute");
    for options in [patient, mute] {
        let stop = Stop::new();
        let watcher = Impatient(stop.clone());
        let (start, later) = (Instant::now(), Duration::from_secs(2));
        std::thread::spawn(move || {
            std::thread::sleep(later);
            stop.request();
        });
        let stopped = runner::run(&[case("hang")], &options, None, &watcher).unwrap_err();
        assert_eq!(stopped.code(), Code::Interrupted, "{stopped}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn memory_is_bounded_by_the_size_of_the_case() {
    let mut large = reject("memory");
    large.given.insert("z".to_owned(), vec![0; 1 << 20]);
    large.expect.id = "core/large".to_owned();
    // Twelve twice is too much for one process, but neither took too much.
    let cases = [
        reject("memory"),
        large,
        case("more-memory-than-there-is"),
        case("keeps-memory"),
        case("takes-a-little"),
    ];
    let report = run(&cases, &options());
    let got = verdicts(&report);
    assert_eq!(got[0], Verdict::Crash, "{}", report.results[0].got);
    assert!(report.results[0].got.contains("bytes of memory"), "{}", report.results[0].got);
    assert_eq!(got[1], Verdict::Pass, "{}", report.results[1].got);
    assert_eq!(
        got[2],
        Verdict::Fail,
        "what is not given cannot be taken: {}",
        report.results[2].got
    );
    assert_eq!(got[3..], [Verdict::Pass; 2], "{}", report.results[4].got);
    assert!(report.limits.measured);
}

#[test]
fn each_case_has_a_process_when_that_is_asked() {
    let cases = [case("ok"), case("ok"), case("ok")];
    let processes = |isolate| {
        let mut options = options();
        options.isolate = isolate;
        let report = run(&cases, &options);
        let of = |got: &str| {
            got.split("\"process\":").nth(1).unwrap().split(',').next().unwrap().to_owned()
        };
        let all: std::collections::BTreeSet<String> =
            report.results.iter().map(|r| of(&r.got)).collect();
        all.len()
    };
    assert_eq!((processes(false), processes(true)), (1, 3));
}

#[test]
fn a_case_that_cannot_be_made_is_no_pass() {
    let mut impossible = case("ok");
    impossible.expect.setup =
        vec![Step::Link { path: "a".to_owned(), target: "nowhere".to_owned() }];
    let report = run(&[impossible, case("right-code")], &options());
    assert_eq!(verdicts(&report)[0], Verdict::NotRun);
    assert!(report.results[0].got.contains("link a"), "{}", report.results[0].got);
    assert!(waystation_conformance::runner::report::text(&report).contains("NOT RUN"));
}

#[test]
fn what_is_not_run_is_not_conformant() {
    let mut resume = case("ok");
    resume.expect.profile = Profile::Resume;
    let report = run(&[resume.clone(), case("skip")], &options());
    let of = |profile| report.profiles.iter().find(|p| p.profile == profile).unwrap();
    assert_eq!((of(Profile::Resume).status, of(Profile::Resume).claimed), (Status::NotRun, false));
    assert_eq!(of(Profile::Resume).all.left_out, 1);
    assert_eq!(of(Profile::Core).status, Status::NotRun, "skipped only");
    assert!(!report.fine, "nothing was run");
    let mut options = options();
    options.selection.profiles = vec![Profile::Resume];
    let report = run(&[resume, case("ok")], &options);
    let reasons = report.reasons();
    assert!(!report.fine && reasons[0].contains("resume"), "{reasons:?}");
    assert!(reasons[0].contains("does not claim it"), "{reasons:?}");
}

#[test]
fn a_recommended_case_fails_nothing_but_itself() {
    let mut should = case("right-code");
    should.expect.level = Level::Recommended;
    let report = run(&[case("ok"), should.clone()], &options());
    assert_eq!(verdicts(&report), [Verdict::Pass, Verdict::Fail]);
    assert!(report.fine);
    assert_eq!(report.profiles[0].status, Status::Conformant);
    should.given = case("exit").given;
    assert!(!run(&[case("ok"), should], &options()).fine, "but a crash");
}

#[test]
fn counts_sum_up_whatever_is_chosen() {
    let names = ["ok", "right-code", "skip", "exit", "hang"];
    let mut options = options();
    options.selection.cases.extend(names[..4].iter().map(|name| format!("core/{name}")));
    let cases = names.map(case);
    let report = run(&cases, &options);
    let all = Options { selection: only("core/ok"), ..options.clone() };
    let shown = waystation_conformance::runner::report::text(&run(&cases, &all));
    assert!(shown.contains("not all run"), "{shown}");
    let counts = report.counts();
    assert_eq!(counts.total, 5);
    assert_eq!(
        (counts.pass, counts.fail, counts.skip, counts.crash, counts.left_out),
        (1, 1, 1, 1, 1)
    );
    options.selection = only("core/none");
    let none = runner::run(&cases, &options, None, &Unwatched).unwrap_err();
    assert_eq!(none.code(), Code::BadArgument);
    assert!(none.to_string().contains("core/none"), "{none}");
    // Each that is named is meant.
    options.selection.cases = vec!["core/ok".to_owned(), "core/none".to_owned()];
    let one = runner::run(&cases, &options, None, &Unwatched).unwrap_err();
    assert_eq!(one.to_string(), none.to_string());
    options.selection.cases = vec!["core/ok".to_owned(), "core/skip".to_owned()];
    let skipped = run(&cases, &options).reasons();
    assert!(skipped.len() == 1 && skipped[0].contains("of core/skip"), "{skipped:?}");
}

#[test]
fn a_program_that_does_not_say_hello_is_no_adapter() {
    for (mode, words) in
        [("refuse", "Traceback: | no licence"), ("later", "protocol 2"), ("mute", "no answer")]
    {
        let mut options = options();
        options.adapter = adapter(mode);
        if mode == "mute" {
            options.limits.hello = Duration::from_secs(2);
        }
        let error = runner::run(&[case("ok")], &options, None, &Unwatched).unwrap_err();
        assert!(error.code() == Code::BadArgument && error.to_string().contains(words), "{error}");
    }
    let mut options = options();
    options.adapter = vec!["/nowhere/at/all".into()];
    assert!(runner::run(&[case("ok")], &options, None, &Unwatched).is_err());
}
