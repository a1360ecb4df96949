//! `waystation._core`: what of the package is not Python.
//!
//! Each module registers what it gives. Its contract is `waystation/_core.pyi`.

mod dlpack;
mod errors;
mod key;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let _ = module;
    Ok(())
}
