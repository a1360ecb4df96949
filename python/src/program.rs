//! The program `waystation` in a process of Python's.
//!
//! It knows how such a process is started again. What the program does is its own crate's.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use waystation_cli::Launcher;

/// The program, with its name as the first argument; the exit status. The process is the program's from then on: signals stop
/// its work, and Python's own handlers do not run.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let python: Option<PathBuf> = py.import("sys")?.getattr("executable")?.extract()?;
    let launcher = python
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| Launcher { path, arguments: ["-m", "waystation"].map(str::to_owned).to_vec() });
    Ok(py.detach(|| waystation_cli::main(arguments.into_iter().skip(1), launcher)))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(main, module)?)
}
