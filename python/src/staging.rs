//! Copies arrays into one memory on many threads, while Python still says which: how a save takes
//! the state of a training out of its way.
//!
//! It knows bytes and who copies them. It must not know tensors.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyIterator;

use crate::arguments;
use crate::dlpack::{Bytes, BytesMut, Part, Parts};
use crate::errors::{Result, usage};
use crate::key::shown;
use crate::watch;

/// Bytes that a thread takes at once: few enough that all of them end at the same time, enough that
/// taking costs nothing. Longer runs are cut.
const BATCH: usize = 1 << 20;

#[pyfunction]
#[pyo3(signature = (memory, sources, *, threads = None))]
fn copy_bytes(
    py: Python<'_>,
    memory: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = arguments::iterator)] sources: Bound<'_, PyIterator>,
    #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
) -> Result<()> {
    let threads = watch::threads(threads)?;
    let mut memory = BytesMut::of(memory)?;
    // Until all is copied, and to be given back where the interpreter is attached.
    let mut kept = Vec::new();
    let (parts, kept, sources) = (memory.parts(), &mut kept, sources.unbind());
    py.detach(|| {
        let queue = Queue::default();
        thread::scope(|scope| {
            let more = || {
                // One that cannot be had is missed by nobody: this thread does what is left.
                drop(thread::Builder::new().spawn_scoped(scope, || queue.work()));
            };
            let mut feeding = Feeding { queue: &queue, parts, kept, batch: Vec::new(), bytes: 0 };
            let fed = Python::attach(|py| feeding.feed(sources.bind(py), threads, more));
            let fed = feeding.end(fed);
            queue.work();
            fed
        })
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(copy_bytes, module)?)
}

/// Asks for sources, and hands batches of them to the queue. However it ends, the queue is closed.
struct Feeding<'q, 'm> {
    queue: &'q Queue<'m>,
    parts: Parts<'m>,
    kept: &'q mut Vec<Arc<Bytes>>,
    batch: Vec<Copy<'m>>,
    /// Of the batch.
    bytes: usize,
}

impl Feeding<'_, '_> {
    /// Hands out all of `sources`. For each of the first batches there is one thread `more`, below
    /// `threads`, the last of which is this one.
    fn feed(
        &mut self,
        sources: &Bound<'_, PyIterator>,
        threads: usize,
        more: impl Fn(),
    ) -> Result<()> {
        let mut working = 1;
        for (number, item) in sources.clone().enumerate() {
            let item = item?;
            let (source, at, nbytes): (Bound<'_, PyAny>, usize, usize) =
                item.extract().map_err(|_| {
                    let found = shown(&item);
                    usage(format!("expected an array, its place and its bytes, found {found}"))
                })?;
            let source = Arc::new(Bytes::of_elements(&source)?);
            let len = source.as_slice().len();
            if len != nbytes {
                return Err(usage(format!(
                    "expected {nbytes} bytes of source {number}, found {len}"
                )));
            }
            let mut part = self.parts.next(at, &source)?;
            self.kept.push(Arc::clone(&source));
            let mut from = 0;
            while from < len {
                let count = BATCH.min(len.saturating_sub(from));
                let (first, rest) = part.split(count);
                let to = from.saturating_add(count);
                self.batch.push(Copy { source: Arc::clone(&source), range: from..to, part: first });
                (part, from) = (rest, to);
                self.bytes = self.bytes.saturating_add(count);
                if self.bytes >= BATCH {
                    self.hand_over();
                    if working < threads {
                        more();
                        working = working.saturating_add(1);
                    }
                }
            }
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        self.bytes = 0;
        self.queue.push(mem::take(&mut self.batch));
    }

    /// Closes the queue; what has failed is not gone on with.
    fn end(mut self, fed: Result<()>) -> Result<()> {
        match fed {
            Ok(()) => self.hand_over(),
            Err(_) => self.queue.clear(),
        }
        fed
    }
}

impl Drop for Feeding<'_, '_> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A run of a source, and where it goes.
struct Copy<'m> {
    source: Arc<Bytes>,
    range: Range<usize>,
    part: Part<'m>,
}

impl Copy<'_> {
    fn make(self) {
        if let Some(source) = self.source.as_slice().get(self.range) {
            self.part.fill(source);
        }
    }
}

/// Batches that nobody has taken yet.
#[derive(Default)]
struct Queue<'m> {
    waiting: Mutex<Waiting<'m>>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting<'m> {
    batches: VecDeque<Vec<Copy<'m>>>,
    closed: bool,
}

impl<'m> Queue<'m> {
    fn push(&self, batch: Vec<Copy<'m>>) {
        self.lock().batches.push_back(batch);
        self.changed.notify_one();
    }

    fn clear(&self) {
        self.lock().batches.clear();
    }

    /// Lets those end who wait.
    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Copies until there is nothing left, and nothing will come.
    fn work(&self) {
        while let Some(batch) = self.next() {
            batch.into_iter().for_each(Copy::make);
        }
    }

    fn next(&self) -> Option<Vec<Copy<'m>>> {
        let mut waiting = self.lock();
        loop {
            if let Some(batch) = waiting.batches.pop_front() {
                return Some(batch);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<'m>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
