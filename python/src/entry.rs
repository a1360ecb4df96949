//! A tensor or alias as Python sees it. What nobody asks for is not converted.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use waystation_format::entry::{Entry as Stored, NativeStep, Tensor};
use waystation_format::{Identity, Result};
use waystation_reader::Checkpoint;

use crate::key;

/// A tensor, or an alias of one, as the metadata say it.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
pub(crate) struct Entry {
    /// As it stands in the page.
    found: Arc<Stored>,
    /// A tensor: `new` takes what an alias names.
    tensor: Arc<Stored>,
    /// The second name, if this is one.
    alias: Option<Identity>,
    nbytes: u64,
}

impl Entry {
    /// The entry `found` of a checkpoint; of an alias with what it names.
    ///
    /// # Errors
    /// `bad-alias`, breaches of the page that would hold the target.
    pub(crate) fn new(checkpoint: &Checkpoint, found: &Arc<Stored>) -> Result<Self> {
        let alias = match &**found {
            Stored::Tensor(_) => None,
            Stored::Alias(alias) => Some(alias.identity()),
        };
        let target = checkpoint.tensor_of(found)?;
        let nbytes = target.bytes()?;
        Ok(Self { found: Arc::clone(found), tensor: target.into_entry(), alias, nbytes })
    }

    fn tensor(&self) -> &Tensor {
        match &*self.tensor {
            Stored::Tensor(tensor) => tensor,
            Stored::Alias(_) => unreachable!("made of a tensor"),
        }
    }
}

#[pymethods]
impl Entry {
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        key::to_tuple(py, self.alias.as_ref().unwrap_or(&self.tensor().identity))
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, self.tensor().dtype.as_str())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        numbers(py, &self.tensor().shape)
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    #[getter]
    fn valid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.tensor().valid.as_ref().map(|valid| numbers(py, valid)).transpose()
    }

    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.tensor().axes.as_ref().map(|axes| PyTuple::new(py, axes)).transpose()
    }

    #[getter]
    fn block(&self) -> Option<u64> {
        self.tensor().block
    }

    #[getter]
    fn native<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyList>)>> {
        let step = |step: &NativeStep| match step {
            NativeStep::Key(key) => Ok(PyString::new(py, key).into_any()),
            NativeStep::Index(index) => Ok(index.into_pyobject(py)?.into_any()),
        };
        let named = |native: &waystation_format::Native| {
            let path: PyResult<Vec<_>> = native.path.iter().map(step).collect();
            Ok((native.framework.clone(), PyList::new(py, path?)?))
        };
        let native = match &*self.found {
            Stored::Tensor(tensor) => &tensor.native,
            Stored::Alias(alias) => &alias.native,
        };
        native.iter().map(named).collect()
    }

    #[getter]
    fn chunks<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>> {
        let boxes = self.tensor().chunks.iter().map(|chunk| &chunk.region);
        boxes.map(|region| Ok((numbers(py, &region.at)?, numbers(py, &region.extent)?))).collect()
    }

    #[getter]
    fn of<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.alias.as_ref().map(|_| key::to_tuple(py, &self.tensor().identity)).transpose()
    }

    fn __repr__(&self) -> String {
        let tensor = self.tensor();
        let identity = self.alias.as_ref().unwrap_or(&tensor.identity);
        format!("<Entry {} {} {:?}>", identity.key(), tensor.dtype, &tensor.shape[..])
    }
}

fn numbers<'py>(py: Python<'py>, numbers: &[u64]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, numbers)
}
