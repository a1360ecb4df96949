//! The manifest: the root of what readers read (8.3).
//!
//! It knows the manifest's members and the names of files that follow from them. It must not know
//! what stands in the files, nor how a manifest is derived.

use crate::attachment::{AttachmentEntry, check_unique, encode_attachments, read_attachments};
use crate::common::{
    Common, CommonMembers, Coordinate, Outline, check_limit, parse_coordinate, read_digest,
    read_limited, read_name, spelled,
};
use crate::entries::check_key;
use crate::identity::{Identity, read_role};
use crate::json::{Cursor, Encoder, Form, check_canonical, pointer_at};
use crate::part::{
    Extension, Omitted, ShardEntry, check_named, check_size, encode_extensions, encode_omitted,
    encode_shards, read_extensions, read_omitted, read_shards,
};
use crate::{Code, Digest, Error, Incarnation, Result, Role, limits, names, rule};

/// What a manifest says in `kind`.
const KIND: &str = "manifest";

/// Members of a manifest.
const FORM: &Form = &[
    ("attempt", true),
    ("block_bytes", true),
    ("contents", true),
    ("features", true),
    ("format", true),
    ("kind", true),
    ("omitted", true),
    ("parent", true),
    ("parts", true),
    ("records", true),
    ("run", true),
    ("step", true),
    ("tensors", true),
    ("topology", true),
    ("version", true),
    ("writers", true),
];

/// Numbers of tensors of each component and role, both ascending by their ids.
pub type Contents = Vec<(String, Vec<(Role, u64)>)>;

/// A page; its position in its list is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Length of the file.
    pub bytes: u64,
    /// The least key in it: an identity key or a record key.
    pub first: String,
    /// Digest of the file.
    pub sha256: Digest,
}

/// What a manifest says of a part; its position in the list is its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// As in the part.
    pub attachments: Vec<AttachmentEntry>,
    /// Length of the part's file.
    pub bytes: u64,
    /// As in the part.
    pub extensions: Vec<Extension>,
    /// As in the part.
    pub inc: Incarnation,
    /// Digest of the part's file.
    pub sha256: Digest,
    /// As in the part.
    pub shards: Vec<ShardEntry>,
}

/// The root of a checkpoint's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Which save of which job it is.
    pub common: Common,
    /// Numbers of tensors.
    pub contents: Contents,
    /// Parameters that a reader does not expect, ascending by component and reason.
    pub omitted: Vec<Omitted>,
    /// Parts, by writer.
    pub parts: Vec<PartSummary>,
    /// Pages of records.
    pub records: Vec<PageRef>,
    /// Pages of tensors and aliases.
    pub tensors: Vec<PageRef>,
}

/// A file that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its name in the directory.
    pub name: String,
    /// Its exact length.
    pub bytes: u64,
    /// What it is.
    pub kind: FileKind,
    /// Its digest; shards have none.
    pub digest: Option<Digest>,
}

/// What a named file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An attachment of a writer.
    Attachment {
        /// Whose.
        writer: u32,
        /// Position in the writer's list.
        position: u32,
    },
    /// A part.
    Part {
        /// Whose.
        writer: u32,
    },
    /// A page of records.
    RecordsPage {
        /// Its number.
        page: u32,
    },
    /// A shard of a writer.
    Shard {
        /// Whose.
        writer: u32,
        /// Position in the writer's list.
        position: u32,
    },
    /// A page of tensors and aliases.
    TensorsPage {
        /// Its number.
        page: u32,
    },
}

