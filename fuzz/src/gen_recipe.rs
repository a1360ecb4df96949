//! Recipes out of a fuzzer's bytes: small checkpoints that break no rule.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};
use waystation_conformance::recipe::{Attachment, Data, Recipe, Whole, Writer, hex};
use waystation_format::Dtype;

use crate::{gen_layout, goldens};

/// Elements of a tensor.
const MOST_ELEMENTS: u64 = 6000;
/// What tensors, aliases and components are called beside their number: names that have given trouble elsewhere.
const NAMES: &[&str] = &[
    "w",
    "a.b",
    "../x",
    "__pad__.0",
    "__metadata__",
    "é",
    "e\u{301}",
    "長",
    " ",
    "\"",
    "\\",
    "\u{10ffff}",
    "{}",
];
const PATHS: &[&str] = &["config.json", "tok/a.txt", "tok/b", "E.X-1_2", "a b"];

/// A recipe: one of the suite's, or a new one.
///
/// # Errors
/// When the bytes are too few.
pub fn recipe(u: &mut Unstructured<'_>) -> Result<Recipe> {
    if u.ratio(1, 6)? {
        return Ok(goldens::recipe(u.arbitrary::<u8>()?.into()));
    }
    let mut made = Making {
        recipe: Recipe {
            run: name(u, 0)?,
            step: u.int_in_range(0..=3000)?,
            attempt: format!("{:016x}", u.arbitrary::<u64>()?),
            block_bytes: *u.choose(&[4096, 8192])?,
            parent: u.arbitrary::<bool>()?.then(|| "ab".repeat(32)),
            topology: topology(u)?,
            tensors: Vec::new(),
            writers: vec![Writer::default(); u.int_in_range(1..=3)?],
        },
        params: Vec::new(),
        stepped: Vec::new(),
    };
    for _ in 0..u.int_in_range(0..=5)? {
        made.tensor(u)?;
    }
    made.aliases(u)?;
    made.records(u)?;
    made.attachments(u)?;
    made.omitted(u)?;
    Ok(made.recipe)
}

/// The same content in other boxes, by other writers.
///
/// # Errors
/// When the bytes are too few.
pub fn laid_out_anew(u: &mut Unstructured<'_>, recipe: &Recipe) -> Result<Recipe> {
    let mut other = recipe.clone();
    let count = u.int_in_range(1..=4)?;
    let first = other.writers.drain(..).reduce(|mut all, more| {
        all.boxes.extend(more.boxes);
        all.aliases.extend(
            more.aliases.into_iter().filter(|a| !all.aliases.contains(a)).collect::<Vec<_>>(),
        );
        all.records.extend(
            more.records.into_iter().filter(|r| !all.records.contains(r)).collect::<Vec<_>>(),
        );
        all.attachments.extend(more.attachments);
        all.omitted.extend(more.omitted);
        all
    });
    let mut first = first.unwrap_or_default();
    let boxes = std::mem::take(&mut first.boxes);
    first.cuts.clear();
    other.writers = vec![Writer::default(); count];
    other.writers[0] = first;
    for (number, whole) in recipe.tensors.iter().enumerate() {
        let shape = numbers(&whole.entry["shape"]);
        // A flat companion keeps its boxes: which it may have depends on its blocks.
        let cut = if whole.entry.contains_key("block") {
            boxes
                .iter()
                .filter(|(n, _, _)| *n == number)
                .map(|(_, at, extent)| (at.clone(), extent.clone()))
                .collect()
        } else {
            gen_layout::boxes(u, &shape)?
        };
        for (at, extent) in cut {
            let writer = u.choose_index(count)?;
            other.writers[writer].boxes.push((number, at, extent));
        }
    }
    Ok(other)
}

/// What a writer is asked for: boxes without elements list a tensor, which it does by itself.
#[must_use]
pub fn writable(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    for writer in &mut recipe.writers {
        writer.boxes.retain(|(_, _, extent)| !extent.contains(&0));
        writer.cuts.clear();
    }
    recipe
}

struct Making {
    recipe: Recipe,
    /// Numbers of params in `main` of no scope.
    params: Vec<usize>,
    /// Names of params that have slots.
    stepped: Vec<String>,
}

