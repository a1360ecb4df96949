//! Copies between arrays on many threads: how a save takes the state of a training out of its way.
//!
//! It knows bytes. It must not know tensors.

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;

use crate::arguments;
use crate::dlpack::{self, Bytes, BytesMut};
use crate::errors::{Result, usage};
use crate::watch;

/// No run is cut into pieces shorter than this. Long ones are copied past the caches, which costs a third less of the memory's
/// time; how long that is differs between machines, tens of MiB on most.
const PIECE: usize = 64 << 20;

#[pyfunction]
#[pyo3(signature = (pairs, *, threads = None))]
fn copy_bytes(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::items)] pairs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    #[pyo3(from_py_with = arguments::whole_or_none)] threads: Option<usize>,
) -> Result<()> {
    let threads = watch::threads(threads)?;
    let mut sources = Vec::with_capacity(pairs.len());
    let mut destinations = Vec::with_capacity(pairs.len());
    for (number, (source, destination)) in pairs.iter().enumerate() {
        let (source, destination) = (Bytes::of(source)?, BytesMut::of(destination)?);
        let (needed, room) = (source.as_slice().len(), destination.len());
        if needed > room {
            return Err(usage(format!(
                "expected room for the {needed} bytes of source {number}, found {room}"
            )));
        }
        sources.push(source);
        destinations.push(destination);
    }
    dlpack::apart(&destinations, &sources)?;
    py.detach(|| copy(&sources, &mut destinations, threads));
    Ok(())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(copy_bytes, module)?)
}

fn copy(sources: &[Bytes], destinations: &mut [BytesMut], threads: usize) {
    let total =
        sources.iter().fold(0_usize, |sum, bytes| sum.saturating_add(bytes.as_slice().len()));
    // As many pieces as threads have use for, and no more.
    let piece = total.div_ceil(threads.saturating_mul(2).max(1)).max(PIECE);
    let mut pieces = Vec::new();
    for (source, destination) in sources.iter().zip(destinations) {
        let source = source.as_slice();
        let count = source.len().checked_div(piece).unwrap_or_default().max(1);
        let each = source.len().div_ceil(count).max(1);
        pieces.extend(source.chunks(each).zip(destination.as_mut_slice().chunks_mut(each)));
    }
    // Long ones first: none is begun last.
    pieces.sort_by_key(|(source, _)| Reverse(source.len()));
    let threads = threads.min(pieces.len());
    let pieces = Mutex::new(pieces.into_iter());
    let work = || {
        loop {
            let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((source, destination)) = next else { return };
            if let Some(destination) = destination.get_mut(..source.len()) {
                destination.copy_from_slice(source);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // One that cannot be had is missed by nobody: this thread does what is left.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}
