//! A checkpoint of a recipe.
//!
//! It knows recipes. What their entries and records say is checked as a part of them, without
//! chunks; all else is the writer's crate's.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waystation_format::entry::{Entry, Tensor};
use waystation_format::part::{Part, Producer};
use waystation_format::{Digest, Incarnation, Region, Result, arith, companion, pack};
use waystation_reader::NoProgress;
use waystation_store::{Store, make_durable, parent_and_name};
use waystation_writer::{CommitOptions, Session, SessionOptions, TensorDecl, commit};

use super::request::exact;
use super::{Request, bad_argument};

/// The longest tensor that is made of a seed, in bytes.
const SEEDED_BYTES: u64 = 1 << 32;

pub(super) fn answer(request: &Request) -> Result<Value> {
    let out = request.path("out")?;
    let recipe = Recipe::read(request.member("recipe"))?;
    // What is wrong with a recipe is found before there is a directory.
    let parts = recipe.parts()?;
    let (run, name) = parent_and_name(&out)?;
    let attempt = make_durable(&*run, &name)?;
    save(&attempt, Some(run), &recipe, &parts, None)?;
    Ok(json!({}))
}

/// Makes a checkpoint of a recipe in `attempt`, an empty directory, as `write` does. With a number for the first writer's
/// incarnation, from which the others count on, it is the same bytes each time.
///
/// # Errors
/// `bad-argument` for what is no recipe, and what the writer's crate answers.
pub fn save_recipe(
    attempt: &Arc<dyn Store>,
    recipe: &Value,
    incarnation: Option<u64>,
) -> Result<()> {
    let recipe = Recipe::read(recipe)?;
    let parts = recipe.parts()?;
    save(attempt, None, &recipe, &parts, incarnation)
}

fn save(
    attempt: &Arc<dyn Store>,
    run: Option<Arc<dyn Store>>,
    recipe: &Recipe<'_>,
    parts: &[Part],
    incarnation: Option<u64>,
) -> Result<()> {
    for (part, writer) in parts.iter().zip(&recipe.writers) {
        let own = incarnation.map(|first| Incarnation(first.wrapping_add(part.writer.into())));
        write(attempt, recipe, part, writer, own)?;
    }
    let mut options = CommitOptions::default();
    options.run = run;
    options.threads = 1;
    commit(attempt, &options, &NoProgress)?;
    Ok(())
}

