//! The program from the outside: what each command prints, writes and answers when all is well.
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

use serde_json::json;
use support::{Program, noise};

#[test]
fn import_inspect_verify() {
    let program = Program::new();
    program.model();
    let import = program.json("import model --run runs --step 12 --writers 3", 0);
    let path = import["path"].as_str().unwrap();
    assert!(path.starts_with("runs/step-000000000012-00000001"), "{path}");
    assert_eq!(import["attachments"], json!(["1_Pooling/config.json", "config.json"]));

    let inspect = program.json(&format!("inspect {path} --tensors"), 0);
    assert_eq!((&inspect["step"], &inspect["writers"]), (&json!(12), &json!(3)));
    assert_eq!(inspect["contents"], json!([["main", [["param", 3]]]]));
    let shapes: Vec<_> =
        inspect["tensors"].as_array().unwrap().iter().map(|t| t["shape"].clone()).collect();
    assert_eq!(shapes, [json!([600, 1000]), json!([]), json!([3, 5])]);

    let verify = program.json(&format!("verify {path}"), 0);
    assert_eq!((&verify["ok"], &verify["notes"]), (&json!(true), &json!([])));
    assert!(program.run(&format!("verify {path} --quick")).out.contains("data not read"));
    assert_eq!(program.run("latest runs --verify").out.trim(), path);
}

#[test]
fn an_attached_file_has_its_own_name() {
    let program = Program::new();
    support::weights(&program.path("w.safetensors"));
    fs::write(program.path("notes.txt"), b"hello").unwrap();
    let import = program.json("import w.safetensors --out ckpt --attach notes.txt", 0);
    assert_eq!(import["attachments"], json!(["notes.txt"]));
    program.json("export ckpt --out out", 0);
    assert_eq!(fs::read(program.path("out/notes.txt")).unwrap(), b"hello");
}

#[test]
fn links_in_a_download_cache_are_followed() {
    let program = Program::new();
    let model = program.model();
    fs::create_dir(program.path("snapshot")).unwrap();
    for name in ["model.safetensors", "config.json"] {
        std::os::unix::fs::symlink(model.join(name), program.path("snapshot").join(name)).unwrap();
    }
    assert_eq!(
        program.json("import snapshot --out ckpt", 0)["attachments"],
        json!(["config.json"])
    );
}

#[test]
fn cat_prints_values_and_bytes() {
    let program = Program::new();
    program.checkpoint();
    assert_eq!(program.run("cat ckpt b").out, "41\n");
    let whole = noise(600 * 1000 * 4);
    assert_eq!(program.run("cat ckpt a --region 599,997: --format raw -o raw").exit, 0);
    assert_eq!(fs::read(program.path("raw")).unwrap(), whole[whole.len() - 12..]);
    let values = program.json("cat ckpt a --region 0:2,3", 0);
    let at = |row: usize| {
        let begin = (row * 1000 + 3) * 4;
        format!("{:?}", f32::from_le_bytes(whole[begin..begin + 4].try_into().unwrap()))
    };
    assert_eq!(values["values"], json!([at(0), at(1)]));
    assert_eq!(values["extent"], json!([2, 1]));
    let rows = program.run("cat ckpt a --region 0:2,0:3").out;
    assert_eq!(rows.lines().map(|row| row.split(' ').count()).collect::<Vec<_>>(), [3, 3]);

    assert_eq!(program.run("cat ckpt a --format npy -o a.npy").exit, 0);
    let npy = fs::read(program.path("a.npy")).unwrap();
    assert_eq!(npy[npy.len() - whole.len()..], whole);
    // Nothing is replaced.
    let again = program.run("cat ckpt a --format npy -o a.npy");
    assert_eq!(again.exit, 1, "{}", again.err);
}