impl Making {
    fn tensor(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let number = self.recipe.tensors.len();
        let dtype = *u.choose(Dtype::ALL)?;
        let shape = shape(u)?;
        let name = name(u, number)?;
        let mut entry = json!({"dtype": dtype.as_str(), "name": name, "shape": shape});
        let kind = u.int_in_range(0..=6)?;
        let base = self.params.last().map(|&at| self.recipe.tensors[at].entry["name"].clone());
        match (kind, base) {
            (3, Some(base)) if !self.stepped.iter().any(|one| base == *one) => {
                self.stepped.extend(base.as_str().map(str::to_owned));
                entry["name"] = base;
                entry["role"] = "optimizer".into();
                entry["owner"] = "adam".into();
                entry["slot"] = (*u.choose(&["adam.m", "vendor/x", "unheard-of"])?).into();
                if !shape.is_empty() && u.arbitrary()? {
                    entry["axes"] = (0..shape.len()).collect::<Vec<_>>().into();
                }
            }
            (4, _) => {
                entry["role"] = "extension".into();
                if u.arbitrary()? {
                    entry["slot"] = "vendor/seen".into();
                }
            }
            (5, _) => return self.flat(u, dtype, &name),
            (2, _) => entry["role"] = "buffer".into(),
            _ => {
                entry["role"] = "param".into();
                if u.ratio(1, 4)? {
                    entry["component"] = "critic".into();
                } else {
                    self.params.push(number);
                }
            }
        }
        if shape.iter().any(|&size| size > 0) && u.ratio(1, 5)? {
            let valid: Vec<u64> = shape.iter().map(|size| size.saturating_sub(1)).collect();
            entry["valid"] = valid.into();
        }
        if u.ratio(1, 5)? {
            entry["native"] = json!([["torch.dcp", ["model", number, "é"]]]);
        }
        let boxes = gen_layout::boxes(u, &shape)?;
        self.add(u, entry, boxes)
    }

    /// A flat companion whose boxes are runs of whole blocks.
    fn flat(&mut self, u: &mut Unstructured<'_>, dtype: Dtype, name: &str) -> Result<()> {
        let (size, block) = (u.int_in_range(1..=40)?, u.int_in_range(1..=9)?);
        let entry = json!({"block": block, "dtype": dtype.as_str(), "name": name, "role": "quant", "shape": [size], "slot": "scale"});
        let boxes = gen_layout::runs(u, size, block)?;
        self.add(u, entry, boxes)
    }

    fn add(
        &mut self,
        u: &mut Unstructured<'_>,
        entry: Value,
        boxes: Vec<gen_layout::Box>,
    ) -> Result<()> {
        let number = self.recipe.tensors.len();
        for (at, extent) in boxes {
            let writer = u.choose_index(self.recipe.writers.len())?;
            self.recipe.writers[writer].boxes.push((number, at, extent));
        }
        let entry: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
        self.recipe.tensors.push(Whole { entry, data: Data::Seed(u.arbitrary::<u32>()?.into()) });
        Ok(())
    }

    fn aliases(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for number in 0..u.int_in_range(0..=2)? {
            let shared = self.params.iter().copied().find(|&at| {
                self.recipe
                    .writers
                    .iter()
                    .flat_map(|w| &w.boxes)
                    .any(|b| b.0 == at && !b.2.contains(&0))
            });
            let Some(target) = shared else { return Ok(()) };
            let of =
                json!(["main", "param", self.recipe.tensors[target].entry["name"], "", "", []]);
            let writer = u.choose_index(self.recipe.writers.len())?;
            let mut alias = json!({"name": format!("alias {number}"), "of": of, "role": "param"});
            if number == 1 {
                alias["native"] = json!([["torch.dcp", ["tied"]]]);
            }
            self.recipe.writers[writer].aliases.push(alias);
        }
        Ok(())
    }

