//! A complete checkpoint, open for reading from Python.
//!
//! It knows what to ask the reader for. Regions, plans and checks are `waystation-reader`'s.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use waystation_format::entry::Entry as Stored;
use waystation_format::json::Encoder;
use waystation_format::{Code, Error, Identity, Role, arith};
use waystation_reader::{Checkpoint as Reader, OpenOptions, Want};

use crate::dlpack::{BytesMut, apart};
use crate::entry::Entry;
use crate::errors::{Result, usage};
use crate::mapped::Mapped;
use crate::walk::{self, Walk};
use crate::{arguments, key, restore, work};

/// Reads of fewer bytes are over before anybody could look at a bar or press a key.
const SHORT_BYTES: u64 = 8 << 20;

/// A checkpoint open for reading. It may be shared among threads.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
pub(crate) struct Checkpoint {
    reader: Arc<Reader>,
    path: String,
}

/// A key, a region or `None` for all, and the array to read into.
type Asked<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);

/// Kind, name, coordinate, and the value as JSON.
type RecordTuple = (String, String, Vec<(String, u64)>, String);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Checkpoint>()?;
    module.add_class::<Entry>()
}

#[pymethods]
impl Checkpoint {
    #[staticmethod]
    #[pyo3(signature = (path, *, verify_reads = true, threads = None, memory_budget = None, trust_links = false))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        verify_reads: bool,
        #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
        #[pyo3(from_py_with = arguments::whole_or_none)] memory_budget: Option<u64>,
        trust_links: bool,
    ) -> Result<Self> {
        let options = OpenOptions::new()
            .verify_reads(verify_reads)
            .memory_budget(memory_budget)
            .threads(threads.unwrap_or(0))
            .trust_links(trust_links);
        let reader = work::short(py, || Reader::open_with(&path, options))?;
        Ok(Self { reader: Arc::new(reader), path: path.to_string_lossy().into_owned() })
    }

    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    #[getter]
    fn run(&self) -> &str {
        self.reader.run()
    }

    #[getter]
    fn step(&self) -> u64 {
        self.reader.step()
    }

    #[getter]
    fn attempt(&self) -> String {
        self.reader.manifest().common.attempt.to_string()
    }

    #[getter]
    fn timeline(&self) -> u32 {
        self.reader.manifest().common.attempt.timeline
    }

    #[getter]
    fn digest(&self) -> String {
        self.reader.digest().to_string()
    }

    #[getter]
    fn parent(&self) -> Option<String> {
        self.reader.manifest().common.parent.map(|digest| digest.to_string())
    }

    #[getter]
    fn writers(&self) -> u32 {
        self.reader.manifest().common.writers
    }

    #[getter]
    fn block_bytes(&self) -> u64 {
        self.reader.manifest().common.block_bytes
    }

    #[getter]
    fn topology(&self) -> Vec<(String, u64)> {
        self.reader.manifest().common.topology.0.clone()
    }

    fn manifest_json(&self, py: Python<'_>) -> Result<String> {
        let bytes = work::short(py, || self.reader.manifest().encode())?;
        String::from_utf8(bytes).map_err(|_| usage("expected a manifest in UTF-8"))
    }

    fn entries(&self) -> Entries {
        Entries { reader: Arc::clone(&self.reader), at: Mutex::default() }
    }

    fn find(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<Option<Entry>> {
        let identity = key::identity(key)?;
        work::short(py, || self.entry(&identity))
    }

    fn find_named(&self, py: Python<'_>, component: String, name: String) -> Result<Option<Entry>> {
        let (slot, owner, scope) = (String::new(), String::new(), Vec::new());
        let mut identity = Identity { component, role: Role::Param, name, slot, owner, scope };
        work::short(py, || {
            // Aliases are of one of the two roles, and no two of all these share a name.
            if let Some(found) = self.entry(&identity)? {
                return Ok(Some(found));
            }
            identity.role = Role::Buffer;
            self.entry(&identity)
        })
    }

    #[pyo3(signature = (wants, *, progress = None))]
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::items)] wants: Vec<Asked<'_>>,
        #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
    ) -> Result<()> {
        let mut buffers = Vec::with_capacity(wants.len());
        let mut asked = Vec::with_capacity(wants.len());
        for (tensor, region, out) in &wants {
            let region = region.as_ref().map(key::region).transpose()?;
            asked.push(Want { tensor: key::identity(tensor)?, region });
            buffers.push(BytesMut::of(out)?);
        }
        apart(&buffers)?;
        let reader = &*self.reader;
        let plan = work::short(py, || reader.plan(&asked))?;
        for (at, (want, buffer)) in asked.iter().zip(&buffers).enumerate() {
            let (expected, found) = (plan.out_bytes(at)?, buffer.len());
            if arith::to_usize(expected, "bytes of a region")? != found {
                let message = format!("expected {expected} bytes to read into, found {found}");
                return Err(Error::new(Code::BadArgument, message)
                    .in_tensor(want.tensor.key())
                    .into());
            }
        }
        let short = progress.is_none() && plan.read_bytes() < SHORT_BYTES;
        let mut serve = |progress: &dyn waystation_reader::Progress| {
            let mut outs: Vec<&mut [u8]> = buffers.iter_mut().map(BytesMut::as_mut_slice).collect();
            reader.serve_watched(&plan, &mut outs, progress)
        };
        if short {
            return work::short(py, || serve(&waystation_reader::NoProgress));
        }
        work::run(py, progress, serve)
    }

    fn map(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<Mapped> {
        let identity = key::identity(key)?;
        work::short(py, || Mapped::new(&self.reader, &identity))
    }

    fn records(&self, py: Python<'_>) -> Result<Vec<RecordTuple>> {
        work::short(py, || {
            let records = self.reader.records().map(|record| {
                let record = record?;
                let value = record.value()?.encode()?;
                Ok((record.key.kind, record.key.name, record.key.coordinate, value))
            });
            records.collect()
        })
    }

    fn attachments(&self, py: Python<'_>) -> Result<Vec<(String, u64, String)>> {
        work::short(py, || {
            let all = self.reader.attachments();
            Ok(all
                .map(|one| (one.path.to_owned(), one.entry.bytes, one.entry.sha256.to_string()))
                .collect())
        })
    }

    fn attachment<'py>(&self, py: Python<'py>, path: &str) -> Result<Bound<'py, PyBytes>> {
        let bytes = work::short(py, || {
            let mut bytes = Vec::new();
            self.reader.read_attachment(path, &mut bytes).map(|()| bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn grades_json(&self, py: Python<'_>) -> Result<String> {
        let grades = work::compute(py, |stop| self.reader.grades_until(stop))?;
        let mut json = Encoder::new();
        restore::report(&mut json, &grades);
        Ok(json.into_string())
    }

    fn restore_json(
        &self,
        py: Python<'_>,
        topology: &Bound<'_, PyAny>,
        coordinate: &Bound<'_, PyAny>,
        options_json: &str,
    ) -> Result<String> {
        let (topology, coordinate) = (key::topology(topology)?, key::coordinate(coordinate)?);
        work::run(py, None, |progress| {
            restore::answer(&self.reader, topology, coordinate, options_json, progress)
        })
    }

    #[pyo3(signature = (cursor_json, *, budget = None))]
    fn walk(
        &self,
        py: Python<'_>,
        cursor_json: &str,
        #[pyo3(from_py_with = arguments::whole_or_none)] budget: Option<u64>,
    ) -> Result<Walk> {
        let budget = walk::budget(budget);
        let live = work::compute(py, |stop| {
            self.reader.walk(&walk::cursor(cursor_json)?, budget.until(stop.clone()))
        })?;
        Ok(Walk::of(live))
    }

    fn __repr__(&self) -> String {
        format!("<Checkpoint {:?} of step {}, {}>", self.path, self.step(), self.digest())
    }
}

impl Checkpoint {
    fn entry(&self, identity: &Identity) -> waystation_format::Result<Option<Entry>> {
        let found = self.reader.find(identity)?;
        found.map(|found| Entry::new(&self.reader, &found)).transpose()
    }
}

/// The entries of a checkpoint, page by page.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
struct Entries {
    reader: Arc<Reader>,
    at: Mutex<At>,
}

/// How far an iteration has come.
#[derive(Debug, Default)]
struct At {
    next_page: u32,
    page: vec::IntoIter<Arc<Stored>>,
}

#[pymethods]
impl Entries {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<Entry>> {
        // Nobody waits for this lock while attached to the interpreter, so its holder can go on.
        work::short(py, || {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(found) = at.page.next() {
                    return Entry::new(&self.reader, &found).map(Some);
                }
                if at.next_page >= self.reader.tensor_pages() {
                    return Ok(None);
                }
                let after = at.next_page.saturating_add(1);
                let page = self.reader.entries_in_pages(at.next_page..after);
                let page: Vec<Arc<Stored>> = page.collect::<waystation_format::Result<_>>()?;
                (at.next_page, at.page) = (after, page.into_iter());
            }
        })
    }
}
