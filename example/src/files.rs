//! From the example's content to the files of a checkpoint.
//!
//! It knows the order in which files come about: shards, parts, then what derives from them. It
//! uses the format crate alone, so that the example judges readers and writers rather than being
//! made by one.

use waystation_format::attachment::AttachmentEntry;
use waystation_format::common::{Common, Version};
use waystation_format::crc::{BlockCrcs, crc32c};
use waystation_format::derive::{Derived, derive};
use waystation_format::entry::{Chunk, Entry, Tensor};
use waystation_format::part::{CrcTable, Inventory, PartContent, Producer, ShardEntry};
use waystation_format::shard::{Slot, lay_out, slot_of};
use waystation_format::{
    Code, Digest, Error, Features, Incarnation, Region, Result, ShardClass, arith, commit_file,
    names,
};

use crate::content::{self, ATTACHMENT, BLOCK_BYTES, Content, INCARNATIONS, RUN, STEP};

/// Name and bytes of a file.
pub type File = (String, Vec<u8>);

/// All files of the checkpoint, ascending by name.
///
/// # Errors
///
/// None in fact: the content breaks no rule, as the tests see.
pub fn make() -> Result<Vec<File>> {
    let contents = content::tensors();
    let mut files = Vec::new();
    let mut parts = Vec::new();
    for (writer, incarnation) in (0_u32..).zip(INCARNATIONS) {
        let mut written = Written::new(writer, &contents);
        for class in [ShardClass::Model, ShardClass::State] {
            written.shard(class, &contents)?;
        }
        let part = written.content()?.into_part()?;
        for (position, (class, bytes)) in (0_u32..).zip(written.shards) {
            files.push((names::shard(class, writer, incarnation, position), bytes));
        }
        if writer == 0 {
            files.push((names::attachment(writer, incarnation, 0), ATTACHMENT.1.to_vec()));
        }
        files.push((part.file_name(), part.raw().to_vec()));
        parts.push(part);
    }
    let manifest = derive(&parts, &mut |page| {
        files.push(match page {
            Derived::TensorsPage { page, bytes } => (names::tensors_page(page), bytes.to_vec()),
            Derived::RecordsPage { page, bytes } => (names::records_page(page), bytes.to_vec()),
        });
        Ok(())
    })?;
    let commit = commit_file::encode(&Digest::of(&manifest)).to_vec();
    files.push((names::MANIFEST.to_owned(), manifest));
    files.push((names::COMMIT.to_owned(), commit));
    files.sort();
    Ok(files)
}

/// What one writer has made so far.
struct Written {
    writer: u32,
    /// One for each of the example's tensors, with the chunks that this writer has stored.
    entries: Vec<Tensor>,
    shards: Vec<(ShardClass, Vec<u8>)>,
    listed: Vec<ShardEntry>,
}

impl Written {
    fn new(writer: u32, contents: &[Content]) -> Self {
        let entries = contents.iter().map(|content| content.tensor.clone()).collect();
        Self { writer, entries, shards: Vec::new(), listed: Vec::new() }
    }

