//! A real model the whole way: in, verified, resharded, out again, and every tensor and file compared byte for
//! byte. Other people's readers, the safetensors crate and Python package, and the independent Python reader judge on
//! the way. `cargo xtask test model` fetches the model and says where it is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test says where it fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::SafeTensors;
use serde_json::Value;
use waystation_format::Digest;

const TENSORS: usize = 104;
const OTHER_FILES: usize = 12;

#[test]
fn there_and_back() {
    let source = PathBuf::from(std::env::var_os("WAYSTATION_REAL_MODEL").expect(
        "WAYSTATION_REAL_MODEL names the model's directory: run `cargo xtask test model`, which fetches it",
    ));
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("runs");

    let import = waystation(&["import", &text(&source), "--run", &text(&run), "--writers", "4"]);
    let imported = PathBuf::from(import["path"].as_str().unwrap());
    assert_eq!(import["tensors"], TENSORS);
    assert_eq!(waystation(&["latest", &text(&run)])["path"], import["path"]);
    judge(&imported, &source);

    let three = scratch.path().join("three");
    waystation(&["reshard", &text(&imported), "--out", &text(&three), "--writers", "3"]);
    judge(&three, &source);
    assert_eq!(waystation(&["diff", &text(&imported), &text(&three)])["same"], true);

    let out = scratch.path().join("out");
    waystation(&["export", &text(&three), "--out", &text(&out)]);
    assert_eq!(tensors(&source), tensors(&out), "tensors went in and came out");
    assert_eq!(other_files(&source), other_files(&out), "files went in and came out");
    assert_eq!(other_files(&out).len(), OTHER_FILES);

    let cut = scratch.path().join("cut");
    let several = ["export", &text(&three), "--out", &text(&cut), "--max-shard-size", "20M"];
    assert!(waystation(&several)["files"].as_u64().unwrap() > 3);
    let again = scratch.path().join("again");
    waystation(&["import", &text(&cut), "--out", &text(&again)]);
    assert_eq!(
        waystation(&["diff", &text(&again), &text(&three)])["differences"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

/// Everything that others can say of a checkpoint.
fn judge(checkpoint: &Path, source: &Path) {
    let verify = waystation(&["verify", &text(checkpoint)]);
    assert_eq!(
        (&verify["ok"], verify["findings"].as_array().unwrap().len()),
        (&Value::Bool(true), 0)
    );

    let sum = Command::new("sha256sum")
        .args(["-c", "waystation.commit"])
        .current_dir(checkpoint)
        .output()
        .unwrap();
    assert!(sum.status.success(), "sha256sum -c: {}", String::from_utf8_lossy(&sum.stderr));

    let shards: Vec<PathBuf> = files(checkpoint)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect();
    assert!(shards.len() > 1);
    let original = tensors(source);
    let mut whole = 0;
    for shard in &shards {
        let bytes = fs::read(shard).unwrap();
        let opened =
            SafeTensors::deserialize(&bytes).expect("the safetensors crate opens every shard");
        for (name, view) in opened.iter() {
            // A key that is a tensor's name is the whole tensor: a tool that takes it takes the right bytes.
            if let Some(expected) = original.get(name) {
                assert_eq!(
                    *expected,
                    (view.shape().to_vec(), Digest::of(view.data()).to_string()),
                    "{name}"
                );
                whole += 1;
            }
        }
        by_python_package(shard);
    }
    assert!(whole > TENSORS / 2, "most tensors stand whole under their own names: {whole}");

    let read = by_python_reader(checkpoint);
    let digests: BTreeMap<String, (Vec<usize>, String)> = read["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tensor| {
            let shape = tensor["shape"].as_array().unwrap();
            let shape =
                shape.iter().map(|n| usize::try_from(n.as_u64().unwrap()).unwrap()).collect();
            let sha256 = tensor["sha256"].as_str().unwrap().to_owned();
            (tensor["name"].as_str().unwrap().to_owned(), (shape, sha256))
        })
        .collect();
    assert_eq!(digests, original, "the Python reader agrees on every tensor's sha256");
    assert_eq!(read["attachments"].as_array().unwrap().len(), OTHER_FILES);
}

/// Opens a shard with the Python package and reads every entry.
fn by_python_package(shard: &Path) {
    const READ: &str = "import sys, safetensors
with safetensors.safe_open(sys.argv[1], 'np') as f:
    keys = list(f.keys())
    assert keys and all(f.get_tensor(key).size for key in keys)";
    let python = std::env::var_os("WAYSTATION_PYTHON")
        .expect("WAYSTATION_PYTHON names a Python with safetensors");
    let output = Command::new(python).args(["-c", READ]).arg(shard).output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        shard.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn by_python_reader(checkpoint: &Path) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/adapters/python");
    let python = |op: &str| {
        let output = Command::new("python3")
            .args(["-B", "-m", "waystation_reader", op, "--json"])
            .arg(checkpoint)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{op}: {}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(python("verify")["ok"], true);
    python("read")
}

fn waystation(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_waystation"))
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{arguments:?}: {out}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("waystation {}", arguments.join(" "));
    serde_json::from_str(&out).unwrap()
}

/// Shape and digest of every tensor in the safetensors files of a directory.
fn tensors(dir: &Path) -> BTreeMap<String, (Vec<usize>, String)> {
    let mut all = BTreeMap::new();
    for path in files(dir) {
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            let bytes = fs::read(&path).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                let entry = (view.shape().to_vec(), Digest::of(view.data()).to_string());
                assert!(all.insert(name.to_owned(), entry).is_none());
            }
        }
    }
    assert_eq!(all.len(), TENSORS);
    all
}

/// All other files, by relative path.
fn other_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let not_weights =
        |path: &PathBuf| path.extension().is_none_or(|ending| ending != "safetensors");
    let relative = |path: &Path| text(path.strip_prefix(dir).unwrap());
    files(dir)
        .into_iter()
        .filter(not_weights)
        .map(|path| (relative(&path), fs::read(&path).unwrap()))
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
