//! Jobs on scoped threads, with the error that a single thread would have met first.
//!
//! It knows order and threads. It must not know what a job is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use waystation_format::{Error, Result};

/// Does `work` on every job, on up to `threads` threads, each with a state of its own.
///
/// Jobs are taken in order, and no new one after a failure, so every job before a failed one was
/// taken, and the first error in the order of the jobs is known.
///
/// # Errors
/// That one.
pub(crate) fn each<J: Send, S>(
    threads: usize,
    jobs: Vec<J>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) -> Result<()> + Sync,
) -> Result<()> {
    if threads <= 1 || jobs.len() <= 1 {
        let mut own = state();
        return jobs.into_iter().try_for_each(|job| work(&mut own, job));
    }
    let threads = threads.min(jobs.len());
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let failed = AtomicBool::new(false);
    let first: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let worker = || {
        let mut own = state();
        while !failed.load(Ordering::Relaxed) {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, job)) = next else { break };
            if let Err(e) = work(&mut own, job) {
                failed.store(true, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(known, _)| at < *known) {
                    *first = Some((at, e));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // One that cannot be had is missed by nobody: this thread does what is left.
            if thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, e)) => Err(e),
        None => Ok(()),
    }
}

/// Does `work` on every job, on up to `threads` threads, and gives the results in the order of the
/// jobs.
///
/// # Errors
/// The first in that order.
pub(crate) fn map<J: Send, R: Send>(
    threads: usize,
    jobs: Vec<J>,
    work: impl Fn(J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    let paired = jobs.into_iter().zip(&mut results).collect();
    each(
        threads,
        paired,
        || (),
        |(), (job, result)| {
            *result = Some(work(job)?);
            Ok(())
        },
    )?;
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use waystation_format::Code;

    use super::*;

    #[test]
    fn every_job_is_done_once() {
        for threads in [1, 2, 7] {
            let sum = AtomicUsize::new(0);
            each(
                threads,
                (0..1000).collect(),
                || (),
                |(), job: usize| {
                    sum.fetch_add(job, Ordering::Relaxed);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(sum.into_inner(), 499_500);
        }
    }

    /// In a process of its own, where every thread would have a stack that no machine has room for.
    #[test]
    fn every_job_is_done_where_no_thread_can_be_had() {
        const STACK: &str = "RUST_MIN_STACK";
        let none = (1_u64 << 50).to_string();
        if std::env::var(STACK).is_ok_and(|stack| stack == none) {
            thread::Builder::new().spawn(|| ()).unwrap_err();
            let all = map(7, (0..1000).collect(), |job: usize| Ok(job + 1)).unwrap();
            assert_eq!(all, (1..1001).collect::<Vec<_>>());
            return;
        }
        let name = "parallel::tests::every_job_is_done_where_no_thread_can_be_had";
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--test-threads=1"])
            .env(STACK, none)
            .output()
            .unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
        assert!(String::from_utf8_lossy(&again.stdout).contains("1 passed"));
    }

    #[test]
    fn the_first_error_in_order_is_the_answer() {
        for threads in [1, 4] {
            for _ in 0..50 {
                let error = each(
                    threads,
                    (0..100).collect(),
                    || (),
                    |(), job: u32| match job {
                        20 | 21 | 70 => Err(Error::new(Code::Io, job.to_string())),
                        _ => Ok(()),
                    },
                )
                .unwrap_err();
                assert_eq!(error.message(), "20");
            }
        }
    }
}
