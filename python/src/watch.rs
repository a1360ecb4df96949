//! What operations are told of how to work.
//!
//! It knows threads and watchers. It must not know what the work is.

use waystation_cli::operations::{Watcher, cores};
use waystation_reader::{Progress, Stop};

use crate::errors::{Result, usage};

/// Watches, and drops what is for people beside the result.
pub(crate) struct Quiet<'p>(pub(crate) &'p dyn Progress);

impl Progress for Quiet<'_> {
    fn begin(&self, what: &str, total_bytes: u64) {
        self.0.begin(what, total_bytes);
    }

    fn advance(&self, bytes: u64) {
        self.0.advance(bytes);
    }

    fn stop(&self) -> Option<&Stop> {
        self.0.stop()
    }

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

impl Watcher for Quiet<'_> {
    fn note(&self, _line: &str) {}
}

/// The threads to work on: one a core where nobody says.
///
/// # Errors
/// `bad-argument` for none.
pub(crate) fn threads(threads: Option<usize>) -> Result<usize> {
    match threads {
        None => Ok(cores()),
        Some(0) => Err(usage("expected at least one thread, found 0")),
        Some(threads) => Ok(threads.min(1024)),
    }
}
