//! What fuzz targets reach of this crate's own parsers. Not for others: it may change at any time.

use std::ops::Range;

use waystation_format::{Dtype, Result};

/// Name, dtype and shape of a tensor, and the bytes of the file that it takes.
pub type Found = (String, Dtype, Vec<u64>, Range<u64>);

/// The tensors that a foreign safetensors file holds.
///
/// # Errors
/// What `import` answers for such a file.
pub fn foreign_tensors(file: &[u8]) -> Result<Vec<Found>> {
    crate::foreign::tensors_of(file)
}
