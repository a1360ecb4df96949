//! Mutations out of a fuzzer's bytes: one change to a checkpoint of a recipe, by name, with or without everything above it made to
//! fit.

use arbitrary::{Result, Unstructured};
use serde_json::{Value, json};
use waystation_conformance::bend::{Bend, Straight, remove, set, straight};
use waystation_conformance::build;
use waystation_conformance::files::Files;
use waystation_conformance::recipe::Recipe;

/// A change of one place.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// A byte of a finished file is flipped.
    Flip {
        /// The file.
        file: String,
        /// Its byte.
        at: usize,
        /// Which bits.
        mask: u8,
    },
    /// A finished file is cut.
    Cut {
        /// The file.
        file: String,
        /// Its new length.
        length: usize,
    },
    /// A finished file is gone.
    Gone {
        /// The file.
        file: String,
    },
    /// A value in metadata is another.
    Value {
        /// What holds it.
        place: Place,
        /// Where it stands.
        pointer: String,
        /// What stands there then; nothing when it is taken away.
        value: Option<Value>,
        /// Whether lengths and digests above it are made to fit.
        fixed_up: bool,
    },
}

/// What holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The part of a writer.
    Part(usize),
    /// A page of tensors.
    Tensors(usize),
    /// A page of records.
    Records(usize),
    /// The manifest.
    Manifest,
}

/// A mutation of a checkpoint of the recipe, whose files are `files`.
///
/// # Errors
/// When the bytes are too few.
pub fn mutation(u: &mut Unstructured<'_>, recipe: &Recipe, files: &Files) -> Result<Mutation> {
    let names: Vec<&String> = files.keys().collect();
    let file = (*u.choose(&names)?).clone();
    let length = files[&file].len();
    Ok(match u.int_in_range(0..=7)? {
        0 if length > 0 => Mutation::Flip {
            file,
            at: u.int_in_range(0..=length - 1)?,
            mask: u.int_in_range(1..=255)?,
        },
        1 if length > 0 => Mutation::Cut { file, length: u.int_in_range(0..=length - 1)? },
        2 => Mutation::Gone { file },
        _ => value(u, recipe)?,
    })
}

fn value(u: &mut Unstructured<'_>, recipe: &Recipe) -> Result<Mutation> {
    let draft = build::parts(recipe, &|_, _| ());
    let root = build::root(recipe, &draft.parts);
    let (place, whole) = match u.int_in_range(0..=3)? {
        0 if !root.tensors.is_empty() => (Place::Tensors(0), &root.tensors[0]),
        1 if !root.records.is_empty() => (Place::Records(0), &root.records[0]),
        2 => (Place::Manifest, &root.manifest),
        _ => {
            let writer = u.choose_index(draft.parts.len())?;
            (Place::Part(writer), &draft.parts[writer])
        }
    };
    let mut pointers = Vec::new();
    collect(whole, &mut String::new(), &mut pointers);
    let pointer = u.choose(&pointers)?.clone();
    let old = whole.pointer(&pointer).cloned().unwrap_or(Value::Null);
    let value = if u.ratio(1, 8)? { None } else { Some(other(u, &old)?) };
    Ok(Mutation::Value { place, pointer, value, fixed_up: u.arbitrary()? })
}

/// Pointers to all values below the outermost.
fn collect(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let mut below = |step: &str, value: &Value| {
        let length = at.len();
        at.push('/');
        at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        found.push(at.clone());
        collect(value, at, found);
        at.truncate(length);
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| below(&n.to_string(), item))
        }
        Value::Object(members) => members.iter().for_each(|(name, value)| below(name, value)),
        _ => {}
    }
}

/// A value that may stand where `old` did, or near to what may.
fn other(u: &mut Unstructured<'_>, old: &Value) -> Result<Value> {
    const INTEGERS: &[u64] = &[0, 1, 2, 255, 256, 4095, 4096, 65535, 65536, 1 << 32, (1 << 53) - 1];
    const WORDS: &[&str] = &[
        "",
        "w",
        "main",
        "F32",
        "U8",
        "param",
        "optimizer",
        "blob",
        "00000000",
        "1.1",
        "2.0",
        "../x",
        "\u{7f}",
    ];
    Ok(match (u.int_in_range(0..=5)?, old) {
        (0..=2, Value::Number(n)) => {
            let n = n.as_u64().unwrap_or(0);
            let near =
                [n.saturating_add(1), n.saturating_sub(1), n.saturating_mul(2), n / 2, n ^ 4096];
            json!(*u.choose(&[near.as_slice(), INTEGERS].concat())?)
        }
        (0..=1, Value::String(text)) if !text.is_empty() => {
            let mut chars: Vec<char> = text.chars().collect();
            let at = u.choose_index(chars.len())?;
            chars[at] = *u.choose(&['0', '1', 'a', 'f', 'w', '/', 'é', '\u{1}'])?;
            chars.into_iter().collect::<String>().into()
        }
        (0..=2, Value::String(_)) => (*u.choose(WORDS)?).into(),
        (0, Value::Array(items)) if !items.is_empty() => {
            let mut items = items.clone();
            items.push(items[u.choose_index(items.len())?].clone());
            items.into()
        }
        (1, Value::Array(items)) if items.len() > 1 => {
            let mut items = items.clone();
            let (a, b) = (u.choose_index(items.len())?, u.choose_index(items.len())?);
            items.swap(a, b);
            items.into()
        }
        (2, Value::Array(items)) if !items.is_empty() => {
            let mut items = items.clone();
            items.remove(u.choose_index(items.len())?);
            items.into()
        }
        (3, _) => json!(*u.choose(INTEGERS)?),
        (4, _) => (*u.choose(WORDS)?).into(),
        _ => u
            .choose(&[
                Value::Null,
                json!(true),
                json!([]),
                json!({}),
                json!(-1),
                json!([[]]),
                json!({"x": 1}),
            ])?
            .clone(),
    })
}

impl Mutation {
    /// The files of the recipe with the change.
    #[must_use]
    pub fn apply(&self, recipe: &Recipe) -> Files {
        let mut files = straight(recipe);
        match self {
            Self::Flip { file, at, mask } => {
                if let Some(byte) = files.get_mut(file).and_then(|bytes| bytes.get_mut(*at)) {
                    *byte ^= mask;
                }
            }
            Self::Cut { file, length } => files.entry(file.clone()).or_default().truncate(*length),
            Self::Gone { file } => _ = files.remove(file),
            Self::Value { place, pointer, value, fixed_up } => {
                let edit = match value {
                    Some(value) => set(pointer, value.clone()),
                    None => remove(pointer),
                };
                let bend = Bend::new("fuzzed");
                let bend = match place {
                    Place::Part(writer) => bend.part(*writer, edit),
                    Place::Tensors(page) => bend.page("tensors", *page, edit),
                    Place::Records(page) => bend.page("records", *page, edit),
                    Place::Manifest => bend.manifest(edit),
                };
                let base = Straight::new(recipe.clone());
                let bent = bend.fixed_up(&base);
                let bent = if *fixed_up { bent } else { bend.twin(&base, &bent) };
                files = bent.files;
            }
        }
        files
    }
}
