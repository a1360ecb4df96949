//! Bad input through the program: a code, a place, an exit status, and nothing written.
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

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use support::{Program, file, flip, tree};

/// Damages a checkpoint, then expects `verify` to say `code` about a file that begins with `name`.
fn found(damage: impl FnOnce(&Path), code: &str, name: &str) {
    let program = Program::new();
    let ckpt = program.checkpoint();
    damage(&ckpt);
    let before = tree(program.dir.path());
    let verify = program.json("verify ckpt", 1);
    assert_eq!(verify["ok"], false);
    let findings = verify["findings"].as_array().unwrap();
    let first = &findings[0];
    assert_eq!(first["code"], code, "{findings:?}");
    assert!(first["file"].as_str().unwrap().starts_with(name), "{first}");
    assert!(first["rule"].is_string() && !first["message"].as_str().unwrap().is_empty(), "{first}");
    assert_eq!(before, tree(program.dir.path()), "verify changes nothing");
}

/// The same through `inspect` and `export`: they refuse, and leave nothing behind.
fn refused(damage: impl FnOnce(&Path), code: &str) {
    let program = Program::new();
    let ckpt = program.checkpoint();
    damage(&ckpt);
    let before = tree(program.dir.path());
    assert_eq!(program.json("inspect ckpt --tensors", 1)["error"]["code"], code);
    assert_eq!(program.json("export ckpt --out out", 1)["error"]["code"], code);
    assert_eq!(before, tree(program.dir.path()));
}

fn cut(path: &Path, by: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - by).unwrap();
}

fn append(path: &Path, bytes: &[u8]) {
    let mut all = fs::read(path).unwrap();
    all.extend_from_slice(bytes);
    fs::write(path, all).unwrap();
}

#[test]
fn the_commit_file() {
    let commit = "waystation.commit";
    found(|c| fs::remove_file(c.join(commit)).unwrap(), "not-committed", commit);
    found(|c| cut(&c.join(commit), 1), "commit-grammar", commit);
    found(|c| append(&c.join(commit), b"\n"), "commit-grammar", commit);
    let upper = |c: &Path| {
        let text = fs::read_to_string(c.join(commit)).unwrap();
        let (digest, rest) = text.split_at(64);
        fs::write(c.join(commit), digest.to_uppercase() + rest).unwrap();
    };
    found(upper, "commit-grammar", commit);
    let recased = |c: &Path| fs::rename(c.join(commit), c.join("Waystation.commit")).unwrap();
    found(recased, "not-committed", commit);
    let other = |c: &Path| {
        let text = fs::read_to_string(c.join(commit)).unwrap();
        fs::write(c.join(commit), "0".repeat(64) + &text[64..]).unwrap();
    };
    found(other, "digest-mismatch", "manifest.json");
    refused(|c| fs::remove_file(c.join(commit)).unwrap(), "not-committed");
}

#[test]
fn named_files_missing_cut_long_and_flipped() {
    for (begin, end, flipped) in [
        ("manifest", ".json", "digest-mismatch"),
        ("tensors-", ".json", "digest-mismatch"),
        ("part-00001", ".json", "digest-mismatch"),
        ("attachment-", "", "digest-mismatch"),
        ("model-00000", ".safetensors", "crc-mismatch"),
    ] {
        found(|c| fs::remove_file(file(c, begin, end)).unwrap(), "file-missing", begin);
        // The manifest's length is stated nowhere: its digest tells.
        let length = if begin == "manifest" { "digest-mismatch" } else { "length-mismatch" };
        found(|c| cut(&file(c, begin, end), 1), length, begin);
        found(|c| append(&file(c, begin, end), b" "), length, begin);
        let middle = |c: &Path| {
            let path = file(c, begin, end);
            flip(&path, fs::metadata(&path).unwrap().len() as usize / 2);
        };
        found(middle, flipped, begin);
    }
    found(|c| flip(&file(c, "model-00000", ""), 20), "header-mismatch", "model-00000");
}

#[test]
fn other_things_in_place_of_a_file() {
    let link = |c: &Path| {
        let path = file(c, "tensors-", ".json");
        fs::rename(&path, c.join("moved")).unwrap();
        symlink("moved", &path).unwrap();
    };
    found(link, "not-regular", "tensors-");
    refused(link, "not-regular");
    let directory = |c: &Path| {
        let path = file(c, "model-00000", "");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    };
    found(directory, "not-regular", "model-");
    // A pipe without a writer would block a careless reader for ever.
    let pipe = |c: &Path| {
        let path = c.join("manifest.json");
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    };
    found(pipe, "not-regular", "manifest");
    let device = |c: &Path| {
        let path = file(c, "attachment-", "");
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
    };
    found(device, "not-regular", "attachment-");
}

#[test]
fn paths_that_are_no_checkpoint() {
    let program = Program::new();
    assert_eq!(program.json("inspect nothing", 1)["error"]["code"], "not-found");
    assert_eq!(program.json("verify nothing", 1)["error"]["code"], "not-found");
    fs::write(program.path("plain"), b"x").unwrap();
    assert_eq!(program.json("verify plain", 1)["error"]["code"], "not-regular");
    fs::create_dir(program.path("runs")).unwrap();
    assert_eq!(program.json("latest runs", 1)["error"]["code"], "no-checkpoint");
    program.model();
    assert_eq!(program.run("import model --run runs").exit, 0);
    let run = program.run("inspect runs");
    assert!(run.exit == 1 && run.err.contains("waystation latest"), "{}", run.err);
}

