//! The program in bad company: pipes, full devices, refused arguments, directories in the wrong place.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "tests: a failure is a panic, and each uses a part of the support"
)]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use support::{Program, tree, weights};

fn pipe(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_pipe_is_refused_and_never_waited_for() {
    let program = Program::new();
    pipe(&program.path("pipe"));
    weights(&program.path("w.safetensors"));
    fs::create_dir(program.path("hf")).unwrap();
    weights(&program.path("hf/model.safetensors"));
    pipe(&program.path("hf/model.safetensors.index.json"));
    fs::create_dir(program.path("only")).unwrap();
    pipe(&program.path("only/a.safetensors"));
    for source in ["pipe", "w.safetensors --attach pipe", "w.safetensors --attach hf", "hf", "only"]
    {
        let json = program.json(&format!("import {source} --out out"), 1);
        assert_eq!(json["error"]["code"], "not-regular", "{source}: {json}");
        assert!(!program.path("out").exists(), "{source}");
    }
}

#[test]
fn an_index_without_end_is_not_read() {
    let program = Program::new();
    let model = program.model();
    let index = File::create(model.join("model.safetensors.index.json")).unwrap();
    index.set_len(1 << 40).unwrap();
    assert_eq!(program.json("import model --out out", 2)["error"]["code"], "bad-argument");
}

#[test]
fn refused_arguments_leave_nothing() {
    let program = Program::new();
    program.model();
    let before = tree(program.dir.path());
    for target in ["--out out", "--run run"] {
        let ran = program.run(&format!("import model {target} --step 1000000000000"));
        assert!(ran.exit == 2 && ran.err.contains("999999999999"), "{}", ran.err);
        let named = ["import", "model", "--name", "a\nb"];
        let ran = program.run_list(&[&named[..], &target.split(' ').collect::<Vec<_>>()].concat());
        assert!(ran.exit == 1 && ran.err.contains("bad-name"), "{}", ran.err);
    }
    let json = program.json("import model --out out --attach missing", 1);
    assert_eq!(json["error"]["code"], "not-found");
    assert_eq!(before, tree(program.dir.path()));
}

#[test]
fn a_run_gives_its_name_whole() {
    let program = Program::new();
    weights(&program.path("v0.9.safetensors"));
    for (arguments, name) in
        [("--run runs-v1.5", "runs-v1.5"), ("--run .", "dir"), ("--out out", "v0.9")]
    {
        let made = program.json(&format!("import v0.9.safetensors {arguments}"), 0);
        let path = made["path"].as_str().unwrap().to_owned();
        let found = program.json(&format!("inspect {path}"), 0);
        let scratch = program.dir.path().canonicalize().unwrap();
        let own = scratch.file_name().unwrap().to_str().unwrap();
        let expected = if name == "dir" { own } else { name };
        // A scratch directory's name begins with a dot, which a name may.
        assert_eq!(found["run"], expected, "{arguments}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let program = Program::new();
    program.checkpoint();
    for arguments in ["cat ckpt b", "cat ckpt b --json", "cat ckpt b --format raw", "inspect ckpt"]
    {
        let status = Command::new(env!("CARGO_BIN_EXE_waystation"))
            .args(arguments.split(' '))
            .current_dir(program.dir.path())
            .stdout(File::options().write(true).open("/dev/full").unwrap())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3), "{arguments}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_output() {
    let program = Program::new();
    program.checkpoint();
    let mut child = Command::new(env!("CARGO_BIN_EXE_waystation"))
        .args(["cat", "ckpt", "a"])
        .current_dir(program.dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn nothing_is_made_in_a_checkpoint() {
    let program = Program::new();
    program.checkpoint();
    symlink("ckpt", program.path("link")).unwrap();
    let before = tree(&program.path("ckpt"));
    for command in [
        "import model --out ckpt/in",
        "import model --run ckpt/in",
        "import model --run ckpt",
        "import model --run ckpt/in/deep",
        "reshard ckpt --run ckpt --writers 2",
        "import model --out link/in",
        "reshard ckpt --out ckpt/in --writers 2",
        "copy ckpt ckpt/in",
        "export ckpt --out ckpt/in",
    ] {
        let error = &program.json(command, 2)["error"];
        assert_eq!((&error["code"], &error["rule"]), (&"bad-argument".into(), &"dir.flat".into()));
    }
    assert_eq!(before, tree(&program.path("ckpt")));
}

#[test]
fn an_attempt_is_no_place_for_a_run() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    for name in ["waystation.commit", "manifest.json"] {
        fs::remove_file(ckpt.join(name)).unwrap();
    }
    for command in ["import model --run ckpt", "import model --out ckpt/in"] {
        assert_eq!(program.json(command, 2)["error"]["rule"], "dir.flat", "{command}");
    }
    // What got in by other means does not keep the attempt from being finished.
    fs::create_dir(ckpt.join("step-000000000000-0000000100000000")).unwrap();
    let verify = program.json("verify ckpt", 1);
    assert_eq!(
        verify["findings"].as_array().unwrap().len(),
        1,
        "only that it is not committed: {verify}"
    );
    assert_eq!(program.run("commit ckpt").exit, 0);
}

#[test]
fn paths_lead_where_they_lead() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    let inside = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
        command.args(arguments).current_dir(&ckpt).output().unwrap()
    };
    for arguments in [
        &["export", ".", "--out", "../hf"][..],
        &["copy", ".", "../copy"],
        &["reshard", ".", "--out", "../three", "--writers", "3"],
        &["reshard", ".", "--run", "../runs/new", "--writers", "2"],
    ] {
        let output = inside(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(inside(&["copy", ".", "in"]).status.code(), Some(2));
    assert_eq!(inside(&["copy", ".", "../model/../ckpt/in"]).status.code(), Some(2));
}

#[test]
fn json_and_a_format_do_not_go_together() {
    let program = Program::new();
    program.checkpoint();
    for more in ["--format npy", "--format raw", "-o file"] {
        assert_eq!(program.json(&format!("cat ckpt b {more}"), 2)["error"]["code"], "bad-argument");
    }
    assert!(!program.path("file").exists());
}

#[test]
fn an_export_that_would_collide_is_refused_before_anything_is_made() {
    let program = Program::new();
    weights(&program.path("w.safetensors"));
    fs::write(program.path("Model.safetensors"), b"mine").unwrap();
    assert_eq!(program.run("import w.safetensors --out ckpt --attach Model.safetensors").exit, 0);
    assert_eq!(program.json("export ckpt --out hf", 2)["error"]["code"], "bad-argument");
    assert!(!program.path("hf").exists());
    program.json("export ckpt --out hf --format safetensors", 0);
}

#[test]
fn json_steers_no_terminal() {
    let program = Program::new();
    program.checkpoint();
    let ran =
        program.run_list(&["reject", "ckpt", "--reason", "a\u{9b}2J\u{7f}\u{202e}", "--json"]);
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let ran = program.run("inspect ckpt --json");
    assert!(ran.out.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{}", ran.out);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["rejected"], "a\u{9b}2J\u{7f}\u{202e}");
}

/// What people read: names in a directory, the directory's own, and what somebody wrote into a marker.
#[test]
fn text_steers_no_terminal() {
    const EVIL: &str = "a\u{1b}]0;title\u{7}\u{9b}2J\u{7f}\r\n\u{202e}\u{2028}z";
    let program = Program::new();
    let checkpoint = program.checkpoint();
    for name in [EVIL.to_owned(), format!("tmp-{EVIL}"), format!("pin-{EVIL}")] {
        fs::write(checkpoint.join(name), b"x").unwrap();
    }
    let elsewhere = program.path(EVIL);
    fs::rename(&checkpoint, &elsewhere).unwrap();
    fs::write(program.path("plain"), b"x").unwrap();
    let reject = ["reject", EVIL, "--reason", EVIL];
    let lists: [&[&str]; 8] = [
        &["verify", EVIL],
        &reject,
        &["inspect", EVIL],
        &["inspect", EVIL, "--tensors"],
        &["cat", EVIL, EVIL],
        &["latest", EVIL],
        &["verify", "plain", EVIL],
        &["copy", EVIL, EVIL],
    ];
    let mut said = 0;
    for list in lists {
        let ran = program.run_list(list);
        for text in [&ran.out, &ran.err] {
            let steers =
                |c: char| c != '\n' && (c.is_control() || ['\u{202e}', '\u{2028}'].contains(&c));
            assert!(!text.contains(steers), "{list:?}: {text:?}");
            // A line of its own could pass for one of ours.
            assert!(!text.lines().any(|line| line.starts_with('z')), "{list:?}: {text:?}");
            said += usize::from(text.contains("title"));
        }
    }
    assert!(said > 5, "{said}");
}
