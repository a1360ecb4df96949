//! Files of a checkpoint from a recipe, by the shortest reading of the specification.
//!
//! Nothing here is checked: a recipe that breaks a rule becomes a checkpoint that breaks it. The
//! steps are apart, so that a change can be made between two of them: [`parts`], [`root`], [`seal`].

mod bits;
mod content;
mod flat;
mod json;
mod parts;
mod root;
mod seal;
mod shard;
mod streams;

pub use bits::{cut, element_bits};
pub use content::{projection, slice};
pub use json::canonical;
pub use parts::{Draft, identity, key, parts, record_key};
pub use root::{Root, root};
pub use seal::{Sealed, Text, seal};
pub use streams::{fork_seed, forked, twister, twister_of};

use sha2::{Digest as _, Sha256};

use crate::recipe::hex;

/// SHA-256 in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// CRC-32C as metadata has it.
#[must_use]
pub fn crc(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}
