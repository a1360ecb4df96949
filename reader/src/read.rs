//! Serves a plan from a store: positional reads on scoped threads, straight into the destination
//! where the bytes stand as they are, else by way of a scratch buffer.
//!
//! It knows how to share a destination among threads. It must not know tensors: the plan does.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use waystation_format::manifest::Manifest;
use waystation_format::{Code, Error, Result, arith};
use waystation_store::{Object, Store};

use crate::complete::zeroed;
use crate::options::len;
use crate::parallel;
use crate::plan::{Plan, PlannedRead};
use crate::progress::{Progress, go_on};
use crate::scatter::Run;
use crate::shards::Shards;

/// Bytes read and checked at once: small enough that they are still in a core's cache when their
/// CRC is taken and when they are moved.
const STEP_BYTES: u64 = 512 << 10;

/// A thread is worth starting for so many bytes.
const THREAD_BYTES: u64 = 2 << 20;

/// Scattered results are shared among threads in slabs of this length.
const SLAB_BYTES: usize = 1 << 20;

/// Where a plan is served from.
#[derive(Clone, Copy)]
pub(crate) struct Backend<'c> {
    pub(crate) store: &'c dyn Store,
    pub(crate) manifest: &'c Manifest,
    pub(crate) shards: &'c Shards,
    pub(crate) threads: usize,
    pub(crate) progress: &'c dyn Progress,
}

/// One read to be done, with its place in the result if it lands there.
#[derive(Debug)]
struct Job<'o> {
    read: usize,
    lands: Option<&'o mut [u8]>,
}

/// What of a result does not come by landing reads, in slabs that threads lock one at a time.
#[derive(Debug, Default)]
struct Scattered<'o>(Vec<Slab<'o>>);

#[derive(Debug)]
struct Slab<'o> {
    start: u64,
    end: u64,
    bytes: Mutex<&'o mut [u8]>,
}

impl Backend<'_> {
    /// Does every read of `plan`; `outs` are the results of its wants, in their order.
    pub(crate) fn serve(&self, plan: &Plan, outs: &mut [&mut [u8]]) -> Result<()> {
        check_outs(plan, outs)?;
        self.progress.begin("read", plan.read_bytes());
        let tables = plan.reads().iter().take_while(|read| read.want.is_none()).count();
        parallel::each(
            self.threads_for(plan),
            (0..tables).collect(),
            || (),
            |(), at| self.table(plan, at),
        )?;
        let (jobs, scattered) = share(plan, tables, outs)?;
        let threads = self.threads_for(plan);
        parallel::each(threads, jobs, Vec::new, |scratch, job| {
            self.data(plan, job, &scattered, scratch)
        })?;
        plan.finish()
    }

    fn threads_for(&self, plan: &Plan) -> usize {
        let worth = plan.read_bytes().div_ceil(THREAD_BYTES);
        self.threads.min(usize::try_from(worth).unwrap_or(usize::MAX)).max(1)
    }

    fn open(&self, read: &PlannedRead) -> Result<std::sync::Arc<dyn Object>> {
        self.shards.open(self.store, self.manifest, read.shard)
    }

    fn table(&self, plan: &Plan, at: usize) -> Result<()> {
        let Some(read) = plan.reads().get(at) else { return Ok(()) };
        go_on(self.progress)?;
        // The file is open, so it has the stated length, in which the table lies.
        let object = self.open(read)?;
        let mut bytes = zeroed(read.bytes, "the bytes of a table")?;
        object.read_at(&mut bytes, read.offset)?;
        plan.check(at, &bytes)?;
        self.progress.advance(read.bytes);
        if let Some(table) = plan.table(read) {
            self.shards.keep_table(read.shard, table);
        }
        Ok(())
    }

    fn data(
        &self,
        plan: &Plan,
        job: Job<'_>,
        scattered: &[Scattered<'_>],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(read) = plan.reads().get(job.read) else { return Ok(()) };
        let object = self.open(read)?;
        let unit = plan.step_unit(read)?;
        let steps = STEP_BYTES.checked_div(unit).unwrap_or(1).max(1);
        let step = arith::to_usize(steps.saturating_mul(unit).min(read.bytes), "a read")?;
        let mut from = 0_u64;
        match job.lands {
            Some(out) => {
                for piece in out.chunks_mut(step.max(1)) {
                    go_on(self.progress)?;
                    object.read_at(piece, arith::add(read.offset, from, "offset of a read")?)?;
                    plan.check_step(read, from, piece)?;
                    self.progress.advance(len(piece));
                    from = from.saturating_add(len(piece));
                }
            }
            None => {
                let Some(slabs) = read.want.and_then(|want| scattered.get(want)) else {
                    return Ok(());
                };
                if scratch.len() < step {
                    *scratch = zeroed(len_of(step), "the bytes of a step")?;
                }
                while from < read.bytes {
                    go_on(self.progress)?;
                    let left = arith::to_usize(read.bytes.saturating_sub(from), "a read")?;
                    let Some(piece) = scratch.get_mut(..step.min(left)) else { break };
                    object.read_at(piece, arith::add(read.offset, from, "offset of a read")?)?;
                    plan.check_step(read, from, piece)?;
                    slabs.take(plan, read, from, piece)?;
                    self.progress.advance(len(piece));
                    from = from.saturating_add(len(piece));
                }
            }
        }
        plan.mark(job.read);
        Ok(())
    }
}

