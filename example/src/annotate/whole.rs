//! Digests of whole tensors, put together from their chunks: what a loader compares itself with.
//! It knows chunks and boxes, not how the chapter is laid out.

use waystation_format::digest::Digest;
use waystation_format::entry::Tensor;
use waystation_format::manifest::Manifest;
use waystation_format::{Code, Error, Region, Result, arith, names, pack};

/// SHA-256 of all elements of `tensor`, packed as one chunk.
///
/// # Errors
///
/// A shard that is not there or too short, which those of the example are not.
pub(super) fn digest<'f>(
    tensor: &Tensor,
    manifest: &Manifest,
    find: impl Fn(&str) -> Result<&'f [u8]>,
) -> Result<Digest> {
    let whole = Region::whole(&tensor.shape);
    let bytes = arith::to_usize(tensor.chunk_bytes(&whole)?, "bytes of a tensor")?;
    let mut packed = vec![0; bytes];
    for chunk in &tensor.chunks {
        let lacking = || Error::new(Code::BadChunk, "the example has no such shard");
        let part = manifest.parts.get(arith::to_usize(chunk.writer.into(), "writer")?);
        let inc = part.ok_or_else(lacking)?.inc;
        let class = manifest.shard(chunk.writer, chunk.shard).ok_or_else(lacking)?.class;
        let shard = find(&names::shard(class, chunk.writer, inc, chunk.shard))?;
        let begin = arith::to_usize(chunk.offset, "offset of a chunk")?;
        let stored = shard.get(begin..).ok_or_else(lacking)?;
        let (bits, place) = (tensor.dtype.bits(), &chunk.region);
        pack::copy_region(bits, stored, place, &mut packed, &whole, place)?;
    }
    Ok(Digest::of(&packed))
}
