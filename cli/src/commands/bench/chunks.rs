//! `bench chunks`: metadata of a million chunks, each stage in a fresh process so that its peak memory is its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use waystation_format::{Code, Dtype, Error, Identity, Region, Result, Topology};
use waystation_reader::{Checkpoint, NoProgress};
use waystation_store::Store;
use waystation_writer::{CommitOptions, Session, SessionPlan, TensorDecl, make_attempt};

use super::{Scratch, peak_bytes};
use crate::args::{BenchChunks, BenchStage};
use crate::commands::Context;
use crate::output;

const WRITERS: u32 = 64;
/// A chunk is a row of this many bytes: one small alignment, so that no pad is needed.
const ROW_BYTES: u64 = 256;

pub(super) fn run(args: &BenchChunks, context: &Context) -> Result<u8> {
    let tensors = args.count.div_ceil(u64::from(WRITERS));
    let scratch = Scratch::new(args.dir.as_deref())?;
    let attempt = build(&scratch.path, tensors, context)?;
    let commit = in_fresh_process("commit", &attempt, context)?;
    let validate = in_fresh_process("validate", &attempt, context)?;
    let share = in_fresh_process("share", &attempt, context)?;
    context.bars.clear();
    let chunks = tensors.saturating_mul(u64::from(WRITERS));
    let peak = commit.peak_bytes.max(validate.peak_bytes).max(share.peak_bytes);
    let object = json!({
        "chunks": chunks, "tensors": tensors, "writers": WRITERS,
        "validate_seconds": validate.seconds, "share_seconds": share.seconds,
        "commit_seconds": commit.seconds, "peak_bytes": peak,
        "commit_peak_bytes": commit.peak_bytes, "validate_peak_bytes": validate.peak_bytes,
        "share_peak_bytes": share.peak_bytes,
    });
    if context.json {
        output::object(&object)?;
    } else {
        let per_chunk = peak.checked_div(chunks).unwrap_or(0);
        output::line(&format!("{chunks} chunks: {tensors} tensors x {WRITERS} writers"))?;
        for (name, stage, goal) in [
            ("commit", &commit, ""),
            ("validate all pages and cover", &validate, "  (goal 3 s)"),
            ("open a contiguous 64th", &share, "  (goal 0.2 s)"),
        ] {
            output::line(&format!("{name:<30} {:.3} s{goal}", stage.seconds))?;
        }
        output::line(&format!("{:<30} {per_chunk} bytes a chunk  (goal 600)", "peak memory"))?;
    }
    Ok(0)
}

/// What a stage prints.
#[derive(Debug, Deserialize, Serialize)]
struct Measured {
    seconds: f64,
    /// Greatest resident memory of its process.
    peak_bytes: u64,
}

/// One stage, in a process of its own: prints its seconds and its peak memory.
pub(super) fn stage(args: &BenchStage, context: &Context) -> Result<u8> {
    let store = waystation_store::open_path(&args.dir)?;
    let start = Instant::now();
    match args.stage.as_str() {
        "commit" => {
            let mut options = CommitOptions::default();
            options.threads = context.threads;
            waystation_writer::commit(&store, &options, &NoProgress)?;
        }
        "validate" => {
            let checkpoint = Checkpoint::open_store(store, context.open_options())?;
            count(&checkpoint, None, None)?;
        }
        "share" => share(store, context)?,
        other => {
            let message = format!("expected commit, validate or share, found {other:?}");
            return Err(Error::new(Code::BadArgument, message));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let measured = Measured { seconds, peak_bytes: peak_bytes()? };
    output::object(&json!(measured))?;
    Ok(0)
}

fn build(dir: &Path, tensors: u64, context: &Context) -> Result<std::path::PathBuf> {
    let run = waystation_store::open_path(dir)?;
    let topology = Topology(vec![("dp".to_owned(), u64::from(WRITERS))]);
    let plan = SessionPlan::next_in(&run, "bench", WRITERS, topology)?;
    let (name, attempt) = make_attempt(&run, &plan, 1, 0)?;
    let shape = [u64::from(WRITERS), ROW_BYTES];
    let row = vec![0x5a; 256];
    let progress: &dyn waystation_reader::Progress = &context.bars;
    progress.begin("build", tensors.saturating_mul(ROW_BYTES).saturating_mul(u64::from(WRITERS)));
    for writer in 0..WRITERS {
        let mut session = Session::begin(Arc::clone(&attempt), plan.common(1, 0), writer)?;
        let region = Region {
            at: [u64::from(writer), 0].into_iter().collect(),
            extent: [1, ROW_BYTES].into_iter().collect(),
        };
        let mut chunks = Vec::new();
        for tensor in 0..tensors {
            let decl = TensorDecl::new(identity(tensor), Dtype::U8, &shape);
            chunks.push(session.chunk(&decl, &region)?);
        }
        let writing = session.lay_out()?;
        for chunk in chunks {
            writing.write_all(chunk, &row)?;
            progress.advance(ROW_BYTES);
        }
        writing.finish()?;
        if progress.cancelled() {
            return Err(Error::new(Code::Interrupted, "stopped while building"));
        }
    }
    Ok(dir.join(name))
}

/// Names as a large model has them: 32 characters.
fn identity(tensor: u64) -> Identity {
    Identity::param(format!("model.layers.{tensor:06}.mlp.weight"))
}

fn share(store: Arc<dyn Store>, context: &Context) -> Result<()> {
    let checkpoint = Checkpoint::open_store(store, context.open_options())?;
    let all = checkpoint.manifest().contents.iter().flat_map(|(_, roles)| roles);
    let tensors = all.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let length = tensors.div_ceil(64);
    let first = length.saturating_mul(31);
    let (from, until) = (identity(first).key(), identity(first.saturating_add(length)).key());
    let found = count(&checkpoint, Some(&from), Some(&until))?;
    if found != length.min(tensors.saturating_sub(first)) {
        let message = format!("expected {length} tensors in the share, found {found}");
        return Err(Error::new(Code::Io, message));
    }
    Ok(())
}

fn count(checkpoint: &Checkpoint, from: Option<&str>, until: Option<&str>) -> Result<u64> {
    let mut found = 0_u64;
    for entry in checkpoint.entries_between(from, until)? {
        entry?;
        found = found.saturating_add(1);
    }
    Ok(found)
}

fn in_fresh_process(stage: &str, attempt: &Path, context: &Context) -> Result<Measured> {
    let program = context.launcher()?;
    let output = Command::new(program.path)
        .args(program.arguments)
        .args(["--quiet", "bench", "stage", stage])
        .arg(attempt)
        .output()
        .map_err(|e| Error::io("start a stage", e))?;
    if !output.status.success() {
        let message =
            format!("stage {stage} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        return Err(Error::new(Code::Io, message));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::new(Code::Io, format!("stage {stage} printed no JSON: {e}")))
}
