//! A tensor as packed boxes: where the elements of a region lie in its chunks.
//!
//! It knows that a flat companion is, once its region is proven to fall on block boundaries, a
//! one-axis tensor of one element a block. It must not know files or I/O.

use waystation_format::companion::{Share, shares, stored_elements};
use waystation_format::entry::{Chunk, Tensor};
use waystation_format::{Code, Dims, Error, Region, Result, arith, pack};

/// A region of a tensor and the chunks that meet it, in the coordinates in which chunks are packed.
#[derive(Debug)]
pub(crate) struct Source<'t> {
    /// What is asked for; packed, it is the result.
    pub(crate) region: Region,
    pub(crate) bits: u32,
    /// The chunks that meet the region, each with its box.
    pub(crate) chunks: Vec<(&'t Chunk, Region)>,
}

impl<'t> Source<'t> {
    /// # Errors
    /// `bad-region` when `region` is none of the tensor's, `block-boundary` when it is one of a
    /// flat companion that cannot be cut there.
    pub(crate) fn new(tensor: &'t Tensor, region: &Region) -> Result<Self> {
        region.check_within(&tensor.shape)?;
        if let Some(block) = tensor.block {
            return Self::flat(tensor, region, block);
        }
        let met = tensor.chunks.iter().filter(|chunk| chunk.region.intersect(region).is_some());
        let chunks = met.map(|chunk| (chunk, chunk.region.clone())).collect();
        Ok(Self { region: region.clone(), bits: tensor.dtype.bits(), chunks })
    }

    /// One chunk as it is stored, in the order in which it is packed.
    ///
    /// # Errors
    /// `bad-argument` when there is no such chunk.
    pub(crate) fn chunk(tensor: &'t Tensor, chunk: usize) -> Result<Self> {
        let Some(stored) = tensor.chunks.get(chunk) else {
            let message = format!("expected one of {} chunks, found {chunk}", tensor.chunks.len());
            return Err(Error::new(Code::BadArgument, message));
        };
        let elements = match tensor.block {
            Some(block) => stored_elements(block, &stored.region)?,
            None => stored.region.elements()?,
        };
        let all = line(0, elements);
        Ok(Self { region: all.clone(), bits: tensor.dtype.bits(), chunks: vec![(stored, all)] })
    }

    fn flat(tensor: &'t Tensor, region: &Region, block: u64) -> Result<Self> {
        let stored = tensor.chunks.iter().map(|chunk| &chunk.region);
        let found = shares(&tensor.shape, block, region, stored)?;
        // Blocks count from the beginning of the first chunk that is met; only that one can begin
        // before the region.
        let origin = found.shares.iter().map(|share| share.from).max().unwrap_or(0);
        let mut chunks = Vec::with_capacity(found.shares.len());
        for share in &found.shares {
            let Some(chunk) = tensor.chunks.get(share.chunk) else { continue };
            chunks.push((chunk, place(share, origin, stored_elements(block, &chunk.region)?)?));
        }
        let region = line(origin, found.elements);
        Ok(Self { region, bits: tensor.dtype.bits(), chunks })
    }

    /// Bytes of the result.
    pub(crate) fn bytes(&self) -> Result<u64> {
        pack::packed_bytes(self.bits, self.region.elements()?)
    }
}

/// Bytes of a whole tensor, packed as one chunk.
pub(crate) fn whole_bytes(tensor: &Tensor) -> Result<u64> {
    let whole = Region::whole(&tensor.shape);
    let elements = match tensor.block {
        Some(block) => stored_elements(block, &whole)?,
        None => whole.elements()?,
    };
    pack::packed_bytes(tensor.dtype.bits(), elements)
}

fn place(share: &Share, origin: u64, stored: u64) -> Result<Region> {
    let first = arith::add(origin, share.to, "block of a companion")?;
    Ok(line(arith::sub(first, share.from, "block of a companion")?, stored))
}

fn line(at: u64, extent: u64) -> Region {
    Region { at: Dims::from_slice(&[at]), extent: Dims::from_slice(&[extent]) }
}
