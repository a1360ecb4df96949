//! Checkpoints made with the format crate alone, as maps from names to bytes, for tests to damage.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "support of tests: what cannot fail here may panic, and not every test uses all"
)]

pub mod records;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use waystation_format::attachment::AttachmentEntry;
use waystation_format::crc::{BlockCrcs, crc32c};
use waystation_format::derive::{Derived, derive};
use waystation_format::features::Features;
use waystation_format::json::Value;
use waystation_format::part::{CrcTable, PartContent, Producer, ShardEntry};
use waystation_format::shard::{Layout, lay_out, slot_of};
use waystation_format::{
    Alias, Attempt, Chunk, Common, Digest, Dtype, Entry, Identity, Incarnation, Manifest, Part,
    Record, Region, Role, ShardClass, Tensor, Topology, Version, commit_file, names, pack,
};
use waystation_store::{MemoryFs, Put, Store};

/// Files of a checkpoint.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A tensor, its bytes, and which writer stores which box of it.
#[derive(Clone, Debug)]
pub struct Made {
    pub tensor: Tensor,
    /// Packed as one chunk; of a flat companion, one element for each block.
    pub data: Vec<u8>,
    pub boxes: Vec<(u32, Region)>,
}

/// A checkpoint to be made.
#[derive(Clone, Debug)]
pub struct Making {
    pub step: u64,
    pub attempt: Attempt,
    pub block_bytes: u64,
    pub writers: u32,
    /// The axes of the job.
    pub topology: Topology,
    /// Shards of one class hold at most so many chunks, so that there are several.
    pub chunks_per_shard: usize,
    pub tensors: Vec<Made>,
    pub aliases: Vec<Alias>,
    pub records: Vec<Record>,
    /// Logical path and bytes; all of writer 0.
    pub attachments: Vec<(String, Vec<u8>)>,
}

impl Making {
    pub fn new(writers: u32) -> Self {
        Self {
            step: 1000,
            attempt: Attempt { timeline: 1, nonce: 0x90ab_12cd },
            block_bytes: 4096,
            writers,
            topology: Topology(vec![("dp".to_owned(), u64::from(writers))]),
            chunks_per_shard: usize::MAX,
            tensors: Vec::new(),
            aliases: Vec::new(),
            records: Vec::new(),
            attachments: Vec::new(),
        }
    }

    /// A tensor of bytes that follow from its name, stored whole by a writer.
    pub fn whole(mut self, identity: Identity, dtype: Dtype, shape: &[u64], writer: u32) -> Self {
        let tensor = Tensor::new(identity, dtype, shape);
        let data = data_of(&tensor);
        let boxes = if shape.contains(&0) { vec![] } else { vec![(writer, Region::whole(shape))] };
        self.tensors.push(Made { tensor, data, boxes });
        self
    }

    /// A tensor of bytes that follow from its name, cut along an axis, piece i stored by writer
    /// i mod N.
    pub fn cut(
        mut self,
        identity: Identity,
        dtype: Dtype,
        shape: &[u64],
        axis: usize,
        pieces: u64,
    ) -> Self {
        let tensor = Tensor::new(identity, dtype, shape);
        let data = data_of(&tensor);
        let mut boxes = Vec::new();
        for i in 0..pieces {
            let mut region = Region::whole(shape);
            let (begin, end) = (shape[axis] * i / pieces, shape[axis] * (i + 1) / pieces);
            region.at[axis] = begin;
            region.extent[axis] = end - begin;
            boxes.push((i as u32 % self.writers, region));
        }
        self.tensors.push(Made { tensor, data, boxes });
        self
    }

    pub fn tensor(mut self, made: Made) -> Self {
        self.tensors.push(made);
        self
    }

    pub fn attach(mut self, path: &str, bytes: &[u8]) -> Self {
        self.attachments.push((path.to_owned(), bytes.to_vec()));
        self
    }

    /// A record whose value is this canonical JSON.
    pub fn record(self, kind: &str, name: &str, value: &str) -> Self {
        self.record_at(&[], kind, name, value)
    }

