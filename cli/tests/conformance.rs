//! `conformance` from the outside, with the independent reader as the implementation that is asked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use support::Program;

const PYTHON: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/adapters/python/adapter.py");

/// Cases of which there are some of both outcomes, and not many.
const SOME: &str = "run --profile core --case core/alias-*";

fn run(program: &Program, arguments: &str) -> support::Ran {
    program.run(&format!("conformance {arguments} -- python3 -B {PYTHON}"))
}

#[test]
fn a_run_is_told_in_every_form() {
    let program = Program::new();
    let ran = run(&program, &format!("{SOME} --level 3 --report out --json"));
    assert_eq!(ran.exit, 0, "{}{}", ran.out, ran.err);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let cases = report["results"].as_array().unwrap();
    assert!(cases.len() > 5 && cases.iter().all(|case| case["verdict"] == "pass"), "{report}");
    assert_eq!(report["profiles"][0]["status"], "partial", "others were left out");
    let written = fs::read_to_string(program.path("out/report.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), report);
    let junit = fs::read_to_string(program.path("out/junit.xml")).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), cases.len());
    assert!(
        fs::read_to_string(program.path("out/summary.md"))
            .unwrap()
            .contains("| core | not all run |")
    );
    let badge = fs::read_to_string(program.path("out/badge.json")).unwrap();
    assert!(badge.contains("core partial"), "{badge}");
}

#[test]
fn the_exit_status_says_who_is_at_fault() {
    let program = Program::new();
    assert_eq!(run(&program, "run --case core/none").exit, 2);
    assert_eq!(program.run("conformance run").exit, 2);
    assert_eq!(run(&program, "run --fix").exit, 2);
    assert_eq!(program.run("conformance run -- ./no-such-adapter").exit, 3);
    let ran = program.run("conformance run -- false");
    assert_eq!(ran.exit, 2, "what the command line names is no adapter: {}", ran.err);
    assert!(ran.err.contains("expected an answer to hello"), "{}", ran.err);
    // Where the report cannot be written nothing is asked first.
    fs::write(program.path("file"), b"").unwrap();
    let ran = run(&program, &format!("{SOME} --report file/out"));
    assert_eq!((ran.exit, ran.out.as_str()), (3, ""), "{}", ran.err);
    // What was found is told all the same when its last step fails.
    fs::create_dir_all(program.path("taken/report.json")).unwrap();
    let ran = run(&program, &format!("{SOME} --report taken"));
    assert!(ran.exit == 3 && ran.out.contains("not all run"), "{}{}", ran.out, ran.err);
}

#[test]
fn the_list_is_put_right() {
    let program = Program::new();
    let list = program.path("waystation-conformance.toml");
    fs::write(&list, "# ours\n[[expected]]\ncase = \"core/alias-of-five\"\nreason = \"x\"\n")
        .unwrap();
    let arguments = format!("{SOME} --expect waystation-conformance.toml");
    let ran = run(&program, &arguments);
    assert_eq!(ran.exit, 1);
    assert!(ran.out.contains("core/alias-of-five passes: take it off the list"), "{}", ran.out);
    let fixed = run(&program, &format!("{arguments} --fix"));
    assert_eq!(fixed.exit, 0, "{}{}", fixed.out, fixed.err);
    assert!(!fs::read_to_string(&list).unwrap().contains("alias-of-five"));
    assert_eq!(run(&program, &arguments).exit, 0);
    fs::write(&list, "[[expected]]\ncase = \"core/alias-of-five\"\n").unwrap();
    let refused = run(&program, &arguments);
    assert_eq!(refused.exit, 2);
    assert!(refused.err.contains("reason"), "{}", refused.err);
}

