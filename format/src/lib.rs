//! Waystation's metadata and region algebra: parse, validate, encode, derive.
//!
//! This crate knows what the bytes of a checkpoint mean and which rules bind them. It does no
//! I/O and holds no `unsafe`: files are the business of `waystation-store`, reading and writing
//! checkpoints that of `waystation-reader` and `waystation-writer`.

#![forbid(unsafe_code)]

pub mod arith;
pub mod attachment;
pub mod commit_file;
pub mod common;
pub mod companion;
pub mod cover;
pub mod crc;
pub mod derive;
pub mod digest;
pub mod dims;
mod entries;
pub mod entry;
pub mod entry_json;
mod error;
pub mod features;
pub mod flat;
pub mod identity;
pub mod inventory;
pub mod json;
pub mod manifest;
pub mod names;
pub mod pack;
pub mod page;
pub mod part;
pub mod record;
pub mod records;
pub mod region;
pub mod registry;
pub mod session;
pub mod shard;
pub mod value_tree;

pub use common::{Common, Coordinate, Topology, Version};
pub use digest::Digest;
pub use dims::Dims;
pub use entry::{Alias, Chunk, Entry, Native, NativeStep, Tensor};
pub use error::{Error, Location, Result};
pub use features::Features;
pub use identity::Identity;
pub use manifest::Manifest;
pub use part::{Part, PartContent};
pub use record::{Record, RecordKey};
pub use region::Region;
pub use registry::rules as rule;
pub use registry::{
    Advance, Class, Code, Dtype, Grade, OrderAlgorithm, Presence, RngAlgorithm, RngCache, Role,
    ScheduleAlgorithm, ShardClass, limits,
};
pub use session::{Attempt, Incarnation};