impl<'o> Scattered<'o> {
    fn take(&self, plan: &Plan, read: &PlannedRead, from: u64, bytes: &[u8]) -> Result<()> {
        // Runs mostly stay in a slab: its lock is kept until one does not.
        let mut held: Option<(usize, MutexGuard<'_, &'o mut [u8]>)> = None;
        plan.scatter(read, from, bytes, &mut |run| {
            let mut rest = run;
            while rest.bits > 0 {
                let at = self.find(rest.to_bit / 8)?;
                let slab = self.0.get(at).ok_or_else(no_slab)?;
                let room = slab.end.saturating_mul(8).saturating_sub(rest.to_bit);
                let head = Run { bits: rest.bits.min(room), ..rest };
                let guard = match held.take() {
                    Some((index, guard)) if index == at => guard,
                    other => {
                        drop(other);
                        slab.bytes.lock().unwrap_or_else(PoisonError::into_inner)
                    }
                };
                let (_, guard) = held.insert((at, guard));
                head.copy_into(guard, slab.start)?;
                rest.from_bit = rest.from_bit.saturating_add(head.bits);
                rest.to_bit = rest.to_bit.saturating_add(head.bits);
                rest.bits = rest.bits.saturating_sub(head.bits);
            }
            Ok(())
        })
    }

    /// The slab that holds a byte of the result.
    fn find(&self, byte: u64) -> Result<usize> {
        let after = self.0.partition_point(|slab| slab.start <= byte);
        let at = after.checked_sub(1).ok_or_else(no_slab)?;
        match self.0.get(at) {
            Some(slab) if byte < slab.end => Ok(at),
            _ => Err(no_slab()),
        }
    }

    fn push(&mut self, mut start: u64, bytes: &'o mut [u8]) {
        for slab in bytes.chunks_mut(SLAB_BYTES) {
            let end = start.saturating_add(len(slab));
            self.0.push(Slab { start, end, bytes: Mutex::new(slab) });
            start = end;
        }
    }
}

fn check_outs(plan: &Plan, outs: &[&mut [u8]]) -> Result<()> {
    if outs.len() != plan.wants() {
        let message = format!("expected {} results to fill, found {}", plan.wants(), outs.len());
        return Err(Error::new(Code::BadArgument, message));
    }
    for (want, out) in outs.iter().enumerate() {
        let expected = plan.out_bytes(want)?;
        if expected != len(out) {
            let message = format!("expected {expected} bytes to read into, found {}", out.len());
            return Err(Error::new(Code::BadArgument, message));
        }
    }
    Ok(())
}

/// Shares the results out: to each landing read its own place, the rest to be scattered into.
fn share<'o>(
    plan: &Plan,
    tables: usize,
    outs: &'o mut [&mut [u8]],
) -> Result<(Vec<Job<'o>>, Vec<Scattered<'o>>)> {
    let mut jobs: Vec<Job<'o>> = Vec::with_capacity(plan.reads().len());
    let mut landings: Vec<Vec<(Range<u64>, usize)>> = outs.iter().map(|_| Vec::new()).collect();
    for (read, planned) in plan.reads().iter().enumerate().skip(tables) {
        let at = jobs.len();
        jobs.push(Job { read, lands: None });
        if let (Some(lands), Some(want)) = (&planned.lands, planned.want)
            && let Some(list) = landings.get_mut(want)
        {
            list.push((lands.clone(), at));
        }
    }
    let mut scattered = Vec::with_capacity(outs.len());
    for (out, mut list) in outs.iter_mut().zip(landings) {
        list.sort_unstable_by_key(|(lands, _)| lands.start);
        let mut rest: &'o mut [u8] = out;
        let mut cursor = 0_u64;
        let mut gaps = Scattered::default();
        for (lands, at) in list {
            let gap = arith::sub(lands.start, cursor, "gap between reads")?;
            let (before, after) = split(rest, gap)?;
            gaps.push(cursor, before);
            let (own, after) = split(after, arith::sub(lands.end, lands.start, "a landing")?)?;
            if let Some(job) = jobs.get_mut(at) {
                job.lands = Some(own);
            }
            rest = after;
            cursor = lands.end;
        }
        gaps.push(cursor, rest);
        scattered.push(gaps);
    }
    Ok((jobs, scattered))
}

fn split(bytes: &mut [u8], at: u64) -> Result<(&mut [u8], &mut [u8])> {
    bytes.split_at_mut_checked(arith::to_usize(at, "a place in a result")?).ok_or_else(no_slab)
}

fn len_of(step: usize) -> u64 {
    u64::try_from(step).unwrap_or(u64::MAX)
}

#[cold]
fn no_slab() -> Error {
    Error::new(Code::BadArgument, "expected a place within the result, found one beyond it")
}