#[test]
fn nothing_is_replaced() {
    let program = Program::new();
    program.checkpoint();
    fs::create_dir(program.path("there")).unwrap();
    let before = tree(program.dir.path());
    for command in [
        "import model --out there",
        "reshard ckpt --out there --writers 2",
        "copy ckpt there",
        "export ckpt --out there",
    ] {
        assert_eq!(program.json(command, 1)["error"]["code"], "exists", "{command}");
    }
    assert_eq!(before, tree(program.dir.path()));
}

#[test]
fn a_damaged_source_gives_no_copy_that_looks_whole() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    let shard = file(&ckpt, "model-00000", "");
    flip(&shard, fs::metadata(&shard).unwrap().len() as usize / 2);
    for (command, out) in
        [("copy ckpt out1", "out1"), ("reshard ckpt --out out2 --writers 3", "out2")]
    {
        assert_eq!(program.json(command, 1)["error"]["code"], "crc-mismatch", "{command}");
        assert!(!program.path(out).join("waystation.commit").exists());
    }
    assert_eq!(program.json("export ckpt --out out3", 1)["error"]["code"], "crc-mismatch");
    assert_eq!(program.json("cat ckpt a --format raw -o a", 1)["error"]["code"], "crc-mismatch");
    // What is not damaged can still be had.
    assert_eq!(program.run("cat ckpt b").out, "41\n");
}

#[test]
fn bad_models_are_refused_before_anything_is_made() {
    let program = Program::new();
    let refuse = |what: &str, code: &str, exit: i32| {
        let json = program.json("import bad --out out", exit);
        assert_eq!(json["error"]["code"], code, "{what}: {json}");
        assert!(!program.path("out").exists(), "{what}");
        fs::remove_dir_all(program.path("bad")).unwrap();
    };
    let model = || {
        fs::rename(program.model(), program.path("bad")).unwrap();
        program.path("bad")
    };
    cut(&model().join("model.safetensors"), 1);
    refuse("cut", "bad-argument", 2);

    fs::remove_file(model().join("model.safetensors")).unwrap();
    refuse("no weights", "not-found", 1);

    let index =
        |map: &str| fs::write(program.path("bad/model.safetensors.index.json"), map).unwrap();
    model();
    index(r#"{"weight_map":{"a":"../model.safetensors"}}"#);
    refuse("a path in the index", "bad-argument", 2);
    model();
    index(r#"{"weight_map":{"a":"model.safetensors","b":"model.safetensors"}}"#);
    refuse("a tensor that the index does not name", "bad-argument", 2);

    fs::write(model().join("odd\u{1b}name"), b"").unwrap();
    refuse("a name that no attachment may have", "bad-path", 1);
    let dir = model();
    fs::write(dir.join("Config.json"), b"").unwrap();
    refuse("two names that one file system may hold as one", "bad-path", 1);
    symlink(".", model().join("loop")).unwrap();
    refuse("a loop", "bad-argument", 2);

    for (name, code, exit) in [("a\u{7}", "bad-name", 1), ("", "bad-name", 1)] {
        let header =
            serde_json::json!({ name: { "dtype": "U8", "shape": [1], "data_offsets": [0, 1] } })
                .to_string();
        fs::create_dir(program.path("bad")).unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.push(0);
        fs::write(program.path("bad/model.safetensors"), bytes).unwrap();
        refuse("a hostile name", code, exit);
    }
}

#[test]
fn the_command_line_itself() {
    let program = Program::new();
    program.checkpoint();
    for arguments in [
        "",
        "frobnicate",
        "import model",
        "import model --out a --run b",
        "cat ckpt a --region 0:601,:",
        "cat ckpt a --region x,:",
        "cat ckpt a --region 0",
        "cat ckpt a --role boss",
        "cat ckpt c --format npy",
        "gc runs --keep-last 0",
        "reshard ckpt --out x --writers 0",
        "export ckpt --out x --role boss",
        "bench stage nothing ckpt",
    ] {
        assert_eq!(program.run(arguments).exit, 2, "{arguments}");
    }
    assert_eq!(program.json("cat ckpt nothing", 1)["error"]["code"], "not-found");
}

#[test]
fn a_failing_environment_is_no_verdict() {
    let program = Program::new();
    program.checkpoint();
    // A full disk, as a file system of one page: the kernel says ENOSPC as it would of a real one.
    let full = program.path("full");
    fs::create_dir(&full).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&full)
        .output()
        .is_ok_and(|o| o.status.success());
    if !mounted {
        println!("NOT TESTED: a full disk: this user may not mount a small file system");
        return;
    }
    let ran = program.run("copy ckpt full/copy --json");
    let left = full.join("copy/waystation.commit").exists();
    let unmounted = Command::new("umount").arg(&full).status().unwrap().success();
    assert!(unmounted);
    assert_eq!(ran.exit, 3, "{}", ran.out);
    assert!(ran.out.contains("\"io-full\"") && !left, "{}", ran.out);
}
