//! `cat`: one tensor or a region of it, as text, .npy or packed bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use waystation_format::{Code, Entry, Error, Identity, Region, Result, Role, arith};
use waystation_reader::{Checkpoint, TensorRef};

use super::{Context, open_checkpoint};
use crate::args::{Cat, CatFormat};
use crate::{elements, npy, region_arg};

/// Bytes of a tensor in memory at once.
const PIECE_BYTES: u64 = 4 << 20;

pub(super) fn run(args: &Cat, context: &Context) -> Result<u8> {
    let checkpoint = open_checkpoint(&args.checkpoint, context)?;
    let identity = find(&checkpoint, args)?;
    let tensor = checkpoint.tensor(&identity)?;
    let shape = tensor.entry().shape.to_vec();
    let region = match &args.region {
        Some(text) => region_arg::parse(text, &shape)?,
        None => Region::whole(&shape),
    };
    let mut out = open_output(args.output.as_deref())?;
    if context.json {
        let values = values(&tensor, &region)?;
        let object = json!({
            "identity": serde_json::from_str::<serde_json::Value>(&identity.key()).unwrap_or_default(),
            "dtype": tensor.entry().dtype.as_str(),
            "at": region.at.to_vec(), "extent": region.extent.to_vec(), "values": values,
        });
        return put(&mut out, format!("{object}\n").as_bytes()).map(|()| 0);
    }
    match args.format {
        CatFormat::Text => print_text(&tensor, &region, &mut out)?,
        CatFormat::Npy => {
            put(&mut out, &npy::header(tensor.entry().dtype, &region.extent)?)?;
            copy(&tensor, &region, &mut out)?;
        }
        CatFormat::Raw => copy(&tensor, &region, &mut out)?,
    }
    out.flush().or_else(quiet_pipe)?;
    Ok(0)
}

/// The one tensor or alias that the arguments mean.
fn find(checkpoint: &Checkpoint, args: &Cat) -> Result<Identity> {
    if args.tensor.starts_with('[') {
        return Identity::parse_key(&args.tensor);
    }
    let role = args
        .role
        .as_deref()
        .map(|id| {
            let bad =
                || Error::new(Code::BadArgument, format!("--role {id:?} is not a registered role"));
            Role::from_id(id).ok_or_else(bad)
        })
        .transpose()?;
    let mut found: Vec<Identity> = Vec::new();
    for entry in checkpoint.entries() {
        let identity = identity_of(&entry?);
        let fits = identity.name == args.tensor
            && role.is_none_or(|role| role == identity.role)
            && args.slot.as_ref().is_none_or(|slot| *slot == identity.slot)
            && args.owner.as_ref().is_none_or(|owner| *owner == identity.owner)
            && args.component.as_ref().is_none_or(|component| *component == identity.component);
        if fits {
            found.push(identity);
        }
    }
    // A name alone means the model's own tensor, where there is exactly one.
    if found.len() > 1 && role.is_none() && args.slot.is_none() {
        let own: Vec<Identity> = found
            .iter()
            .filter(|i| matches!(i.role, Role::Param | Role::Buffer))
            .cloned()
            .collect();
        if own.len() == 1 {
            found = own;
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message = format!(
                "expected a tensor named {:?} of these attributes, found none",
                args.tensor
            );
            Err(Error::new(Code::NotFound, message).in_file(args.checkpoint.display().to_string()))
        }
        several => {
            let keys: Vec<String> = several.iter().take(8).map(Identity::key).collect();
            let message = format!(
                "{} tensors fit; give --role, --slot, --owner or --component, or one of these keys: {}",
                several.len(),
                keys.join(" ")
            );
            Err(Error::new(Code::BadArgument, message))
        }
    }
}

fn identity_of(entry: &Arc<Entry>) -> Identity {
    match &**entry {
        Entry::Tensor(tensor) => tensor.identity.clone(),
        Entry::Alias(alias) => alias.identity(),
    }
}

fn print_text(tensor: &TensorRef<'_>, region: &Region, out: &mut dyn Write) -> Result<()> {
    let row = region.extent.last().copied().unwrap_or(1);
    let row = arith::to_usize(row.max(1), "elements of a row")?;
    each_element(tensor, region, &mut |index, text| {
        let last = index.checked_rem(row) == row.checked_sub(1);
        put(out, text.as_bytes())?;
        put(out, if last { b"\n" } else { b" " })
    })
}

fn values(tensor: &TensorRef<'_>, region: &Region) -> Result<Vec<String>> {
    let mut all = Vec::new();
    each_element(tensor, region, &mut |_, text| {
        all.push(text);
        Ok(())
    })?;
    Ok(all)
}

/// Gives the text of every element, in order. Eight elements of b bits are b bytes, so pieces are cut there.
fn each_element(
    tensor: &TensorRef<'_>,
    region: &Region,
    take: &mut dyn FnMut(usize, String) -> Result<()>,
) -> Result<()> {
    let dtype = tensor.entry().dtype;
    let eight = arith::to_usize(u64::from(dtype.bits()), "bytes of eight elements")?;
    let mut left = arith::to_usize(elements_in(tensor, region)?, "elements")?;
    let mut first = 0_usize;
    let mut pending = Vec::new();
    let mut print = |bytes: &[u8], count: usize| {
        for index in 0..count {
            let text = elements::text(dtype, bytes, index).ok_or_else(|| {
                Error::new(Code::LengthMismatch, "the region has fewer bytes than elements")
            })?;
            take(first, text)?;
            first = first.saturating_add(1);
        }
        Ok(())
    };
    tensor.stream_region(region, PIECE_BYTES, &mut |bytes| {
        pending.extend_from_slice(bytes);
        let eights = pending.len().checked_div(eight).unwrap_or(0);
        let count = eights.saturating_mul(8).min(left);
        print(&pending, count)?;
        left = left.saturating_sub(count);
        pending.drain(..eights.saturating_mul(eight));
        Ok(())
    })?;
    print(&pending, left)
}

/// Elements that a region is read as: for a flat companion, one for each block.
fn elements_in(tensor: &TensorRef<'_>, region: &Region) -> Result<u64> {
    let elements = region.elements()?;
    Ok(tensor.entry().block.map_or(elements, |block| elements.div_ceil(block.max(1))))
}

fn copy(tensor: &TensorRef<'_>, region: &Region, out: &mut dyn Write) -> Result<()> {
    tensor.stream_region(region, PIECE_BYTES, &mut |bytes| put(out, bytes))
}

fn open_output(path: Option<&Path>) -> Result<Box<dyn Write>> {
    let Some(path) = path else { return Ok(Box::new(BufWriter::new(io::stdout()))) };
    let file: File = OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| {
        let error = if e.kind() == io::ErrorKind::AlreadyExists {
            Error::new(Code::Exists, "expected no file there: nothing is replaced")
        } else {
            Error::io("create", e)
        };
        error.in_file(path.display().to_string())
    })?;
    Ok(Box::new(BufWriter::new(file)))
}

fn put(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).or_else(quiet_pipe)
}

/// A reader of our output that went away is no failure.
fn quiet_pipe(e: io::Error) -> Result<()> {
    if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(Error::io("write", e)) }
}
