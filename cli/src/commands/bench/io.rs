//! `bench io`: writing beside plain `pwrite`, verified reading beside unverified, in turn.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::json;
use waystation_format::{Code, Dtype, Error, Identity, Region, Result, Topology, arith};
use waystation_reader::{Checkpoint, NoProgress, OpenOptions};
use waystation_writer::{CommitOptions, Session, SessionPlan, TensorDecl, Writing, make_attempt};

use super::{Scratch, median};
use crate::args::BenchIo;
use crate::commands::Context;
use crate::output;

/// Bytes of one tensor, and of one call.
const TENSOR_BYTES: u64 = 64 << 20;
const PIECE_BYTES: u64 = 4 << 20;

pub(super) fn run(args: &BenchIo, context: &Context) -> Result<u8> {
    let tensors = args.bytes.div_ceil(TENSOR_BYTES).max(1);
    let scratch = Scratch::new(args.dir.as_deref())?;
    let buffer = noise(TENSOR_BYTES)?;
    let progress: &dyn waystation_reader::Progress = &context.bars;
    progress.begin("bench io", u64::from(args.rounds));
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let (mut write_seconds, mut read_seconds) = (Vec::new(), Vec::new());
    let mut out = vec![1_u8; arith::to_usize(TENSOR_BYTES, "buffer")?];
    for round in 0..args.rounds {
        if progress.cancelled() {
            return Err(Error::new(Code::Interrupted, "stopped between rounds"));
        }
        // The order alternates, so that what the first one leaves behind favours neither.
        let dir = scratch.path.join(format!("round-{round}"));
        std::fs::create_dir(&dir).map_err(|e| Error::io("make directory", e))?;
        let (plain, ours);
        if round % 2 == 0 {
            plain = plain_write(&dir, tensors, &buffer, context.threads)?;
            ours = checkpoint_write(&dir, tensors, &buffer, context.threads)?;
        } else {
            ours = checkpoint_write(&dir, tensors, &buffer, context.threads)?;
            plain = plain_write(&dir, tensors, &buffer, context.threads)?;
        }
        writes.push(plain / ours.seconds);
        write_seconds.push(ours.seconds);

        // Once without measuring, so that both find the page cache warm.
        read(&ours.path, true, context.threads, tensors, &mut out)?;
        let (verified, unverified);
        if round % 2 == 0 {
            unverified = read(&ours.path, false, context.threads, tensors, &mut out)?;
            verified = read(&ours.path, true, context.threads, tensors, &mut out)?;
        } else {
            verified = read(&ours.path, true, context.threads, tensors, &mut out)?;
            unverified = read(&ours.path, false, context.threads, tensors, &mut out)?;
        }
        reads.push(unverified / verified);
        read_seconds.push(verified);
        std::fs::remove_dir_all(&dir).map_err(|e| Error::io("remove", e))?;
        progress.advance(1);
    }
    context.bars.clear();
    let (write, read) = (median(&mut writes), median(&mut reads));
    let bytes = tensors.saturating_mul(TENSOR_BYTES);
    if context.json {
        output::object(&json!({
            "bytes": bytes, "rounds": args.rounds, "threads": context.threads,
            "write_ratio": write, "write_ratios": writes, "read_ratio": read, "read_ratios": reads,
            "write_seconds": write_seconds, "read_seconds": read_seconds,
        }))?;
    } else {
        output::line(&format!(
            "{} a round, {} rounds, {} threads",
            output::bytes(bytes),
            args.rounds,
            context.threads
        ))?;
        output::line(&format!(
            "writing into the page cache, CRC included, to plain pwrite: {write:.2}  (goal 0.85)"
        ))?;
        output::line(&format!(
            "warm verified reading to unverified:                        {read:.2}  (goal 0.75)"
        ))?;
    }
    Ok(0)
}

/// Bytes that no layer can compress or share.
fn noise(count: u64) -> Result<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(arith::to_usize(count, "buffer")?);
    while out.len() < out.capacity() {
        state ^= state.wrapping_shl(13);
        state ^= state.wrapping_shr(7);
        state ^= state.wrapping_shl(17);
        out.extend_from_slice(&state.to_le_bytes());
    }
    Ok(out)
}

