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
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
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
fn another_case_is_another_name() {
    for (begin, end) in [
        ("manifest", ""),
        ("tensors-", ""),
        ("part-00000", ""),
        ("attachment-", ""),
        ("model-00001", ""),
    ] {
        let recased = |c: &Path| {
            let path = file(c, begin, end);
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::rename(&path, c.join(name[..1].to_uppercase() + &name[1..])).unwrap();
        };
        found(recased, "file-missing", begin);
    }
}

/// Changes the manifest's text and makes the commit file fit, as a hostile writer would.
fn reroot(ckpt: &Path, from: &str, to: &str) {
    let manifest = ckpt.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains(from), "{from} stands in {text}");
    let text = text.replacen(from, to, 1);
    fs::write(&manifest, &text).unwrap();
    let digest = waystation_format::Digest::of(text.as_bytes());
    fs::write(ckpt.join("waystation.commit"), format!("{digest}  manifest.json\n")).unwrap();
}

#[test]
fn a_manifest_with_every_digest_right() {
    for (from, to, code) in [
        (r#""required":[]"#, r#""required":["quantum"]"#, "unsupported-feature"),
        (r#""version":"1.0""#, r#""version":"2.0""#, "unsupported-version"),
        (r#""format":"waystation""#, r#""format":"waystatiom""#, "bad-format"),
        (r#""step":7"#, r#""step":7.0"#, "not-canonical"),
        (r#""step":7"#, r#""step":07"#, "not-canonical"),
        (r#""step":7"#, r#""step":7e0"#, "not-canonical"),
        (r#""step":7"#, r#""step": 7"#, "not-canonical"),
        (r#""step":7"#, r#""step":7,"step":8"#, "not-canonical"),
        (r#""step":7"#, r#""step":9007199254740992"#, "not-canonical"),
        (r#""step":7"#, r#""step":18446744073709551616"#, "not-canonical"),
        (r#""step":7"#, r#""step":9007199254740991"#, "limit"),
        (r#""step":7"#, r#""step":-7"#, "bad-member"),
        (r#""step":7"#, r#""step":7,"stop":1"#, "bad-member"),
        (r#""run":"model""#, r#""run":"m\u001b""#, "bad-name"),
        (r#""run":"model""#, r#""run":"\u006dodel""#, "not-canonical"),
        (r#""writers":2"#, r#""writers":3"#, "bad-member"),
        (r#""path":"config.json""#, r#""path":"../config.json""#, "bad-path"),
        (r#""path":"config.json""#, r#""path":"/etc/passwd""#, "bad-path"),
        (r#""block_bytes":262144"#, r#""block_bytes":262145"#, "bad-member"),
        (r#""bytes":12"#, r#""bytes":9007199254740991"#, "length-mismatch"),
    ] {
        let change = |c: &Path| reroot(c, from, to);
        refused(change, code);
    }
}

#[test]
fn parts_that_do_not_make_a_checkpoint() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    fs::remove_file(ckpt.join("waystation.commit")).unwrap();
    let part = file(&ckpt, "part-00001", ".json");
    let hidden = ckpt.join("hidden");
    fs::rename(&part, &hidden).unwrap();
    let before = tree(&ckpt);
    for command in ["commit ckpt", "salvage ckpt"] {
        let error = &program.json(command, 1)["error"];
        assert_eq!(error["code"], "writer-missing", "{command}");
        assert!(error["message"].as_str().unwrap().contains('1'), "the writer is named: {error}");
    }
    // A second part of a writer that is there, and a part under a name that is not its digest.
    fs::rename(&hidden, &part).unwrap();
    let second = ckpt.join("part-00001-0123456789abcdef.json");
    fs::copy(&part, &second).unwrap();
    assert_eq!(program.json("commit ckpt", 1)["error"]["code"], "duplicate-writer");
    fs::remove_file(&part).unwrap();
    assert_eq!(program.json("commit ckpt", 1)["error"]["code"], "bad-format");
    fs::rename(&second, &hidden).unwrap();
    assert_eq!(before, tree(&ckpt), "no committer changed anything");
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
    program.checkpoint();
    for command in
        ["inspect runs", "verify runs", "cat runs a", "commit runs", "salvage runs", "pin runs x"]
    {
        let ran = program.run(command);
        assert!(ran.exit == 2 && ran.err.contains("waystation latest"), "{command}: {}", ran.err);
    }
    for command in ["list ckpt", "latest ckpt", "gc ckpt --keep-last 1"] {
        let ran = program.run(command);
        assert!(ran.exit == 2 && ran.err.contains("not a run"), "{command}: {}", ran.err);
    }
    assert!(program.run("copy runs x").err.contains("waystation latest"));
    assert_eq!(program.json("import ckpt --out again", 2)["error"]["code"], "bad-argument");
    let shard = file(&program.path("ckpt"), "model-00000", "");
    let import = format!("import {} --out again", shard.display());
    assert_eq!(program.json(&import, 2)["error"]["code"], "bad-argument");
    assert!(!program.path("again").exists());
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
    assert!(!program.path("out3/model.safetensors").exists(), "what was cut short has no name");
    let again = program.run("copy ckpt out4");
    assert!(again.err.contains("left behind") && again.err.contains("out4"), "{}", again.err);
    let cat = program.run("cat ckpt a --format raw -o a");
    assert!(cat.exit == 1 && cat.err.contains("crc-mismatch"), "{}", cat.err);
    assert!(!program.path("a").exists(), "what was cut short is taken away");
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
fn an_unreadable_file_is_no_verdict() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    fs::set_permissions(program.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let shard = file(&ckpt, "model-00001", "");
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o000)).unwrap();
    // Root reads everything, so somebody else must try; the program has to be where they can reach it.
    let copy = program.path("waystation");
    // Copied by another process: a test that forks meanwhile would hold ours open for writing.
    let from = env!("CARGO_BIN_EXE_waystation");
    assert!(Command::new("cp").arg(from).arg(&copy).status().unwrap().success());
    let mut command = Command::new(&copy);
    if fs::metadata(&ckpt).unwrap().uid() == 0 {
        command.uid(65534);
    }
    let output = command
        .args(["verify", "ckpt", "--json"])
        .current_dir(program.dir.path())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{out}{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("\"io-denied\"") && out.contains("model-00001"), "{out}");
}

#[test]
fn a_full_disk_is_no_verdict() {
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
