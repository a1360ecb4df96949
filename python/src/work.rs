//! Long work without the GIL, watched by the thread that called.
//!
//! It knows threads, signals and callbacks: work that reads or writes runs on a thread of its own,
//! while the calling thread wakes now and then to run Python's signal handlers and to report; a
//! computation looks for signals itself. It must not know what the work is.

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use waystation_reader::{Progress, Stop};

use crate::errors::{Fault, Result, usage};

/// How long a signal waits, and how far apart reports are.
const WAKE: Duration = Duration::from_millis(50);

/// Work so short that nobody waits for it: without the GIL, on this thread.
pub(crate) fn short<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> waystation_format::Result<T> + Send,
) -> Result<T> {
    py.detach(work).map_err(Fault::Ours)
}

/// A computation that may be over at once or go on for hours: without the GIL, on this thread, which
/// runs signal handlers itself while it looks at the stop that it is given.
///
/// # Errors
/// What a signal handler raises, which stops it. Else what it gives.
pub(crate) fn compute<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> waystation_format::Result<T> + Send,
) -> Result<T> {
    let signals = Signals::default();
    let stop = signals.stop();
    let outcome = py.detach(|| work(&stop));
    signals.or(outcome)
}

/// Does `work` without the GIL on a thread of its own. Meanwhile this thread runs signal handlers
/// and calls `callback(what, done, total)` with the newest numbers, and once more when the work is
/// done. Where no thread can be had, the work is done on this one, which looks for signals where the
/// work looks whether to stop.
///
/// # Errors
/// What a signal handler or the callback raises: the work is told to stop, and has stopped when
/// this returns. Else what the work gives.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    work: impl FnOnce(&dyn Progress) -> waystation_format::Result<T> + Send,
) -> Result<T> {
    let watch = Watch::until(Stop::new());
    // Whoever does it takes it: a thread that does not start gives nothing back.
    let work = Mutex::new(Some(work));
    let taken = || lock(&work).take();
    let outcome = py.detach(|| {
        thread::scope(|scope| {
            let worker =
                thread::Builder::new().name("waystation".to_owned()).spawn_scoped(scope, || {
                    let _last = Finish(&watch);
                    taken().map(|work| work(&watch))
                });
            let Ok(worker) = worker else { return Ok(None) };
            let mut raised = None;
            while !watch.wait() {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| watch.look(py, callback.as_ref()))
                {
                    watch.stop.request();
                    raised = Some(error);
                }
            }
            let outcome = worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            match raised {
                Some(error) => Err(Fault::Python(error)),
                None => outcome.transpose().map_err(Fault::Ours),
            }
        })
    })?;
    if let Some(outcome) = outcome {
        watch.look(py, callback.as_ref())?;
        return Ok(outcome);
    }
    let signals = Signals::default();
    let watch = Watch::until(signals.stop());
    let work = taken().ok_or_else(|| usage("expected work to do, found none"))?;
    let outcome = py.detach(|| work(&watch));
    let outcome = signals.or(outcome)?;
    watch.look(py, callback.as_ref())?;
    Ok(outcome)
}

/// Signals that the working thread looks for itself, and what a handler raised.
#[derive(Default)]
struct Signals(Arc<Mutex<Option<PyErr>>>);

impl Signals {
    /// A stop that runs signal handlers when it is looked at, [`WAKE`] apart, and is requested when
    /// one raises.
    fn stop(&self) -> Stop {
        let raised = Arc::clone(&self.0);
        let last = Mutex::new(Instant::now());
        Stop::asking(move || {
            let mut last = lock(&last);
            if last.elapsed() < WAKE {
                return false;
            }
            let Err(error) = Python::attach(|py| py.check_signals()) else {
                *last = Instant::now();
                return false;
            };
            *lock(&raised) = Some(error);
            true
        })
    }

    /// What a handler raised, before what the work gave.
    fn or<T>(&self, outcome: waystation_format::Result<T>) -> Result<T> {
        match lock(&self.0).take() {
            Some(error) => Err(Fault::Python(error)),
            None => outcome.map_err(Fault::Ours),
        }
    }
}

/// What the work says of itself.
#[derive(Debug)]
struct Watch {
    phase: Mutex<Phase>,
    done: AtomicU64,
    stop: Stop,
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
    fn until(stop: Stop) -> Self {
        Self {
            phase: Mutex::default(),
            done: AtomicU64::new(0),
            stop,
            finished: Mutex::default(),
            wake: Condvar::new(),
        }
    }

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

    fn stop(&self) -> Option<&Stop> {
        Some(&self.stop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
