//! Pages: sorted slices of all tensors, aliases and records of a checkpoint (8.2).
//!
//! It knows a page's members and what the manifest says of it. It must not know where pages end:
//! that is decided where they are made.

use crate::common::Outline;
use crate::entries::{Checks, check_key};
use crate::entry::Entry;
use crate::entry_json::Place;
use crate::json::{Cursor, Form, check_canonical, pointer_at};
use crate::manifest::{Manifest, PageRef};
use crate::part::check_size;
use crate::record::Record;
use crate::{Code, Digest, Error, Result, limits, rule};

/// Members of a page of tensors.
const TENSORS: &Form =
    &[("entries", true), ("format", true), ("kind", true), ("page", true), ("version", true)];

/// Members of a page of records.
const RECORDS: &Form =
    &[("format", true), ("kind", true), ("page", true), ("records", true), ("version", true)];

/// A page of tensors and aliases whose every rule of depth O holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPage {
    /// Ascending by key, at least one.
    pub entries: Vec<Entry>,
}

/// A page of records whose every rule of depth O holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// Ascending by key, at least one.
    pub records: Vec<Record>,
}

impl TensorPage {
    /// Reads page number `page` of tensors, `bytes` being the whole file, and checks every rule
    /// of depth O: digest, form, entries, their chunks and their cover.
    ///
    /// # Errors
    /// [`Code::LengthMismatch`], [`Code::DigestMismatch`], [`Code::NotCanonical`],
    /// [`Code::BadFormat`], then what its entries break, each with its place and tensor;
    /// [`Code::NotFound`] when the manifest has no such page.
    pub fn parse(bytes: &[u8], manifest: &Manifest, page: u32) -> Result<Self> {
        let mut entries = Vec::new();
        Self::each(bytes, manifest, page, &mut |entry| entries.push(entry))?;
        Ok(Self { entries })
    }

    /// As [`parse`](Self::parse), but gives the entries one by one to `take`, each when its own
    /// rules hold, and keeps none: parsed, many short ones take several times the memory of their
    /// text.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn each(
        bytes: &[u8],
        manifest: &Manifest,
        page: u32,
        take: &mut dyn FnMut(Entry),
    ) -> Result<()> {
        let file = File::open(bytes, manifest, &manifest.tensors, page, "tensors")?;
        let shard = |writer, position| manifest.shard(writer, position);
        let checks = Checks {
            place: Place::Page,
            topology: &manifest.common.topology,
            block_bytes: manifest.common.block_bytes,
            shard: &shard,
            order: rule::PAGE_ORDER,
            first: Some(file.first),
            below: file.below,
            cover: true,
        };
        file.read(TENSORS, "entries", |cursor| {
            let mut count: usize = 0;
            checks.read(cursor, &mut |entry| {
                count = count.saturating_add(1);
                take(entry);
            })?;
            Ok(count)
        })
    }
}

impl RecordPage {
    /// Reads page number `page` of records, `bytes` being the whole file, and checks every rule
    /// of depth O.
    ///
    /// # Errors
    /// As [`TensorPage::parse`].
    pub fn parse(bytes: &[u8], manifest: &Manifest, page: u32) -> Result<Self> {
        let file = File::open(bytes, manifest, &manifest.records, page, "records")?;
        let mut records = Vec::new();
        file.read(RECORDS, "records", |cursor| {
            let mut before: Option<String> = None;
            let mut items = cursor.begin_array()?;
            while cursor.next_item(&mut items)? {
                let start = cursor.offset();
                let record = Record::read(cursor, &manifest.common.topology)?;
                let key = record.key.key();
                check_key(rule::PAGE_ORDER, Some(file.first), file.below, before.as_deref(), &key)
                    .map_err(|error| error.at_pointer(pointer_at(cursor.text(), start)))?;
                before = Some(key);
                records.push(record);
            }
            Ok(records.len())
        })?;
        Ok(Self { records })
    }
}

/// A page's text and what the manifest says of it.
struct File<'a> {
    text: &'a str,
    first: &'a str,
    /// The first key of the next page.
    below: Option<&'a str>,
}

impl<'a> File<'a> {
    /// Checks all that comes before the members.
    fn open(
        bytes: &'a [u8],
        manifest: &Manifest,
        pages: &'a [PageRef],
        page: u32,
        kind: &str,
    ) -> Result<Self> {
        let index = usize::try_from(page).unwrap_or(usize::MAX);
        let Some(stated) = pages.get(index) else {
            let message = format!("expected a page below {}, found {page}", pages.len());
            return Err(Error::new(Code::NotFound, message));
        };
        check_stated(bytes, stated)?;
        check_size(bytes.len(), limits::PAGE_BYTES, "page")?;
        let text = check_canonical(bytes)?;
        let outline = Outline::of(text)?;
        outline.check_format(kind, rule::PAGE_NUMBER)?;
        let root = Cursor::new(text);
        check_version(&outline, manifest)?;
        check_number(root.required(0, "page", outline.member("page"))?, page)?;
        let below = pages.get(index.saturating_add(1)).map(|next| next.first.as_str());
        Ok(Self { text, first: &stated.first, below })
    }

    /// Checks the members, the list last; `read_list` reads it and says how many items it has.
    fn read(
        &self,
        form: &'static Form,
        list: &str,
        mut read_list: impl FnMut(&mut Cursor<'_>) -> Result<usize>,
    ) -> Result<()> {
        let mut cursor = Cursor::new(self.text);
        let mut object = cursor.begin(form)?;
        let mut list_at = None;
        while let Some(name) = cursor.next_of(&mut object)? {
            if name == list {
                list_at = Some(cursor.offset());
            }
            cursor.skip()?; // the others were checked when the file was opened
        }
        let start = cursor.required(0, list, list_at)?;
        let mut cursor = Cursor::at(self.text, start);
        if read_list(&mut cursor)? == 0 {
            let message = "expected at least one entry, found none";
            return Err(cursor.fail(start, Code::BadOrder, rule::PAGE_ORDER, message));
        }
        Ok(())
    }
}

fn check_stated(bytes: &[u8], stated: &PageRef) -> Result<()> {
    if !u64::try_from(bytes.len()).is_ok_and(|length| length == stated.bytes) {
        let message = format!("expected {} bytes, found {}", stated.bytes, bytes.len());
        return Err(Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message));
    }
    let found = Digest::of(bytes);
    if found != stated.sha256 {
        let message = format!("expected SHA-256 {}, found {found}", stated.sha256);
        return Err(Error::rule(Code::DigestMismatch, rule::PAGE_DIGEST, message));
    }
    Ok(())
}

fn check_version(outline: &Outline<'_>, manifest: &Manifest) -> Result<()> {
    let version = outline.check_version()?;
    if version == manifest.common.version {
        return Ok(());
    }
    let message = format!("expected version {}, found {version}", manifest.common.version);
    Err(Error::rule(Code::BadMember, rule::OPEN_PAGE_VERSION, message).at_pointer("/version"))
}

fn check_number(mut cursor: Cursor<'_>, page: u32) -> Result<()> {
    let start = cursor.offset();
    let found = cursor.uint()?;
    if found == u64::from(page) {
        return Ok(());
    }
    let message = format!("expected page {page}, found {found}");
    Err(cursor.fail(start, Code::BadFormat, rule::PAGE_NUMBER, message))
}
