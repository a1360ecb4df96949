//! One tensor of a checkpoint: read whole, by region, or as a stream in bounded memory.
//!
//! It knows how its bytes are asked for. It must not know chunks' places: the plan does.

use std::sync::Arc;

use waystation_format::digest::Hasher;
use waystation_format::entry::{Entry, Tensor};
use waystation_format::{Code, Digest, Error, Identity, Region, Result, arith, limits, pack, rule};

use crate::checkpoint::{Checkpoint, as_tensor};
use crate::complete::zeroed;
use crate::plan::Builder;
use crate::source::{Source, whole_bytes};

/// Memory for streaming when the caller names none.
const STREAM_BYTES: u64 = 16 << 20;

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct TensorRef<'c> {
    checkpoint: &'c Checkpoint,
    /// A tensor: `new` takes no alias.
    entry: Arc<Entry>,
}

impl<'c> TensorRef<'c> {
    pub(crate) fn new(checkpoint: &'c Checkpoint, entry: Arc<Entry>) -> Result<Self> {
        if as_tensor(&entry).is_none() {
            let message = "expected a tensor, found an alias";
            return Err(Error::rule(Code::BadAlias, rule::ALIAS_TARGET, message));
        }
        Ok(Self { checkpoint, entry })
    }

    /// What the metadata says of it.
    #[must_use]
    pub fn entry(&self) -> &Tensor {
        match as_tensor(&self.entry) {
            Some(tensor) => tensor,
            None => unreachable!("made of a tensor"),
        }
    }

    /// What the metadata say of it, kept apart from the checkpoint.
    #[must_use]
    pub fn into_entry(self) -> Arc<Entry> {
        self.entry
    }

