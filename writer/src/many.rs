//! Whole chunks from memory, many at once, on many threads.
//!
//! It knows how bytes are cut into pieces, so that one long chunk keeps all threads busy and a wish to stop is soon seen. Where
//! they go is for [`Writing`].

use waystation_format::Result;
use waystation_reader::Progress;

use crate::commit::go_on;
use crate::put;
use crate::session::ChunkId;
use crate::workers;
use crate::writing::Writing;

/// Bytes that a thread writes before it looks whether to stop: a multiple of every block length up to it.
const PIECE: usize = 4 << 20;

struct Piece<'b> {
    chunk: ChunkId,
    offset: u64,
    bytes: &'b [u8],
}

impl Writing {
    /// Writes whole chunks from memory on up to `threads` threads.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Writing::write_all), and nothing is written when a length is wrong; `interrupted`, after which some
    /// chunks are not whole and the attempt cannot be finished.
    pub fn write_many(
        &self,
        chunks: &[(ChunkId, &[u8])],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut total = 0_u64;
        for (chunk, bytes) in chunks {
            self.check_length(*chunk, bytes)?;
            total = total.saturating_add(put::length(bytes));
        }
        progress.begin("write", total);
        let cut = PIECE.max(self.block_bytes());
        let mut pieces = Vec::with_capacity(chunks.len());
        for &(chunk, bytes) in chunks {
            let mut offset = 0_u64;
            for bytes in bytes.chunks(cut) {
                pieces.push(Piece { chunk, offset, bytes });
                offset = offset.saturating_add(put::length(bytes));
            }
        }
        workers::run(threads, pieces.len(), |at| {
            go_on(progress)?;
            let Some(Piece { chunk, offset, bytes }) = pieces.get(at) else { return Ok(()) };
            self.write(*chunk, *offset, bytes)?;
            progress.advance(put::length(bytes));
            Ok(())
        })
    }
}
