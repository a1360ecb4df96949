//! Members of parts, most of them of manifests too, as they stand in JSON.
//!
//! It knows the form of each and the rules within it, not where they are used.

use super::{CrcTable, Extension, Inventory, Omitted, OmittedReason, Producer, ShardEntry};
use crate::common::{check_limit, read_digest, read_name, spelled};
use crate::entry_json::{encode_crc, read_crc};
use crate::features::Features;
use crate::json::{Cursor, Encoder, Form};
use crate::{Code, Result, ShardClass, limits, rule};

impl ShardEntry {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("bytes", true), ("class", true), ("crc_table", true)];
        let start = cursor.offset();
        let (mut bytes, mut class, mut crc_table) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "bytes" => bytes = Some(cursor.uint()?),
                "class" => class = Some(spelled(cursor, "model or state", ShardClass::from_id)?),
                _ if cursor.null() => crc_table = Some(None),
                _ => crc_table = Some(Some(CrcTable::read(cursor)?)),
            }
        }
        let shard = Self {
            bytes: cursor.required(start, "bytes", bytes)?,
            class: cursor.required(start, "class", class)?,
            crc_table: cursor.required(start, "crc_table", crc_table)?,
        };
        shard
            .check_table()
            .map_err(|message| cursor.fail(start, Code::BadMember, rule::PART_TABLE, message))?;
        Ok(shard)
    }

    /// A reader that uses the table allocates for it, so it must lie in what the file has.
    fn check_table(&self) -> Result<(), String> {
        let Some(CrcTable { count, offset, .. }) = self.crc_table else { return Ok(()) };
        let end = count.checked_mul(4).and_then(|bytes| bytes.checked_add(offset));
        if count > 0 && end.is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let bytes = self.bytes;
        Err(format!(
            "expected a table within the shard's {bytes} bytes, found {count} CRCs at {offset}"
        ))
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("bytes");
        json.uint(self.bytes);
        json.member("class");
        json.string(self.class.as_str());
        json.member("crc_table");
        match &self.crc_table {
            Some(table) => table.encode(json),
            None => json.null(),
        }
        json.end_object();
    }
}

impl CrcTable {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("count", true), ("crc32c", true), ("offset", true)];
        let start = cursor.offset();
        let (mut count, mut crc32c, mut offset) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "count" => count = Some(cursor.uint()?),
                "crc32c" => crc32c = Some(read_crc(cursor)?),
                _ => offset = Some(cursor.uint()?),
            }
        }
        Ok(Self {
            count: cursor.required(start, "count", count)?,
            crc32c: cursor.required(start, "crc32c", crc32c)?,
            offset: cursor.required(start, "offset", offset)?,
        })
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("count");
        json.uint(self.count);
        json.member("crc32c");
        encode_crc(json, self.crc32c);
        json.member("offset");
        json.uint(self.offset);
        json.end_object();
    }
}

impl Inventory {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("count", true), ("sha256", true)];
        let start = cursor.offset();
        let (mut count, mut sha256) = (None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "count" => count = Some(cursor.uint()?),
                _ => sha256 = Some(read_digest(cursor)?),
            }
        }
        Ok(Self {
            count: cursor.required(start, "count", count)?,
            sha256: cursor.required(start, "sha256", sha256)?,
        })
    }

    pub(super) fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("count");
        json.uint(self.count);
        json.member("sha256");
        json.display(&self.sha256);
        json.end_object();
    }
}

impl Producer {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("name", true), ("version", true)];
        let mut producer = Self::default();
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            let start = cursor.offset();
            let text = cursor.string()?.into_owned();
            check_limit(cursor, start, text.len(), limits::NAME_BYTES, "bytes")?;
            *(if name == "name" { &mut producer.name } else { &mut producer.version }) = text;
        }
        Ok(producer)
    }

    pub(super) fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("name");
        json.string(&self.name);
        json.member("version");
        json.string(&self.version);
        json.end_object();
    }
}

impl Omitted {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("component", true), ("names", true), ("reason", true)];
        const REASONS: &str = "frozen, base or other";
        let start = cursor.offset();
        let (mut component, mut names, mut reason) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "component" => component = Some(read_name(cursor, "component")?),
                "names" => names = Some(read_omitted_names(cursor)?),
                _ => reason = Some(spelled(cursor, REASONS, OmittedReason::from_id)?),
            }
        }
        Ok(Self {
            component: cursor.required(start, "component", component)?,
            names: cursor.required(start, "names", names)?,
            reason: cursor.required(start, "reason", reason)?,
        })
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("component");
        json.string(&self.component);
        json.member("names");
        json.strings(&self.names);
        json.member("reason");
        json.string(self.reason.as_str());
        json.end_object();
    }
}