/// What one writer writes; `part` has it without chunks.
fn write(
    attempt: &Arc<dyn Store>,
    recipe: &Recipe<'_>,
    part: &Part,
    writer: &Writer<'_>,
    incarnation: Option<Incarnation>,
) -> Result<()> {
    let (store, common) = (Arc::clone(attempt), part.common.clone());
    let mut session = match incarnation {
        Some(own) => Session::with_incarnation(store, common, part.writer, own)?,
        None => Session::begin_alone(store, common, part.writer)?,
    };
    let mut options = SessionOptions::default();
    options.threads = 1;
    session.set_options(options);
    session.producer(Producer {
        name: "waystation-adapter".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for entry in part.entries() {
        match entry? {
            Entry::Tensor(tensor) => {
                session.declare(&TensorDecl::from(&tensor))?;
                tensors.push((tensor.identity.key(), tensor));
            }
            Entry::Alias(alias) => session.alias(alias)?,
        }
    }
    for record in part.records() {
        session.record(record?);
    }
    for omitted in &part.omitted {
        session.omit(omitted.clone());
    }
    for (path, bytes) in &writer.attachments {
        session.attach_bytes(path, bytes)?;
    }
    let mut chunks = Vec::new();
    for (number, region) in &writer.boxes {
        let key = recipe.key(*number)?;
        let tensor = tensors.iter().find(|(found, _)| *found == key).map(|(_, tensor)| tensor);
        let tensor = tensor
            .ok_or_else(|| bad_argument("expected a tensor with this identity, found none"))?;
        let id = session.chunk(&TensorDecl::from(tensor), region)?;
        chunks.push((id, *number, tensor, region));
    }
    let writing = session.lay_out()?;
    for (id, number, tensor, region) in chunks {
        let bytes = cut(tensor, &recipe.data(number, tensor)?, region)?;
        writing.write_all(id, &bytes)?;
    }
    writing.finish()?;
    Ok(())
}

/// One box of a whole packed tensor, packed by itself.
fn cut(tensor: &Tensor, whole: &[u8], region: &Region) -> Result<Vec<u8>> {
    let bits = tensor.dtype.bits();
    let shape = Region::whole(&tensor.shape);
    let bytes = arith::to_usize(tensor.chunk_bytes(region)?, "bytes of a box")?;
    let mut packed = vec![0; bytes];
    let Some(block) = tensor.block else {
        pack::copy_region(bits, whole, &shape, &mut packed, region, region)?;
        return Ok(packed);
    };
    let wide = u64::from(bits);
    for share in companion::shares(&tensor.shape, block, region, [&shape])?.shares {
        let place = |elements| arith::mul(elements, wide, "bits of a box");
        pack::copy_bits(
            whole,
            place(share.from)?,
            &mut packed,
            place(share.to)?,
            place(share.elements)?,
        )
        .ok_or_else(|| bad_argument("expected a whole tensor that holds the box"))?;
    }
    Ok(packed)
}

/// A recipe whose own form is sound.
struct Recipe<'r> {
    members: &'r Map<String, Value>,
    tensors: &'r [Value],
    writers: Vec<Writer<'r>>,
}

/// What one of the writers writes.
struct Writer<'r> {
    members: &'r Map<String, Value>,
    /// Boxes by position of their tensor.
    boxes: Vec<(usize, Region)>,
    attachments: Vec<(&'r str, Vec<u8>)>,
}

impl<'r> Recipe<'r> {
    fn read(value: &'r Value) -> Result<Self> {
        let members = value.as_object().ok_or_else(|| bad_argument("expected a recipe"))?;
        let tensors = list(members, "tensors")?;
        let writers: Vec<Writer<'_>> =
            list(members, "writers")?.iter().map(Writer::read).collect::<Result<_>>()?;
        if writers.is_empty() {
            return Err(bad_argument("expected a recipe with writers, found none"));
        }
        if writers
            .iter()
            .flat_map(|writer| &writer.boxes)
            .any(|(number, _)| *number >= tensors.len())
        {
            return Err(bad_argument(
                "expected boxes of the recipe's tensors, found another number",
            ));
        }
        Ok(Self { members, tensors, writers })
    }

    /// The parts of all writers, without chunks.
    fn parts(&self) -> Result<Vec<Part>> {
        (0..self.writers.len()).map(|writer| self.part(writer)).collect()
    }

    /// A part of a writer's entries and records, without chunks: whatever they break is found here.
    fn part(&self, writer: usize) -> Result<Part> {
        let mut said = Map::new();
        for name in ["attempt", "block_bytes", "parent", "run", "step", "topology"] {
            if let Some(value) = self.members.get(name) {
                said.insert(name.to_owned(), value.clone());
            }
        }
        let Some(one) = self.writers.get(writer) else {
            return Err(bad_argument("no such writer"));
        };
        let of = |name: &str| one.members.get(name).cloned().unwrap_or_else(|| json!([]));
        let mut entries = sorted(&of("aliases"), alias_key)?;
        for number in 0..self.tensors.len() {
            let has = one.boxes.iter().any(|(boxed, _)| *boxed == number);
            if has || writer == 0 && !self.is_boxed(number) {
                entries.push((self.key(number)?, self.entry(number)?));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let records = sorted(&of("records"), record_key)?;
        let values = |keyed: Vec<(String, Value)>| {
            keyed.into_iter().map(|(_, value)| value).collect::<Vec<Value>>()
        };
        said.extend([
            ("attachments".to_owned(), json!([])),
            ("entries".to_owned(), json!(values(entries))),
            ("extensions".to_owned(), json!({})),
            ("features".to_owned(), json!({ "optional": [], "required": [] })),
            ("format".to_owned(), json!("waystation")),
            ("inc".to_owned(), json!("0000000000000000")),
            ("inventory".to_owned(), Value::Null),
            ("kind".to_owned(), json!("part")),
            ("omitted".to_owned(), of("omitted")),
            ("producer".to_owned(), json!({ "name": "", "version": "" })),
            ("records".to_owned(), json!(values(records))),
            ("shards".to_owned(), json!([])),
            ("version".to_owned(), json!("1.0")),
            ("writer".to_owned(), json!(writer)),
            ("writers".to_owned(), json!(self.writers.len())),
        ]);
        Part::parse(exact(&Value::Object(said))?.encode()?.into_bytes())
    }

    fn is_boxed(&self, number: usize) -> bool {
        self.writers.iter().flat_map(|writer| &writer.boxes).any(|(boxed, _)| *boxed == number)
    }

    /// The members of a tensor as they stand in a part.
    fn entry(&self, number: usize) -> Result<Value> {
        let mut members = self.tensor(number)?.clone();
        members.remove("data");
        members.insert("chunks".to_owned(), json!([]));
        Ok(Value::Object(members))
    }

    fn key(&self, number: usize) -> Result<String> {
        let tensor = self.tensor(number)?;
        let of = |name: &str, nothing: Value| tensor.get(name).cloned().unwrap_or(nothing);
        key(json!([
            of("component", json!("main")),
            of("role", Value::Null),
            of("name", Value::Null),
            of("slot", json!("")),
            of("owner", json!("")),
            of("scope", json!([])),
        ]))
    }

    fn tensor(&self, number: usize) -> Result<&Map<String, Value>> {
        let tensor = self.tensors.get(number).and_then(Value::as_object);
        tensor.ok_or_else(|| bad_argument("expected a tensor as an object"))
    }

    /// The whole tensor, packed.
    fn data(&self, number: usize, tensor: &Tensor) -> Result<Vec<u8>> {
        let whole = Region::whole(&tensor.shape);
        let bytes = tensor.chunk_bytes(&whole)?;
        let given = self.tensor(number)?.get("data").unwrap_or(&Value::Null);
        if let Some(seed) = given.get("seed").and_then(Value::as_i64) {
            let mut data = stream(seed, bytes)?;
            let used =
                tensor.stored_elements(&whole)?.wrapping_mul(u64::from(tensor.dtype.bits())) & 7;
            if let (Some(last), 1..) = (data.last_mut(), used) {
                *last &= 0xff_u8
                    .checked_shr(8_u32.saturating_sub(u32::try_from(used).unwrap_or(8)))
                    .unwrap_or(0);
            }
            return Ok(data);
        }
        let data = given.get("hex").and_then(Value::as_str).and_then(unhex);
        match data {
            Some(data) if u64::try_from(data.len()).is_ok_and(|found| found == bytes) => Ok(data),
            Some(data) => {
                Err(bad_argument(format!("expected {bytes} bytes of data, found {}", data.len())))
            }
            None => Err(bad_argument("expected data as {\"hex\"} or {\"seed\"}")),
        }
    }
}

impl<'r> Writer<'r> {
    fn read(value: &'r Value) -> Result<Self> {
        let members =
            value.as_object().ok_or_else(|| bad_argument("expected a writer as an object"))?;
        let boxes = list(members, "boxes")?.iter().map(boxed).collect::<Result<_>>()?;
        let attachments = match members.get("attachments") {
            None => Vec::new(),
            Some(_) => {
                list(members, "attachments")?.iter().map(attachment).collect::<Result<_>>()?
            }
        };
        Ok(Self { members, boxes, attachments })
    }
}

fn boxed(value: &Value) -> Result<(usize, Region)> {
    let numbers =
        |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let found = match value.as_array().map(Vec::as_slice) {
        Some([tensor, at, extent]) => tensor.as_u64().zip(numbers(at).zip(numbers(extent))),
        _ => None,
    };
    let Some((tensor, (at, extent))) = found else {
        return Err(bad_argument("expected a box as [tensor, at, extent]"));
    };
    if at.len() != extent.len() {
        return Err(bad_argument("expected a box of one rank, found two"));
    }
    Ok((arith::to_usize(tensor, "number of a tensor")?, Region::new(&at, &extent)))
}

fn attachment(value: &Value) -> Result<(&str, Vec<u8>)> {
    let path = value.get("path").and_then(Value::as_str);
    let bytes = value.get("hex").and_then(Value::as_str).and_then(unhex);
    path.zip(bytes).ok_or_else(|| bad_argument("expected an attachment as {\"path\",\"hex\"}"))
}

fn list<'v>(members: &'v Map<String, Value>, name: &str) -> Result<&'v [Value]> {
    let found = members.get(name).and_then(Value::as_array).map(Vec::as_slice);
    found.ok_or_else(|| bad_argument(format!("expected a list as {name:?}")))
}

/// Values of a list with their keys, ascending by these.
fn sorted(values: &Value, key_of: fn(&Value) -> Value) -> Result<Vec<(String, Value)>> {
    let values = values.as_array().ok_or_else(|| bad_argument("expected a list"))?;
    let mut keyed: Vec<(String, Value)> = values
        .iter()
        .map(|value| Ok((key(key_of(value))?, value.clone())))
        .collect::<Result<_>>()?;
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(keyed)
}

fn key(value: Value) -> Result<String> {
    exact(&value)?.encode()
}

fn alias_key(alias: &Value) -> Value {
    let component = alias.get("component").cloned().unwrap_or_else(|| json!("main"));
    let scope = alias.get("of").and_then(|of| of.get(5)).cloned().unwrap_or_else(|| json!([]));
    json!([component, alias.get("role"), alias.get("name"), "", "", scope])
}

fn record_key(record: &Value) -> Value {
    let coordinate = record.get("coordinate").cloned().unwrap_or_else(|| json!([]));
    json!([record.get("kind"), record.get("name"), coordinate])
}

/// The bytes without meaning that a seed stands for.
fn stream(seed: i64, bytes: u64) -> Result<Vec<u8>> {
    if bytes > SEEDED_BYTES {
        return Err(bad_argument(format!(
            "expected at most {SEEDED_BYTES} bytes of a seed, found {bytes}"
        )));
    }
    let bytes = arith::to_usize(bytes, "bytes of a tensor")?;
    let mut data = Vec::with_capacity(bytes.saturating_add(32));
    let mut number = 0_u64;
    while data.len() < bytes {
        data.extend_from_slice(Digest::of(format!("{seed}/{number}").as_bytes()).as_bytes());
        number = number.saturating_add(1);
    }
    data.truncate(bytes);
    Ok(data)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)?.wrapping_shl(4) | digit(low)?),
            _ => None,
        })
        .collect()
}
