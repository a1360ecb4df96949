//! Doing independent jobs on a few threads.
//!
//! It knows numbers of jobs. Which error is reported does not depend on timing: the one of the
//! lowest job among those that ran.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use waystation_format::{Error, Result};

/// The threads to use when the caller does not say.
pub(crate) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs `job(0)` … `job(jobs - 1)` on up to `threads` threads, this one included, and stops taking
/// new ones after a failure.
///
/// # Errors
///
/// That of the lowest failed job.
pub(crate) fn run<F>(threads: usize, jobs: usize, job: F) -> Result<()>
where
    F: Fn(usize) -> Result<()> + Sync,
{
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let first: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Acquire) {
            let index = next.fetch_add(1, Ordering::AcqRel);
            if index >= jobs {
                return;
            }
            if let Err(error) = job(index) {
                stop.store(true, Ordering::Release);
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(lowest, _)| index < *lowest) {
                    *first = Some((index, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(jobs) {
            // One that cannot be had is missed by nobody: this thread does what is left.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(()),
        Some((_, error)) => Err(error),
    }
}

/// As [`run`] over `items`, with the results in their order.
///
/// # Errors
///
/// That of the lowest failed item.
pub(crate) fn map<T, R, F>(threads: usize, items: &[T], job: F) -> Result<Vec<R>>
where
    T: Sync,
    R: Send,
    F: Fn(usize, &T) -> Result<R> + Sync,
{
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    run(threads, items.len(), |index| {
        if let (Some(item), Some(result)) = (items.get(index), results.get(index)) {
            let done = job(index, item)?;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
        Ok(())
    })?;
    Ok(results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect())
}

#[cfg(test)]
mod tests {
    use waystation_format::Code;

    use super::*;

    #[test]
    fn every_job_runs_once() {
        for threads in [0, 1, 3, 100] {
            let ran: Vec<_> = (0..50).map(|_| AtomicUsize::new(0)).collect();
            run(threads, 50, |i| {
                ran[i].fetch_add(1, Ordering::AcqRel);
                Ok(())
            })
            .unwrap();
            assert!(ran.iter().all(|n| n.load(Ordering::Acquire) == 1));
        }
    }

    #[test]
    fn the_lowest_failure_is_the_answer() {
        let error =
            run(1, 9, |i| if i >= 4 { Err(Error::new(Code::Io, i.to_string())) } else { Ok(()) });
        assert_eq!(error.unwrap_err().message(), "4");
    }
}
