//! `waystation._core`: what of the package is not Python.
//!
//! Each module registers what it gives. Its contract is `waystation/_core.pyi`.

mod arguments;
mod checkpoint;
mod dlpack;
mod entry;
mod errors;
mod json;
mod key;
mod mapped;
mod order;
mod plan;
mod program;
mod restore;
mod rewrite;
mod run;
mod session;
mod staging;
mod streams;
mod walk;
mod watch;
mod work;
mod writing;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    checkpoint::register(module)?;
    mapped::register(module)?;
    order::register(module)?;
    plan::register(module)?;
    program::register(module)?;
    rewrite::register(module)?;
    run::register(module)?;
    session::register(module)?;
    staging::register(module)?;
    streams::register(module)?;
    walk::register(module)?;
    writing::register(module)
}