#[test]
fn reshard_copy_diff_export() {
    let program = Program::new();
    program.checkpoint();
    assert_eq!(program.run("reshard ckpt --out five --writers 5").exit, 0);
    assert_eq!(program.json("inspect five", 0)["writers"], 5);
    assert_eq!(program.json("diff ckpt five", 0), json!({ "same": true, "differences": [] }));
    assert_eq!(program.run("copy five six").exit, 0);
    assert_eq!(program.json("verify six", 0)["ok"], true);

    program.json("export six --out out", 0);
    let read = |path: &str| fs::read(program.path(path)).unwrap();
    let tensors = |bytes: &[u8]| {
        let opened = safetensors::SafeTensors::deserialize(bytes).unwrap();
        let mut all: Vec<_> =
            opened.iter().map(|(n, v)| (n.to_owned(), v.data().to_vec())).collect();
        all.sort();
        all
    };
    assert_eq!(tensors(&read("model/model.safetensors")), tensors(&read("out/model.safetensors")));
    assert_eq!(read("out/1_Pooling/config.json"), b"{}");

    // Another tensor value, another file: both are seen.
    let mut weights = read("model/model.safetensors");
    let last = weights.len() - 1;
    weights[last] ^= 1;
    fs::write(program.path("model/model.safetensors"), weights).unwrap();
    fs::write(program.path("model/config.json"), b"{}").unwrap();
    assert_eq!(program.run("import model --out other --step 7").exit, 0);
    let diff = program.json("diff ckpt other", 1);
    let what: Vec<_> = diff["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["what"].as_str().unwrap())
        .collect();
    assert_eq!(what, ["tensor", "attachment"]);
}

#[test]
fn export_splits_and_indexes() {
    let program = Program::new();
    program.checkpoint();
    let export = program.json("export ckpt --out out --max-shard-size 1K", 0);
    assert_eq!(export["files"], 2);
    let index: serde_json::Value = serde_json::from_slice(
        &fs::read(program.path("out/model.safetensors.index.json")).unwrap(),
    )
    .unwrap();
    assert_eq!(index["weight_map"]["a"], "model-00001-of-00002.safetensors");
    assert_eq!(index["weight_map"]["c"], "model-00002-of-00002.safetensors");
    assert_eq!(program.run("import out --out back --step 7").exit, 0);
    assert_eq!(program.json("diff ckpt back", 0)["same"], true);
}

#[test]
fn a_run_is_kept() {
    let program = Program::new();
    program.model();
    let step = |n: u32| {
        let import = program.json(&format!("import model --run runs --step {n}"), 0);
        import["path"].as_str().unwrap().to_owned()
    };
    let (one, two, three, four) = (step(1), step(2), step(3), step(4));
    assert_eq!(program.run(&format!("pin {one} paper")).exit, 0);
    assert_eq!(program.run_list(&["reject", &four, "--reason", "loss spike"]).exit, 0);
    let latest = program.json("latest runs", 0);
    assert_eq!(latest["path"], three.as_str());
    assert_eq!(latest["skipped"][0]["error"]["code"], "rejected");

    let marked: Vec<String> = program.run("list runs").out.lines().map(str::to_owned).collect();
    assert_eq!(marked.iter().filter(|line| line.ends_with("  latest")).count(), 1);
    assert!(marked[2].contains("timeline   3") && marked[2].ends_with("  latest"), "{marked:?}");

    let dry = program.json("gc runs --keep-last 1 --dry-run", 0);
    let fates: Vec<_> =
        dry["items"].as_array().unwrap().iter().map(|i| i["fate"].as_str().unwrap()).collect();
    assert_eq!(fates, ["kept", "removed", "kept", "removed"]);
    assert!(
        [&one, &two, &three, &four].iter().all(|path| program.path(path).exists()),
        "a dry run deletes nothing"
    );
    program.json("gc runs --keep-last 1", 0);
    let left = [&one, &two, &three, &four].map(|path| program.path(path).exists());
    assert_eq!(left, [true, false, true, false]);

    assert_eq!(program.run(&format!("unpin {one} paper")).exit, 0);
    program.json("gc runs --keep-last 1", 0);
    assert!(!program.path(&one).exists());
    let states: Vec<_> = program.json("list runs", 0)["attempts"].as_array().unwrap().clone();
    assert_eq!((states.len(), &states[0]["state"]), (1, &json!("complete")));
}

#[test]
fn what_stands_alone_claims_no_timeline() {
    let program = Program::new();
    program.checkpoint();
    let verify = program.json("verify ckpt", 0);
    assert_eq!(verify["notes"], json!([]), "every file is named");
    program.json("reshard ckpt --out two --writers 2", 0);
    assert_eq!(program.json("verify two", 0)["notes"], json!([]));
}

#[test]
fn a_run_and_what_it_stands_in_are_made() {
    let program = Program::new();
    program.model();
    let import = program.json("import model --run deep/er/runs", 0);
    let path = import["path"].as_str().unwrap();
    assert!(path.starts_with("deep/er/runs/step-"), "{path}");

    // Under another name it is whole, and a run does not see it: both are said.
    let other = path.replace("-000000000000-", "-000000000001-");
    fs::rename(program.path(path), program.path(&other)).unwrap();
    let verify = program.json(&format!("verify {other}"), 0);
    assert!(verify["notes"][0].as_str().unwrap().contains("passes over it"), "{verify}");
    assert_eq!(program.run("latest deep/er/runs").exit, 1);
}

#[test]
fn a_damaged_latest_is_named() {
    let program = Program::new();
    program.model();
    let import = program.json("import model --run runs", 0);
    let ckpt = program.path(import["path"].as_str().unwrap());
    support::flip(&support::file(&ckpt, "model-", ""), 9000);
    let ran = program.run("latest runs --verify");
    assert!(ran.exit == 1 && ran.out.is_empty(), "{}", ran.out);
    assert!(
        ran.err.contains(import["path"].as_str().unwrap()) && ran.err.contains("reject"),
        "{}",
        ran.err
    );
}

#[test]
fn commit_and_salvage_finish_an_attempt() {
    let program = Program::new();
    let ckpt = program.checkpoint();
    let commit = fs::read(ckpt.join("waystation.commit")).unwrap();
    fs::remove_file(ckpt.join("waystation.commit")).unwrap();
    assert_eq!(program.json("verify ckpt", 1)["findings"][0]["code"], "not-committed");
    assert_eq!(program.json("commit ckpt", 0)["already"], false);
    assert_eq!(fs::read(ckpt.join("waystation.commit")).unwrap(), commit, "the same bytes");
    assert_eq!(program.json("commit ckpt", 0)["already"], true);

    for name in ["waystation.commit", "manifest.json", "tensors-00000.json"] {
        fs::remove_file(ckpt.join(name)).unwrap();
    }
    program.json("salvage ckpt", 0);
    assert_eq!(
        fs::read(ckpt.join("waystation.commit")).unwrap(),
        commit,
        "a lost root is made again"
    );
    assert_eq!(program.json("verify ckpt", 0)["ok"], true);

    support::flip(&ckpt.join("manifest.json"), 40);
    assert_eq!(program.json("salvage ckpt", 1)["error"]["code"], "commit-conflict");
    program.json("salvage ckpt --discard-root", 0);
    assert_eq!(program.json("verify ckpt", 0)["ok"], true);
}

#[test]
fn every_command_has_help_with_an_example() {
    let program = Program::new();
    let help = program.run("--help").out;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|l| *l != "Commands:")
        .skip(1)
        .take_while(|l| !l.is_empty())
        // What is indented further is the rest of a description.
        .filter(|l| !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 18, "{commands:?}");
    for command in commands.iter().filter(|c| !["help", "bench"].contains(*c)) {
        let ran = program.run(&format!("{command} --help"));
        assert!(ran.exit == 0 && ran.out.contains("Example"), "{command}: {}", ran.out);
    }
}

