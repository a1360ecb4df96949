//! Checking the files that a part names while their bytes go by, front to back.
//!
//! It knows what every byte of a shard must be: header, chunk, pad or table. It must not know where
//! the bytes come from or go to, and holds no more of them than the table.

use std::sync::Arc;

use waystation_format::crc::{self, BlockCrcs};
use waystation_format::digest::Hasher;
use waystation_format::entry::Entry;
use waystation_format::part::Part;
use waystation_format::shard::Layout;
use waystation_format::{Code, Digest, Error, Result, arith, names, pack, rule};
use waystation_reader::Progress;
use waystation_store::Store;

use crate::commit::go_on;
use crate::put;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Reads a file of known length from front to back.
///
/// # Errors
///
/// `length-mismatch` when it has another length; those of `sink` and the store; `interrupted`.
pub(crate) fn stream(
    store: &Arc<dyn Store>,
    name: &str,
    bytes: u64,
    progress: &dyn Progress,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let object = store.open(name)?;
    if object.bytes() != bytes {
        let message = format!("expected {bytes} bytes, found {}", object.bytes());
        return Err(Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message).in_file(name));
    }
    let mut buffer = vec![0; PIECE.min(arith::to_usize(bytes, "length of a file")?)];
    let mut at = 0;
    while at < bytes {
        go_on(progress)?;
        let left = arith::to_usize(bytes.saturating_sub(at), "length of a file")?;
        let piece = buffer.get_mut(..left.min(PIECE)).unwrap_or_default();
        object.read_at(piece, at)?;
        sink(piece).map_err(|e| e.in_file(name))?;
        at = arith::add(at, put::length(piece), "offset in a file")?;
        progress.advance(put::length(piece));
    }
    Ok(())
}

/// Takes a file whose SHA-256 is known.
pub(crate) struct DigestCheck {
    hasher: Hasher,
    expected: Digest,
}

impl DigestCheck {
    pub(crate) fn new(expected: Digest) -> Self {
        Self { hasher: Hasher::new(), expected }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// # Errors
    ///
    /// `digest-mismatch` under the rule given.
    pub(crate) fn finish(self, broken: &'static str) -> Result<()> {
        let found = self.hasher.finish();
        if found == self.expected {
            return Ok(());
        }
        let message = format!("expected SHA-256 {}, found {found}", self.expected);
        Err(Error::rule(Code::DigestMismatch, broken, message))
    }
}

/// What a shard must hold, from its part alone.
pub(crate) struct Expected {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    block_bytes: u64,
    header: Vec<u8>,
    /// Ascending, without gaps, from 0 to `bytes`.
    spans: Vec<Span>,
}

struct Span {
    begin: u64,
    bytes: u64,
    holds: Holds,
}

enum Holds {
    Header,
    Pad,
    Chunk { tensor: Arc<str>, crc32c: u32, tabled: bool, bits: u32, elements: u64 },
    Table { crc32c: u32 },
}

/// What each shard of a part must hold; `layouts` are those of the part.
///
/// # Errors
///
/// What the part's entries break.
pub(crate) fn expected_shards(part: &Part, layouts: Vec<Layout>) -> Result<Vec<Expected>> {
    let mut shards = Vec::with_capacity(layouts.len());
    for ((position, shard), layout) in (0..).zip(&part.shards).zip(layouts) {
        let pads = layout.pads.iter().map(|pad| Span {
            begin: pad.start,
            bytes: pad.end.saturating_sub(pad.start),
            holds: Holds::Pad,
        });
        let header = Span { begin: 0, bytes: layout.data_start, holds: Holds::Header };
        let mut spans: Vec<Span> = pads.chain([header]).collect();
        if let Some(table) = shard.crc_table {
            let bytes = arith::mul(table.count, 4, "length of a table")?;
            let holds = Holds::Table { crc32c: table.crc32c };
            spans.push(Span { begin: table.offset, bytes, holds });
        }
        shards.push(Expected {
            name: names::shard(shard.class, part.writer, part.inc, position),
            bytes: shard.bytes,
            block_bytes: part.common.block_bytes,
            header: layout.header,
            spans,
        });
    }
    for entry in part.entries() {
        let Entry::Tensor(tensor) = entry? else { continue };
        let key: Arc<str> = tensor.identity.key().into();
        for chunk in &tensor.chunks {
            let position = arith::to_usize(u64::from(chunk.shard), "shard")?;
            let Some(shard) = shards.get_mut(position) else { continue };
            let holds = Holds::Chunk {
                tensor: Arc::clone(&key),
                crc32c: chunk.crc32c,
                tabled: chunk.table_index.is_some(),
                bits: tensor.dtype.bits(),
                elements: tensor.stored_elements(&chunk.region)?,
            };
            let bytes = tensor.chunk_bytes(&chunk.region)?;
            shard.spans.push(Span { begin: chunk.offset, bytes, holds });
        }
    }
    for shard in &mut shards {
        shard.spans.sort_by_key(|span| span.begin);
    }
    Ok(shards)
}

/// Takes a shard's bytes from front to back.
pub(crate) struct ShardCheck<'e> {
    expected: &'e Expected,
    /// Number of the span under way.
    span: usize,
    /// Bytes of it that went by.
    done: u64,
    crcs: BlockCrcs,
    last: u8,
    /// What the table must hold.
    table: Vec<u8>,
    table_crc: u32,
    table_equal: bool,
}