    /// Stores this writer's boxes of one class in a shard, in the order of the tensors.
    fn shard(&mut self, class: ShardClass, contents: &[Content]) -> Result<()> {
        let mut boxes: Vec<(usize, &Region, &[u8])> = Vec::new();
        let mut slots: Vec<Slot<'_>> = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            if content.tensor.identity.role.class() != class {
                continue;
            }
            for (_, region) in content.boxes.iter().filter(|(writer, _)| *writer == self.writer) {
                boxes.push((number, region, bytes_of(content, region)?));
                slots.push(slot_of(&content.tensor, region)?);
            }
        }
        if slots.is_empty() {
            return Ok(());
        }
        let layout = lay_out(&slots, BLOCK_BYTES)?;
        let mut file = layout.header.clone();
        let mut table = Vec::new();
        let places = layout.offsets.iter().zip(&layout.table_index);
        for ((number, region, bytes), (offset, table_index)) in boxes.into_iter().zip(places) {
            let mut crcs = BlockCrcs::new(BLOCK_BYTES);
            crcs.update(bytes);
            let (whole, blocks) = crcs.finish();
            if table_index.is_some() {
                table.extend(blocks.into_iter().flat_map(u32::to_le_bytes));
            }
            put(&mut file, *offset, bytes)?;
            if let Some(tensor) = self.entries.get_mut(number) {
                tensor.chunks.push(Chunk {
                    writer: self.writer,
                    shard: u32::try_from(self.listed.len()).unwrap_or(u32::MAX),
                    offset: *offset,
                    region: region.clone(),
                    crc32c: whole,
                    table_index: *table_index,
                });
            }
        }
        let crc_table = match layout.table {
            Some(place) => {
                put(&mut file, place.offset, &table)?;
                let crc32c = crc32c(&table);
                Some(CrcTable { count: place.count, crc32c, offset: place.offset })
            }
            None => None,
        };
        put(&mut file, layout.bytes, &[])?;
        self.listed.push(ShardEntry { bytes: layout.bytes, class, crc_table });
        self.shards.push((class, file));
        Ok(())
    }

    /// What the writer declares. Writer 1 lists the embedding though it holds no piece of it; the
    /// first writer knows how many identities there must be.
    fn content(&self) -> Result<PartContent> {
        let writer = self.writer;
        let stored = self.entries.iter().filter(|tensor| {
            !tensor.chunks.is_empty() || tensor.identity.name == content::alias().of.name
        });
        let mut entries: Vec<Entry> = stored.cloned().map(Entry::Tensor).collect();
        let mut attachments = Vec::new();
        let mut inventory = None;
        if writer == 0 {
            entries.push(Entry::Alias(content::alias()));
            let (path, bytes) = ATTACHMENT;
            attachments.push(AttachmentEntry {
                bytes: bytes.len() as u64,
                path: path.to_owned(),
                sha256: Digest::of(bytes),
            });
            let tensors = self.entries.iter().map(|tensor| tensor.identity.key());
            let keys: Vec<String> = tensors.chain([content::alias().identity().key()]).collect();
            inventory = Some(Inventory::of(keys.iter().map(String::as_str)));
        }
        Ok(PartContent {
            common: common(),
            writer,
            inc: *INCARNATIONS.get(writer as usize).unwrap_or(&Incarnation(0)),
            attachments,
            shards: self.listed.clone(),
            extensions: Vec::new(),
            inventory,
            omitted: Vec::new(),
            producer: Producer { name: "waystation-example".to_owned(), version: "1".to_owned() },
            entries,
            records: content::records(writer)?,
        })
    }
}

fn common() -> Common {
    Common {
        attempt: content::attempt(),
        block_bytes: BLOCK_BYTES,
        features: Features::default(),
        parent: None,
        run: RUN.to_owned(),
        step: STEP,
        topology: content::topology(),
        version: Version::CURRENT,
        writers: 2,
    }
}

/// The bytes of a box of whole rows.
fn bytes_of<'c>(content: &'c Content, region: &Region) -> Result<&'c [u8]> {
    let length = content.tensor.chunk_bytes(region)?;
    let before = match (region.at.first(), region.extent.first()) {
        (Some(at), Some(rows)) => {
            let row = arith::ceil_div(length, *rows, "bytes of a row")?;
            if *at == 0 { 0 } else { arith::mul(*at, row, "bytes before a box")? }
        }
        _ => 0,
    };
    let begin = arith::to_usize(before, "bytes before a box")?;
    let end = arith::to_usize(arith::add(before, length, "end of a box")?, "end of a box")?;
    content.elements.get(begin..end).ok_or_else(|| {
        Error::new(
            Code::BadArgument,
            format!("expected bytes {begin}..{end} of {}", content.tensor.identity.name),
        )
    })
}

/// Appends `bytes` at `offset`, with zeros before as a pad.
fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) -> Result<()> {
    file.resize(arith::to_usize(offset, "offset in a shard")?, 0);
    file.extend_from_slice(bytes);
    Ok(())
}
