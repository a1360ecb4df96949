//! The Python package in a virtual environment of its own, as the README makes it, and its tests.
//! Knows pip, pytest and where the environment lies; what is tested is the package's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, real_model};

/// The environment, relative to the root.
const ENVIRONMENT: &str = ".venv";
/// What the tests need beside the package itself.
const WITH_TESTS: &str = "./python[test]";

/// Makes the environment and builds the package into it, then runs all its tests.
///
/// # Errors
/// The step that failed, with its command.
pub(crate) fn test(root: &Path) -> Result<()> {
    let python = install(root)?;
    let model = real_model::fetch(root)?.model;
    // By its own name, which leaves the sources out of the path: what is tested was installed.
    let mut pytest = Command::new(python.with_file_name("pytest"));
    pytest.args(["-p", "no:cacheprovider", "--durations", "15"]).current_dir(root.join("python"));
    // Half of the time goes into processes that tests wait for.
    pytest.args(["--numprocesses", "auto", "--dist", "loadfile"]);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env("WAYSTATION_REAL_MODEL", model).env("WAYSTATION_PROGRAM", program(root)?);
    must(&mut pytest)
}

/// What the README tells a user to do, and what is quick when it was done before.
fn install(root: &Path) -> Result<PathBuf> {
    let environment = root.join(ENVIRONMENT);
    let python = environment.join("bin/python");
    if !python.is_file() {
        must(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    must(Command::new(&python).args(pip).arg(WITH_TESTS).current_dir(root))?;
    beside_sources(root, &python)?;
    Ok(python)
}

/// Puts the native half that was installed beside the sources, where git ignores it: programs that
/// tests start in the sources' folder find the package there.
fn beside_sources(root: &Path, python: &Path) -> Result<()> {
    let where_it_is = "import waystation._core as core; print(core.__file__)";
    let mut ask = Command::new(python);
    let answer = ask.args(["-I", "-c", where_it_is]).current_dir(root).output();
    let answer = answer.map_err(|e| format!("{ask:?}: {e}"))?;
    let installed = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    let beside = root.join("python/waystation/_core.abi3.so");
    fs::copy(&installed, &beside).map_err(|e| format!("copy {installed:?}: {e}"))?;
    Ok(())
}

/// The program that `python -m waystation` must equal.
fn program(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--release", "-p", "waystation-cli"]).current_dir(root);
    must(&mut cargo)?;
    Ok(root.join("target/release/waystation"))
}

fn must(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}
