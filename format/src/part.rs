//! Parts: what one writer declares (chapter 7).
//!
//! It knows a part's members and every rule that one part can break by itself. It must not know
//! other parts: how they merge is the business of `derive`. A part is kept as its bytes and its
//! entries and records are read from them when asked for, as millions of them would not fit.

mod members;
mod read;

use std::fmt;

use crate::attachment::{AttachmentEntry, encode_attachments};
use crate::common::Common;
use crate::entry::Entry;
use crate::entry_json::Place;
use crate::json::{Cursor, Encoder, Form, check_canonical, check_canonical_value};
use crate::record::Record;
use crate::{Code, Digest, Error, Incarnation, Result, ShardClass, limits, names, rule};

pub(crate) use members::{
    check_named, encode_extensions, encode_omitted, encode_shards, read_extensions, read_omitted,
    read_shards,
};
use read::{Found, List};

/// What a part says in `kind`.
const KIND: &str = "part";

/// Members of a part.
const FORM: &Form = &[
    ("attachments", true),
    ("attempt", true),
    ("block_bytes", true),
    ("entries", true),
    ("extensions", true),
    ("features", true),
    ("format", true),
    ("inc", true),
    ("inventory", true),
    ("kind", true),
    ("omitted", true),
    ("parent", true),
    ("producer", true),
    ("records", true),
    ("run", true),
    ("shards", true),
    ("step", true),
    ("topology", true),
    ("version", true),
    ("writer", true),
    ("writers", true),
];

/// The table of block CRCs of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcTable {
    /// CRCs in it, of 4 bytes each.
    pub count: u64,
    /// CRC-32C of the table itself.
    pub crc32c: u32,
    /// First byte, from the start of the shard's file.
    pub offset: u64,
}

/// A shard of a part; its position there is part of its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Length of the file.
    pub bytes: u64,
    /// Which roles it holds.
    pub class: ShardClass,
    /// The table, there when some chunk is longer than `block_bytes`.
    pub crc_table: Option<CrcTable>,
}

/// Data of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The feature's name.
    pub feature: String,
    /// Whether a program that does not know the feature carries the data when it writes the
    /// checkpoint again, or leaves it out.
    pub keep: bool,
    /// Any value, canonical JSON.
    pub value: String,
}

/// How many identities the checkpoint must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Their number.
    pub count: u64,
    /// Digest of their keys in ascending order, each followed by a newline.
    pub sha256: Digest,
}

/// Why parameters are not in the checkpoint. In the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OmittedReason {
    /// They are those of a base model that is kept elsewhere.
    Base,
    /// They do not change.
    Frozen,
    /// Another.
    Other,
}

impl OmittedReason {
    /// The id in the metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Frozen => "frozen",
            Self::Other => "other",
        }
    }

    /// The one whose id this is.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        [Self::Base, Self::Frozen, Self::Other].into_iter().find(|reason| reason.as_str() == id)
    }
}

/// Parameters that a reader does not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// Their component.
    pub component: String,
    /// Why they are not there.
    pub reason: OmittedReason,
    /// Their names, ascending.
    pub names: Vec<String>,
}

/// The program that wrote a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// Its name; may be empty.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// A part whose every rule of its own holds.
#[derive(Clone)]
pub struct Part {
    /// Which save of which job it belongs to.
    pub common: Common,
    /// Who wrote it.
    pub writer: u32,
    /// The writer's incarnation.
    pub inc: Incarnation,
    /// Attachments, by position.
    pub attachments: Vec<AttachmentEntry>,
    /// Shards, by position.
    pub shards: Vec<ShardEntry>,
    /// Data of features, ascending by name.
    pub extensions: Vec<Extension>,
    /// What must be there, if the writer knows.
    pub inventory: Option<Inventory>,
    /// What is not there, ascending by component and reason.
    pub omitted: Vec<Omitted>,
    /// What wrote it.
    pub producer: Producer,
    raw: String,
    digest: Digest,
    /// Where the lists begin in `raw`.
    entries_at: usize,
    records_at: usize,
}

impl Part {
    /// Reads a part and checks every rule that it can break by itself.
    ///
    /// # Errors
    /// [`Code::NotCanonical`], [`Code::BadFormat`], [`Code::UnsupportedVersion`],
    /// [`Code::UnsupportedFeature`], then what its members break, each with its place.
    pub fn parse(raw: Vec<u8>) -> Result<Self> {
        check_size(raw.len(), limits::PART_BYTES, "part")?;
        check_canonical(&raw)?;
        let digest = Digest::of(&raw);
        let raw = String::from_utf8(raw).map_err(|_| {
            Error::rule(
                Code::NotCanonical,
                rule::JSON_ENCODING,
                "expected UTF-8, found other bytes",
            )
        })?;
        let found = Found::read(&raw)?;
        Ok(Self {
            common: found.common,
            writer: found.writer,
            inc: found.inc,
            attachments: found.attachments,
            shards: found.shards,
            extensions: found.extensions,
            inventory: found.inventory,
            omitted: found.omitted,
            producer: found.producer,
            digest,
            entries_at: found.entries_at,
            records_at: found.records_at,
            raw,
        })
    }

