//! What every byte of a checkpoint is.
//!
//! It knows shards from their headers as the safetensors crate reads them, and chunks from the
//! pages. It must not use the layout function: that is among what is tested.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::SafeTensors;
use waystation_format::entry::{Entry, Tensor};
use waystation_format::{Region, ShardClass, names};
use waystation_reader::Checkpoint;

use super::small::BLOCK_BYTES;

/// What a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Commit,
    Manifest,
    TensorsPage,
    RecordsPage,
    Part,
    Attachment,
    Header,
    Pad,
    /// Where the table begins.
    Table(u64),
    /// Position among [`Places::chunks`].
    Chunk(usize),
}

/// A chunk, as its page says.
pub struct ChunkPlace {
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    /// Identity key.
    pub tensor: String,
    pub region: Region,
    /// Bits of an element.
    pub bits: u64,
    /// Bits of the last byte that hold no element.
    pub unused: u8,
    pub table: bool,
}

/// What all bytes of a checkpoint are.
pub struct Places {
    pub chunks: Vec<ChunkPlace>,
    /// By file: the first byte of each stretch, ascending, and what it is.
    stretches: BTreeMap<String, Vec<(u64, Place)>>,
}

impl Places {
    pub fn of(files: &BTreeMap<String, Vec<u8>>, checkpoint: &Checkpoint) -> Self {
        let mut places = Self { chunks: chunks(checkpoint), stretches: BTreeMap::new() };
        for (name, bytes) in files {
            let stretches = match () {
                () if name == names::COMMIT => vec![(0, Place::Commit)],
                () if name == names::MANIFEST => vec![(0, Place::Manifest)],
                () if names::parse_tensors_page(name).is_some() => vec![(0, Place::TensorsPage)],
                () if names::parse_records_page(name).is_some() => vec![(0, Place::RecordsPage)],
                () if names::parse_part(name).is_some() => vec![(0, Place::Part)],
                () if names::parse_attachment(name).is_some() => vec![(0, Place::Attachment)],
                () if names::parse_shard(name).is_some() => places.shard(name, bytes),
                () => panic!("{name} is no file of a checkpoint"),
            };
            places.stretches.insert(name.clone(), stretches);
        }
        places
    }

    pub fn place(&self, file: &str, byte: u64) -> Place {
        let stretches = &self.stretches[file];
        let after = stretches.partition_point(|(begin, _)| *begin <= byte);
        stretches[after - 1].1
    }

    /// For tables of results.
    pub fn label(file: &str, place: Place) -> String {
        let class = match names::parse_shard(file).map(|shard| shard.class) {
            Some(ShardClass::Model) => "model ",
            Some(ShardClass::State) => "state ",
            _ => "",
        };
        let what = match place {
            Place::Commit => "commit",
            Place::Manifest => "manifest",
            Place::TensorsPage => "tensors page",
            Place::RecordsPage => "records page",
            Place::Part => "part",
            Place::Attachment => "attachment",
            Place::Header => "header",
            Place::Pad => "pad",
            Place::Table(_) => "table",
            Place::Chunk(_) => "chunk",
        };
        format!("{class}{what}")
    }

    /// The same for a whole file.
    pub fn file_label(&self, file: &str) -> String {
        match self.stretches[file][0].1 {
            Place::Header => Self::label(file, Place::Header).replace("header", "shard"),
            place => Self::label(file, place),
        }
    }

    /// The chunks and blocks of them that a region of a tensor (none: all of it) lies in.
    pub fn units(&self, tensor: &str, region: Option<&Region>) -> BTreeSet<(usize, u64)> {
        let mut units = BTreeSet::new();
        let own = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.tensor == tensor);
        for (at, chunk) in own {
            for element in 0..chunk.region.elements().unwrap() {
                let wanted = region.is_none_or(|region| {
                    let place = place_of(&chunk.region, element);
                    let mut axes = place.iter().zip(region.at.iter().zip(&region.extent));
                    axes.all(|(place, (at, extent))| (*at..*at + *extent).contains(place))
                });
                let byte = element * chunk.bits / 8;
                if wanted && byte < chunk.bytes {
                    units.insert((at, chunk.block(byte)));
                }
            }
        }
        units
    }

    fn shard(&self, name: &str, bytes: &[u8]) -> Vec<(u64, Place)> {
        let (header, metadata) = SafeTensors::read_metadata(bytes).unwrap();
        let data = header as u64 + 8;
        let mut stretches = vec![(0, Place::Header)];
        let mut end = data;
        for key in metadata.offset_keys() {
            let offsets = metadata.info(&key).unwrap().data_offsets;
            let begin = data + offsets.0 as u64;
            assert_eq!(begin, end, "{name}: every byte belongs to an entry");
            end = data + offsets.1 as u64;
            let place = match &*key {
                "__crc__" => Place::Table(begin),
                key if key.starts_with("__pad__.") => Place::Pad,
                _ => {
                    let is_here = |chunk: &ChunkPlace| chunk.file == name && chunk.offset == begin;
                    let at = self.chunks.iter().position(is_here).unwrap();
                    assert_eq!(self.chunks[at].bytes, end - begin, "{name}: {key}");
                    Place::Chunk(at)
                }
            };
            stretches.push((begin, place));
        }
        assert_eq!(end, bytes.len() as u64, "{name}");
        stretches
    }
}

impl ChunkPlace {
    /// The block of a byte of the chunk.
    pub fn block(&self, byte: u64) -> u64 {
        byte / BLOCK_BYTES
    }

    /// Whether a bit of the chunk holds nothing.
    pub fn is_unused(&self, byte: u64, bit: u32) -> bool {
        byte + 1 == self.bytes && self.unused >> bit & 1 == 1
    }
}

/// Where an element of a box, counted row by row, lies in the tensor.
fn place_of(region: &Region, element: u64) -> Vec<u64> {
    let mut rest = element;
    let mut place = vec![0; region.at.len()];
    for axis in (0..place.len()).rev() {
        place[axis] = region.at[axis] + rest % region.extent[axis];
        rest /= region.extent[axis];
    }
    place
}

fn chunks(checkpoint: &Checkpoint) -> Vec<ChunkPlace> {
    let mut chunks = Vec::new();
    for entry in checkpoint.entries() {
        let entry = entry.unwrap();
        let Entry::Tensor(tensor) = &*entry else { continue };
        chunks.extend(tensor.chunks.iter().map(|chunk| {
            let elements = tensor.stored_elements(&chunk.region).unwrap();
            let shard = checkpoint.manifest().shard(chunk.writer, chunk.shard).unwrap();
            let inc = checkpoint.manifest().parts[chunk.writer as usize].inc;
            ChunkPlace {
                file: names::shard(shard.class, chunk.writer, inc, chunk.shard),
                offset: chunk.offset,
                bytes: tensor.chunk_bytes(&chunk.region).unwrap(),
                tensor: tensor.identity.key(),
                region: chunk.region.clone(),
                bits: u64::from(tensor.dtype.bits()),
                unused: unused(tensor, elements),
                table: chunk.table_index.is_some(),
            }
        }));
    }
    chunks
}

fn unused(tensor: &Tensor, elements: u64) -> u8 {
    match elements * u64::from(tensor.dtype.bits()) % 8 {
        0 => 0,
        used => !((1 << used) - 1),
    }
}
