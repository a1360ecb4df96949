//! Bytes of a tensor in memory that is the file's until it is written to.
//!
//! It knows how arrays ask for memory. Where it comes from is the business of `dlpack`.

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use waystation_format::Identity;
use waystation_reader::Checkpoint;

use crate::dlpack::{CPU, Lent};

/// Bytes of a tensor in a private mapping: writable, and what is written stays in this process.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
pub(crate) struct Mapped(Arc<Lent>);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mapped>()
}

impl Mapped {
    /// # Errors
    /// As `Checkpoint::map_private`.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        tensor: &Identity,
    ) -> waystation_format::Result<Self> {
        Lent::map(checkpoint, tensor).map(Self)
    }
}

#[pymethods]
impl Mapped {
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.len()
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol's own errors, which array libraries know what to do with.
        if stream.is_some() {
            return Err(PyBufferError::new_err("expected no stream: the memory is the CPU's"));
        }
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err(
                "expected the device of the CPU: nothing is copied here",
            ));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "expected no wish for a copy: nothing is copied here",
            ));
        }
        self.0.capsule(py, max_version.is_some_and(|(major, _)| major >= 1))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    fn __repr__(&self) -> String {
        format!("<Mapped, {} bytes>", self.0.len())
    }
}
