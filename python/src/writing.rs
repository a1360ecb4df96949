//! A writer whose layout is fixed: its chunks' bytes, and the part at last.
//!
//! It knows whose memory the bytes are. Where they go, and on which threads, is the business of the writer's crate.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use waystation_format::{Code, Error};
use waystation_writer::ChunkId;

use crate::arguments;
use crate::dlpack::Bytes;
use crate::errors::{Result, usage};
use crate::watch;
use crate::work;

/// A writer whose layout is fixed.
#[pyclass(frozen, module = "waystation._core")]
pub(crate) struct Writing {
    /// Shared by writes; `finish` and `close` take it alone.
    writing: RwLock<Option<waystation_writer::Writing>>,
    chunks: Vec<ChunkId>,
    bytes: u64,
}

#[pymethods]
impl Writing {
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    #[pyo3(signature = (chunks, *, threads = None, progress = None))]
    fn write(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::numbered)] chunks: Vec<(usize, Bound<'_, PyAny>)>,
        #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
        #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
    ) -> Result<()> {
        let threads = watch::threads(threads)?;
        let mut borrowed = Vec::with_capacity(chunks.len());
        for (number, data) in &chunks {
            let chunk = self.chunks.get(*number).ok_or_else(|| {
                let count = self.chunks.len();
                usage(format!("expected a chunk below {count} of this session, found {number}"))
            })?;
            borrowed.push((*chunk, Bytes::of(data)?));
        }
        work::run(py, progress, |progress| {
            let guard = self.writing.read().unwrap_or_else(PoisonError::into_inner);
            let writing = guard.as_ref().ok_or_else(finished)?;
            let chunks: Vec<(ChunkId, &[u8])> =
                borrowed.iter().map(|(chunk, bytes)| (*chunk, bytes.as_slice())).collect();
            writing.write_many(&chunks, threads, progress)
        })
    }

    fn finish(&self, py: Python<'_>) -> Result<String> {
        work::run(py, None, |_| {
            let mut guard = self.writing.write().unwrap_or_else(PoisonError::into_inner);
            Ok(guard.take().ok_or_else(finished)?.finish()?.part)
        })
    }

    /// Lets go of its files: what is removed while they are open goes on to take room.
    fn close(&self, py: Python<'_>) -> Result<()> {
        work::short(py, || {
            drop(self.writing.write().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }

    fn __repr__(&self) -> String {
        format!("<Writing of {} chunks, {} bytes>", self.chunks.len(), self.bytes)
    }
}

impl Writing {
    pub(crate) fn new(
        writing: waystation_writer::Writing,
        chunks: Vec<ChunkId>,
        bytes: u64,
    ) -> Self {
        Self { writing: RwLock::new(Some(writing)), chunks, bytes }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Writing>()
}

#[cold]
fn finished() -> Error {
    Error::new(Code::BadArgument, "expected a writing that is not finished, found one that is")
}
