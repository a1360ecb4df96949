//! Long work without the GIL, watched by the thread that called.
//!
//! It knows threads, signals and callbacks: the work runs on a thread of its own, while the calling
//! thread wakes now and then to run Python's signal handlers and to report. It must not know what
//! the work is.

use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use waystation_reader::Progress;

use crate::errors::{Fault, Result};

/// How long a signal waits, and how far apart reports are.
const WAKE: Duration = Duration::from_millis(50);

/// Work so short that nobody waits for it: without the GIL, on this thread.
pub(crate) fn short<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> waystation_format::Result<T> + Send,
) -> Result<T> {
    py.detach(work).map_err(Fault::Ours)
}

/// Does `work` without the GIL on a thread of its own. Meanwhile this thread runs signal handlers
/// and calls `callback(what, done, total)` with the newest numbers, and once more when the work is
/// done.
///
/// # Errors
/// What a signal handler or the callback raises: the work is told to stop, and has stopped when
/// this returns. Else what the work gives.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    work: impl FnOnce(&dyn Progress) -> waystation_format::Result<T> + Send,
) -> Result<T> {
    let watch = Watch::default();
    let outcome = py.detach(|| {
        thread::scope(|scope| {
            let worker =
                thread::Builder::new().name("waystation".to_owned()).spawn_scoped(scope, || {
                    let _last = Finish(&watch);
                    work(&watch)
                });
            let worker = match worker {
                Ok(worker) => worker,
                Err(error) => {
                    return Err(waystation_format::Error::io("start a thread", error).into());
                }
            };
            let mut raised = None;
            while !watch.wait() {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| watch.look(py, callback.as_ref()))
                {
                    watch.cancelled.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            let outcome = worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            match raised {
                Some(error) => Err(Fault::Python(error)),
                None => outcome.map_err(Fault::Ours),
            }
        })
    })?;
    watch.look(py, callback.as_ref())?;
    Ok(outcome)
}

/// What the work says of itself.
#[derive(Debug, Default)]
struct Watch {
    phase: Mutex<Phase>,
    done: AtomicU64,
    cancelled: AtomicBool,
    finished: Mutex<bool>,
    wake: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Phase {
    what: String,
    total: u64,
}

/// Says that the work is over, also when it panics.
struct Finish<'w>(&'w Watch);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        *lock(&self.0.finished) = true;
        self.0.wake.notify_all();
    }
}

impl Watch {
    /// Waits for a while, or until the work is over: whether it is.
    fn wait(&self) -> bool {
        let finished = lock(&self.finished);
        let waited = self.wake.wait_timeout_while(finished, WAKE, |finished| !*finished);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Runs what signal handlers wait, and reports.
    fn look(&self, py: Python<'_>, callback: Option<&Py<PyAny>>) -> PyResult<()> {
        py.check_signals()?;
        let Some(callback) = callback else { return Ok(()) };
        let phase = lock(&self.phase).clone();
        let done = self.done.load(Ordering::Relaxed);
        callback.call1(py, (phase.what, done, phase.total))?;
        Ok(())
    }
}

impl Progress for Watch {
    fn begin(&self, what: &str, total_bytes: u64) {
        let mut phase = lock(&self.phase);
        *phase = Phase { what: what.to_owned(), total: total_bytes };
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
