//! Entries as they stand in the JSON of parts and pages.
//!
//! It knows the members' forms and which are left out when they say nothing. The rules beyond
//! form are those of [`entry`](crate::entry).

use crate::common::{Coordinate, encode_coordinate, parse_coordinate, read_name, read_position};
use crate::entry::{Alias, Chunk, Entry, Native, NativeStep, Tensor, is_main};
use crate::identity::{Identity, MAIN, read_role};
use crate::json::{Cursor, Encoder, Form, Kind, pointer_at};
use crate::{Code, Dims, Dtype, Error, Region, Result, Role, rule};

/// Where an entry stands, which decides whether its chunks name their writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the part of this writer.
    Part(u32),
    /// In a page.
    Page,
}

/// Members of an entry as they are met.
#[derive(Default)]
struct Found {
    axes: Option<Vec<Option<u8>>>,
    block: Option<u64>,
    chunks: Option<Vec<Chunk>>,
    component: Option<String>,
    dtype: Option<Dtype>,
    name: Option<String>,
    native: Vec<Native>,
    of: Option<Identity>,
    owner: Option<String>,
    role: Option<Role>,
    scope: Option<Coordinate>,
    shape: Option<Dims>,
    slot: Option<String>,
    valid: Option<Dims>,
}

/// Members of a tensor.
const TENSOR: &Form = &[
    ("axes", false),
    ("block", false),
    ("chunks", true),
    ("component", false),
    ("dtype", true),
    ("name", true),
    ("native", false),
    ("owner", false),
    ("role", true),
    ("scope", false),
    ("shape", true),
    ("slot", false),
    ("valid", false),
];

/// Members of an alias.
const ALIAS: &Form =
    &[("component", false), ("name", true), ("native", false), ("of", true), ("role", true)];

impl Entry {
    /// Reads an entry; of the rules, those of form alone.
    pub(crate) fn read(cursor: &mut Cursor<'_>, place: Place) -> Result<Self> {
        let start = cursor.offset();
        let mut found = Found::default();
        let form = if Self::is_alias(cursor) { ALIAS } else { TENSOR };
        let mut object = cursor.begin(form)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            found.member(name, cursor, place)?;
        }
        found.finish(cursor, start)
    }

    /// Whether an alias comes next. A tensor's first member, `chunks` or one before it, is none
    /// of an alias's.
    fn is_alias(cursor: &Cursor<'_>) -> bool {
        let mut ahead = cursor.clone();
        let first = ahead.begin_object().and_then(|mut members| ahead.next_member(&mut members));
        matches!(first, Ok(Some(name)) if ALIAS.iter().any(|(member, _)| *member == name))
    }

    /// Writes an entry for a part or page.
    pub fn encode(&self, json: &mut Encoder, place: Place) {
        match self {
            Self::Tensor(tensor) => tensor.encode(json, place),
            Self::Alias(alias) => alias.encode(json),
        }
    }
}

impl Found {
    fn member(&mut self, name: &str, cursor: &mut Cursor<'_>, place: Place) -> Result<()> {
        let start = cursor.offset();
        match name {
            "axes" => self.axes = Some(read_axes(cursor)?),
            "block" => self.block = Some(read_block(cursor)?),
            "chunks" => self.chunks = Some(read_chunks(cursor, place)?),
            "component" => {
                let component = read_name(cursor, "component")?;
                self.component = Some(said(cursor, start, component, |text| is_main(text))?);
            }
            "dtype" => self.dtype = Some(read_dtype(cursor)?),
            "name" => self.name = Some(read_name(cursor, "tensor name")?),
            "native" => self.native = read_native(cursor)?,
            "of" => self.of = Some(read_target(cursor)?),
            "owner" => self.owner = Some(read_said_name(cursor, "owner")?),
            "role" => self.role = Some(read_role(cursor)?),
            "scope" => {
                let scope = parse_coordinate(cursor)?;
                self.scope = Some(said(cursor, start, scope, Vec::is_empty)?);
            }
            "shape" => self.shape = Some(read_dims(cursor)?),
            "slot" => self.slot = Some(read_said_name(cursor, "slot")?),
            "valid" => self.valid = Some(read_dims(cursor)?),
            _ => return Err(cursor.unknown_member()),
        }
        Ok(())
    }

    fn finish(self, cursor: &Cursor<'_>, start: usize) -> Result<Entry> {
        let component = self.component.unwrap_or_else(|| MAIN.to_owned());
        let name = cursor.required(start, "name", self.name)?;
        let role = cursor.required(start, "role", self.role)?;
        if let Some(of) = self.of {
            return Ok(Entry::Alias(Alias { component, name, role, of, native: self.native }));
        }
        let identity = Identity {
            component,
            role,
            name,
            slot: self.slot.unwrap_or_default(),
            owner: self.owner.unwrap_or_default(),
            scope: self.scope.unwrap_or_default(),
        };
        Ok(Entry::Tensor(Tensor {
            identity,
            dtype: cursor.required(start, "dtype", self.dtype)?,
            shape: cursor.required(start, "shape", self.shape)?,
            valid: self.valid,
            axes: self.axes,
            block: self.block,
            native: self.native,
            chunks: cursor.required(start, "chunks", self.chunks)?,
        }))
    }
}

