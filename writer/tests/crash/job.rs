//! A job of three writers whose every call has its place: one thread, one order.

use std::sync::Arc;

use waystation_format::common::Topology;
use waystation_format::{Dtype, Identity, Result, names};
use waystation_reader::NoProgress;
use waystation_store::{MemoryFs, Store};
use waystation_writer::{
    CommitOptions, Committed, SalvageOptions, SessionOptions, SessionPlan, Writing, commit,
    make_attempt, salvage,
};

use super::content::Content;
use super::support::{Declared, Model, declare, noise, optimizer, write};

pub const WRITERS: u32 = 3;

/// One save.
pub struct Job {
    pub plan: SessionPlan,
    pub step: u64,
    pub models: Vec<Model>,
}

impl Job {
    pub fn new(timeline: u32, step: u64) -> Self {
        let plan = SessionPlan {
            run: "crash".to_owned(),
            timeline,
            nonce: [u8::try_from(timeline).unwrap(); 16],
            writers: WRITERS,
            topology: Topology(vec![("dp".to_owned(), u64::from(WRITERS))]),
            parent: None,
            block_bytes: 4096,
        };
        let mut models = vec![
            // A strip is longer than a block: its shard has a table of CRCs.
            Model::param("embed.weight", Dtype::F32, &[12, 288]).rows(WRITERS),
            Model::param("norm", Dtype::BF16, &[5]).at(1),
            Model::new(optimizer("embed.weight", "adam.m"), Dtype::F32, &[12, 8]).rows(WRITERS),
        ];
        // No two saves hold the same bytes.
        for (n, model) in (0..).zip(&mut models) {
            let seed = (u64::from(timeline) << 32) | (step << 8) | n;
            model.bytes = noise(seed, model.bytes.len());
        }
        Self { plan, step, models }
    }

    /// The same step once more, by the job that comes after.
    pub fn next(&self) -> Self {
        Self::new(self.plan.timeline + 1, self.step)
    }

    pub fn name(&self) -> String {
        names::attempt_dir(self.step, &self.plan.attempt(self.step, self.step))
    }

    /// What it says, read from a disk on which nothing happened.
    pub fn content(&self) -> Content {
        let run = MemoryFs::new().store();
        self.save(&run).unwrap();
        let content = Content::of(&run.dir(&self.name()).unwrap().unwrap()).unwrap();
        assert_eq!(content.tensors.len(), self.models.len() + 1, "an alias");
        for model in &self.models {
            assert_eq!(content.tensors[&model.decl.identity.key()], model.bytes);
        }
        let tied = Identity::param("head.weight").key();
        assert_eq!(content.tensors[&tied], self.models[0].bytes);
        assert_eq!((content.records.len(), content.attachments.len()), (2, 1));
        content
    }

    pub fn make(&self, run: &Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        Ok(make_attempt(run, &self.plan, self.step, self.step)?.1)
    }

    pub fn lay_out(
        &self,
        attempt: &Arc<dyn Store>,
        writer: u32,
    ) -> Result<(Writing, Vec<Declared>)> {
        let (mut session, chunks) = declare(attempt, &self.plan, self.step, writer, &self.models)?;
        let mut options = SessionOptions::default();
        options.threads = 1;
        session.set_options(options);
        Ok((session.lay_out()?, chunks))
    }

    /// All writers at once: every file of every writer is made and written before the first fsync.
    pub fn write_parts(&self, run: &Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        let attempt = self.make(run)?;
        let mut team = Vec::new();
        for writer in 0..WRITERS {
            team.push(self.lay_out(&attempt, writer)?);
        }
        let most = team.iter().map(|(_, chunks)| chunks.len()).max().unwrap_or(0);
        for nth in 0..most {
            for (writing, chunks) in &team {
                if let Some((id, bytes)) = chunks.get(nth) {
                    writing.write_all(*id, bytes)?;
                }
            }
        }
        for (writing, _) in team {
            writing.finish()?;
        }
        Ok(attempt)
    }

    /// One writer from its begin to its part.
    pub fn finish(&self, attempt: &Arc<dyn Store>, writer: u32) -> Result<()> {
        let (writing, chunks) = self.lay_out(attempt, writer)?;
        write(&writing, &chunks)?;
        writing.finish().map(drop)
    }

    /// Puts some files of the attempt again, as one would who takes its names for free.
    pub fn overwrite(&self, attempt: &Arc<dyn Store>) -> Result<()> {
        for listed in attempt.list()?.iter().take(3) {
            let object = attempt.open(&listed.name)?;
            let mut bytes = vec![0; usize::try_from(object.bytes()).unwrap()];
            object.read_at(&mut bytes, 0)?;
            let file = attempt.create(&listed.name, Some(object.bytes()))?;
            file.write_at(&bytes, 0)?;
            file.finish()?;
        }
        attempt.sync()
    }

    pub fn commit(&self, run: &Arc<dyn Store>) -> Result<Committed> {
        let attempt = run.dir(&self.name())?.unwrap();
        let mut options = CommitOptions::in_run(Arc::clone(run), self.name());
        options.threads = 1;
        commit(&attempt, &options, &NoProgress)
    }

    pub fn salvage(&self, run: &Arc<dyn Store>) -> Result<Committed> {
        let attempt = run.dir(&self.name())?.unwrap();
        let mut options = SalvageOptions::new();
        options.run = Some(Arc::clone(run));
        options.name = Some(self.name());
        salvage(&attempt, &options, &NoProgress)
    }

    pub fn save(&self, run: &Arc<dyn Store>) -> Result<Committed> {
        self.write_parts(run)?;
        self.commit(run)
    }
}
