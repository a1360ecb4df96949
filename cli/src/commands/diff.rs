//! `diff`: what two checkpoints hold, whatever their split over writers and chunks.

mod record;

use std::iter::Peekable;
use std::sync::Arc;

use serde_json::{Value, json};
use waystation_format::{Code, Entry, Error, Result};
use waystation_reader::{Checkpoint, Progress};

use super::{Context, open_checkpoint};
use crate::args::Diff;
use crate::output;

/// One difference: what, of which side, and how.
struct Difference {
    what: &'static str,
    key: String,
    how: String,
}

pub(super) fn run(args: &Diff, context: &Context) -> Result<u8> {
    let a = open_checkpoint(&args.a, context)?;
    let b = open_checkpoint(&args.b, context)?;
    let mut found = Vec::new();
    entries(&a, &b, context, &mut found)?;
    records(&a, &b, &mut found)?;
    attachments(&a, &b, &mut found);
    let (ours, theirs) = (&a.manifest().common, &b.manifest().common);
    if ours.step != theirs.step {
        let how = format!("{} and {}", ours.step, theirs.step);
        found.push(Difference { what: "step", key: String::new(), how });
    }
    if ours.topology != theirs.topology {
        found.push(Difference { what: "topology", key: String::new(), how: "differs".to_owned() });
    }
    if a.manifest().omitted != b.manifest().omitted {
        found.push(Difference { what: "omitted", key: String::new(), how: "differs".to_owned() });
    }
    context.bars.clear();
    if context.json {
        let all: Vec<Value> =
            found.iter().map(|d| json!({ "what": d.what, "key": d.key, "how": d.how })).collect();
        output::object(&json!({ "same": found.is_empty(), "differences": all }))?;
    } else if found.is_empty() {
        output::line("same contents")?;
    } else {
        for Difference { what, key, how } in &found {
            output::line(&format!("{what} {key} {how}"))?;
        }
    }
    Ok(u8::from(!found.is_empty()))
}

/// Walks both lists, which ascend by key, side by side.
fn both<T>(
    a: impl Iterator<Item = Result<T>>,
    b: impl Iterator<Item = Result<T>>,
    key: impl Fn(&T) -> String,
    take: &mut dyn FnMut(String, Option<T>, Option<T>) -> Result<()>,
) -> Result<()> {
    fn next<T, I: Iterator<Item = Result<T>>>(iter: &mut Peekable<I>) -> Result<Option<T>> {
        iter.next().transpose()
    }
    let (mut a, mut b) = (a.peekable(), b.peekable());
    loop {
        let side = |item: Option<&Result<T>>| item.and_then(|r| r.as_ref().ok()).map(&key);
        let order = match (a.peek(), b.peek()) {
            (None, None) => return Ok(()),
            (Some(Err(_)), _) => return next(&mut a).map(|_| ()),
            (_, Some(Err(_))) => return next(&mut b).map(|_| ()),
            (x, y) => (side(x), side(y)),
        };
        match order {
            (Some(x), Some(y)) if x == y => {
                let (x_item, y_item) = (next(&mut a)?, next(&mut b)?);
                take(x, x_item, y_item)?;
            }
            (Some(x), y) if y.as_ref().is_none_or(|y| x < *y) => {
                let item = next(&mut a)?;
                take(x, item, None)?;
            }
            (_, Some(y)) => {
                let item = next(&mut b)?;
                take(y, None, item)?;
            }
            _ => return Ok(()),
        }
    }
}

fn entries(
    a: &Checkpoint,
    b: &Checkpoint,
    context: &Context,
    found: &mut Vec<Difference>,
) -> Result<()> {
    let total = a.manifest().parts.iter().flat_map(|part| &part.shards);
    let total = total.fold(0_u64, |sum, shard| sum.saturating_add(shard.bytes));
    context.bars.begin("compare", total);
    both(a.entries(), b.entries(), |entry: &Arc<Entry>| entry.key(), &mut |key, x, y| {
        if context.bars.cancelled() {
            return Err(Error::new(Code::Interrupted, "stopped before everything was compared"));
        }
        let how = match (x, y) {
            (Some(x), Some(y)) => match compare(a, b, &x, &y, context)? {
                Some(how) => how,
                None => return Ok(()),
            },
            (Some(_), None) => "only in the first".to_owned(),
            _ => "only in the second".to_owned(),
        };
        found.push(Difference { what: "tensor", key, how });
        Ok(())
    })
}

fn compare(
    a: &Checkpoint,
    b: &Checkpoint,
    x: &Arc<Entry>,
    y: &Arc<Entry>,
    context: &Context,
) -> Result<Option<String>> {
    let (left, right) = match (&**x, &**y) {
        (Entry::Alias(left), Entry::Alias(right)) => {
            return Ok((left != right).then(|| "is an alias of another tensor".to_owned()));
        }
        (Entry::Tensor(left), Entry::Tensor(right)) => (left, right),
        _ => return Ok(Some("is an alias in one and a tensor in the other".to_owned())),
    };
    if left.dtype != right.dtype || left.shape != right.shape {
        return Ok(Some(format!(
            "{} {:?} and {} {:?}",
            left.dtype.as_str(),
            left.shape.to_vec(),
            right.dtype.as_str(),
            right.shape.to_vec()
        )));
    }
    let attributes = left.valid != right.valid
        || left.axes != right.axes
        || left.block != right.block
        || left.native != right.native;
    if attributes {
        return Ok(Some("differs in valid, axes, block or native".to_owned()));
    }
    let (left, right) = (a.tensor_of(x)?, b.tensor_of(y)?);
    let digests = (left.sha256()?, right.sha256()?);
    context.bars.advance(left.bytes()?);
    Ok((digests.0 != digests.1)
        .then(|| format!("differs in data: sha256 {} and {}", digests.0, digests.1)))
}

fn records(a: &Checkpoint, b: &Checkpoint, found: &mut Vec<Difference>) -> Result<()> {
    both(a.records(), b.records(), |record| record.key.key(), &mut |key, x, y| {
        let places = match (x, y) {
            (Some(x), Some(y)) => record::differences(&x, &y)?,
            (Some(_), None) => vec!["only in the first".to_owned()],
            _ => vec!["only in the second".to_owned()],
        };
        let difference = |how| Difference { what: "record", key: key.clone(), how };
        found.extend(places.into_iter().map(difference));
        Ok(())
    })
}

fn attachments(a: &Checkpoint, b: &Checkpoint, found: &mut Vec<Difference>) {
    let mut seen: std::collections::BTreeMap<&str, [Option<String>; 2]> = Default::default();
    for attachment in a.attachments() {
        seen.entry(attachment.path).or_default()[0] = Some(attachment.entry.sha256.to_string());
    }
    for attachment in b.attachments() {
        seen.entry(attachment.path).or_default()[1] = Some(attachment.entry.sha256.to_string());
    }
    for (path, sides) in seen {
        let how = match &sides {
            [Some(x), Some(y)] if x == y => continue,
            [Some(_), Some(_)] => "differs",
            [Some(_), None] => "only in the first",
            _ => "only in the second",
        };
        found.push(Difference { what: "attachment", key: path.to_owned(), how: how.to_owned() });
    }
}