/// Gives every piece of every tensor to one of `threads` threads.
fn each_piece(
    tensors: u64,
    threads: usize,
    work: impl Fn(u64, u64, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let pieces = TENSOR_BYTES.div_ceil(PIECE_BYTES);
    let all = tensors.saturating_mul(pieces);
    std::thread::scope(|scope| {
        let run = || {
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= all {
                    return Ok(());
                }
                let tensor = piece.checked_div(pieces).unwrap_or(0);
                let offset = piece.checked_rem(pieces).unwrap_or(0).saturating_mul(PIECE_BYTES);
                work(tensor, offset, arith::to_usize(PIECE_BYTES, "piece")?)?;
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().try_for_each(|handle| {
            handle
                .join()
                .unwrap_or_else(|_| Err(Error::new(Code::Io, "a thread of the benchmark died")))
        })
    })
}

fn plain_write(dir: &Path, tensors: u64, buffer: &[u8], threads: usize) -> Result<f64> {
    let file = File::create_new(dir.join("plain")).map_err(|e| Error::io("create", e))?;
    let bytes = tensors.saturating_mul(TENSOR_BYTES);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|e| Error::io("allocate", e.into()))?;
    let start = Instant::now();
    each_piece(tensors, threads, |tensor, offset, length| {
        let at = tensor.saturating_mul(TENSOR_BYTES).saturating_add(offset);
        file.write_all_at(slice(buffer, offset, length)?, at).map_err(|e| Error::io("write", e))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

struct Written {
    seconds: f64,
    path: std::path::PathBuf,
}

fn checkpoint_write(dir: &Path, tensors: u64, buffer: &[u8], threads: usize) -> Result<Written> {
    let run = waystation_store::open_path(dir)?;
    let plan = SessionPlan::next_in(&run, "bench", 1, Topology(Vec::new()))?;
    let (name, attempt) = make_attempt(&run, &plan, 1, 0)?;
    let mut session = Session::begin(Arc::clone(&attempt), plan.common(1, 0), 0)?;
    let shape = [TENSOR_BYTES];
    let mut chunks = Vec::new();
    for tensor in 0..tensors {
        let decl = TensorDecl::new(identity(tensor), Dtype::U8, &shape);
        chunks.push(session.chunk(&decl, &Region::whole(&shape))?);
    }
    let writing: Writing = session.lay_out()?;
    let start = Instant::now();
    each_piece(tensors, threads, |tensor, offset, length| {
        let chunk = usize::try_from(tensor).ok().and_then(|at| chunks.get(at));
        let chunk = chunk.ok_or_else(|| Error::new(Code::Io, "no such chunk"))?;
        writing.write(*chunk, offset, slice(buffer, offset, length)?)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    writing.finish()?;
    waystation_writer::commit(&attempt, &CommitOptions::in_run(run, name.clone()), &NoProgress)?;
    Ok(Written { seconds, path: dir.join(name) })
}

fn read(path: &Path, verify: bool, threads: usize, tensors: u64, out: &mut [u8]) -> Result<f64> {
    let options = OpenOptions::new().threads(threads).verify_reads(verify);
    let checkpoint = Checkpoint::open_with(path, options)?;
    let start = Instant::now();
    for tensor in 0..tensors {
        let tensor = checkpoint.tensor(&identity(tensor))?;
        tensor.read_into(&Region::whole(&[TENSOR_BYTES]), out)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn identity(tensor: u64) -> Identity {
    Identity::param(format!("layers.{tensor:04}.weight"))
}

fn slice(buffer: &[u8], offset: u64, length: usize) -> Result<&[u8]> {
    let begin = arith::to_usize(offset, "offset")?;
    let end = begin.saturating_add(length);
    buffer.get(begin..end).ok_or_else(|| Error::new(Code::Io, "the buffer is too short"))
}
