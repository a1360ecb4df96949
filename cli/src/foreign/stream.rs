//! The bytes of a box of a foreign tensor, packed and in order, in bounded memory.
//! Knows rows and bits; the files are `Model::read`'s.

use waystation_format::{Error, Region, Result, arith, dims, pack};

use super::{ForeignTensor, Model};

/// Bytes read at once, but for a row that is longer.
const PIECE_BYTES: u64 = 4 << 20;

impl Model {
    /// Gives the bytes of `region` to `take`, from front to back.
    ///
    /// # Errors
    /// Those of reading, and of `take`.
    pub(crate) fn stream(
        &self,
        tensor: &ForeignTensor,
        region: &Region,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let name = |e: Error| e.in_tensor(tensor.name.clone());
        let bits = tensor.dtype.bits();
        let whole = *region == Region::whole(&tensor.shape);
        if whole {
            return self.stream_run(tensor, 0, tensor.bytes, take).map_err(name);
        }
        let row_bits =
            arith::mul(dims::elements(tail(&tensor.shape))?, u64::from(bits), "bits of a row")?;
        let same_rows = tail(&region.extent) == tail(&tensor.shape);
        let (at, rows) = (first(&region.at), first(&region.extent));
        let begin = arith::mul(at, row_bits, "first bit of a region")?;
        let length = arith::mul(rows, row_bits, "bits of a region")?;
        // A box that does not end on a byte would bring along bits of the next row.
        if same_rows && begin % 8 == 0 && length % 8 == 0 {
            return self.stream_run(tensor, begin / 8, length / 8, take).map_err(name);
        }
        // Eight rows at a time end on a byte whatever the width of an element.
        let step = PIECE_BYTES.div_ceil((row_bits / 8).max(1)).next_multiple_of(8);
        let mut done = 0;
        while done < rows {
            let mut slab = region.clone();
            let count = step.min(rows.saturating_sub(done));
            let from = arith::add(at, done, "row of a region")?;
            set_first(&mut slab, from, count);
            take(&self.gather(tensor, &slab, row_bits)?)?;
            done = arith::add(done, count, "row of a region")?;
        }
        Ok(())
    }

    fn stream_run(
        &self,
        tensor: &ForeignTensor,
        mut at: u64,
        mut bytes: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; arith::to_usize(bytes.min(PIECE_BYTES), "piece")?];
        while bytes > 0 {
            let length = bytes.min(PIECE_BYTES);
            buffer.truncate(arith::to_usize(length, "piece")?);
            self.read(tensor, at, &mut buffer)?;
            take(&buffer)?;
            at = arith::add(at, length, "offset in a tensor")?;
            bytes = bytes.saturating_sub(length);
        }
        Ok(())
    }

    /// Reads whole rows around `slab` and packs what lies in it.
    fn gather(&self, tensor: &ForeignTensor, slab: &Region, row_bits: u64) -> Result<Vec<u8>> {
        let bits = tensor.dtype.bits();
        // Back to a row that begins on a byte.
        let from = first(&slab.at) & !7;
        let end = arith::add(first(&slab.at), first(&slab.extent), "end of a slab")?;
        let mut rows = Region::whole(&tensor.shape);
        set_first(&mut rows, from, end.saturating_sub(from));
        let offset = arith::mul(from, row_bits, "first bit of a row")? / 8;
        let bytes = pack::packed_bytes(bits, rows.elements()?)?;
        let mut around = vec![0; arith::to_usize(bytes, "rows")?];
        self.read(tensor, offset, &mut around)?;
        let packed = pack::packed_bytes(bits, slab.elements()?)?;
        let mut out = vec![0; arith::to_usize(packed, "slab")?];
        pack::copy_region(bits, &around, &rows, &mut out, slab, slab)?;
        Ok(out)
    }
}

fn first(dims: &[u64]) -> u64 {
    dims.first().copied().unwrap_or(1)
}

fn tail(dims: &[u64]) -> &[u64] {
    dims.get(1..).unwrap_or_default()
}

fn set_first(region: &mut Region, at: u64, extent: u64) {
    if let (Some(a), Some(e)) = (region.at.first_mut(), region.extent.first_mut()) {
        *a = at;
        *e = extent;
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "small numbers"
)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use waystation_format::Dtype;

    use super::super::OpenFile;
    use super::*;

    fn model(dtype: Dtype, shape: &[u64], data: &[u8]) -> Model {
        let mut handle = tempfile::tempfile().unwrap();
        handle.write_all(b"before..").unwrap();
        handle.write_all(data).unwrap();
        let tensor = ForeignTensor {
            name: "w".into(),
            dtype,
            shape: shape.to_vec(),
            file: 0,
            offset: 8,
            bytes: u64::try_from(data.len()).unwrap(),
        };
        let files = vec![OpenFile { path: "w".into(), handle }];
        Model { files, tensors: vec![tensor], attachments: Vec::new(), skipped: Vec::new() }
    }

    proptest! {
        #[test]
        fn any_box_is_what_pack_makes_of_the_whole(
            dtype in prop::sample::select(vec![Dtype::F4E2M1, Dtype::F6E2M3, Dtype::U8, Dtype::F32]),
            axes in prop::collection::vec((1_u64..7, 0_u64..7, 1_u64..7), 1..4),
            seed in any::<u8>(),
        ) {
            let shape: Vec<u64> = axes.iter().map(|(dim, _, _)| *dim).collect();
            let mut region = Region::whole(&shape);
            for (i, (dim, at, extent)) in axes.iter().enumerate() {
                region.at[i] = at % dim;
                region.extent[i] = (extent % (dim - region.at[i] + 1)).max(1);
            }
            let elements: u64 = shape.iter().product();
            prop_assume!((elements * u64::from(dtype.bits())).is_multiple_of(8));
            let bytes = pack::packed_bytes(dtype.bits(), elements).unwrap();
            let data: Vec<u8> = (0..bytes).map(|i| (i as u8).wrapping_mul(37) ^ seed).collect();
            let model = model(dtype, &shape, &data);
            let packed = pack::packed_bytes(dtype.bits(), region.elements().unwrap()).unwrap();
            let mut expected = vec![0; packed as usize];
            pack::copy_region(dtype.bits(), &data, &Region::whole(&shape), &mut expected, &region, &region).unwrap();
            let mut found = Vec::new();
            model.stream(&model.tensors[0], &region, &mut |bytes| { found.extend_from_slice(bytes); Ok(()) }).unwrap();
            prop_assert_eq!(found, expected);
        }
    }
}
