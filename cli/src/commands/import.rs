//! `import`: a checkpoint from safetensors files or a Hugging Face directory.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use waystation_format::attachment::{self, AttachmentEntry};
use waystation_format::entry::Tensor;
use waystation_format::{Code, Digest, Error, Identity, Result, Topology, identity};
use waystation_reader::{Progress, reshard as sharing};
use waystation_writer::{Session, SessionOptions, TensorDecl};

use super::target::{NewCheckpoint, Settings};
use super::{Context, reshard, target};
use crate::args::Import;
use crate::foreign::{ForeignTensor, Model, open_regular};
use crate::output;

/// Bytes of an attachment in memory at once.
const PIECE_BYTES: usize = 1 << 20;

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
    settings.check()?;
    let new = target::make(&args.target, settings)?;
    let total = model.tensors.iter().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes));
    context.bars.begin("import", total);
    let written = (0_u32..)
        .zip(&hands)
        .try_for_each(|(writer, hand)| write(&model, &decls, &new, writer, hand, context))
        .and_then(|()| new.commit(context));
    let done = target::or_left_behind(&new.path, context, written)?;
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

/// Gives the bytes of a file.
fn attach(file: &Path, out: &mut dyn Write, context: &Context) -> Result<()> {
    let name = |e: Error| e.in_file(file.display().to_string());
    let (mut from, _) = open_regular(file)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        stop_if_asked(context)?;
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.map_err(|e| name(Error::io("read", e)))?,
        };
        let read = piece.get(..read).unwrap_or_default();
        out.write_all(read).map_err(|e| name(Error::io("attach", e)))?;
    }
}

fn stop_if_asked(context: &Context) -> Result<()> {
    if context.bars.cancelled() {
        return Err(Error::new(Code::Interrupted, "stopped before the commit"));
    }
    Ok(())
}

fn check_attachments(model: &Model) -> Result<()> {
    let mut entries = Vec::with_capacity(model.attachments.len());
    for (path, file) in &model.attachments {
        attachment::check_path(path).map_err(|e| e.in_file(file.display().to_string()))?;
        open_regular(file)?;
        entries.push(AttachmentEntry { bytes: 0, path: path.clone(), sha256: Digest::of(&[]) });
    }
    attachment::check_unique(&entries)
}

/// Everything is a `param`: a safetensors file does not say which tensors are buffers.
fn declare(model: &Model) -> Result<Vec<TensorDecl>> {
    let declare = |tensor: &ForeignTensor| {
        let decl =
            TensorDecl::new(Identity::param(tensor.name.clone()), tensor.dtype, &tensor.shape);
        let check = decl.to_tensor().check(&Topology(Vec::new()));
        check.map_err(|e| e.in_tensor(decl.identity.key()))?;
        Ok(decl)
    };
    model.tensors.iter().map(declare).collect()
}

fn default_name(args: &Import) -> String {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = |path: PathBuf, is_file: bool| {
        let name = if is_file { path.file_stem() } else { path.file_name() };
        name.and_then(|name| name.to_str())
            .filter(|name| identity::check_name(name, "run name").is_ok())
            .map(str::to_owned)
    };
    let run = args.target.run.as_deref().and_then(|run| name(real(run), false));
    let source = || name(real(&args.source), args.source.is_file());
    run.or_else(source).unwrap_or_else(|| "import".to_owned())
}

fn write(
    model: &Model,
    decls: &[TensorDecl],
    new: &NewCheckpoint,
    writer: u32,
    hand: &[sharing::Piece],
    context: &Context,
) -> Result<()> {
    let common = new.plan.common(new.step, 0);
    let mut session = Session::begin_alone(Arc::clone(&new.store), common, writer)?;
    let mut options = SessionOptions::default();
    options.threads = context.threads;
    session.set_options(options);
    session.producer(reshard::producer());
    if writer == 0 {
        for decl in decls.iter().filter(|decl| decl.shape.contains(&0)) {
            session.declare(decl)?;
        }
        for (path, file) in &model.attachments {
            session.attach_with(path, &mut |out| attach(file, out, context))?;
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
            stop_if_asked(context)?;
            stream.push(bytes)?;
            context.bars.advance(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            Ok(())
        })?;
        stream.finish()?;
    }
    writing.finish().map(drop)
}