impl Manifest {
    /// Reads a manifest and checks every rule of depth C that it can break.
    ///
    /// # Errors
    /// [`Code::NotCanonical`], [`Code::BadFormat`], [`Code::UnsupportedVersion`],
    /// [`Code::UnsupportedFeature`], then what its members break, each with its place.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        check_size(bytes.len(), limits::MANIFEST_BYTES, "manifest")?;
        let text = check_canonical(bytes)?;
        let outline = Outline::of(text)?;
        outline.check_head(KIND)?;
        let mut cursor = Cursor::new(text);
        let mut common = CommonMembers::default();
        let (mut contents, mut omitted, mut parts) = (None, None, None);
        let (mut records, mut tensors) = (None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "contents" => contents = Some(read_contents(&mut cursor)?),
                "omitted" => omitted = Some(read_omitted(&mut cursor)?),
                "parts" => parts = Some(read_parts(&mut cursor)?),
                "records" => records = Some(read_pages(&mut cursor, record_place)?),
                "tensors" => tensors = Some(read_pages(&mut cursor, tensor_scope)?),
                _ => common.read(name, &mut cursor)?,
            }
        }
        let manifest = Self {
            common: common.finish(&cursor, 0)?,
            contents: cursor.required(0, "contents", contents)?,
            omitted: cursor.required(0, "omitted", omitted)?,
            parts: cursor.required(0, "parts", parts)?,
            records: cursor.required(0, "records", records)?,
            tensors: cursor.required(0, "tensors", tensors)?,
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// The bytes of the manifest.
    ///
    /// # Errors
    /// Whatever [`parse`](Self::parse) finds in them: what must be sorted is not sorted here.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut json = Encoder::new();
        json.begin_object();
        for (name, _) in FORM {
            match *name {
                "contents" | "omitted" | "parts" | "records" | "tensors" => json.member(name),
                _ => self.common.encode_member(name, KIND, &mut json),
            }
            match *name {
                "contents" => encode_contents(&self.contents, &mut json),
                "omitted" => encode_omitted(&self.omitted, &mut json),
                "parts" => {
                    json.begin_array();
                    self.parts.iter().for_each(|part| part.encode(&mut json));
                    json.end_array();
                }
                "records" => encode_pages(&self.records, &mut json),
                "tensors" => encode_pages(&self.tensors, &mut json),
                _ => {}
            }
        }
        json.end_object();
        let bytes = json.into_bytes();
        if Self::parse(&bytes)? == *self {
            return Ok(bytes);
        }
        // A key of a page is given as text and could be anything.
        let message = "expected pages' first keys in their canonical form, found another";
        Err(Error::rule(Code::BadMember, rule::JSON_TYPES, message))
    }

    /// The files that it names, in the order of their names: all but itself and the commit file.
    ///
    /// # Errors
    /// [`Code::Limit`] when a list is longer than any that [`parse`](Self::parse) lets through.
    pub fn named_files(&self) -> Result<Vec<NamedFile>> {
        let mut files = Vec::new();
        for (writer, part) in self.parts.iter().enumerate() {
            part.named_files(position(writer)?, &mut files)?;
        }
        for (page, found) in self.tensors.iter().enumerate() {
            let page = position(page)?;
            files.push(found.named(names::tensors_page(page), FileKind::TensorsPage { page }));
        }
        for (page, found) in self.records.iter().enumerate() {
            let page = position(page)?;
            files.push(found.named(names::records_page(page), FileKind::RecordsPage { page }));
        }
        files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// A shard of a writer, if there is one at that position.
    #[must_use]
    pub fn shard(&self, writer: u32, position: u32) -> Option<&ShardEntry> {
        let part = self.parts.get(usize::try_from(writer).ok()?)?;
        part.shards.get(usize::try_from(position).ok()?)
    }

    /// The rules about several members, in the order of the chapters.
    fn check(&self) -> Result<()> {
        self.check_firsts("tensors", &self.tensors, tensor_scope, rule::IDENTITY_SCOPE)?;
        for (writer, part) in self.parts.iter().enumerate() {
            let place = format!("/parts/{writer}/extensions");
            check_named(&part.extensions, &self.common.features, &place)?;
        }
        check_unique(self.parts.iter().flat_map(|part| &part.attachments))
            .map_err(|error| error.at_pointer("/parts"))?;
        let writers = self.common.writers;
        if !u32::try_from(self.parts.len()).is_ok_and(|parts| parts == writers) {
            let message = format!("expected {writers} parts, found {}", self.parts.len());
            let error = Error::rule(Code::BadMember, rule::MANIFEST_PARTS, message);
            return Err(error.at_pointer("/parts"));
        }
        self.check_firsts("records", &self.records, record_place, rule::RECORD_COORDINATE)
    }

    /// Checks the coordinates in the first keys of pages against the topology.
    fn check_firsts(
        &self,
        list: &str,
        pages: &[PageRef],
        read: FirstKey,
        rule: &'static str,
    ) -> Result<()> {
        for (number, page) in pages.iter().enumerate() {
            let coordinate = read(&mut Cursor::new(&page.first))?;
            self.common
                .topology
                .check_coordinate(&coordinate, rule)
                .map_err(|error| error.at_pointer(format!("/{list}/{number}/first")))?;
        }
        Ok(())
    }
}

