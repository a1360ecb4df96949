//! Small jobs for the tests: the contents of some writers' parts, easy to bend.

use waystation_format::attachment::AttachmentEntry;
use waystation_format::common::{Common, Coordinate, Topology, Version};
use waystation_format::derive::{Derived, derive};
use waystation_format::entry::{Alias, Chunk, Entry, Native, Tensor};
use waystation_format::identity::Identity;
use waystation_format::json::Value;
use waystation_format::manifest::Manifest;
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::part::{CrcTable, Part, PartContent, Producer, ShardEntry};
use waystation_format::record::Record;
use waystation_format::{
    Attempt, Code, Digest, Dims, Dtype, Features, Incarnation, Region, Result, Role,
};

pub const BLOCK_BYTES: u64 = 4096;

/// The contents of one part each.
#[derive(Clone, Debug)]
pub struct Job(pub Vec<PartContent>);

/// What derives from a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub manifest: Vec<u8>,
    pub tensors: Vec<Vec<u8>>,
    pub records: Vec<Vec<u8>>,
}

impl Job {
    pub fn new(writers: u32) -> Self {
        Self((0..writers).map(|writer| part(writer, writers)).collect())
    }

    /// Lets `writer` store a box of `tensor`, which is described by its entry without chunks.
    pub fn store(&mut self, writer: u32, tensor: &Tensor, at: &[u64], extent: &[u64]) {
        let region = Region { at: Dims::from_slice(at), extent: Dims::from_slice(extent) };
        let part = &mut self.0[writer as usize];
        let class = tensor.identity.role.class();
        let shard = match part.shards.iter().position(|shard| shard.class == class) {
            Some(shard) => shard,
            None => {
                part.shards.push(ShardEntry { bytes: 4096, class, crc_table: None });
                part.shards.len() - 1
            }
        };
        let place = &mut part.shards[shard];
        let bytes = tensor.chunk_bytes(&region).unwrap();
        let offset = place.bytes.next_multiple_of(256);
        place.bytes = offset + bytes;
        let table_index = (bytes > BLOCK_BYTES).then(|| {
            let table = place.crc_table.get_or_insert(CrcTable { count: 0, crc32c: 7, offset: 0 });
            let index = table.count;
            table.count += bytes.div_ceil(BLOCK_BYTES);
            index
        });
        let crc32c = bytes as u32;
        let chunk = Chunk { writer, shard: shard as u32, offset, region, crc32c, table_index };
        self.list(writer, tensor).chunks.push(chunk);
    }

    /// The entry of `tensor` in a writer's part, made if it is not there.
    pub fn list(&mut self, writer: u32, tensor: &Tensor) -> &mut Tensor {
        let entries = &mut self.0[writer as usize].entries;
        let is_it =
            |entry: &Entry| matches!(entry, Entry::Tensor(it) if it.identity == tensor.identity);
        let at = entries.iter().rposition(is_it).unwrap_or_else(|| {
            entries.push(Entry::Tensor(tensor.clone()));
            entries.len() - 1
        });
        match &mut entries[at] {
            Entry::Tensor(tensor) => tensor,
            Entry::Alias(_) => panic!("an alias"),
        }
    }

    /// Stores all of `tensor` with one writer.
    pub fn store_whole(&mut self, writer: u32, tensor: &Tensor) {
        let at: Vec<u64> = tensor.shape.iter().map(|_| 0).collect();
        self.store(writer, tensor, &at, &tensor.shape.clone());
    }

    pub fn alias(&mut self, writer: u32, role: Role, name: &str, of: &Identity) {
        self.alias_called(writer, role, name, of, Vec::new());
    }

    /// An alias that frameworks call so.
    pub fn alias_called(
        &mut self,
        writer: u32,
        role: Role,
        name: &str,
        of: &Identity,
        native: Vec<Native>,
    ) {
        let (component, name, of) = ("main".to_owned(), name.to_owned(), of.clone());
        let alias = Alias { component, name, role, of, native };
        self.0[writer as usize].entries.push(Entry::Alias(alias));
    }

    pub fn record(&mut self, writer: u32, name: &str, coordinate: &[(&str, u64)], value: &str) {
        let coordinate: Coordinate =
            coordinate.iter().map(|(axis, index)| ((*axis).to_owned(), *index)).collect();
        let value = Value::parse(value).unwrap();
        let record = Record::new("acme/state", name, coordinate, &value).unwrap();
        self.0[writer as usize].records.push(record);
    }

    pub fn attach(&mut self, writer: u32, path: &str) {
        let sha256 = Digest::of(path.as_bytes());
        let entry = AttachmentEntry { bytes: 1, path: path.to_owned(), sha256 };
        self.0[writer as usize].attachments.push(entry);
    }

    pub fn parts(&self) -> Vec<Part> {
        self.0.iter().map(|part| part.clone().into_part().unwrap()).collect()
    }

    pub fn derive(&self) -> Result<Output> {
        run(&self.parts())
    }

    /// Code and rule of the refusal.
    pub fn refusal(&self) -> (Code, &'static str) {
        let error = self.derive().unwrap_err();
        (error.code(), error.rule_id().unwrap())
    }
}

/// Derives from parts as they are given.
pub fn run(parts: &[Part]) -> Result<Output> {
    let (mut tensors, mut records) = (Vec::new(), Vec::new());
    let manifest = derive(parts, &mut |page| {
        let (pages, number, bytes) = match page {
            Derived::TensorsPage { page, bytes } => (&mut tensors, page, bytes),
            Derived::RecordsPage { page, bytes } => (&mut records, page, bytes),
        };
        assert_eq!(pages.len(), number as usize);
        pages.push(bytes.to_vec());
        Ok(())
    })?;
    Ok(Output { manifest, tensors, records })
}

impl Output {
    pub fn manifest(&self) -> Manifest {
        Manifest::parse(&self.manifest).unwrap()
    }

    /// All entries, read back as a reader does.
    pub fn entries(&self) -> Vec<Entry> {
        let manifest = self.manifest();
        let pages = (0..).zip(&self.tensors);
        pages.flat_map(|(n, page)| TensorPage::parse(page, &manifest, n).unwrap().entries).collect()
    }

    /// All records, read back as a reader does.
    pub fn records(&self) -> Vec<Record> {
        let manifest = self.manifest();
        let pages = (0..).zip(&self.records);
        pages.flat_map(|(n, page)| RecordPage::parse(page, &manifest, n).unwrap().records).collect()
    }
}

pub fn tensor(name: &str, dtype: Dtype, shape: &[u64]) -> Tensor {
    Tensor::new(Identity::param(name), dtype, shape)
}

fn part(writer: u32, writers: u32) -> PartContent {
    PartContent {
        common: Common {
            attempt: Attempt { timeline: 1, nonce: 2 },
            block_bytes: BLOCK_BYTES,
            features: Features::default(),
            parent: None,
            run: "run".to_owned(),
            step: 10,
            topology: Topology(vec![("dp".to_owned(), 2), ("tp".to_owned(), 3)]),
            version: Version::CURRENT,
            writers,
        },
        writer,
        inc: Incarnation(u64::from(writer)),
        attachments: Vec::new(),
        shards: Vec::new(),
        extensions: Vec::new(),
        inventory: None,
        omitted: Vec::new(),
        producer: Producer::default(),
        entries: Vec::new(),
        records: Vec::new(),
    }
}
