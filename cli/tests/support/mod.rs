//! What the program's tests share: a small model, a way to run the program, ways to damage files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::Value;

pub struct Program {
    pub dir: tempfile::TempDir,
}

/// How a run of the program ended.
pub struct Ran {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

impl Program {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program in the scratch directory; `arguments` are split at spaces.
    pub fn run(&self, arguments: &str) -> Ran {
        self.run_list(&arguments.split(' ').collect::<Vec<_>>())
    }

    pub fn run_list(&self, arguments: &[&str]) -> Ran {
        let output: Output = Command::new(env!("CARGO_BIN_EXE_waystation"))
            .args(arguments)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        Ran {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs it with `--json`, and gives the one object that it prints.
    pub fn json(&self, arguments: &str, exit: i32) -> Value {
        let ran = self.run(&format!("{arguments} --json"));
        assert_eq!(ran.exit, exit, "{arguments}: {}{}", ran.out, ran.err);
        assert_eq!(ran.out.lines().count(), 1, "one object: {}", ran.out);
        serde_json::from_str(&ran.out).unwrap()
    }

    /// A Hugging Face directory with three tensors and two more files.
    pub fn model(&self) -> PathBuf {
        let dir = self.path("model");
        fs::create_dir_all(dir.join("1_Pooling")).unwrap();
        fs::write(dir.join("config.json"), b"{\"layers\":2}").unwrap();
        fs::write(dir.join("1_Pooling/config.json"), b"{}").unwrap();
        weights(&dir.join("model.safetensors"));
        dir
    }

    /// A committed checkpoint `ckpt` of two writers.
    pub fn checkpoint(&self) -> PathBuf {
        self.model();
        let ran = self.run("import model --out ckpt --writers 2 --step 7");
        assert_eq!(ran.exit, 0, "{}", ran.err);
        self.path("ckpt")
    }
}

/// `a`: F32 [600, 1000], above one block; `b`: I64 scalar; `c`: BF16 [3, 5].
pub fn weights(path: &Path) {
    let a = noise(600 * 1000 * 4);
    let b = 41_i64.to_le_bytes().to_vec();
    let c = noise(3 * 5 * 2);
    let views = HashMap::from([
        ("a", TensorView::new(Dtype::F32, vec![600, 1000], &a).unwrap()),
        ("b", TensorView::new(Dtype::I64, vec![], &b).unwrap()),
        ("c", TensorView::new(Dtype::BF16, vec![3, 5], &c).unwrap()),
    ]);
    serialize_to_file(views, None, path).unwrap();
}

pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// The one file in `dir` whose name begins and ends so.
pub fn file(dir: &Path, begin: &str, end: &str) -> PathBuf {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    dir.join(names.into_iter().find(|n| n.starts_with(begin) && n.ends_with(end)).unwrap())
}

pub fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Every path below `dir` with its bytes: to see that a refusal changed nothing.
pub fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            all.push((path.clone(), None));
            all.extend(tree(&path));
        } else if kind.is_file() {
            all.push((path.clone(), Some(fs::read(&path).unwrap())));
        } else {
            all.push((path, None));
        }
    }
    all.sort();
    all
}
