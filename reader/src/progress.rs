//! How long work reports itself and is told to stop.
//!
//! It knows bytes done and a wish to stop. It must not know terminals.

use waystation_format::{Code, Error, Result};
use waystation_state::{Budget, Stop};

/// Told what a long call is doing, and asked whether it should go on. Called from many threads.
pub trait Progress: Sync {
    /// A phase begins: what it is, in words, and how many bytes it goes through.
    fn begin(&self, what: &str, total_bytes: u64);

    /// So many more bytes of the phase are done.
    fn advance(&self, bytes: u64);

    /// The wish by which the caller stops the work, if it may want to. It is looked at within long
    /// computations too, which have nothing to report.
    fn stop(&self) -> Option<&Stop> {
        None
    }

    /// Whether to stop at the next good moment: asked between pieces of work, of which a long
    /// computation is one. Unless said otherwise, when the caller's wish is requested.
    fn cancelled(&self) -> bool {
        self.stop().is_some_and(Stop::is_requested)
    }
}

/// Nobody is watching.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _what: &str, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {}
}

/// A budget that is spent, or that ends with the work that it is of.
#[must_use]
pub fn within(budget: Budget, progress: &dyn Progress) -> Budget {
    match progress.stop() {
        Some(stop) => budget.until(stop.clone()),
        None => budget,
    }
}

/// Goes on unless the caller asked to stop.
///
/// # Errors
/// [`Code::Interrupted`] when it did.
pub(crate) fn go_on(progress: &dyn Progress) -> Result<()> {
    if progress.cancelled() {
        return Err(Error::new(Code::Interrupted, "stopped before the work was done"));
    }
    Ok(())
}
