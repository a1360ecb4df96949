//! Two programs written from the same text, neither from the other: what one writes the other must find whole.
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

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::Program;
use waystation_format::Digest;

fn python(arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/adapters/python");
    let output =
        Command::new("python3").arg("-B").args(arguments).current_dir(folder).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {out}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    out
}

/// Something of everything: split tensors, slots, scopes, an alias, sub-byte types, blocks, records, attachments.
#[test]
fn what_the_python_tests_write_is_whole() {
    const WRITE: &str = "import sys
from tests import support
support.tiny().write(sys.argv[1])";
    let program = Program::new();
    let ckpt = program.path("tiny");
    python(&["-c", WRITE, ckpt.to_str().unwrap()]);
    let verify = program.json("verify tiny", 0);
    assert_eq!(
        (verify["ok"].as_bool(), verify["notes"].as_array().unwrap().len()),
        (Some(true), 0)
    );
    same_contents(&program, "tiny");
    assert_eq!(program.run("reshard tiny --out three --writers 3").exit, 0);
    assert_eq!(program.json("diff tiny three", 0)["same"], true);
    same_contents(&program, "three");
}

#[test]
fn what_the_program_writes_is_whole() {
    let program = Program::new();
    program.checkpoint();
    same_contents(&program, "ckpt");
}

/// Both readers see the same tensors, aliases and records, and the same bytes.
fn same_contents(program: &Program, name: &str) {
    let path = program.path(name);
    let path = path.to_str().unwrap();
    let verify: Value =
        serde_json::from_str(&python(&["-m", "waystation_reader", "verify", path])).unwrap();
    assert_eq!(verify["ok"], true, "{verify}");
    let theirs: Value =
        serde_json::from_str(&python(&["-m", "waystation_reader", "read", path])).unwrap();
    let ours = program.json(&format!("inspect {name} --tensors --state"), 0);
    assert_eq!(ours["records"], theirs["records"]);
    assert_eq!(
        ours["aliases"].as_array().unwrap().len(),
        theirs["aliases"].as_array().unwrap().len()
    );
    let (our_tensors, their_tensors) =
        (ours["tensors"].as_array().unwrap(), theirs["tensors"].as_array().unwrap());
    assert_eq!(our_tensors.len(), their_tensors.len());
    for (mine, other) in our_tensors.iter().zip(their_tensors) {
        for member in ["component", "role", "name", "slot", "owner", "scope", "dtype", "shape"] {
            assert_eq!(mine[member], other[member], "{member} of {other}");
        }
        let key = serde_json::json!([
            mine["component"],
            mine["role"],
            mine["name"],
            mine["slot"],
            mine["owner"],
            mine["scope"]
        ]);
        let raw = program.path("raw");
        let ran = program.run_list(&[
            "cat",
            name,
            &key.to_string(),
            "--format",
            "raw",
            "-o",
            raw.to_str().unwrap(),
        ]);
        assert_eq!(ran.exit, 0, "{}", ran.err);
        let bytes = fs::read(&raw).unwrap();
        fs::remove_file(&raw).unwrap();
        assert_eq!(other["sha256"], Digest::of(&bytes).to_string().as_str(), "{key}");
    }
}
