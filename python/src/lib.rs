//! `waystation._core`: what of the package is not Python.
//!
//! Each module registers what it gives. Its contract is `waystation/_core.pyi`.

mod checkpoint;
mod dlpack;
mod entry;
mod errors;
mod json;
mod key;
mod mapped;
mod order;
mod restore;
mod walk;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    checkpoint::register(module)?;
    mapped::register(module)?;
    order::register(module)?;
    walk::register(module)
}
