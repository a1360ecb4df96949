//! One writer of one attempt, while it says what it will write.
//!
//! It knows how Python says it. What may be said is the business of the writer's crate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use waystation_cli::operations::{self, Settings, Target, Work, producer};
use waystation_format::entry::{Alias, Native, NativeStep};
use waystation_format::inventory::InventoryBuilder;
use waystation_format::json::Value;
use waystation_format::part::{Omitted, OmittedReason, Producer};
use waystation_format::{Code, Dims, Dtype, Error, Record, Topology, names, rule};
use waystation_writer::{ChunkId, SessionOptions, TensorDecl};

use crate::arguments;
use crate::errors::{Result, usage};
use crate::key;
use crate::plan::{SessionPlan, digest};
use crate::watch::Quiet;
use crate::work;
use crate::writing::Writing;

/// One writer of one attempt, until the layout is fixed.
#[pyclass(frozen, module = "waystation._core")]
pub(crate) struct Session(Mutex<Option<Open>>);

/// A session that can still be told something.
struct Open {
    session: waystation_writer::Session,
    /// By the number that Python has.
    chunks: Vec<ChunkId>,
    bytes: u64,
}

/// How frameworks call a tensor, as Python says it.
type Names = Vec<(String, Vec<Step>)>;

#[derive(FromPyObject)]
enum Step {
    Index(u64),
    Key(String),
}

