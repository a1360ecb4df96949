//! A run and its checkpoints: commit, verify, list, keep and mark.
//!
//! It knows the calls. What they do is what the program's commands do, in the program's own functions.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use waystation_cli::operations::{self, Attempt, Deadline, Work, cores, open_attempt, open_run};
use waystation_writer::GcPolicy;

use crate::arguments;
use crate::errors::{Result, usage};
use crate::watch::{self, Quiet};
use crate::work;

#[pyfunction]
#[pyo3(signature = (path, *, run_path = None, name = None, deadline = None, poll = 0.2, check_state = true,
    progress = None))]
#[expect(clippy::too_many_arguments, reason = "they are named where it is called")]
fn commit(
    py: Python<'_>,
    path: PathBuf,
    run_path: Option<PathBuf>,
    name: Option<String>,
    deadline: Option<f64>,
    poll: f64,
    check_state: bool,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<(String, bool)> {
    let after = deadline.map(|deadline| seconds(deadline, "deadline")).transpose()?;
    let deadline = Deadline { after, poll: Some(seconds(poll, "poll")?) };
    let done = work::run(py, progress, |progress| {
        let mut attempt = match run_path {
            None => open_attempt(&path)?,
            Some(run) => {
                let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                let run = Some(open_run(&run)?);
                Attempt { store: waystation_store::open_path(&path)?, run, name }
            }
        };
        attempt.name = name.or(attempt.name);
        let work = Work { threads: cores(), watcher: &Quiet(progress) };
        operations::commit(attempt, deadline, check_state, &work)
    })?;
    Ok((done.digest.to_string(), done.already))
}

#[pyfunction]
#[pyo3(signature = (path, *, quick = false, threads = None, progress = None))]
fn verify_json(
    py: Python<'_>,
    path: PathBuf,
    quick: bool,
    #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
    #[pyo3(from_py_with = arguments::callback)] progress: Option<Py<PyAny>>,
) -> Result<String> {
    let threads = watch::threads(threads)?;
    work::run(py, progress, |progress| {
        let work = Work { threads, watcher: &Quiet(progress) };
        Ok(operations::verify(&path, quick, &work)?.json().to_string())
    })
}

#[pyfunction]
fn latest_json(py: Python<'_>, run_path: PathBuf) -> Result<String> {
    work::short(py, || Ok(operations::latest(&run_path)?.json().to_string()))
}

#[pyfunction]
fn list_json(py: Python<'_>, run_path: PathBuf) -> Result<String> {
    work::short(py, || {
        let all = waystation_reader::list(&open_run(&run_path)?)?;
        Ok(operations::list_json(&all).to_string())
    })
}

#[pyfunction]
#[pyo3(signature = (run_path, *, keep_last, keep_every = None, uncommitted_older_than = None, dry_run = false))]
fn gc_json(
    py: Python<'_>,
    run_path: PathBuf,
    #[pyo3(from_py_with = arguments::whole)] keep_last: usize,
    #[pyo3(from_py_with = arguments::whole_or_none)] keep_every: Option<u64>,
    uncommitted_older_than: Option<f64>,
    dry_run: bool,
) -> Result<String> {
    if keep_last == 0 || keep_every == Some(0) {
        return Err(usage("expected keep_last and keep_every of at least 1, found 0"));
    }
    let mut policy = GcPolicy::keep_last(keep_last);
    policy.keep_every = keep_every;
    policy.dry_run = dry_run;
    policy.uncommitted_older_than =
        uncommitted_older_than.map(|age| seconds(age, "uncommitted_older_than")).transpose()?;
    work::run(py, None, |_| {
        let report = waystation_writer::gc(&open_run(&run_path)?, &policy)?;
        Ok(operations::gc_json(&report, dry_run).to_string())
    })
}

#[pyfunction]
fn abandon(py: Python<'_>, run_path: PathBuf, name: &str) -> Result<()> {
    work::short(py, || waystation_writer::abandon(&open_run(&run_path)?, name))
}

#[pyfunction]
fn reject(py: Python<'_>, path: PathBuf, reason: &str) -> Result<()> {
    work::short(py, || operations::reject(&path, reason))
}

#[pyfunction]
fn pin(py: Python<'_>, path: PathBuf, name: &str) -> Result<()> {
    work::short(py, || operations::pin(&path, name, &Work::unwatched()))
}

#[pyfunction]
fn unpin(py: Python<'_>, path: PathBuf, name: &str) -> Result<()> {
    work::short(py, || operations::unpin(&path, name))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(commit, module)?)?;
    module.add_function(wrap_pyfunction!(verify_json, module)?)?;
    module.add_function(wrap_pyfunction!(latest_json, module)?)?;
    module.add_function(wrap_pyfunction!(list_json, module)?)?;
    module.add_function(wrap_pyfunction!(gc_json, module)?)?;
    module.add_function(wrap_pyfunction!(abandon, module)?)?;
    module.add_function(wrap_pyfunction!(reject, module)?)?;
    module.add_function(wrap_pyfunction!(pin, module)?)?;
    module.add_function(wrap_pyfunction!(unpin, module)?)
}

/// # Errors
/// `bad-argument` for what is no time to wait.
fn seconds(seconds: f64, what: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| usage(format!("expected {what} in seconds from 0, found {seconds}")))
}