impl Tensor {
    /// Writes it for a part or page.
    pub fn encode(&self, json: &mut Encoder, place: Place) {
        self.encode_with(json, |json| {
            json.begin_array();
            self.chunks.iter().for_each(|chunk| chunk.encode(json, place));
            json.end_array();
        });
    }

    /// Writes it with the list of chunks that `chunks` writes.
    pub fn encode_with(&self, json: &mut Encoder, chunks: impl FnOnce(&mut Encoder)) {
        let identity = &self.identity;
        json.begin_object();
        if let Some(axes) = &self.axes {
            json.member("axes");
            json.begin_array();
            for axis in axes {
                match axis {
                    Some(axis) => json.uint(u64::from(*axis)),
                    None => json.null(),
                }
            }
            json.end_array();
        }
        if let Some(block) = self.block {
            json.member("block");
            json.uint(block);
        }
        json.member("chunks");
        chunks(json);
        encode_component(json, &identity.component);
        json.member("dtype");
        json.string(self.dtype.as_str());
        json.member("name");
        json.string(&identity.name);
        encode_native(json, &self.native);
        if !identity.owner.is_empty() {
            json.member("owner");
            json.string(&identity.owner);
        }
        json.member("role");
        json.string(identity.role.as_str());
        if !identity.scope.is_empty() {
            json.member("scope");
            encode_coordinate(json, &identity.scope);
        }
        json.member("shape");
        json.uints(&self.shape);
        if !identity.slot.is_empty() {
            json.member("slot");
            json.string(&identity.slot);
        }
        if let Some(valid) = &self.valid {
            json.member("valid");
            json.uints(valid);
        }
        json.end_object();
    }
}

impl Alias {
    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        encode_component(json, &self.component);
        json.member("name");
        json.string(&self.name);
        encode_native(json, &self.native);
        json.member("of");
        self.of.encode(json);
        json.member("role");
        json.string(self.role.as_str());
        json.end_object();
    }
}

impl Chunk {
    /// Writes it for a part or page.
    pub fn encode(&self, json: &mut Encoder, place: Place) {
        json.begin_array();
        if place == Place::Page {
            json.uint(u64::from(self.writer));
        }
        json.uint(u64::from(self.shard));
        json.uint(self.offset);
        json.uints(&self.region.at);
        json.uints(&self.region.extent);
        encode_crc(json, self.crc32c);
        if let Some(index) = self.table_index {
            json.uint(index);
        }
        json.end_array();
    }

    #[inline]
    fn read(cursor: &mut Cursor<'_>, place: Place) -> Result<Self> {
        const FORM: &str = "a chunk's five or six, in a page six or seven, items";
        let mut items = cursor.begin_array()?;
        let writer = match place {
            Place::Part(writer) => writer,
            Place::Page => {
                cursor.want_item(&mut items, FORM)?;
                read_position(cursor)?
            }
        };
        cursor.want_item(&mut items, FORM)?;
        let shard = read_position(cursor)?;
        cursor.want_item(&mut items, FORM)?;
        let offset = cursor.uint()?;
        cursor.want_item(&mut items, FORM)?;
        let at = read_dims(cursor)?;
        cursor.want_item(&mut items, FORM)?;
        let extent = read_dims(cursor)?;
        cursor.want_item(&mut items, FORM)?;
        let crc32c = read_crc(cursor)?;
        let table_index = if cursor.next_item(&mut items)? {
            let index = cursor.uint()?;
            cursor.end_array(&mut items, FORM)?;
            Some(index)
        } else {
            None
        };
        Ok(Self { writer, shard, offset, region: Region { at, extent }, crc32c, table_index })
    }
}

impl Native {
    fn encode(&self, json: &mut Encoder) {
        json.begin_array();
        json.string(&self.framework);
        json.begin_array();
        for step in &self.path {
            match step {
                NativeStep::Key(key) => json.string(key),
                NativeStep::Index(index) => json.uint(*index),
            }
        }
        json.end_array();
        json.end_array();
    }
}

fn encode_native(json: &mut Encoder, native: &[Native]) {
    if !native.is_empty() {
        json.member("native");
        json.begin_array();
        native.iter().for_each(|native| native.encode(json));
        json.end_array();
    }
}

fn encode_component(json: &mut Encoder, component: &str) {
    if !is_main(component) {
        json.member("component");
        json.string(component);
    }
}

/// Writes a CRC-32C as eight hex digits.
pub(crate) fn encode_crc(json: &mut Encoder, crc: u32) {
    json.string(&format!("{crc:08x}"));
}

