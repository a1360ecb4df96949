//! The flag that an error leaves behind: an attempt that met one is not used again.
//!
//! It knows that something failed, not what. After a failed write or fsync the page cache may call
//! pages clean that never reached the disk, so nothing that was written can be believed.

use std::sync::atomic::{AtomicBool, Ordering};

use waystation_format::{Code, Error, Result, rule};

/// Set by the first failure, for ever.
#[derive(Debug, Default)]
pub(crate) struct Poison(AtomicBool);

impl Poison {
    /// # Errors
    ///
    /// [`Code::Poisoned`] after a failure.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Acquire) {
            let message =
                "expected an attempt without errors, found one that an earlier error killed";
            return Err(Error::rule(Code::Poisoned, rule::WRITER_DEAD, message));
        }
        Ok(())
    }

    /// Passes `result` on and remembers whether it is a failure.
    pub(crate) fn guard<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.0.store(true, Ordering::Release);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays() {
        let poison = Poison::default();
        poison.guard(Ok(())).unwrap();
        poison.check().unwrap();
        poison.guard(Err::<(), _>(Error::new(Code::IoFull, "full"))).unwrap_err();
        poison.guard(Ok(())).unwrap();
        assert_eq!(poison.check().unwrap_err().code(), Code::Poisoned);
    }
}
