//! How a checkpoint is opened and read, and the caller's bound on memory.
//!
//! It knows choices and numbers. It must not know files.

use std::num::NonZero;
use std::thread;

use waystation_format::{Code, Error, Result, rule};

/// Choices of a caller that opens a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Check the CRC of everything that is returned. Without it a partial read touches fewer bytes,
    /// and damage goes unseen.
    pub verify_reads: bool,
    /// Largest number of bytes that one call may take in memory: a manifest, a page, a tensor that
    /// is returned. `None` leaves the bound to the files' real lengths.
    pub memory_budget: Option<u64>,
    /// Threads of a read; 0 takes what the machine has.
    pub threads: usize,
    /// Follow symbolic links beneath the directory. For directories that the caller trusts, such
    /// as a download cache made of links. Only [`Checkpoint::open_with`](crate::Checkpoint::open_with)
    /// can: a store never follows.
    pub trust_links: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { verify_reads: true, memory_budget: None, threads: 0, trust_links: false }
    }
}

impl OpenOptions {
    /// The defaults, to be changed by the methods below.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`verify_reads`](Self::verify_reads).
    #[must_use]
    pub fn verify_reads(mut self, verify: bool) -> Self {
        self.verify_reads = verify;
        self
    }

    /// Sets [`memory_budget`](Self::memory_budget).
    #[must_use]
    pub fn memory_budget(mut self, bytes: Option<u64>) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`trust_links`](Self::trust_links).
    #[must_use]
    pub fn trust_links(mut self, trust: bool) -> Self {
        self.trust_links = trust;
        self
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget(self.memory_budget)
    }
}

/// What one call may take in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget(pub(crate) Option<u64>);

impl Budget {
    /// Accepts `bytes` of memory for `what`.
    ///
    /// # Errors
    /// [`Code::Limit`] when they are above the caller's budget.
    pub(crate) fn check(self, bytes: u64, what: &str) -> Result<()> {
        match self.0 {
            Some(most) if bytes > most => Err(Error::rule(
                Code::Limit,
                rule::OPEN_MEMORY,
                format!(
                    "expected {what} within the caller's budget of {most} bytes, found {bytes}"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// The number of threads for a wish: 0 is what the machine has.
pub(crate) fn threads(wish: usize) -> usize {
    match wish {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        n => n,
    }
}

/// A length in memory, which always fits.
pub(crate) fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