/// Reads eight hex digits.
#[inline]
pub(crate) fn read_crc(cursor: &mut Cursor<'_>) -> Result<u32> {
    let start = cursor.offset();
    let text = cursor.string()?;
    let spelled = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u32::from_str_radix(&text, 16)
        .ok()
        .filter(|_| spelled)
        .ok_or_else(|| cursor.bad_spelling(start, "8 hex digits", &text))
}

#[inline]
fn read_dims(cursor: &mut Cursor<'_>) -> Result<Dims> {
    let mut items = cursor.begin_array()?;
    let mut dims = Dims::new();
    while cursor.next_item(&mut items)? {
        dims.push(cursor.uint()?);
    }
    Ok(dims)
}

fn read_chunks(cursor: &mut Cursor<'_>, place: Place) -> Result<Vec<Chunk>> {
    let mut items = cursor.begin_array()?;
    let mut chunks = Vec::new();
    while cursor.next_item(&mut items)? {
        chunks.push(Chunk::read(cursor, place)?);
    }
    Ok(chunks)
}

fn read_axes(cursor: &mut Cursor<'_>) -> Result<Vec<Option<u8>>> {
    let mut items = cursor.begin_array()?;
    let mut axes = Vec::new();
    while cursor.next_item(&mut items)? {
        // What does not fit is far above the number of dimensions, which is checked later.
        let axis = if cursor.null() {
            None
        } else {
            Some(u8::try_from(cursor.uint()?).unwrap_or(u8::MAX))
        };
        axes.push(axis);
    }
    Ok(axes)
}

fn read_block(cursor: &mut Cursor<'_>) -> Result<u64> {
    let start = cursor.offset();
    match cursor.uint()? {
        0 => Err(cursor.bad_spelling(start, "a block of 1 or more", "0")),
        block => Ok(block),
    }
}

/// Reads an alias's target. Its form is a matter of its own rule.
fn read_target(cursor: &mut Cursor<'_>) -> Result<Identity> {
    Identity::read(cursor).map_err(|error| {
        let pointer = error.location().pointer.clone().unwrap_or_default();
        match error.rule_id() {
            Some(rule::JSON_TYPES) => {
                Error::rule(error.code(), rule::ALIAS_FORM, error.message()).at_pointer(pointer)
            }
            _ => error,
        }
    })
}

fn read_native(cursor: &mut Cursor<'_>) -> Result<Vec<Native>> {
    const FORM: &str = "[framework, path]";
    let start = cursor.offset();
    let mut list = cursor.begin_array()?;
    let mut native = Vec::new();
    while cursor.next_item(&mut list)? {
        let item = cursor.offset();
        let mut items = cursor.begin_array()?;
        cursor.want_item(&mut items, FORM)?;
        let framework = read_name(cursor, "framework name")?;
        cursor.want_item(&mut items, FORM)?;
        let mut steps = cursor.begin_array()?;
        let mut path = Vec::new();
        while cursor.next_item(&mut steps)? {
            path.push(match cursor.peek() {
                Some(Kind::Str) => NativeStep::Key(cursor.string()?.into_owned()),
                _ => NativeStep::Index(cursor.uint()?),
            });
        }
        cursor.end_array(&mut items, FORM)?;
        let found = Native { framework, path };
        found
            .check(native.last())
            .map_err(|error| error.at_pointer(pointer_at(cursor.text(), item)))?;
        native.push(found);
    }
    if native.is_empty() {
        let message = "expected at least one framework, found none";
        return Err(cursor.fail(start, Code::BadMember, rule::TENSOR_NATIVE, message));
    }
    Ok(native)
}

fn read_dtype(cursor: &mut Cursor<'_>) -> Result<Dtype> {
    let start = cursor.offset();
    let id = cursor.string()?;
    Dtype::from_id(&id).ok_or_else(|| {
        let message = format!("expected a registered dtype, found {id:?}");
        cursor.fail(start, Code::UnsupportedDtype, rule::TENSOR_DTYPE, message)
    })
}

/// A name that is left out rather than empty.
fn read_said_name(cursor: &mut Cursor<'_>, what: &str) -> Result<String> {
    let start = cursor.offset();
    if cursor.string()?.is_empty() {
        return Err(left_out(cursor, start));
    }
    *cursor = Cursor::at(cursor.text(), start);
    read_name(cursor, what)
}

/// A value that is left out when it says nothing.
fn said<T>(cursor: &Cursor<'_>, start: usize, value: T, nothing: impl Fn(&T) -> bool) -> Result<T> {
    if nothing(&value) { Err(left_out(cursor, start)) } else { Ok(value) }
}

#[cold]
fn left_out(cursor: &Cursor<'_>, start: usize) -> Error {
    let message = "expected a member that says nothing to be left out, found it";
    cursor.fail(start, Code::BadMember, rule::IDENTITY_LEFT_OUT, message)
}
