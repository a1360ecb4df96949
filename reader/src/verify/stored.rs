//! Which chunks the shards of a writer hold: by its part, or by the pages where that is broken.
//!
//! It knows metadata. It must not read any shard.

use std::collections::HashMap;
use std::sync::Arc;

use waystation_format::entry::{Entry, Tensor};
use waystation_format::manifest::Manifest;
use waystation_format::part::{Part, ShardEntry};
use waystation_format::shard::{Layout, each_layout_of};
use waystation_format::{Error, Incarnation, names};

use super::Check;
use crate::options::Budget;
use crate::pages::{parse_tensors, read_tensors};

/// A chunk as metadata lists it.
pub(super) struct Stored {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
    pub(super) table_index: Option<u64>,
    pub(super) tensor: Arc<str>,
    pub(super) bits: u32,
    pub(super) elements: u64,
}

/// The chunks of each shard of a writer, ascending by offset.
pub(super) type Shards = Vec<Vec<Stored>>;

/// What the shards of a writer must hold.
pub(super) struct Data<'a> {
    pub(super) writer: u32,
    pub(super) inc: Incarnation,
    pub(super) shards: &'a [ShardEntry],
    pub(super) block_bytes: u64,
    /// Of each shard, `None` where it is not as stated; nothing where none can be known.
    pub(super) layouts: Vec<Option<Layout>>,
    pub(super) stored: Shards,
}

impl<'a> Data<'a> {
    /// By a part; with the breaches of its shards' layouts.
    pub(super) fn of_part(part: &'a Part) -> (Self, Vec<Error>) {
        let mut broken = Vec::new();
        let mut keep = |e: Error| broken.push(e.in_file(part.file_name()));
        let layouts = match each_layout_of(part) {
            Ok(each) => each.into_iter().map(|layout| layout.map_err(&mut keep).ok()).collect(),
            Err(e) => {
                keep(e);
                Vec::new()
            }
        };
        let mut writers = HashMap::from([(part.writer, empty(&part.shards))]);
        for entry in part.entries() {
            // All entries were good when the part was read.
            if let Ok(Entry::Tensor(tensor)) = entry {
                push(&tensor, &mut writers);
            }
        }
        let mut stored = writers.remove(&part.writer).unwrap_or_default();
        sort(&mut stored);
        let data = Self {
            writer: part.writer,
            inc: part.inc,
            shards: &part.shards,
            block_bytes: part.common.block_bytes,
            layouts,
            stored,
        };
        (data, broken)
    }

    /// By the pages that are good, of some writers.
    pub(super) fn of_pages(
        check: &Check<'_>,
        manifest: &'a Manifest,
        writers: &[u32],
    ) -> Vec<Self> {
        let part = |writer: u32| usize::try_from(writer).ok().and_then(|w| manifest.parts.get(w));
        let mut stored: HashMap<u32, Shards> = writers
            .iter()
            .filter_map(|&writer| Some((writer, empty(&part(writer)?.shards))))
            .collect();
        let pages = 0..u32::try_from(manifest.tensors.len()).unwrap_or(u32::MAX);
        for page in pages.filter(|&page| check.is_good(&names::tensors_page(page))) {
            // What is wrong with a page was found before.
            let parsed = read_tensors(check.store, manifest, page, Budget::default())
                .and_then(|raw| parse_tensors(&raw, manifest, page));
            for entry in parsed.iter().flat_map(|page| &page.entries) {
                if let Entry::Tensor(tensor) = &**entry {
                    push(tensor, &mut stored);
                }
            }
        }
        let mut all = Vec::with_capacity(writers.len());
        for &writer in writers {
            if let (Some(part), Some(mut stored)) = (part(writer), stored.remove(&writer)) {
                sort(&mut stored);
                all.push(Self {
                    writer,
                    inc: part.inc,
                    shards: &part.shards,
                    block_bytes: manifest.common.block_bytes,
                    layouts: Vec::new(),
                    stored,
                });
            }
        }
        all
    }
}

fn empty(shards: &[ShardEntry]) -> Shards {
    shards.iter().map(|_| Vec::new()).collect()
}

fn sort(shards: &mut Shards) {
    for shard in shards {
        shard.sort_unstable_by_key(|chunk| chunk.offset);
    }
}

/// Adds the chunks of a tensor to the shards of the writers that are wanted.
fn push(tensor: &Tensor, writers: &mut HashMap<u32, Shards>) {
    let mut key: Option<Arc<str>> = None;
    for chunk in &tensor.chunks {
        let Some(shards) = writers.get_mut(&chunk.writer) else { continue };
        let Some(shard) = usize::try_from(chunk.shard).ok().and_then(|at| shards.get_mut(at))
        else {
            continue;
        };
        // Sizes were counted when the entry was read.
        let (Ok(bytes), Ok(elements)) =
            (tensor.chunk_bytes(&chunk.region), tensor.stored_elements(&chunk.region))
        else {
            continue;
        };
        let key = key.get_or_insert_with(|| tensor.identity.key().into());
        shard.push(Stored {
            offset: chunk.offset,
            bytes,
            crc32c: chunk.crc32c,
            table_index: chunk.table_index,
            tensor: Arc::clone(key),
            bits: tensor.dtype.bits(),
            elements,
        });
    }
}
