//! Copies between arrays on many threads: how a save takes the state of a training out of its way.
//!
//! It knows bytes. It must not know tensors.

use std::sync::{Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;

use crate::dlpack::{self, Bytes, BytesMut};
use crate::errors::{Result, usage};
use crate::watch;

/// Bytes that a thread copies at a time.
const PIECE: usize = 16 << 20;

#[pyfunction]
#[pyo3(signature = (pairs, *, threads = None))]
fn copy_bytes(
    py: Python<'_>,
    pairs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    threads: Option<usize>,
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
    let mut pieces = Vec::new();
    for (source, destination) in sources.iter().zip(destinations) {
        let into = destination.as_mut_slice().chunks_mut(PIECE);
        pieces.extend(source.as_slice().chunks(PIECE).zip(into));
    }
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
            // A thread that cannot be had is missed by nobody: this one does what is left.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}