    /// The same at a place.
    pub fn record_at(mut self, at: &[(&str, u64)], kind: &str, name: &str, value: &str) -> Self {
        let at = at.iter().map(|(axis, index)| ((*axis).to_owned(), *index)).collect();
        self.records.push(Record::new(kind, name, at, &Value::parse(value).unwrap()).unwrap());
        self
    }

    /// Progress and an optimizer `main` of the params, which step 1000 belongs to.
    pub fn trained(self, params: &[&str]) -> Self {
        let params: Vec<String> =
            params.iter().map(|name| format!(r#"["main","{name}"]"#)).collect();
        let optimizer = format!(
            r#"{{"algorithm":"adamw","groups":[{{"hyper":[],"name":"all","params":[{}]}}],"steps":[{{"params":"all","step":1000,"stored_as":"int"}}]}}"#,
            params.join(",")
        );
        self.record("optimizer", "main", &optimizer).record(
            "progress",
            "main",
            r#"{"optimizer_step":1000}"#,
        )
    }

    pub fn alias(mut self, name: &str, of: Identity) -> Self {
        self.aliases.push(Alias {
            component: of.component.clone(),
            name: name.into(),
            role: of.role,
            of,
            native: Vec::new(),
        });
        self
    }

    pub fn common(&self) -> Common {
        Common {
            attempt: self.attempt,
            block_bytes: self.block_bytes,
            features: Features::default(),
            parent: None,
            run: "test".to_owned(),
            step: self.step,
            topology: self.topology.clone(),
            version: Version::CURRENT,
            writers: self.writers,
        }
    }

    /// All files of the committed checkpoint.
    pub fn files(&self) -> Files {
        let mut files = Files::new();
        let parts: Vec<Part> =
            (0..self.writers).map(|writer| self.part(writer, &mut files)).collect();
        derive_files(&parts, &mut files);
        files
    }

    pub fn store(&self) -> Arc<dyn Store> {
        store_of(&self.files())
    }

    /// Writes the shards, attachments and part of one writer.
    fn part(&self, writer: u32, files: &mut Files) -> Part {
        let inc = Incarnation(0x5f0c_0000_0000_0000 + u64::from(writer));
        let mut entries: Vec<Entry> = Vec::new();
        // Shards: class, and (entry, chunk number) of their chunks.
        let mut shards: Vec<(ShardClass, Vec<(usize, usize)>)> = Vec::new();
        for class in [ShardClass::Model, ShardClass::State] {
            let mut open: Vec<(usize, usize)> = Vec::new();
            for made in &self.tensors {
                if made.tensor.identity.role.class() != class {
                    continue;
                }
                let own: Vec<&Region> =
                    made.boxes.iter().filter(|b| b.0 == writer).map(|b| &b.1).collect();
                if own.is_empty() && writer != 0 {
                    continue;
                }
                let mut tensor = made.tensor.clone();
                for region in own {
                    open.push((entries.len(), tensor.chunks.len()));
                    tensor.chunks.push(Chunk {
                        writer,
                        shard: shards.len() as u32,
                        offset: 0,
                        region: region.clone(),
                        crc32c: 0,
                        table_index: None,
                    });
                    if open.len() == self.chunks_per_shard {
                        shards.push((class, std::mem::take(&mut open)));
                    }
                }
                entries.push(Entry::Tensor(tensor));
            }
            if !open.is_empty() {
                shards.push((class, open));
            }
        }
        let mut listed = Vec::new();
        for (number, (class, members)) in shards.iter().enumerate() {
            let (bytes, entry) = self.shard(*class, members, &mut entries);
            files.insert(names::shard(*class, writer, inc, number as u32), bytes);
            listed.push(entry);
        }
        let mut attachments = Vec::new();
        if writer == 0 {
            entries.extend(self.aliases.iter().cloned().map(Entry::Alias));
            for (number, (path, bytes)) in self.attachments.iter().enumerate() {
                files.insert(names::attachment(writer, inc, number as u32), bytes.clone());
                attachments.push(AttachmentEntry {
                    bytes: bytes.len() as u64,
                    path: path.clone(),
                    sha256: Digest::of(bytes),
                });
            }
        }
        let content = PartContent {
            common: self.common(),
            writer,
            inc,
            attachments,
            shards: listed,
            extensions: vec![],
            inventory: None,
            omitted: vec![],
            producer: Producer { name: "tests".to_owned(), version: "1".to_owned() },
            entries,
            records: if writer == 0 { self.records.clone() } else { vec![] },
        };
        let part = content.into_part().unwrap();
        files.insert(part.file_name(), part.raw().to_vec());
        part
    }

    /// Lays out a shard and fills it; its chunks get their offsets and CRCs.
    fn shard(
        &self,
        class: ShardClass,
        members: &[(usize, usize)],
        entries: &mut [Entry],
    ) -> (Vec<u8>, ShardEntry) {
        let region_of = |entries: &[Entry], (entry, chunk): (usize, usize)| match &entries[entry] {
            Entry::Tensor(tensor) => (tensor.clone(), tensor.chunks[chunk].region.clone()),
            Entry::Alias(_) => unreachable!(),
        };
        let chunks: Vec<(Tensor, Region)> =
            members.iter().map(|&member| region_of(entries, member)).collect();
        let slots: Vec<_> = chunks.iter().map(|(t, r)| slot_of(t, r).unwrap()).collect();
        let layout: Layout = lay_out(&slots, self.block_bytes).unwrap();
        let mut file = vec![0; layout.bytes as usize];
        file[..layout.header.len()].copy_from_slice(&layout.header);
        let mut table = Vec::new();
        for (at, (tensor, region)) in chunks.iter().enumerate() {
            let bytes = self.chunk(tensor, region);
            let offset = layout.offsets[at];
            file[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            let mut crcs = BlockCrcs::new(self.block_bytes);
            crcs.update(&bytes);
            let (whole, blocks) = crcs.finish();
            if layout.table_index[at].is_some() {
                assert_eq!(layout.table_index[at], Some(table.len() as u64));
                table.extend(blocks);
            }
            let (entry, chunk) = members[at];
            if let Entry::Tensor(tensor) = &mut entries[entry] {
                let chunk = &mut tensor.chunks[chunk];
                (chunk.offset, chunk.crc32c) = (offset, whole);
                chunk.table_index = layout.table_index[at];
            }
        }
        let crc_table = layout.table.map(|place| {
            let bytes: Vec<u8> = table.iter().flat_map(|crc: &u32| crc.to_le_bytes()).collect();
            file[place.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            CrcTable { count: place.count, crc32c: crc32c(&bytes), offset: place.offset }
        });
        let entry = ShardEntry { bytes: layout.bytes, class, crc_table };
        (file, entry)
    }

    /// The bytes of a chunk, out of the tensor's.
    fn chunk(&self, tensor: &Tensor, region: &Region) -> Vec<u8> {
        let made = self.tensors.iter().find(|m| m.tensor.identity == tensor.identity).unwrap();
        slice_of(tensor, &made.data, region)
    }
}

/// A region of a tensor's bytes, packed; the model that reads are compared with.
pub fn slice_of(tensor: &Tensor, data: &[u8], region: &Region) -> Vec<u8> {
    let bits = u64::from(tensor.dtype.bits());
    let mut indices: Vec<u64> = Vec::new();
    for (first, count) in region.runs(&tensor.shape).unwrap() {
        indices.extend(first..first + count);
    }
    if let Some(block) = tensor.block {
        // One element for each run of `block` elements of the box, by where the run begins.
        indices = indices.iter().step_by(block as usize).map(|first| first / block).collect();
    }
    let mut out = vec![0; (indices.len() as u64 * bits).div_ceil(8) as usize];
    for (to, from) in indices.iter().enumerate() {
        pack::copy_bits(data, from * bits, &mut out, to as u64 * bits, bits).unwrap();
    }
    out
}

/// Bytes that follow from a tensor's name, unused bits zero.
pub fn data_of(tensor: &Tensor) -> Vec<u8> {
    let elements = tensor.stored_elements(&Region::whole(&tensor.shape)).unwrap();
    let bits = elements * u64::from(tensor.dtype.bits());
    let mut state = u64::from(crc32c(tensor.identity.key().as_bytes())) | 1;
    let mut data: Vec<u8> = (0..bits.div_ceil(8))
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect();
    if !bits.is_multiple_of(8) {
        *data.last_mut().unwrap() &= 0xff >> (8 - bits % 8);
    }
    data
}

/// Pages, manifest and commit file of some parts.
pub fn derive_files(parts: &[Part], files: &mut Files) {
    let manifest = derive(parts, &mut |derived| {
        let (name, bytes) = match derived {
            Derived::TensorsPage { page, bytes } => (names::tensors_page(page), bytes),
            Derived::RecordsPage { page, bytes } => (names::records_page(page), bytes),
        };
        files.insert(name, bytes.to_vec());
        Ok(())
    })
    .unwrap();
    commit(files, manifest);
}

/// Puts a manifest and the commit file that names it.
pub fn commit(files: &mut Files, manifest: Vec<u8>) {
    files.insert(names::COMMIT.to_owned(), commit_file::encode(&Digest::of(&manifest)).to_vec());
    files.insert(names::MANIFEST.to_owned(), manifest);
}

/// Makes digests and lengths agree again after pages were changed: what a hostile writer can do.
pub fn reseal(files: &mut Files, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::parse(&files[names::MANIFEST]).unwrap();
    for (page, entry) in manifest.tensors.iter_mut().enumerate() {
        let bytes = &files[&names::tensors_page(page as u32)];
        (entry.bytes, entry.sha256) = (bytes.len() as u64, Digest::of(bytes));
    }
    for (page, entry) in manifest.records.iter_mut().enumerate() {
        let bytes = &files[&names::records_page(page as u32)];
        (entry.bytes, entry.sha256) = (bytes.len() as u64, Digest::of(bytes));
    }
    change(&mut manifest);
    let bytes = manifest.encode().unwrap();
    commit(files, bytes);
}

/// A store in memory that holds `files`.
pub fn store_of(files: &Files) -> Arc<dyn Store> {
    let store = MemoryFs::new().store();
    put_all(&*store, files);
    store
}

pub fn put_all(store: &dyn Store, files: &Files) {
    for (name, bytes) in files {
        assert_eq!(store.put_new(name, bytes).unwrap(), Put::Created);
    }
}

/// Writes `files` into a directory of the operating system.
pub fn write_all(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

/// The only file whose name begins and ends so.
pub fn name_of(files: &Files, begin: &str) -> String {
    let mut found = files.keys().filter(|name| name.starts_with(begin));
    let name = found.next().unwrap_or_else(|| panic!("no {begin} in {:?}", files.keys())).clone();
    assert!(found.next().is_none(), "several {begin}");
    name
}

/// An optimizer's slot for a parameter.
pub fn adam(name: &str) -> Identity {
    let mut identity = Identity::param(name);
    identity.role = Role::Optimizer;
    identity.slot = "adam.m".to_owned();
    identity.owner = "main".to_owned();
    identity
}

/// A small checkpoint with something of everything.
pub fn small() -> Making {
    let mut packed = Making::new(2)
        .whole(Identity::param("embed"), Dtype::F32, &[40, 8], 0)
        .cut(Identity::param("up"), Dtype::BF16, &[96, 64], 0, 2)
        .cut(Identity::param("down"), Dtype::F32, &[48, 96], 1, 3)
        .whole(Identity::buffer("steps"), Dtype::I64, &[], 1)
        .whole(Identity::param("none"), Dtype::F32, &[0, 3], 0)
        .whole(Identity::param("packed"), Dtype::F4E2M1, &[5], 0)
        .cut(adam("up"), Dtype::F32, &[96, 64], 0, 2)
        .alias("head", Identity::param("embed"))
        .trained(&["up"])
        .record("vendor/x", "y", r#"{"step":1}"#)
        .attach("config.json", b"{}")
        .attach("1_Pooling/config.json", &[7; 3000]);
    packed.chunks_per_shard = 3;
    packed
}