impl PartSummary {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[
            ("attachments", true),
            ("bytes", true),
            ("extensions", true),
            ("inc", true),
            ("sha256", true),
            ("shards", true),
        ];
        let start = cursor.offset();
        let (mut attachments, mut bytes, mut extensions) = (None, None, None);
        let (mut inc, mut sha256, mut shards) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "attachments" => attachments = Some(read_attachments(cursor)?),
                "bytes" => {
                    bytes = Some(read_limited(cursor, limits::PART_BYTES, "bytes of a part")?)
                }
                "extensions" => extensions = Some(read_extensions(cursor)?),
                "inc" => inc = Some(spelled(cursor, "16 hex digits", Incarnation::parse)?),
                "sha256" => sha256 = Some(read_digest(cursor)?),
                _ => shards = Some(read_shards(cursor)?),
            }
        }
        Ok(Self {
            attachments: cursor.required(start, "attachments", attachments)?,
            bytes: cursor.required(start, "bytes", bytes)?,
            extensions: cursor.required(start, "extensions", extensions)?,
            inc: cursor.required(start, "inc", inc)?,
            sha256: cursor.required(start, "sha256", sha256)?,
            shards: cursor.required(start, "shards", shards)?,
        })
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("attachments");
        encode_attachments(&self.attachments, json);
        json.member("bytes");
        json.uint(self.bytes);
        json.member("extensions");
        encode_extensions(&self.extensions, json);
        json.member("inc");
        json.display(&self.inc);
        json.member("sha256");
        json.display(&self.sha256);
        json.member("shards");
        encode_shards(&self.shards, json);
        json.end_object();
    }

    fn named_files(&self, writer: u32, files: &mut Vec<NamedFile>) -> Result<()> {
        files.push(NamedFile {
            name: names::part(writer, &self.sha256),
            bytes: self.bytes,
            kind: FileKind::Part { writer },
            digest: Some(self.sha256),
        });
        for (index, shard) in self.shards.iter().enumerate() {
            let position = position(index)?;
            files.push(NamedFile {
                name: names::shard(shard.class, writer, self.inc, position),
                bytes: shard.bytes,
                kind: FileKind::Shard { writer, position },
                digest: None,
            });
        }
        for (index, attachment) in self.attachments.iter().enumerate() {
            let position = position(index)?;
            files.push(NamedFile {
                name: names::attachment(writer, self.inc, position),
                bytes: attachment.bytes,
                kind: FileKind::Attachment { writer, position },
                digest: Some(attachment.sha256),
            });
        }
        Ok(())
    }
}

impl PageRef {
    fn named(&self, name: String, kind: FileKind) -> NamedFile {
        NamedFile { name, bytes: self.bytes, kind, digest: Some(self.sha256) }
    }

    fn read(cursor: &mut Cursor<'_>, read_first: FirstKey) -> Result<Self> {
        const FORM: &Form = &[("bytes", true), ("first", true), ("sha256", true)];
        let start = cursor.offset();
        let (mut bytes, mut first, mut sha256) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            let place = cursor.offset();
            match name {
                "bytes" => {
                    bytes = Some(read_limited(cursor, limits::PAGE_BYTES, "bytes of a page")?)
                }
                "first" => {
                    read_first(cursor)?;
                    first = Some(cursor.since(place).to_owned());
                }
                _ => sha256 = Some(read_digest(cursor)?),
            }
        }
        Ok(Self {
            bytes: cursor.required(start, "bytes", bytes)?,
            first: cursor.required(start, "first", first)?,
            sha256: cursor.required(start, "sha256", sha256)?,
        })
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("bytes");
        json.uint(self.bytes);
        json.member("first");
        json.raw(&self.first);
        json.member("sha256");
        json.display(&self.sha256);
        json.end_object();
    }
}