#[test]
fn bench_prints_what_it_measured() {
    let program = Program::new();
    let chunks = program.json("bench chunks --count 640", 0);
    assert_eq!(chunks["chunks"], 640);
    for figure in ["validate_seconds", "share_seconds", "commit_seconds", "peak_bytes"] {
        assert!(chunks[figure].as_f64().unwrap() > 0.0, "{figure}");
    }
    let io = program.json("bench io --bytes 1M --rounds 1", 0);
    assert!(io["write_ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_run_whose_checkpoints_are_all_lost_is_no_fresh_start() {
    let program = Program::new();
    program.model();
    // A run that is not there, and one in which nothing was ever committed.
    let nothing = json!({ "name": null, "path": null });
    assert_eq!(program.json("latest runs", 1)["error"]["code"], "not-found");
    assert_eq!(program.json("latest runs --or-nothing", 0), nothing);
    let import = |step: u32| {
        let import = program.json(&format!("import model --run runs --step {step}"), 0);
        import["path"].as_str().unwrap().to_owned()
    };
    let one = import(1);
    fs::rename(program.path(&one).join("waystation.commit"), program.path("kept")).unwrap();
    assert_eq!(program.json("latest runs", 1)["error"]["code"], "no-checkpoint");
    let ran = program.run("latest runs --or-nothing");
    assert!(ran.exit == 0 && ran.out.is_empty() && ran.err.contains(&one[5..]), "{}", ran.err);

    let two = import(2);
    fs::remove_file(support::file(&program.path(&two), "model-", "")).unwrap();
    fs::rename(program.path("kept"), program.path(&one).join("waystation.commit")).unwrap();
    assert_eq!(program.run_list(&["reject", &one, "--reason", "loss spike"]).exit, 0);
    for command in ["latest runs", "latest runs --or-nothing"] {
        let error = program.json(command, 1)["error"].clone();
        assert_eq!(error["code"], "none-resumable", "{command}");
        let ran = program.run(command);
        assert!(ran.exit == 1 && ran.out.is_empty());
        for said in [&one[5..], &two[5..], "loss spike", "file-missing"] {
            assert!(ran.err.contains(said), "{said}: {}", ran.err);
        }
    }
}

#[test]
fn export_takes_a_configuration() {
    let program = Program::new();
    program.model();
    fs::remove_file(program.path("model/config.json")).unwrap();
    assert_eq!(program.run("import model --out bare --step 7").exit, 0);
    let ran = program.run("export bare --out without");
    assert!(ran.exit == 0 && ran.err.contains("--config FILE"), "{}", ran.err);
    assert!(!program.path("without/config.json").exists());

    fs::write(program.path("c.json"), br#"{"model_type": "mine"}"#).unwrap();
    fs::write(program.path("list"), b"[]").unwrap();
    fs::write(program.path("cut"), b"{").unwrap();
    for (file, exit, code) in
        [("none", 1, "not-found"), ("list", 2, "bad-argument"), ("cut", 2, "bad-argument")]
    {
        let refused = program.json(&format!("export bare --out with --config {file}"), exit);
        assert_eq!(refused["error"]["code"], code, "{file}");
    }
    let refused = program.json("export bare --out with --config c.json --format safetensors", 2);
    assert_eq!(refused["error"]["code"], "bad-argument");
    assert!(!program.path("with").exists());
    let ran = program.run("export bare --out with --config c.json");
    assert!(ran.exit == 0 && ran.err.is_empty(), "{}", ran.err);
    // In place of what was attached, beside the rest of it.
    program.model();
    assert_eq!(program.run("import model --out ckpt --step 7").exit, 0);
    assert_eq!(program.json("export ckpt --out own", 0)["config"], true);
    assert_eq!(program.json("export ckpt --out other --config c.json", 0)["config"], true);
    for out in ["with", "other"] {
        let config = fs::read(program.path(out).join("config.json")).unwrap();
        assert_eq!(config, br#"{"model_type": "mine"}"#, "{out}");
    }
}