impl<'e> ShardCheck<'e> {
    pub(crate) fn new(expected: &'e Expected) -> Self {
        Self {
            expected,
            span: 0,
            done: 0,
            crcs: BlockCrcs::new(expected.block_bytes),
            last: 0,
            table: Vec::new(),
            table_crc: 0,
            table_equal: true,
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// The first breach in them, with its offset: `header-mismatch`, `nonzero-pad`,
    /// `crc-mismatch`, `crc-table-mismatch`.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) -> Result<()> {
        let expected = self.expected;
        while !bytes.is_empty() {
            let Some(span) = expected.spans.get(self.span) else {
                let message = format!("expected {} bytes, found more", expected.bytes);
                return Err(Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message));
            };
            let left = span.bytes.saturating_sub(self.done);
            let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (head, rest) = bytes.split_at(taken);
            self.take(span, head)?;
            self.done = arith::add(self.done, put::length(head), "offset in a shard")?;
            if self.done == span.bytes {
                self.close(span)?;
                self.span = self.span.saturating_add(1);
                self.done = 0;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// `length-mismatch` when bytes are missing.
    pub(crate) fn finish(self) -> Result<()> {
        if self.span == self.expected.spans.len() {
            return Ok(());
        }
        let message = format!("expected {} bytes, found fewer", self.expected.bytes);
        Err(Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message))
    }

    fn take(&mut self, span: &Span, bytes: &[u8]) -> Result<()> {
        match &span.holds {
            Holds::Header => {
                let begin = arith::to_usize(self.done, "offset in a header")?;
                let expected = self.expected.header.get(begin..).unwrap_or_default();
                match bytes.iter().zip(expected).position(|(found, expected)| found != expected) {
                    None => Ok(()),
                    Some(at) => Err(self.breach(
                        Code::HeaderMismatch,
                        rule::SHARD_HEADER,
                        "expected the header that the part gives, found another byte",
                        span,
                        at,
                    )),
                }
            }
            Holds::Pad => match bytes.iter().position(|&byte| byte != 0) {
                None => Ok(()),
                Some(at) => Err(self.breach(
                    Code::NonzeroPad,
                    rule::SHARD_PADS,
                    "expected zeros between entries, found another byte",
                    span,
                    at,
                )),
            },
            Holds::Chunk { .. } => {
                self.crcs.update(bytes);
                self.last = bytes.last().copied().unwrap_or_default();
                Ok(())
            }
            Holds::Table { .. } => {
                let begin = arith::to_usize(self.done, "offset in a table")?;
                let expected = self.table.get(begin..).unwrap_or_default();
                self.table_equal &= expected.get(..bytes.len()) == Some(bytes);
                self.table_crc = crc::append(self.table_crc, bytes);
                Ok(())
            }
        }
    }

    fn close(&mut self, span: &Span) -> Result<()> {
        match &span.holds {
            Holds::Header | Holds::Pad => Ok(()),
            Holds::Chunk { tensor, crc32c, tabled, bits, elements } => {
                let crcs = BlockCrcs::new(self.expected.block_bytes);
                let (found, blocks) = std::mem::replace(&mut self.crcs, crcs).finish();
                if found != *crc32c {
                    let message = format!("expected CRC-32C {crc32c:08x}, found {found:08x}");
                    let error = Error::rule(Code::CrcMismatch, rule::INTEGRITY_ALL, message);
                    return Err(error.at_offset(span.begin).in_tensor(&**tensor));
                }
                if !pack::unused_bits_zero(*bits, *elements, self.last) {
                    let message = "expected unused bits of the last byte to be zero";
                    let last = span.begin.saturating_add(span.bytes).saturating_sub(1);
                    let error = Error::rule(Code::NonzeroPad, rule::TENSOR_UNUSED_BITS, message);
                    return Err(error.at_offset(last).in_tensor(&**tensor));
                }
                if *tabled {
                    self.table.extend(blocks.iter().flat_map(|crc| crc.to_le_bytes()));
                }
                Ok(())
            }
            Holds::Table { crc32c } => {
                let (broken, message) = if self.table_crc != *crc32c {
                    let found = self.table_crc;
                    (rule::INTEGRITY_TABLE, format!("expected {crc32c:08x}, found {found:08x}"))
                } else if !self.table_equal {
                    let message = "expected the CRCs of the blocks, found others";
                    (rule::INTEGRITY_BLOCKS, message.to_owned())
                } else {
                    return Ok(());
                };
                let error = Error::rule(Code::CrcTableMismatch, broken, message);
                Err(error.at_offset(span.begin))
            }
        }
    }

    fn breach(
        &self,
        code: Code,
        broken: &'static str,
        message: &str,
        span: &Span,
        at: usize,
    ) -> Error {
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let offset = span.begin.saturating_add(self.done).saturating_add(at);
        Error::rule(code, broken, message).at_offset(offset)
    }
}
