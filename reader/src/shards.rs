//! Shards by writer and position: their names, lengths and tables, and the open files.
//!
//! It knows the manifest's shards and keeps a bounded number of them open. It must not know
//! tensors.

use std::sync::Arc;

use waystation_format::manifest::Manifest;
use waystation_format::part::{CrcTable, ShardEntry};
use waystation_format::{Code, Error, Result, names, rule};
use waystation_store::{Object, Store};

use crate::cache::Cache;
use crate::complete::{check_length, with_rule};

/// The writer and the position among its shards.
pub(crate) type ShardId = (u32, u32);

/// Files kept open.
const OPEN_FILES: u64 = 256;

/// Tables kept, in bytes.
const TABLE_BYTES: u64 = 64 << 20;

/// The open shards of one checkpoint, and the tables that were read of them.
#[derive(Debug)]
pub(crate) struct Shards {
    open: Cache<ShardId, Arc<dyn Object>>,
    pub(crate) tables: Cache<ShardId, Arc<[u32]>>,
}

impl Shards {
    pub(crate) fn new() -> Self {
        Self { open: Cache::new(OPEN_FILES), tables: Cache::new(TABLE_BYTES) }
    }

    pub(crate) fn open(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
        shard: ShardId,
    ) -> Result<Arc<dyn Object>> {
        self.open.get_or(&shard, || {
            let name = file_name(manifest, shard)?;
            let object = store.open(&name).map_err(with_rule)?;
            check_length(entry(manifest, shard)?.bytes, object.bytes())
                .map_err(|e| e.in_file(name))?;
            Ok((object, 1))
        })
    }

    pub(crate) fn keep_table(&self, shard: ShardId, table: Arc<[u32]>) {
        let weight = u64::try_from(table.len()).unwrap_or(u64::MAX).saturating_mul(4);
        self.tables.put(shard, table, weight);
    }
}

/// The name of a shard's file.
pub(crate) fn file_name(manifest: &Manifest, shard: ShardId) -> Result<String> {
    let inc = part(manifest, shard.0)?.inc;
    Ok(names::shard(entry(manifest, shard)?.class, shard.0, inc, shard.1))
}

/// Where a shard's table of block CRCs is: within the shard, or the manifest is none.
pub(crate) fn table(manifest: &Manifest, shard: ShardId) -> Result<&CrcTable> {
    entry(manifest, shard)?.crc_table.as_ref().ok_or_else(|| no_such(shard, "table"))
}

/// What the manifest says of a shard.
pub(crate) fn entry(manifest: &Manifest, shard: ShardId) -> Result<&ShardEntry> {
    let shards = &part(manifest, shard.0)?.shards;
    usize::try_from(shard.1)
        .ok()
        .and_then(|at| shards.get(at))
        .ok_or_else(|| no_such(shard, "shard"))
}

fn part(manifest: &Manifest, writer: u32) -> Result<&waystation_format::manifest::PartSummary> {
    usize::try_from(writer)
        .ok()
        .and_then(|at| manifest.parts.get(at))
        .ok_or_else(|| no_such((writer, 0), "part"))
}

#[cold]
fn no_such(shard: ShardId, what: &str) -> Error {
    let message = format!("expected a {what} of writer {}, shard {}, found none", shard.0, shard.1);
    Error::rule(Code::BadChunk, rule::CHUNK_SHARD, message)
}
