//! The bytes of one chunk in order, in pieces of any length.
//!
//! It knows how to gather whole blocks. It must not know what is in them.

use std::fmt;

use waystation_format::{Code, Error, Result, arith};

use crate::put;
use crate::session::ChunkId;
use crate::writing::Writing;

/// Takes a chunk's bytes from front to back and writes them block by block. It holds less than one
/// block.
#[must_use = "the last bytes are written by `finish`"]
pub struct ChunkStream<'w> {
    writing: &'w Writing,
    id: ChunkId,
    /// The chunk's length.
    bytes: u64,
    block_bytes: usize,
    /// Where the buffer goes: a multiple of the block length.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes were refused or lost: what comes after them has no place.
    broken: bool,
}

impl<'w> ChunkStream<'w> {
    pub(crate) fn new(writing: &'w Writing, id: ChunkId, bytes: u64, block_bytes: usize) -> Self {
        Self { writing, id, bytes, block_bytes, at: 0, buffer: Vec::new(), broken: false }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// As [`Writing::write`]; `bad-argument` for bytes beyond the chunk's end, and for whatever
    /// comes after an error.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        if !self.buffer.is_empty() {
            let missing = self.block_bytes.saturating_sub(self.buffer.len());
            let (head, rest) = bytes.split_at(missing.min(bytes.len()));
            self.buffer.extend_from_slice(head);
            bytes = rest;
            if self.buffer.len() < self.block_bytes {
                return Ok(());
            }
            let block = std::mem::take(&mut self.buffer);
            self.write(&block)?;
            self.buffer = block;
            self.buffer.clear();
        }
        let odd = bytes.len().checked_rem(self.block_bytes).unwrap_or_default();
        let (whole, rest) = bytes.split_at(bytes.len().saturating_sub(odd));
        self.write(whole)?;
        self.buffer.extend_from_slice(rest);
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push); `bad-argument` when the chunk is longer than what was pushed.
    pub fn finish(mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.buffer);
        self.write(&rest)?;
        if self.at != self.bytes {
            let message = format!("expected {} bytes of a chunk, found {}", self.bytes, self.at);
            return Err(Error::new(Code::BadArgument, message));
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.broken {
            let message = "expected a stream without errors, found one that refused bytes before";
            return Err(Error::new(Code::BadArgument, message));
        }
        self.broken = true;
        self.writing.write(self.id, self.at, bytes)?;
        self.broken = false;
        self.at = arith::add(self.at, put::length(bytes), "offset in a chunk")?;
        Ok(())
    }
}

impl fmt::Debug for ChunkStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkStream")
            .field("id", &self.id)
            .field("at", &self.at)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