#[test]
fn the_suite_can_be_looked_at() {
    let program = Program::new();
    let list = program.json("conformance list --profile core", 0);
    let cases = list["cases"].as_array().unwrap();
    assert!(cases.len() > 100 && cases.iter().all(|case| case["profile"] == "core"));
    let text = program.run("conformance explain core/alias-of-five");
    assert_eq!(text.exit, 0, "{}", text.err);
    for words in [
        "bad-member",
        "[alias.form]",
        "MUST be an array of the six values",
        "\"op\": \"read\"",
        "\n> 0",
    ] {
        assert!(text.out.contains(words), "{words}: {}", text.out);
    }
    let near = program.run("conformance explain alias-of-fi");
    assert!(near.exit == 2 && near.err.contains("core/alias-of-five"), "{}", near.err);
}

#[test]
fn what_help_and_guide_name_is_there() {
    let program = Program::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut texts: Vec<String> = ["README.md", "conformance/README.md", "conformance/protocol.md"]
        .iter()
        .map(|name| fs::read_to_string(format!("{root}/{name}")).unwrap())
        .collect();
    texts.extend(
        ["--help", "explain --help"].map(|of| program.run(&format!("conformance {of}")).out),
    );
    let mut asked = 0;
    for rest in texts.iter().flat_map(|text| text.split("conformance explain ").skip(1)) {
        let id = rest.split(|c: char| c.is_whitespace() || c == '`').next().unwrap();
        if id.contains('/') {
            assert_eq!(program.run(&format!("conformance explain {id}")).exit, 0, "{id}");
            asked += 1;
        }
    }
    assert!(asked >= 4, "{asked}");
}

#[test]
fn an_export_is_the_suite_and_a_change_is_seen() {
    let program = Program::new();
    let exported = program.json("conformance export suite", 0);
    assert!(exported["cases"].as_u64().unwrap() > 100, "{exported}");
    assert_eq!(program.run("conformance export suite").exit, 1, "it is there");
    assert_eq!(program.run("conformance verify suite").exit, 0);
    let case = program.path("suite/cases/core/alias-of-five");
    assert!(case.join("given/waystation.commit").exists(), "complete");
    support::flip(&case.join("given/manifest.json"), 5);
    fs::remove_file(case.join("expect.json")).unwrap();
    fs::write(case.join("more"), b"").unwrap();
    let found = program.json("conformance verify suite", 1);
    let found = found["differences"].as_array().unwrap();
    for (found, end) in found.iter().zip([
        "expect.json: is not there",
        "manifest.json: differs",
        "more: is not of this suite",
    ]) {
        assert!(found.as_str().unwrap().ends_with(end), "{found}");
    }
    assert_eq!(found.len(), 3);
    // A run that is gone, and a file where a directory was.
    fs::remove_dir_all(program.path("suite/cases/resume/run-empty/given")).unwrap();
    let other = program.path("suite/cases/core/small");
    fs::remove_dir_all(&other).unwrap();
    fs::write(&other, b"").unwrap();
    let linked = program.path("suite/cases/core/bare/expect.json");
    fs::rename(&linked, program.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(program.path("elsewhere"), &linked).unwrap();
    let found = program.run("conformance verify suite");
    assert_eq!(found.exit, 1, "{}", found.err);
    for words in [
        "run-empty/given: is no directory",
        "run-empty/given/README: is not there",
        "core/small/expect.json: is not there",
        "core/small: is not of this suite",
        "core/bare/expect.json: is no file",
    ] {
        assert!(found.out.contains(words), "{words}: {}", found.out);
    }
    let git = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance");
    assert_eq!(program.run(&format!("conformance verify {git}")).exit, 0);
}

#[test]
fn a_temporary_directory_that_no_request_can_name_is_refused() {
    let program = Program::new();
    let temporary = program.dir.path().join(OsStr::from_bytes(b"t\xff"));
    fs::create_dir(&temporary).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_waystation"))
        .args(["conformance", "run", "--case", "core/small", "--", "python3", "-B", PYTHON])
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("TMPDIR"), "{said}");
}
