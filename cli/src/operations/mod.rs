//! What commands do, as functions: paths in, data out. Knows nothing of command lines and prints
//! nothing; what is for people to read on the way goes to a [`Watcher`].

mod attach;
mod commit;
mod copy;
mod export;
mod import;
mod place;
mod reshard;
mod run;
mod target;
mod verify;

use std::fmt;
use std::num::NonZero;

use waystation_format::part::Producer;
use waystation_format::{Code, Error, Result};
use waystation_reader::{NoProgress, OpenOptions, Progress};

pub use attach::attach;
pub use commit::{Deadline, commit, salvage};
pub use copy::copy;
pub use export::{EXPORT_SHARD_BYTES, Export, Exported, export};
pub use import::{Import, Imported, import};
pub(crate) use place::refuse_run;
pub use place::{Attempt, open_attempt, open_checkpoint, open_run};
pub use reshard::reshard;
pub use run::{Found, gc_json, latest, list_json, pin, reject, unpin, why};
pub use target::{NewCheckpoint, Settings, Target, make, open_or_make_run};
pub use verify::{Verified, verify};

/// Who watches an operation.
pub trait Watcher: Progress {
    /// A line that a person should see beside the result or the error.
    fn note(&self, line: &str);
}

impl Watcher for NoProgress {
    fn note(&self, _line: &str) {}
}

/// How an operation works, and who is told about it.
#[derive(Clone, Copy)]
pub struct Work<'w> {
    /// Threads to read, write and check with.
    pub threads: usize,
    /// Told how far it is, and asked whether to go on.
    pub watcher: &'w dyn Watcher,
}

impl Work<'_> {
    /// One thread a core, and nobody is watching.
    #[must_use]
    pub fn unwatched() -> Self {
        Self { threads: cores(), watcher: &NoProgress }
    }

    pub(crate) fn open_options(&self) -> OpenOptions {
        OpenOptions::new().threads(self.threads)
    }

    /// Goes on unless somebody asked to stop; `what` says what that leaves.
    fn go_on(&self, what: &str) -> Result<()> {
        if self.watcher.cancelled() { Err(Error::new(Code::Interrupted, what)) } else { Ok(()) }
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Threads where nobody says how many.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// This program, as parts name it.
#[must_use]
pub fn producer() -> Producer {
    Producer { name: "waystation".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}