    /// Its own identity; not the one of the alias by which it was found.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.entry().identity
    }

    /// Bytes of the whole tensor, packed as one chunk. For a flat companion, of one element for each
    /// block.
    ///
    /// # Errors
    /// `limit` when they do not fit 64 bits.
    pub fn bytes(&self) -> Result<u64> {
        whole_bytes(self.entry()).map_err(|e| self.name(e))
    }

    /// Bytes of a region, packed as one chunk.
    ///
    /// # Errors
    /// `bad-region` when it is not one of the tensor's; `block-boundary` when the tensor is a flat
    /// companion that cannot be cut there.
    pub fn region_bytes(&self, region: &Region) -> Result<u64> {
        Source::new(self.entry(), region).and_then(|s| s.bytes()).map_err(|e| self.name(e))
    }

    /// All elements, packed as one chunk: row-major, little-endian, sub-byte elements least
    /// significant first, unused bits zero.
    ///
    /// # Errors
    /// `crc-mismatch`, `crc-table-mismatch`, `file-missing`, `length-mismatch` and those of the
    /// system; `limit` when the bytes are beyond the caller's budget; `block-boundary` when it is a
    /// flat companion whose chunks are not runs of blocks.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.read_region(&Region::whole(&self.entry().shape))
    }

    /// The elements of a region, packed as one chunk.
    ///
    /// # Errors
    /// As [`read`](Self::read); `bad-region` when it is not one of the tensor's.
    pub fn read_region(&self, region: &Region) -> Result<Vec<u8>> {
        let bytes = self.region_bytes(region)?;
        self.budget(bytes)?;
        let mut out = zeroed(bytes, "the bytes of a region").map_err(|e| self.name(e))?;
        self.read_into(region, &mut out)?;
        Ok(out)
    }

    /// Reads the elements of a region into `out`, packed as one chunk.
    ///
    /// # Errors
    /// As [`read_region`](Self::read_region); `bad-argument` when `out` has another length than
    /// [`region_bytes`](Self::region_bytes). After an error `out` holds anything.
    pub fn read_into(&self, region: &Region, out: &mut [u8]) -> Result<()> {
        let mut builder = self.checkpoint.builder();
        self.add_region(&mut builder, region)?;
        self.checkpoint.serve(&builder.build(), &mut [out]).map_err(|e| self.name(e))
    }

    /// Gives all elements, packed as one chunk, in order and in pieces of at most `max_piece` bytes
    /// (but at least 8 elements), each checked before it is given.
    ///
    /// # Errors
    /// As [`read`](Self::read), and those of `take`.
    pub fn stream(&self, max_piece: u64, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let whole = Region::whole(&self.entry().shape);
        let source = Source::new(self.entry(), &whole).map_err(|e| self.name(e))?;
        self.stream_source(&source, max_piece, take)
    }

    /// Gives the elements of a region, packed as one chunk, in pieces as [`stream`](Self::stream).
    ///
    /// # Errors
    /// As [`stream`](Self::stream); `bad-region` when it is not one of the tensor's.
    pub fn stream_region(
        &self,
        region: &Region,
        max_piece: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let source = Source::new(self.entry(), region).map_err(|e| self.name(e))?;
        self.stream_source(&source, max_piece, take)
    }

    /// Gives the bytes of one chunk as they are stored, checked, in pieces as [`stream`](Self::stream):
    /// for those who keep the chunks of a flat companion that cannot be read whole.
    ///
    /// # Errors
    /// As [`stream`](Self::stream); `bad-argument` when there is no such chunk.
    pub fn stream_chunk(
        &self,
        chunk: usize,
        max_piece: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let source = Source::chunk(self.entry(), chunk).map_err(|e| self.name(e))?;
        self.stream_source(&source, max_piece, take)
    }

    /// The SHA-256 of all elements, packed as one chunk, in bounded memory.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub fn sha256(&self) -> Result<Digest> {
        let mut hasher = Hasher::new();
        self.stream(STREAM_BYTES, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(hasher.finish())
    }

    pub(crate) fn add_region(&self, builder: &mut Builder<'_>, region: &Region) -> Result<()> {
        builder.region(&self.entry, self.entry(), region).map_err(|e| self.name(e))
    }

    fn stream_source(
        &self,
        source: &Source<'_>,
        max_piece: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let total = source.region.elements()?;
        let step = self.piece_elements(source.bits, max_piece)?;
        let most = pack::packed_bytes(source.bits, step.min(total))?;
        self.budget(most)?;
        let mut buffer = zeroed(most, "the bytes of a piece").map_err(|e| self.name(e))?;
        let mut begin = 0_u64;
        while begin < total {
            let end = begin.saturating_add(step).min(total);
            let mut builder = self.checkpoint.builder();
            builder.window(&self.entry, source, begin..end).map_err(|e| self.name(e))?;
            let plan = builder.build();
            let bytes = arith::to_usize(plan.out_bytes(0)?, "the bytes of a piece")?;
            let piece = buffer.get_mut(..bytes).unwrap_or_default();
            self.checkpoint.serve(&plan, &mut [&mut *piece]).map_err(|e| self.name(e))?;
            take(piece)?;
            begin = end;
        }
        Ok(())
    }

    /// Elements of a piece: whole blocks where there is room for one, so that a chunk that is the
    /// whole tensor is read once; always whole bytes.
    fn piece_elements(&self, bits: u32, max_piece: u64) -> Result<u64> {
        // No tensor is longer, and a caller may say "no bound" with the largest number.
        let most = max_piece.min(limits::TENSOR_BITS / 8);
        let most = match self.checkpoint.options().memory_budget {
            Some(budget) => most.min(budget),
            None => most,
        };
        let block = self.checkpoint.manifest().common.block_bytes;
        let blocks = most.checked_div(block).unwrap_or(0).saturating_mul(block);
        let bytes = if blocks > 0 { blocks } else { most };
        let elements =
            arith::mul(bytes, 8, "bits of a piece")?.checked_div(u64::from(bits)).unwrap_or(0);
        // Eight elements are whole bytes, whatever the bits of one.
        let whole = if bits.is_multiple_of(8) { elements } else { elements & !7 };
        Ok(whole.max(8))
    }

    fn budget(&self, bytes: u64) -> Result<()> {
        let budget = self.checkpoint.options().budget();
        budget.check(bytes, "the bytes of a tensor").map_err(|e| self.name(e))
    }

    fn name(&self, e: Error) -> Error {
        e.in_tensor(self.identity().key())
    }
}
