//! Checkpoints made of checkpoints and of foreign files, and files made of them.
//!
//! It knows the calls. What they do is what the program's commands do, in the program's own functions.

use std::path::PathBuf;

use pyo3::prelude::*;
use waystation_cli::operations::{self, Target, Work, cores};
use waystation_format::limits;

use crate::arguments;
use crate::errors::{Result, usage};
use crate::watch::Quiet;
use crate::work;

#[pyfunction]
#[pyo3(signature = (path, *, progress = None))]
fn salvage(
    py: Python<'_>,
    path: PathBuf,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<String> {
    work::run(py, progress, |progress| {
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        Ok(operations::salvage(&path, false, &work)?.digest.to_string())
    })
}

#[pyfunction]
#[pyo3(signature = (source, out, *, progress = None))]
fn copy(
    py: Python<'_>,
    source: PathBuf,
    out: PathBuf,
    progress: Option<Py<PyAny>>,
) -> Result<String> {
    work::run(py, progress, |progress| {
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        Ok(operations::copy(&source, &out, &work)?.digest.to_string())
    })
}

#[pyfunction]
#[pyo3(signature = (source, out, *, writers, progress = None))]
fn reshard(
    py: Python<'_>,
    source: PathBuf,
    out: PathBuf,
    #[pyo3(from_py_with = arguments::whole)] writers: u32,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<String> {
    check_writers(writers)?;
    work::run(py, progress, |progress| {
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        let (_, done) = operations::reshard(&source, Target::Alone(&out), writers, &work)?;
        Ok(done.digest.to_string())
    })
}

#[pyfunction]
#[pyo3(signature = (path, out, *, roles = vec!["param".to_owned(), "buffer".to_owned()], component = "main", max_shard_bytes = None, single = false,
    progress = None),
    text_signature = "(path, out, *, roles=('param', 'buffer'), component='main', max_shard_bytes=None, single=False, progress=None)")]
#[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
fn export(
    py: Python<'_>,
    path: PathBuf,
    out: PathBuf,
    #[pyo3(from_py_with = arguments::texts)] roles: Vec<String>,
    component: &str,
    #[pyo3(from_py_with = arguments::whole_or_none)] max_shard_bytes: Option<u64>,
    single: bool,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<String> {
    if roles.is_empty() {
        return Err(usage("expected at least one role, found none"));
    }
    let most = if single { u64::MAX } else { operations::EXPORT_SHARD_BYTES };
    let export = operations::Export {
        checkpoint: &path,
        out: &out,
        attachments: !single,
        roles: &roles,
        component: Some(component),
        max_shard_bytes: max_shard_bytes.unwrap_or(most),
        config: None,
    };
    work::run(py, progress, |progress| {
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        Ok(operations::export(&export, &work)?.json().to_string())
    })
}

#[pyfunction]
#[pyo3(signature = (source, *, out = None, run_path = None, step = 0, writers = 1, attach = Vec::new(), progress = None),
    text_signature = "(source, *, out=None, run_path=None, step=0, writers=1, attach=(), progress=None)")]
#[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
fn import_json(
    py: Python<'_>,
    source: PathBuf,
    out: Option<PathBuf>,
    run_path: Option<PathBuf>,
    #[pyo3(from_py_with = arguments::whole)] step: u64,
    #[pyo3(from_py_with = arguments::whole)] writers: u32,
    #[pyo3(from_py_with = arguments::items)] attach: Vec<PathBuf>,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<String> {
    check_writers(writers)?;
    let target = match (&out, &run_path) {
        (Some(out), None) => Target::Alone(out),
        (None, Some(run)) => Target::InRun(run),
        _ => return Err(usage("expected one of out and run_path, found both or none")),
    };
    let import =
        operations::Import { source: &source, target, step, writers, attach: &attach, name: None };
    work::run(py, progress, |progress| {
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        Ok(operations::import(&import, &work)?.json().to_string())
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(salvage, module)?)?;
    module.add_function(wrap_pyfunction!(copy, module)?)?;
    module.add_function(wrap_pyfunction!(reshard, module)?)?;
    module.add_function(wrap_pyfunction!(export, module)?)?;
    module.add_function(wrap_pyfunction!(import_json, module)?)
}

/// # Errors
/// `bad-argument` for a number that no checkpoint has.
fn check_writers(writers: u32) -> Result<()> {
    let most = limits::WRITERS;
    if writers == 0 || u64::from(writers) > most {
        return Err(usage(format!("expected 1 to {most} writers, found {writers}")));
    }
    Ok(())
}
