//! Saving: each rank writes the range that it owns, and rank 0 makes a checkpoint of it.
//!
//! This is what a trainer does with `waystation-writer`. It knows the order of calls; what the
//! records say is `records`'.

use std::sync::Arc;
use std::time::Duration;

use waystation_format::part::Producer;
use waystation_format::{Code, Dtype, Error, Result, names};
use waystation_reader::NoProgress;
use waystation_store::Store;
use waystation_writer::{
    CommitOptions, Committed, Session, SessionPlan, TensorDecl, commit, make_attempt,
};

use crate::records::records;
use crate::reduce::to_bytes;
use crate::trainer::Trainer;
use crate::wire::Peers;

/// How long rank 0 waits for the others' parts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks for them.
const POLL: Duration = Duration::from_millis(2);

/// Saves of one job.
pub(crate) struct Saver {
    pub(crate) run: Arc<dyn Store>,
    pub(crate) plan: SessionPlan,
    /// Saves so far.
    counter: u64,
}

impl Saver {
    pub(crate) fn new(run: Arc<dyn Store>, plan: SessionPlan) -> Self {
        Self { run, plan, counter: 0 }
    }

    /// Saves. All ranks call it after the same step; rank 0's answer is the checkpoint. Between the
    /// first half of the rank's chunks and the second it calls `halfway` with the attempt's name.
    ///
    /// # Errors
    /// Those of `waystation-writer`; `interrupted` when the job is gone; those of `halfway`.
    pub(crate) fn save<P: Peers>(
        &mut self,
        trainer: &Trainer,
        peers: &mut P,
        halfway: &mut dyn FnMut(&mut P, &str) -> Result<()>,
    ) -> Result<Option<(String, Committed)>> {
        let (name, attempt) = self.attempt(trainer, peers)?;
        let common = self.plan.common(trainer.step, self.counter);
        self.counter = self.counter.saturating_add(1);
        let rank = u32::try_from(trainer.place.rank).unwrap_or(u32::MAX);

        // First say everything.
        let mut session = Session::begin(Arc::clone(&attempt), common, rank)?;
        session.producer(Producer {
            name: "waystation-tour".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        let owned = trainer.owned();
        let mut chunks = Vec::new();
        for piece in trainer.model.params.pieces(&owned)? {
            let own = piece.flat.start.saturating_sub(owned.start)
                ..piece.flat.end.saturating_sub(owned.start);
            for (identity, numbers) in [
                (piece.param.identity(), trainer.values.get(piece.flat.clone())),
                (piece.param.moment("adam.m"), trainer.moments.m.get(own.clone())),
                (piece.param.moment("adam.v"), trainer.moments.v.get(own.clone())),
            ] {
                let decl = TensorDecl::new(identity, Dtype::F32, &piece.param.shape);
                let chunk = session.chunk(&decl, &piece.region)?;
                chunks.push((chunk, to_bytes(numbers.unwrap_or_default())));
            }
        }
        for record in records(trainer)? {
            session.record(record);
        }

        // Then write it, in any order.
        let writing = session.lay_out()?;
        let half = chunks.len() / 2;
        for (number, (chunk, bytes)) in chunks.iter().enumerate() {
            if number == half {
                halfway(peers, &name)?;
            }
            writing.write_all(*chunk, bytes)?;
        }
        writing.finish()?;

        // Anybody may commit; here it is rank 0, which waits until all parts are there.
        if rank > 0 {
            return Ok(None);
        }
        let mut options = CommitOptions::in_run(Arc::clone(&self.run), &name);
        options.deadline = Some(PATIENCE);
        options.poll = POLL;
        let committed = commit(&attempt, &options, &NoProgress)?;
        Ok(Some((name, committed)))
    }

    /// Rank 0 makes the directory and then says so: writers never make it.
    fn attempt(
        &self,
        trainer: &Trainer,
        peers: &mut dyn Peers,
    ) -> Result<(String, Arc<dyn Store>)> {
        if trainer.place.rank > 0 {
            peers.receive(0)?;
            let name =
                names::attempt_dir(trainer.step, &self.plan.attempt(trainer.step, self.counter));
            let attempt = self.run.dir(&name)?.ok_or_else(|| {
                Error::new(Code::NotFound, "expected the attempt that rank 0 made, found none")
                    .in_file(&name)
            })?;
            return Ok((name, attempt));
        }
        let made = make_attempt(&self.run, &self.plan, trainer.step, self.counter)?;
        for other in 1..trainer.place.ranks {
            peers.send(other, &[])?;
        }
        Ok(made)
    }
}