/// Reads the first key of a page; gives the coordinate in it, not held against the topology.
type FirstKey = fn(&mut Cursor<'_>) -> Result<Coordinate>;

fn tensor_scope(cursor: &mut Cursor<'_>) -> Result<Coordinate> {
    Ok(Identity::read(cursor)?.scope)
}

fn record_place(cursor: &mut Cursor<'_>) -> Result<Coordinate> {
    const FORM: &str = "[kind, name, coordinate]";
    let mut items = cursor.begin_array()?;
    cursor.want_item(&mut items, FORM)?;
    read_name(cursor, "record kind")?;
    cursor.want_item(&mut items, FORM)?;
    read_name(cursor, "record name")?;
    cursor.want_item(&mut items, FORM)?;
    let coordinate = parse_coordinate(cursor)?;
    cursor.end_array(&mut items, FORM)?;
    Ok(coordinate)
}

fn read_pages(cursor: &mut Cursor<'_>, read_first: FirstKey) -> Result<Vec<PageRef>> {
    let mut pages: Vec<PageRef> = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let page = PageRef::read(cursor, read_first)?;
        let before = pages.last().map(|page| page.first.as_str());
        check_key(rule::MANIFEST_FIRSTS, None, None, before, &page.first)
            .map_err(|error| error.at_pointer(pointer_at(cursor.text(), start)))?;
        pages.push(page);
    }
    Ok(pages)
}

fn encode_pages(pages: &[PageRef], json: &mut Encoder) {
    json.begin_array();
    pages.iter().for_each(|page| page.encode(json));
    json.end_array();
}

fn read_parts(cursor: &mut Cursor<'_>) -> Result<Vec<PartSummary>> {
    let mut parts = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        parts.push(PartSummary::read(cursor)?);
        check_limit(cursor, start, parts.len(), limits::WRITERS, "parts")?;
    }
    Ok(parts)
}

fn read_contents(cursor: &mut Cursor<'_>) -> Result<Contents> {
    const FORM: &str = "[component, roles]";
    let mut contents: Contents = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let mut pair = cursor.begin_array()?;
        cursor.want_item(&mut pair, FORM)?;
        let component = read_name(cursor, "component")?;
        cursor.want_item(&mut pair, FORM)?;
        let roles = read_roles(cursor)?;
        cursor.end_array(&mut pair, FORM)?;
        if contents.last().is_some_and(|(before, _)| *before >= component) {
            return Err(cursor.bad_spelling(start, "components in ascending order", &component));
        }
        contents.push((component, roles));
    }
    Ok(contents)
}

fn read_roles(cursor: &mut Cursor<'_>) -> Result<Vec<(Role, u64)>> {
    const FORM: &str = "[role, count]";
    let mut roles: Vec<(Role, u64)> = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let mut pair = cursor.begin_array()?;
        cursor.want_item(&mut pair, FORM)?;
        let role = read_role(cursor)?;
        cursor.want_item(&mut pair, FORM)?;
        let place = cursor.offset();
        let count = read_limited(cursor, limits::TENSORS, "tensors")?;
        if count == 0 {
            return Err(cursor.bad_spelling(place, "a count of 1 or more", "0"));
        }
        cursor.end_array(&mut pair, FORM)?;
        if roles.last().is_some_and(|(before, _)| before.as_str() >= role.as_str()) {
            return Err(cursor.bad_spelling(start, "roles in ascending order", role.as_str()));
        }
        roles.push((role, count));
    }
    Ok(roles)
}

fn encode_contents(contents: &Contents, json: &mut Encoder) {
    json.begin_array();
    for (component, roles) in contents {
        json.begin_array();
        json.string(component);
        json.begin_array();
        for (role, count) in roles {
            json.begin_array();
            json.string(role.as_str());
            json.uint(*count);
            json.end_array();
        }
        json.end_array();
        json.end_array();
    }
    json.end_array();
}

fn position(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| {
        let message = format!("expected fewer than 2^32 files of a kind, found number {index}");
        Error::rule(Code::Limit, rule::LIMIT_VALUE, message)
    })
}