    fn records(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = self.recipe.step;
        let mut records = Vec::new();
        if u.arbitrary()? {
            records.push(
                json!({"kind": "progress", "name": "main", "value": {"optimizer_step": step}}),
            );
        }
        if !self.stepped.is_empty() {
            let pairs: Vec<Value> = self.stepped.iter().map(|name| json!(["main", name])).collect();
            records.push(json!({"kind": "optimizer", "name": "adam", "value": {"algorithm": "adam",
                "groups": [{"hyper": [["lr", {"f64": "3f50624dd2f1a9fc"}]], "name": "all", "params": pairs}],
                "steps": [{"params": "all", "step": step, "stored_as": "F32[]"}]}}));
        }
        if u.arbitrary()? {
            records.push(json!({"kind": "value", "name": "loader", "value": value(u, 3)?}));
        }
        if u.ratio(1, 3)? {
            records.push(
                json!({"kind": "vendor/unknown", "name": "x", "value": {"b": [1, null], "a": {}}}),
            );
        }
        if u.ratio(1, 3)? {
            let state = "00".repeat(8) + "0000000000000000";
            records.push(json!({"kind": "rng", "name": "jax", "value": {"algorithm": "jax-rbg", "caches": [], "next_raw": [],
                "on_reshape": "require", "state": state}}));
        }
        // One that holds everywhere may be written by any writer, or by several alike.
        for record in records {
            let first = u.choose_index(self.recipe.writers.len())?;
            let second = u.choose_index(self.recipe.writers.len())?;
            self.recipe.writers[first].records.push(record.clone());
            if second != first {
                self.recipe.writers[second].records.push(record);
            }
        }
        Ok(())
    }

    fn attachments(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for path in PATHS {
            if u.ratio(1, 4)? {
                let writer = u.choose_index(self.recipe.writers.len())?;
                let length = u.int_in_range(0..=40)?;
                let hex = hex(u.bytes(usize::min(length, u.len()))?);
                self.recipe.writers[writer]
                    .attachments
                    .push(Attachment { path: (*path).to_owned(), hex });
            }
        }
        Ok(())
    }

    /// Parameters that are not there, said by one writer or by two.
    fn omitted(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for reason in ["base", "frozen"] {
            if u.ratio(1, 4)? {
                let writer = u.choose_index(self.recipe.writers.len())?;
                let said = json!({"component": "main", "names": [format!("{reason} 1"), format!("{reason} 2")], "reason": reason});
                self.recipe.writers[writer].omitted.push(said);
            }
        }
        Ok(())
    }
}

fn name(u: &mut Unstructured<'_>, number: usize) -> Result<String> {
    Ok(format!("{}{number}", u.choose(NAMES)?))
}

fn topology(u: &mut Unstructured<'_>) -> Result<Vec<(String, u64)>> {
    Ok(match u.int_in_range(0..=3)? {
        0 => Vec::new(),
        1 => vec![("dp".to_owned(), 1)],
        2 => vec![("dp".to_owned(), 2)],
        _ => vec![("dp".to_owned(), 2), ("tp".to_owned(), 3)],
    })
}

fn shape(u: &mut Unstructured<'_>) -> Result<Vec<u64>> {
    let mut shape = Vec::new();
    let mut elements = 1;
    for _ in 0..u.int_in_range(0..=4)? {
        let size = match u.int_in_range(0..=19)? {
            0 => 0,
            1 => u.int_in_range(1..=MOST_ELEMENTS)?,
            _ => u.int_in_range(1..=6)?,
        };
        let size = size.min(MOST_ELEMENTS / elements);
        elements *= size.max(1);
        shape.push(size);
    }
    Ok(shape)
}

/// A value tree: an object at the top, as a record wants it.
fn value(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let items = |u: &mut Unstructured<'_>| {
        (0..u.int_in_range(0..=3)?).map(|_| tree(u, depth - 1)).collect::<Result<Vec<_>>>()
    };
    Ok(match u.int_in_range(0..=3)? {
        0 => json!({"list": items(u)?}),
        1 => json!({"tuple": items(u)?}),
        2 => {
            let pairs: Vec<Value> =
                (0_usize..).zip(items(u)?).map(|(n, v)| json!([format!("k{n}"), v])).collect();
            json!({"map": pairs})
        }
        _ => json!({"type": [name(u, 1)?, tree(u, depth - 1)?]}),
    })
}

fn tree(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    if depth > 0 && u.arbitrary()? {
        return value(u, depth);
    }
    Ok(match u.int_in_range(0..=6)? {
        0 => Value::Null,
        1 => u.arbitrary::<bool>()?.into(),
        2 => u.arbitrary::<i32>()?.into(),
        3 => json!({"f64": format!("{:016x}", u.arbitrary::<u64>()?)}),
        4 => json!({"bytes": hex(&u.arbitrary::<[u8; 5]>()?)}),
        5 => json!({"int": "9007199254740992"}),
        _ => name(u, 2)?.into(),
    })
}

/// The integers of a list.
#[must_use]
pub fn numbers(list: &Value) -> Vec<u64> {
    list.as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_u64)
        .collect()
}
