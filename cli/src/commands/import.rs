//! `import`: a checkpoint from safetensors files or a Hugging Face directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use waystation_format::attachment::{self, AttachmentEntry};
use waystation_format::entry::Tensor;
use waystation_format::{Code, Digest, Error, Identity, Result, Topology};
use waystation_reader::{Progress, reshard as sharing};
use waystation_writer::{Session, TensorDecl};

use super::target::{NewCheckpoint, Settings};
use super::{Context, reshard, target};
use crate::args::Import;
use crate::foreign::{ForeignTensor, Model};
use crate::output;

pub(super) fn run(args: &Import, context: &Context) -> Result<u8> {
    let mut model = Model::open(&args.source)?;
    for file in &args.attach {
        let name = file.file_name().and_then(|n| n.to_str()).ok_or_else(|| {
            let error = Error::new(Code::BadPath, "expected a file with a name in UTF-8");
            error.in_file(file.display().to_string())
        })?;
        model.attachments.push((name.to_owned(), file.clone()));
    }
    model.attachments.sort();
    // Everything that the metadata can refuse is refused before anything is made.
    check_attachments(&model)?;
    let decls = declare(&model)?;
    let tensors: Vec<Tensor> = decls.iter().map(TensorDecl::to_tensor).collect();
    let hands = sharing::share(&tensors.iter().collect::<Vec<_>>(), args.writers)?;

    let settings = Settings {
        run_name: args.name.clone().unwrap_or_else(|| default_name(args)),
        step: args.step,
        writers: args.writers,
        topology: Topology(Vec::new()),
        parent: None,
        block_bytes: None,
    };
    let new = target::make(&args.target, settings)?;
    let total = model.tensors.iter().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes));
    context.bars.begin("import", total);
    for (writer, hand) in (0_u32..).zip(&hands) {
        write(&model, &decls, &new, writer, hand, context)?;
    }
    let done = new.commit(context)?;
    context.bars.clear();
    let path = new.path.display().to_string();
    if context.json {
        output::object(&json!({
            "path": path, "digest": done.digest.to_string(), "step": args.step, "writers": args.writers,
            "tensors": model.tensors.len(), "bytes": total,
            "attachments": model.attachments.iter().map(|(path, _)| path).collect::<Vec<_>>(),
            "skipped": model.skipped,
        }))?;
    } else {
        output::line(&path)?;
        for skipped in &model.skipped {
            output::note(&format!("left out: {skipped}"));
        }
    }
    Ok(0)
}

fn check_attachments(model: &Model) -> Result<()> {
    let mut entries = Vec::with_capacity(model.attachments.len());
    for (path, file) in &model.attachments {
        attachment::check_path(path).map_err(|e| e.in_file(file.display().to_string()))?;
        entries.push(AttachmentEntry { bytes: 0, path: path.clone(), sha256: Digest::of(&[]) });
    }
    attachment::check_unique(&entries)
}

/// Everything is a `param`: a safetensors file does not say which tensors are buffers.
fn declare(model: &Model) -> Result<Vec<TensorDecl>> {
    let declare = |tensor: &ForeignTensor| {
        let decl =
            TensorDecl::new(Identity::param(tensor.name.clone()), tensor.dtype, &tensor.shape);
        decl.to_tensor().check(&Topology(Vec::new()))?;
        Ok(decl)
    };
    model.tensors.iter().map(declare).collect()
}

fn default_name(args: &Import) -> String {
    let named = |path: &Path| path.file_stem().and_then(|n| n.to_str()).map(str::to_owned);
    let real: Option<PathBuf> = std::fs::canonicalize(&args.source).ok();
    let run = args.target.run.as_deref().and_then(named);
    run.or_else(|| real.as_deref().and_then(named)).unwrap_or_else(|| "import".to_owned())
}

fn write(
    model: &Model,
    decls: &[TensorDecl],
    new: &NewCheckpoint,
    writer: u32,
    hand: &[sharing::Piece],
    context: &Context,
) -> Result<()> {
    let mut session = Session::begin(Arc::clone(&new.store), new.plan.common(new.step, 0), writer)?;
    session.producer(reshard::producer());
    if writer == 0 {
        for decl in decls.iter().filter(|decl| decl.shape.contains(&0)) {
            session.declare(decl)?;
        }
        for (path, file) in &model.attachments {
            let mut from = File::open(file)
                .map_err(|e| Error::io("open", e).in_file(file.display().to_string()))?;
            session.attach_reader(path, &mut from)?;
        }
    }
    let mut chunks = Vec::with_capacity(hand.len());
    for piece in hand {
        let missing = || Error::new(Code::NotFound, "a share names a tensor that is not there");
        let decl = decls.get(piece.tensor).ok_or_else(missing)?;
        let tensor = model.tensors.get(piece.tensor).ok_or_else(missing)?;
        chunks.push((session.chunk(decl, &piece.region)?, tensor, piece));
    }
    let writing = session.lay_out()?;
    for (chunk, tensor, piece) in chunks {
        let mut stream = writing.stream(chunk)?;
        model.stream(tensor, &piece.region, &mut |bytes| {
            if context.bars.cancelled() {
                return Err(Error::new(Code::Interrupted, "stopped before the commit"));
            }
            stream.push(bytes)?;
            context.bars.advance(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            Ok(())
        })?;
        stream.finish()?;
    }
    writing.finish().map(drop)
}
