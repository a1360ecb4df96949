//! Streaming an attachment into its file.
//!
//! It knows bytes, their digest and one file. It must not know logical paths.

use std::io::{self, Write};
use std::sync::Arc;

use waystation_format::digest::Hasher;
use waystation_format::{Digest, Error, Result, arith};
use waystation_store::{NewObject, Store};

use crate::put;

/// Bytes gathered before a write.
const BUFFER: usize = 1 << 18;

/// Makes the file `name`, writes what `fill` gives, and makes the file durable. Gives its length
/// in bytes and its digest.
pub(crate) fn write(
    store: &Arc<dyn Store>,
    name: &str,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<(u64, Digest)> {
    let mut sink = Sink {
        object: store.create(name, None)?,
        hasher: Hasher::new(),
        offset: 0,
        buffer: Vec::with_capacity(BUFFER),
        failed: None,
    };
    let filled = fill(&mut sink);
    // What the file met says more than the io::Error that `fill` was given for it.
    if let Some(failed) = sink.failed.take() {
        return Err(failed);
    }
    filled?;
    sink.drain()?;
    sink.object.finish()?;
    Ok((sink.offset, sink.hasher.finish()))
}

struct Sink {
    object: Arc<dyn NewObject>,
    hasher: Hasher,
    /// Where the buffer goes.
    offset: u64,
    buffer: Vec<u8>,
    failed: Option<Error>,
}

impl Sink {
    fn drain(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.object.write_at(&self.buffer, self.offset)?;
        self.offset = arith::add(self.offset, put::length(&self.buffer), "attachment's length")?;
        self.buffer.clear();
        Ok(())
    }

    fn drained(&mut self) -> io::Result<()> {
        self.drain().map_err(|failed| {
            let reply = io::Error::other(failed.to_string());
            self.failed.get_or_insert(failed);
            reply
        })
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_some() {
            return Err(io::Error::other("an earlier write failed"));
        }
        if self.buffer.len() >= BUFFER {
            self.drained()?;
        }
        let room = BUFFER.saturating_sub(self.buffer.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