fn read_omitted_names(cursor: &mut Cursor<'_>) -> Result<Vec<String>> {
    let list = cursor.offset();
    let mut names: Vec<String> = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let name = read_name(cursor, "parameter name")?;
        if names.last().is_some_and(|before| *before >= name) {
            let message = format!("expected names in ascending order, found {name:?}");
            return Err(cursor.fail(start, Code::BadMember, rule::PART_OMITTED, message));
        }
        names.push(name);
    }
    if names.is_empty() {
        let message = "expected at least one name, found none";
        return Err(cursor.fail(list, Code::BadMember, rule::PART_OMITTED, message));
    }
    Ok(names)
}

/// Reads the value of `omitted`.
pub(crate) fn read_omitted(cursor: &mut Cursor<'_>) -> Result<Vec<Omitted>> {
    let mut list: Vec<Omitted> = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let omitted = Omitted::read(cursor)?;
        let key = |omitted: &Omitted| (omitted.component.clone(), omitted.reason);
        if list.last().is_some_and(|before| key(before) >= key(&omitted)) {
            let message = format!(
                "expected ascending components and reasons, found {:?} {}",
                omitted.component,
                omitted.reason.as_str()
            );
            return Err(cursor.fail(start, Code::BadMember, rule::PART_OMITTED, message));
        }
        list.push(omitted);
    }
    Ok(list)
}

pub(crate) fn encode_omitted(list: &[Omitted], json: &mut Encoder) {
    json.begin_array();
    list.iter().for_each(|omitted| omitted.encode(json));
    json.end_array();
}

/// Reads the value of `shards`.
pub(crate) fn read_shards(cursor: &mut Cursor<'_>) -> Result<Vec<ShardEntry>> {
    let mut shards = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        shards.push(ShardEntry::read(cursor)?);
        check_limit(cursor, start, shards.len(), limits::SHARDS_PER_WRITER, "shards of a writer")?;
    }
    Ok(shards)
}

pub(crate) fn encode_shards(shards: &[ShardEntry], json: &mut Encoder) {
    json.begin_array();
    shards.iter().for_each(|shard| shard.encode(json));
    json.end_array();
}

/// Reads the value of `extensions`.
pub(crate) fn read_extensions(cursor: &mut Cursor<'_>) -> Result<Vec<Extension>> {
    let mut extensions = Vec::new();
    let mut members = cursor.begin_object()?;
    while let Some(feature) = cursor.next_member(&mut members)? {
        extensions.push(Extension::read(feature.into_owned(), cursor)?);
    }
    Ok(extensions)
}

pub(crate) fn encode_extensions(extensions: &[Extension], json: &mut Encoder) {
    json.begin_object();
    for extension in extensions {
        json.member(&extension.feature);
        json.begin_object();
        json.member("on_rewrite");
        json.string(if extension.keep { "keep" } else { "drop" });
        json.member("value");
        json.raw(&extension.value);
        json.end_object();
    }
    json.end_object();
}

/// Checks that `features` names every feature that has data. `place` is the pointer of the data.
pub(crate) fn check_named(
    extensions: &[Extension],
    features: &Features,
    place: &str,
) -> Result<()> {
    match extensions.iter().find(|extension| !features.contains(&extension.feature)) {
        None => Ok(()),
        Some(Extension { feature, .. }) => {
            let message =
                format!("expected data of features that `features` names, found {feature:?}");
            let error = crate::Error::rule(Code::BadMember, rule::PART_EXTENSIONS, message);
            Err(error.at_pointer(format!("{place}/{}", crate::json::pointer_step(feature))))
        }
    }
}

impl Extension {
    fn read(feature: String, cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &Form = &[("on_rewrite", true), ("value", true)];
        let start = cursor.offset();
        let (mut keep, mut value) = (None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "on_rewrite" => {
                    keep = Some(spelled(cursor, "keep or drop", |text| match text {
                        "keep" => Some(true),
                        "drop" => Some(false),
                        _ => None,
                    })?);
                }
                _ => value = Some(cursor.raw_value()?.to_owned()),
            }
        }
        Ok(Self {
            feature,
            keep: cursor.required(start, "on_rewrite", keep)?,
            value: cursor.required(start, "value", value)?,
        })
    }
}