#[pymethods]
impl Session {
    #[staticmethod]
    #[pyo3(signature = (path, plan, step, counter, writer, *, threads = None, shard_bytes = None, check_state = true))]
    #[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn begin(
        py: Python<'_>,
        path: PathBuf,
        plan: &SessionPlan,
        #[pyo3(from_py_with = arguments::whole)] step: u64,
        #[pyo3(from_py_with = arguments::whole)] counter: u64,
        #[pyo3(from_py_with = arguments::whole)] writer: u32,
        #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
        #[pyo3(from_py_with = arguments::whole_or_none)] shard_bytes: Option<u64>,
        check_state: bool,
    ) -> Result<Self> {
        let options = options(threads, shard_bytes, check_state)?;
        let session = work::short(py, || {
            check_name(&path, &names::attempt_dir(step, &plan.0.attempt(step, counter)))?;
            let store = waystation_store::open_path(&path)?;
            waystation_writer::Session::begin(store, plan.0.common(step, counter), writer)
        })?;
        Ok(Self::new(session, options))
    }

    #[staticmethod]
    #[pyo3(signature = (path, *, run, step, topology = None, parent = None, block_bytes = None, threads = None,
        shard_bytes = None, check_state = true),
        text_signature = "(path, *, run, step, topology=(), parent=None, block_bytes=None, threads=None, shard_bytes=None, check_state=True)")]
    #[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn standing_alone(
        py: Python<'_>,
        path: PathBuf,
        run: String,
        #[pyo3(from_py_with = arguments::whole)] step: u64,
        topology: Option<&Bound<'_, PyAny>>,
        parent: Option<&str>,
        #[pyo3(from_py_with = arguments::whole_or_none)] block_bytes: Option<u64>,
        #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
        #[pyo3(from_py_with = arguments::whole_or_none)] shard_bytes: Option<u64>,
        check_state: bool,
    ) -> Result<Self> {
        let options = options(threads, shard_bytes, check_state)?;
        let settings = Settings {
            run_name: run,
            step,
            writers: 1,
            topology: topology.map_or_else(|| Ok(Topology::default()), key::topology)?,
            parent: parent.map(digest).transpose()?,
            block_bytes,
        };
        let session = work::short(py, || {
            settings.check()?;
            let new = operations::make(Target::Alone(&path), settings)?;
            let common = new.plan.common(step, 0);
            waystation_writer::Session::begin_alone(Arc::clone(&new.store), common, 0)
        })?;
        Ok(Self::new(session, options))
    }

    #[pyo3(signature = (key, dtype, shape, *, axes = None, native = Vec::new(), valid = None, block = None),
        text_signature = "($self, key, dtype, shape, *, axes=None, native=(), valid=None, block=None)")]
    #[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn declare(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        dtype: &str,
        shape: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::axes)] axes: Option<Vec<Option<u8>>>,
        #[pyo3(from_py_with = arguments::items)] native: Names,
        valid: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::whole_or_none)] block: Option<u64>,
    ) -> Result<()> {
        let tensor = declaration(key, dtype, shape, axes, native, valid, block)?;
        Ok(open(&mut self.lock(py))?.session.declare(&tensor)?)
    }

    #[pyo3(signature = (key, dtype, shape, start, extent, *, axes = None, native = Vec::new(), valid = None, block = None),
        text_signature = "($self, key, dtype, shape, start, extent, *, axes=None, native=(), valid=None, block=None)")]
    #[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn chunk(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        dtype: &str,
        shape: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        extent: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::axes)] axes: Option<Vec<Option<u8>>>,
        #[pyo3(from_py_with = arguments::items)] native: Names,
        valid: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::whole_or_none)] block: Option<u64>,
    ) -> Result<usize> {
        let tensor = declaration(key, dtype, shape, axes, native, valid, block)?;
        let (start, extent) = (key::dims(start, "a start")?, key::dims(extent, "an extent")?);
        let region = waystation_format::Region::new(&start, &extent);
        let mut guard = self.lock(py);
        let open = open(&mut guard)?;
        let id = open.session.chunk(&tensor, &region)?;
        let bytes = tensor.to_tensor().chunk_bytes(&region)?;
        open.bytes = open.bytes.saturating_add(bytes);
        open.chunks.push(id);
        Ok(open.chunks.len().saturating_sub(1))
    }

    #[pyo3(signature = (component, role, name, of, *, native = Vec::new()),
        text_signature = "($self, component, role, name, of, *, native=())")]
    fn alias(
        &self,
        py: Python<'_>,
        component: String,
        role: &str,
        name: String,
        of: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::items)] native: Names,
    ) -> Result<()> {
        let (role, of) = (key::role(role)?, key::identity(of)?);
        let alias = Alias { component, name, role, of, native: natives(native) };
        Ok(open(&mut self.lock(py))?.session.alias(alias)?)
    }

    fn record(
        &self,
        py: Python<'_>,
        kind: &str,
        name: &str,
        coordinate: &Bound<'_, PyAny>,
        value_json: &str,
    ) -> Result<()> {
        let coordinate = key::coordinate(coordinate)?;
        let value = Value::parse(value_json).map_err(|e| e.in_record(format!("{kind} {name}")))?;
        let record = Record::new(kind, name, coordinate, &value)
            .map_err(|e| e.in_record(format!("{kind} {name}")))?;
        open(&mut self.lock(py))?.session.record(record);
        Ok(())
    }

    fn omit(
        &self,
        py: Python<'_>,
        component: String,
        #[pyo3(from_py_with = arguments::texts)] names: Vec<String>,
        reason: &str,
    ) -> Result<()> {
        let reason = OmittedReason::from_id(reason).ok_or_else(|| {
            usage(format!("expected a reason of base, frozen, other, found {reason:?}"))
        })?;
        let mut names = names;
        names.sort_unstable();
        open(&mut self.lock(py))?.session.omit(Omitted { component, reason, names });
        Ok(())
    }

    fn inventory(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::items)] keys: Vec<Bound<'_, PyAny>>,
    ) -> Result<()> {
        let keys = keys.iter().map(|key| Ok(key::identity(key)?.key()));
        let mut keys = keys.collect::<Result<Vec<String>>>()?;
        keys.sort_unstable();
        if keys.iter().zip(keys.iter().skip(1)).any(|(a, b)| a == b) {
            return Err(usage("expected each identity once in an inventory, found one twice"));
        }
        let mut inventory = InventoryBuilder::new();
        keys.iter().for_each(|key| inventory.push(key));
        open(&mut self.lock(py))?.session.inventory(inventory.finish());
        Ok(())
    }

    fn attach(&self, py: Python<'_>, path: &str, data: &[u8]) -> Result<()> {
        work::short(py, || self.with(|open| open.session.attach_bytes(path, data)))
    }

    fn attach_file(&self, py: Python<'_>, path: &str, source: PathBuf) -> Result<()> {
        work::run(py, None, |progress| {
            let watcher = Quiet(progress);
            let work = Work { threads: 1, watcher: &watcher };
            self.with(|open| operations::attach(&mut open.session, path, &source, &work))
        })
    }

    fn producer(&self, py: Python<'_>, name: String, version: String) -> Result<()> {
        open(&mut self.lock(py))?.session.producer(Producer { name, version });
        Ok(())
    }

    fn lay_out(&self, py: Python<'_>) -> Result<Writing> {
        // Canaries of records may take a while to compute.
        work::run(py, None, |_| {
            let Open { session, chunks, bytes } = self.guard().take().ok_or_else(laid_out)?;
            Ok(Writing::new(session.lay_out()?, chunks, bytes))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match &*self.lock(py) {
            Some(open) => format!("<Session of {} chunks>", open.chunks.len()),
            None => "<Session that is laid out>".to_owned(),
        }
    }
}

impl Session {
    fn new(mut session: waystation_writer::Session, options: SessionOptions) -> Self {
        session.set_options(options);
        session.producer(producer());
        Self(Mutex::new(Some(Open { session, chunks: Vec::new(), bytes: 0 })))
    }

    /// With the GIL: it is let go while another thread has the session.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<Open>> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the GIL.
    fn guard(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the GIL.
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Open) -> waystation_format::Result<T>,
    ) -> waystation_format::Result<T> {
        work(self.guard().as_mut().ok_or_else(laid_out)?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Session>()
}

fn open(session: &mut Option<Open>) -> Result<&mut Open> {
    session.as_mut().ok_or_else(|| laid_out().into())
}

#[cold]
fn laid_out() -> Error {
    Error::new(Code::BadArgument, "expected a session before its lay_out, found one after it")
}

fn options(
    threads: Option<usize>,
    shard_bytes: Option<u64>,
    check_state: bool,
) -> Result<SessionOptions> {
    let mut options = SessionOptions::default();
    options.threads = crate::watch::threads(threads)?;
    options.shard_target_bytes = shard_bytes.unwrap_or(options.shard_target_bytes);
    options.check_state = check_state;
    Ok(options)
}

/// Two saves of one job have two directories: a writer that counts them otherwise than the one that made the directory is
/// found before it writes, and not by the committer.
fn check_name(path: &Path, own: &str) -> waystation_format::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if names::parse_attempt_dir(name).is_none() || name == own {
        return Ok(());
    }
    let message = format!("expected the directory of this save, {own}, found {name}");
    Err(Error::rule(Code::NameDisagrees, rule::DIR_ATTEMPT_NAME, message).in_file(name))
}

fn declaration(
    key: &Bound<'_, PyAny>,
    dtype: &str,
    shape: &Bound<'_, PyAny>,
    axes: Option<Vec<Option<u8>>>,
    native: Names,
    valid: Option<&Bound<'_, PyAny>>,
    block: Option<u64>,
) -> Result<TensorDecl> {
    let identity = key::identity(key)?;
    let dtype = Dtype::from_id(dtype).ok_or_else(|| {
        let message = format!("expected a registered dtype, found {dtype:?}");
        let error = Error::rule(Code::UnsupportedDtype, rule::TENSOR_DTYPE, message);
        error.in_tensor(identity.key())
    })?;
    let mut tensor = TensorDecl::new(identity, dtype, &key::dims(shape, "a shape")?);
    tensor.axes = axes;
    tensor.valid = valid
        .map(|valid| key::dims(valid, "a shape"))
        .transpose()?
        .map(|valid| Dims::from_slice(&valid));
    tensor.block = block;
    tensor.native = natives(native);
    Ok(tensor)
}

/// Ascending by framework, as they stand in metadata.
fn natives(native: Names) -> Vec<Native> {
    let mut native: Vec<_> = native.into_iter().map(named).collect();
    native.sort_by(|a, b| a.framework.cmp(&b.framework));
    native
}

fn named((framework, path): (String, Vec<Step>)) -> Native {
    let step = |step| match step {
        Step::Index(index) => NativeStep::Index(index),
        Step::Key(key) => NativeStep::Key(key),
    };
    Native { framework, path: path.into_iter().map(step).collect() }
}
