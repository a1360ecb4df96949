//! A checkpoint from safetensors files or a Hugging Face directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use waystation_format::attachment::{self, AttachmentEntry};
use waystation_format::entry::Tensor;
use waystation_format::{Code, Digest, Error, Identity, Result, Topology, identity};
use waystation_reader::reshard as sharing;
use waystation_writer::{Committed, Session, SessionOptions, TensorDecl};

use super::target::{NewCheckpoint, Settings};
use super::{Target, Work, attach, producer, target};
use crate::foreign::{ForeignTensor, Model, open_regular};

const STOPPED: &str = "stopped before the commit";

/// What to import, and as what.
#[derive(Clone, Copy, Debug)]
pub struct Import<'p> {
    /// A safetensors file, or a directory with some.
    pub source: &'p Path,
    /// Where the checkpoint goes.
    pub target: Target<'p>,
    /// Its step.
    pub step: u64,
    /// How many writers to split the data over.
    pub writers: u32,
    /// More files to attach, each under its own name.
    pub attach: &'p [PathBuf],
    /// The run's name in the metadata; `None` takes that of a directory.
    pub name: Option<&'p str>,
}

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// Where the checkpoint is.
    pub path: PathBuf,
    /// Its commit.
    pub committed: Committed,
    /// Its step.
    pub step: u64,
    /// Its writers.
    pub writers: u32,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Logical paths.
    pub attachments: Vec<String>,
    /// What of the source was left out on purpose.
    pub skipped: Vec<String>,
}

impl Imported {
    /// The object that `waystation import --json` prints.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "path": self.path.display().to_string(), "digest": self.committed.digest.to_string(),
            "step": self.step, "writers": self.writers, "tensors": self.tensors, "bytes": self.bytes,
            "attachments": self.attachments, "skipped": self.skipped,
        })
    }
}

/// Makes a checkpoint of foreign files.
///
/// # Errors
/// [`Code::NotFound`] and [`Code::BadArgument`] for a source that is none; those of a writer and commit.
pub fn import(args: &Import<'_>, work: &Work<'_>) -> Result<Imported> {
    let mut model = Model::open(args.source)?;
    for file in args.attach {
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
        run_name: args.name.map_or_else(|| default_name(args), str::to_owned),
        step: args.step,
        writers: args.writers,
        topology: Topology(Vec::new()),
        parent: None,
        block_bytes: None,
    };
    settings.check()?;
    let new = target::make(args.target, settings)?;
    let total = model.tensors.iter().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes));
    work.watcher.begin("import", total);
    let written = (0_u32..)
        .zip(&hands)
        .try_for_each(|(writer, hand)| write(&model, &decls, &new, writer, hand, work))
        .and_then(|()| new.commit(work));
    let done = target::or_left_behind(&new.path, work, written)?;
    Ok(Imported {
        path: new.path,
        committed: done,
        step: args.step,
        writers: args.writers,
        tensors: model.tensors.len(),
        bytes: total,
        attachments: model.attachments.into_iter().map(|(path, _)| path).collect(),
        skipped: model.skipped,
    })
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

fn default_name(args: &Import<'_>) -> String {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = |path: PathBuf, is_file: bool| {
        let name = if is_file { path.file_stem() } else { path.file_name() };
        name.and_then(|name| name.to_str())
            .filter(|name| identity::check_name(name, "run name").is_ok())
            .map(str::to_owned)
    };
    let run = match args.target {
        Target::InRun(run) => name(real(run), false),
        Target::Alone(_) => None,
    };
    let source = || name(real(args.source), args.source.is_file());
    run.or_else(source).unwrap_or_else(|| "import".to_owned())
}

fn write(
    model: &Model,
    decls: &[TensorDecl],
    new: &NewCheckpoint,
    writer: u32,
    hand: &[sharing::Piece],
    work: &Work<'_>,
) -> Result<()> {
    let common = new.plan.common(new.step, 0);
    let mut session = Session::begin_alone(Arc::clone(&new.store), common, writer)?;
    let mut options = SessionOptions::default();
    options.threads = work.threads;
    session.set_options(options);
    session.producer(producer());
    if writer == 0 {
        for decl in decls.iter().filter(|decl| decl.shape.contains(&0)) {
            session.declare(decl)?;
        }
        for (path, file) in &model.attachments {
            attach(&mut session, path, file, work)?;
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
            work.go_on(STOPPED)?;
            stream.push(bytes)?;
            work.watcher.advance(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            Ok(())
        })?;
        stream.finish()?;
    }
    writing.finish().map(drop)
}
