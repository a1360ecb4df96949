//! A wish that work end.
//!
//! It knows that somebody wishes it. What is stopped, and how soon, is for whoever works to say.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use waystation_format::{Code, Error, Result};

/// A wish that work end, shared by who wishes and who works: copies are one wish, which is never
/// taken back.
#[derive(Clone, Default)]
pub struct Stop(Arc<Wish>);

#[derive(Default)]
struct Wish {
    uttered: AtomicBool,
    ask: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Stop {
    /// Nobody wishes it yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A wish that is asked for: by whoever works, on its thread, some thousand times a second at
    /// most, until the answer is once true.
    #[must_use]
    pub fn asking(ask: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Wish { uttered: AtomicBool::new(false), ask: Some(Box::new(ask)) }))
    }

    /// Wishes it. It takes no lock and no memory, so a signal handler may.
    pub fn request(&self) {
        self.0.uttered.store(true, Ordering::Relaxed);
    }

    /// Whether it is wished.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        if self.0.uttered.load(Ordering::Relaxed) {
            return true;
        }
        let asked = self.0.ask.as_ref().is_some_and(|ask| ask());
        if asked {
            self.request();
        }
        asked
    }

    /// Goes on unless it is wished.
    ///
    /// # Errors
    ///
    /// [`Code::Interrupted`] when it is.
    pub fn go_on(&self) -> Result<()> {
        if self.is_requested() {
            return Err(Error::new(Code::Interrupted, "stopped before the work was done"));
        }
        Ok(())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.0.uttered).finish()
    }
}

impl PartialEq for Stop {
    /// Whether they are one wish.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Stop {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn copies_are_one_wish() {
        let stop = Stop::new();
        let copy = stop.clone();
        copy.go_on().unwrap();
        stop.request();
        assert_eq!(copy.go_on().unwrap_err().code(), Code::Interrupted);
        assert_eq!(copy, stop);
        assert_ne!(copy, Stop::new());
    }

    #[test]
    fn what_was_once_wished_is_not_asked_again() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let stop = Stop::asking(|| ASKED.fetch_add(1, Ordering::Relaxed) >= 1);
        assert!(!stop.is_requested());
        assert!(stop.is_requested());
        assert!(stop.is_requested());
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }
}
