//! Waystation's metadata and region algebra: parse, validate, encode, derive.
//!
//! This crate knows what the bytes of a checkpoint mean and which rules bind them. It does no
//! I/O and holds no `unsafe`: files are the business of `waystation-store`, reading and writing
//! checkpoints that of `waystation-reader` and `waystation-writer`.

#![forbid(unsafe_code)]

pub mod arith;
pub mod commit_file;
pub mod digest;
pub mod companion;
pub mod cover;
pub mod crc;
pub mod dims;
mod error;
pub mod flat;
pub mod features;
pub mod json;
pub mod names;
pub mod pack;
pub mod region;
pub mod registry;
pub mod session;
pub mod shard;

pub use digest::Digest;
pub use dims::Dims;
pub use error::{Error, Location, Result};
pub use features::Features;
pub use region::Region;
pub use registry::rules as rule;
pub use registry::{Class, Code, Dtype, Presence, Role, ShardClass, limits};
pub use session::{Attempt, Incarnation};
