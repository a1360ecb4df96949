//! `cat`: one tensor or a region of it, as text, .npy or packed bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use waystation_format::{Code, Entry, Error, Identity, Region, Result, Role, arith};
use waystation_reader::{Checkpoint, Progress, TensorRef};

use super::{Context, open_checkpoint};
use crate::args::{Cat, CatFormat};
use crate::{elements, npy, output, region_arg};

/// Bytes of a tensor in memory at once.
const PIECE_BYTES: u64 = 4 << 20;

pub(super) fn run(args: &Cat, context: &Context) -> Result<u8> {
    if context.json && (args.format != CatFormat::Text || args.output.is_some()) {
        let message =
            "--json prints the values as one object: expected it without --format and --output";
        return Err(Error::new(Code::BadArgument, message));
    }
    let checkpoint = open_checkpoint(&args.checkpoint, context)?;
    let identity = find(&checkpoint, args)?;
    let tensor = checkpoint.tensor(&identity)?;
    let shape = tensor.entry().shape.to_vec();
    let region = match &args.region {
        Some(text) => region_arg::parse(text, &shape)?,
        None => Region::whole(&shape),
    };
    let mut out = Out { to: open_output(args.output.as_deref())?, gone: false, context };
    match print(args, context, &identity, &tensor, &region, &mut out) {
        // A reader of our output that went away is no failure, and wants no more.
        Err(_) if out.gone => Ok(0),
        Err(error) => {
            // What is cut short would be taken for the whole; the file is of our own making.
            if let Some(path) = &args.output {
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
        Ok(()) => Ok(0),
    }
}

fn print(
    args: &Cat,
    context: &Context,
    identity: &Identity,
    tensor: &TensorRef<'_>,
    region: &Region,
    out: &mut Out<'_>,
) -> Result<()> {
    if context.json {
        let values = values(tensor, region)?;
        let object = json!({
            "identity": serde_json::from_str::<serde_json::Value>(&identity.key()).unwrap_or_default(),
            "dtype": tensor.entry().dtype.as_str(),
            "at": region.at.to_vec(), "extent": region.extent.to_vec(), "values": values,
        });
        out.put(output::json_text(&object).as_bytes())?;
        out.put(b"\n")?;
        return out.flush();
    }
    match args.format {
        CatFormat::Text => print_text(tensor, region, out)?,
        CatFormat::Npy => {
            out.put(&npy::header(tensor.entry().dtype, &region.extent)?)?;
            copy(tensor, region, out)?;
        }
        CatFormat::Raw => copy(tensor, region, out)?,
    }
    out.flush()
}

/// Where the output goes.
struct Out<'c> {
    to: Box<dyn Write>,
    /// Whether its reader went away.
    gone: bool,
    context: &'c Context,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.context.bars.cancelled() {
            return Err(Error::new(Code::Interrupted, "stopped before the end of the tensor"));
        }
        let written = self.to.write_all(bytes);
        self.done(written)
    }

    /// What is still in memory may fail to be written, too.
    fn flush(&mut self) -> Result<()> {
        let flushed = self.to.flush();
        self.done(flushed)
    }

    fn done(&mut self, result: io::Result<()>) -> Result<()> {
        result.map_err(|e| {
            self.gone = e.kind() == io::ErrorKind::BrokenPipe;
            Error::io("write", e)
        })
    }
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

fn print_text(tensor: &TensorRef<'_>, region: &Region, out: &mut Out<'_>) -> Result<()> {
    let row = region.extent.last().copied().unwrap_or(1);
    let row = arith::to_usize(row.max(1), "elements of a row")?;
    each_element(tensor, region, &mut |index, text| {
        let last = index.checked_rem(row) == row.checked_sub(1);
        out.put(text.as_bytes())?;
        out.put(if last { b"\n" } else { b" " })
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

fn copy(tensor: &TensorRef<'_>, region: &Region, out: &mut Out<'_>) -> Result<()> {
    tensor.stream_region(region, PIECE_BYTES, &mut |bytes| out.put(bytes))
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