    /// Its tensors and aliases in ascending order of their keys, read one at a time.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry>> {
        let place = Place::Part(self.writer);
        let read = move |cursor: &mut Cursor<'_>| Entry::read(cursor, place);
        List::at(&self.raw, self.entries_at, read)
    }

    /// Its records in ascending order of their keys, read one at a time.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> {
        let read = |cursor: &mut Cursor<'_>| Record::read(cursor, &self.common.topology);
        List::at(&self.raw, self.records_at, read)
    }

    /// Its bytes.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.raw.as_bytes()
    }

    /// The digest of its bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The name that its file must have.
    #[must_use]
    pub fn file_name(&self) -> String {
        names::part(self.writer, &self.digest)
    }
}

impl fmt::Debug for Part {
    /// Without its entries and records, which can be very many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("common", &self.common)
            .field("writer", &self.writer)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// All that a part says, to be made one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartContent {
    /// Which save of which job it belongs to.
    pub common: Common,
    /// Who writes it.
    pub writer: u32,
    /// The writer's incarnation.
    pub inc: Incarnation,
    /// Attachments, by position.
    pub attachments: Vec<AttachmentEntry>,
    /// Shards, by position.
    pub shards: Vec<ShardEntry>,
    /// Data of features, in any order.
    pub extensions: Vec<Extension>,
    /// What must be there, if the writer knows.
    pub inventory: Option<Inventory>,
    /// What is not there, in any order.
    pub omitted: Vec<Omitted>,
    /// What writes it.
    pub producer: Producer,
    /// Tensors and aliases, in any order; their chunks too. The chunks' `writer` is not written.
    pub entries: Vec<Entry>,
    /// Records, in any order.
    pub records: Vec<Record>,
}

impl PartContent {
    /// The bytes of the part.
    ///
    /// # Errors
    /// As [`into_part`](Self::into_part).
    pub fn encode(self) -> Result<Vec<u8>> {
        Ok(self.into_part()?.raw.into_bytes())
    }

    /// Sorts what must be sorted, writes the part and reads it again.
    ///
    /// # Errors
    /// Whatever [`Part::parse`] finds in it; [`Code::NotCanonical`] for the value of an extension
    /// that is not canonical JSON.
    pub fn into_part(mut self) -> Result<Part> {
        self.sort();
        for extension in &self.extensions {
            check_canonical_value(extension.value.as_bytes())?;
        }
        let mut json = Encoder::new();
        json.begin_object();
        for (name, _) in FORM {
            self.encode_member(name, &mut json);
        }
        json.end_object();
        Part::parse(json.into_bytes())
    }

    fn sort(&mut self) {
        self.common.features.optional.sort_unstable();
        self.common.features.required.sort_unstable();
        self.extensions.sort_by(|a, b| a.feature.cmp(&b.feature));
        self.omitted.sort_by(|a, b| (&a.component, a.reason).cmp(&(&b.component, b.reason)));
        self.omitted.iter_mut().for_each(|omitted| omitted.names.sort_unstable());
        for entry in &mut self.entries {
            if let Entry::Tensor(tensor) = entry {
                tensor.chunks.sort_by(|a, b| a.region.at.cmp(&b.region.at));
                tensor.native.sort_by(|a, b| a.framework.cmp(&b.framework));
            }
        }
        self.entries.sort_by_cached_key(Entry::key);
        self.records.sort_by_cached_key(|record| record.key.key());
    }

    fn encode_member(&self, name: &'static str, json: &mut Encoder) {
        if !matches!(
            name,
            "attachments"
                | "entries"
                | "extensions"
                | "inc"
                | "inventory"
                | "omitted"
                | "producer"
                | "records"
                | "shards"
                | "writer"
        ) {
            return self.common.encode_member(name, KIND, json);
        }
        json.member(name);
        match name {
            "attachments" => encode_attachments(&self.attachments, json),
            "entries" => {
                let place = Place::Part(self.writer);
                json.begin_array();
                self.entries.iter().for_each(|entry| entry.encode(json, place));
                json.end_array();
            }
            "extensions" => encode_extensions(&self.extensions, json),
            "inc" => json.display(&self.inc),
            "inventory" => match &self.inventory {
                Some(inventory) => inventory.encode(json),
                None => json.null(),
            },
            "omitted" => encode_omitted(&self.omitted, json),
            "producer" => self.producer.encode(json),
            "records" => {
                json.begin_array();
                self.records.iter().for_each(|record| json.raw(&record.json));
                json.end_array();
            }
            "shards" => encode_shards(&self.shards, json),
            _ => json.uint(u64::from(self.writer)),
        }
    }
}

/// Checks the length of a file of metadata.
pub(crate) fn check_size(bytes: usize, limit: u64, what: &str) -> Result<()> {
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= limit) {
        return Ok(());
    }
    let message = format!("expected a {what} of at most {limit} bytes, found {bytes}");
    Err(Error::rule(Code::Limit, rule::DERIVE_SIZES, message))
}
