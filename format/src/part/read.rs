//! Reading a part: the order in which it is checked, and its lists entry by entry.
//!
//! It knows that entries and records are checked last. It must not keep them.

use super::members::{check_named, read_extensions, read_omitted, read_shards};
use super::{Extension, FORM, Inventory, KIND, Omitted, Producer, ShardEntry};
use crate::attachment::{AttachmentEntry, check_unique, read_attachments};
use crate::common::{Common, CommonMembers, Outline, spelled};
use crate::entries::{Checks, check_key};
use crate::entry_json::Place;
use crate::json::{Cursor, Items, pointer_at};
use crate::record::Record;
use crate::{Code, Error, Incarnation, Result, rule};

/// What is read of a part.
pub(super) struct Found {
    pub(super) common: Common,
    pub(super) writer: u32,
    pub(super) inc: Incarnation,
    pub(super) attachments: Vec<AttachmentEntry>,
    pub(super) shards: Vec<ShardEntry>,
    pub(super) extensions: Vec<Extension>,
    pub(super) inventory: Option<Inventory>,
    pub(super) omitted: Vec<Omitted>,
    pub(super) producer: Producer,
    pub(super) entries_at: usize,
    pub(super) records_at: usize,
}

impl Found {
    /// Reads a canonical text.
    pub(super) fn read(text: &str) -> Result<Self> {
        let outline = Outline::of(text)?;
        outline.check_head(KIND)?;
        let mut cursor = Cursor::new(text);
        let mut common = CommonMembers::default();
        let (mut attachments, mut extensions, mut inc, mut inventory) = (None, None, None, None);
        let (mut omitted, mut producer, mut shards, mut writer) = (None, None, None, None);
        let (mut entries_at, mut records_at) = (None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            let start = cursor.offset();
            match name {
                "attachments" => attachments = Some(read_attachments(&mut cursor)?),
                "entries" => {
                    cursor.begin_array()?;
                    cursor = Cursor::at(text, start);
                    cursor.skip()?;
                    entries_at = Some(start);
                }
                "extensions" => extensions = Some(read_extensions(&mut cursor)?),
                "inc" => inc = Some(spelled(&mut cursor, "16 hex digits", Incarnation::parse)?),
                "inventory" if cursor.null() => inventory = Some(None),
                "inventory" => inventory = Some(Some(Inventory::read(&mut cursor)?)),
                "omitted" => omitted = Some(read_omitted(&mut cursor)?),
                "producer" => producer = Some(Producer::read(&mut cursor)?),
                "records" => {
                    cursor.begin_array()?;
                    cursor = Cursor::at(text, start);
                    cursor.skip()?;
                    records_at = Some(start);
                }
                "shards" => shards = Some(read_shards(&mut cursor)?),
                "writer" => writer = Some(cursor.uint()?),
                _ => common.read(name, &mut cursor)?,
            }
        }
        let common = common.finish(&cursor, 0)?;
        let extensions = cursor.required(0, "extensions", extensions)?;
        let attachments = cursor.required(0, "attachments", attachments)?;
        let writer = check_writer(cursor.required(0, "writer", writer)?, common.writers)?;
        check_named(&extensions, &common.features, "/extensions")?;
        check_unique(&attachments).map_err(|error| error.at_pointer("/attachments"))?;
        let found = Self {
            writer,
            inc: cursor.required(0, "inc", inc)?,
            attachments,
            shards: cursor.required(0, "shards", shards)?,
            extensions,
            inventory: cursor.required(0, "inventory", inventory)?,
            omitted: cursor.required(0, "omitted", omitted)?,
            producer: cursor.required(0, "producer", producer)?,
            entries_at: cursor.required(0, "entries", entries_at)?,
            records_at: cursor.required(0, "records", records_at)?,
            common,
        };
        // The lists come last: they are checked against members that stand behind them.
        found.check_entries(text)?;
        found.check_records(text)?;
        Ok(found)
    }

    fn check_entries(&self, text: &str) -> Result<()> {
        let shard = |_, position: u32| self.shards.get(usize::try_from(position).ok()?);
        let checks = Checks {
            place: Place::Part(self.writer),
            topology: &self.common.topology,
            block_bytes: self.common.block_bytes,
            shard: &shard,
            order: rule::PART_ENTRIES,
            first: None,
            below: None,
            cover: false,
        };
        checks.read(&mut Cursor::at(text, self.entries_at), &mut |_| ())
    }

    fn check_records(&self, text: &str) -> Result<()> {
        let mut cursor = Cursor::at(text, self.records_at);
        let mut items = cursor.begin_array()?;
        let mut before: Option<String> = None;
        while cursor.next_item(&mut items)? {
            let start = cursor.offset();
            let key = Record::read(&mut cursor, &self.common.topology)?.key.key();
            check_key(rule::PART_RECORDS, None, None, before.as_deref(), &key)
                .map_err(|error| error.at_pointer(pointer_at(text, start)))?;
            before = Some(key);
        }
        Ok(())
    }
}

fn check_writer(writer: u64, writers: u32) -> Result<u32> {
    match u32::try_from(writer) {
        Ok(writer) if writer < writers => Ok(writer),
        _ => {
            let message = format!("expected a writer below {writers}, found {writer}");
            let error = Error::rule(Code::BadMember, rule::PART_WRITER, message);
            Err(error.at_pointer("/writer"))
        }
    }
}

/// Reads the items of an array one at a time.
pub(super) struct List<'a, F> {
    cursor: Cursor<'a>,
    items: Option<Items>,
    ended: bool,
    read: F,
}

impl<'a, T, F: FnMut(&mut Cursor<'a>) -> Result<T>> List<'a, F> {
    /// Of the array at byte `offset` of a canonical text.
    pub(super) fn at(text: &'a str, offset: usize, read: F) -> Self {
        Self { cursor: Cursor::at(text, offset), items: None, ended: false, read }
    }

    fn step(&mut self) -> Result<Option<T>> {
        let items = match &mut self.items {
            Some(items) => items,
            none => none.insert(self.cursor.begin_array()?),
        };
        if self.cursor.next_item(items)? {
            (self.read)(&mut self.cursor).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<'a, T, F: FnMut(&mut Cursor<'a>) -> Result<T>> Iterator for List<'a, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.ended {
            return None;
        }
        let item = self.step().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}
