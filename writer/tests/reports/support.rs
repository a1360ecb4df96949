//! A small job, saved by the real writer: what all reports begin with.
//!
//! It knows how a trainer's state becomes a checkpoint in memory, and how to ask what is wrong
//! with one. It must not know any report.

use std::fmt::Debug;
use std::sync::Arc;

use waystation_format::common::Common;
use waystation_format::entry::Alias;
use waystation_format::inventory::InventoryBuilder;
use waystation_format::json::Value;
use waystation_format::records::cursor::{EpochEnd, Node, Order, PermutedIndex, SeedRule, Source};
use waystation_format::records::optimizer::{Group, Param, StepParams, Steps};
use waystation_format::records::rng::{Cache, OnReshape, State};
use waystation_format::records::{Cursor, Optimizer, Stream, Typed};
use waystation_format::{
    Code, Coordinate, Digest, Dtype, Grade, Identity, Record, Region, Result, RngAlgorithm,
    RngCache, Role, Topology,
};
use waystation_reader::restore::{Place, RestoreOptions, Restored};
use waystation_reader::{Checkpoint, NoProgress, OpenOptions, VerifyOptions, verify};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Walk};
use waystation_state::rng::{StreamState, canary};
use waystation_store::MemoryFs;
use waystation_writer::{
    CommitOptions, Session, SessionOptions, SessionPlan, TensorDecl, commit, make_attempt,
};

/// The step of every checkpoint here.
pub const STEP: u64 = 1000;

/// What one writer of a job writes.
#[derive(Clone, Debug, Default)]
struct Share {
    pieces: Vec<(TensorDecl, Region, Vec<u8>)>,
    aliases: Vec<Alias>,
    records: Vec<Record>,
    /// Steps that it is ahead of the others.
    ahead: u64,
}

/// A job at an optimizer step, about to be saved.
#[derive(Clone, Debug)]
pub struct Job {
    topology: Topology,
    shares: Vec<Share>,
    promised: Vec<String>,
}

impl Job {
    /// A job of one writer.
    pub fn new(topology: &[(&str, u64)]) -> Self {
        Self {
            topology: Topology(axes(topology)),
            shares: vec![Share::default()],
            promised: vec![],
        }
    }

    pub fn writers(mut self, writers: usize) -> Self {
        self.shares.resize(writers, Share::default());
        self
    }

    /// A tensor that writer 0 writes whole.
    pub fn whole(self, identity: Identity, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Self {
        let decl = TensorDecl::new(identity, dtype, shape);
        self.piece(0, &decl, &Region::whole(shape), bytes)
    }

    pub fn piece(mut self, writer: usize, decl: &TensorDecl, at: &Region, bytes: &[u8]) -> Self {
        self.shares[writer].pieces.push((decl.clone(), at.clone(), bytes.to_vec()));
        self
    }

    pub fn alias(mut self, name: &str, of: Identity) -> Self {
        let (component, name) = ("main".to_owned(), name.to_owned());
        self.shares[0].aliases.push(Alias {
            component,
            name,
            role: of.role,
            of,
            native: Vec::new(),
        });
        self
    }

    /// A record of writer 0 that is the same at every place.
    pub fn record(self, name: &str, typed: Typed) -> Self {
        self.record_at(0, &[], name, typed)
    }

    /// A record of one writer, for a place.
    pub fn record_at(
        mut self,
        writer: usize,
        coordinate: &[(&str, u64)],
        name: &str,
        typed: Typed,
    ) -> Self {
        let record = Record::of(name, axes(coordinate), &typed).unwrap();
        self.shares[writer].records.push(record);
        self
    }

    /// A writer that has done one more step than the others.
    pub fn ahead(mut self, writer: usize) -> Self {
        self.shares[writer].ahead = 1;
        self
    }

    /// The launcher says which tensors and aliases there must be.
    pub fn promise(mut self, all: &[Identity]) -> Self {
        self.promised = all.iter().map(Identity::key).collect();
        self.promised.sort();
        self
    }

    /// Saves through a session for each writer, and commits.
    ///
    /// # Errors
    /// The first thing that the library refuses.
    pub fn try_save(&self) -> Result<Checkpoint> {
        self.save_with(SessionOptions::default())
    }

    /// Saves as writers do that do not look at what they write.
    pub fn save_unchecked(&self) -> Checkpoint {
        let mut options = SessionOptions::default();
        options.check_state = false;
        self.save_with(options).unwrap()
    }

    fn save_with(&self, options: SessionOptions) -> Result<Checkpoint> {
        let run = MemoryFs::new().store();
        let writers = u32::try_from(self.shares.len()).unwrap();
        let plan = SessionPlan::next_in(&run, "run", writers, self.topology.clone())?;
        let (name, attempt) = make_attempt(&run, &plan, STEP, 0)?;
        for (writer, share) in (0..).zip(&self.shares) {
            let common = plan.common(STEP, 0);
            let common = Common { step: STEP + share.ahead, ..common };
            let mut session = Session::begin(Arc::clone(&attempt), common, writer)?;
            session.set_options(options);
            let mut chunks = Vec::new();
            for (decl, region, bytes) in &share.pieces {
                chunks.push((session.chunk(decl, region)?, bytes));
            }
            for alias in &share.aliases {
                session.alias(alias.clone())?;
            }
            for record in &share.records {
                session.record(record.clone());
            }
            if !self.promised.is_empty() {
                let mut inventory = InventoryBuilder::new();
                self.promised.iter().for_each(|key| inventory.push(key));
                session.inventory(inventory.finish());
            }
            let writing = session.lay_out()?;
            for (chunk, bytes) in chunks {
                writing.write_all(chunk, bytes)?;
            }
            writing.finish()?;
        }
        let mut commit_options = CommitOptions::in_run(run, name);
        commit_options.check_state = options.check_state;
        commit(&attempt, &commit_options, &NoProgress)?;
        Checkpoint::open_store(attempt, OpenOptions::default())
    }

    /// A checkpoint in which nothing is wrong.
    pub fn save(&self) -> Checkpoint {
        let checkpoint = self.try_save().unwrap();
        assert_eq!(findings(&checkpoint), []);
        checkpoint
    }

    /// A checkpoint that is committed, and the one thing that verification finds in it. A writer
    /// that looks at what it writes finds the same before, unless it takes other records to see it.
    pub fn save_broken(&self) -> (Checkpoint, (Code, &'static str)) {
        let checkpoint = self.save_unchecked();
        let found = findings(&checkpoint);
        let [one] = found[..] else { panic!("expected one finding, found {found:?}") };
        match self.try_save() {
            Err(e) => assert_eq!((e.code(), e.rule_id().unwrap_or_default()), one),
            Ok(_) => assert!(matches!(one.0, Code::Dangling | Code::StateDisagree), "{one:?}"),
        }
        (checkpoint, one)
    }
}

/// Code and rule of all that verification finds.
pub fn findings(checkpoint: &Checkpoint) -> Vec<(Code, &'static str)> {
    let report = verify(checkpoint.store(), &VerifyOptions::default()).unwrap();
    report.findings.iter().map(|e| (e.code(), e.rule_id().unwrap_or_default())).collect()
}

/// Code and rule of a refusal.
pub fn refused<T: Debug>(result: Result<T>) -> (Code, &'static str) {
    let error = result.unwrap_err();
    (error.code(), error.rule_id().unwrap_or_default())
}

pub fn axes(axes: &[(&str, u64)]) -> Coordinate {
    axes.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect()
}

/// The place at these indices of a topology.
pub fn place(sizes: &[(&str, u64)], at: &[u64]) -> Place {
    let coordinate = sizes.iter().zip(at).map(|((axis, _), index)| ((*axis).to_owned(), *index));
    Place::new(Topology(axes(sizes)), coordinate.collect()).unwrap()
}

/// What a caller gets who demands everything exactly and brings the corpus.
pub fn restore(checkpoint: &Checkpoint, place: &Place) -> Result<Restored> {
    checkpoint.restore(place, &bringing_corpus())
}

pub fn bringing_corpus() -> RestoreOptions {
    RestoreOptions::default().with_source("train", CORPUS, corpus().sha256)
}

/// The grade of a record in a report, with the reason.
pub fn grade(restored: &Restored, kind: &str, name: &str) -> (Grade, String) {
    let graded = restored.report.iter().find(|g| g.key.kind == kind && g.key.name == name);
    let graded = graded.unwrap();
    (graded.grade, graded.reason.clone().unwrap_or_default())
}

/// A stream in the neutral form as a record says it.
pub fn recorded(state: &StreamState, on_reshape: OnReshape) -> Stream {
    let caches = state.caches.iter().map(|cache| {
        let digits = RngCache::from_id(&cache.kind).unwrap().bits() as usize / 4;
        Cache { bits: format!("{:0digits$x}", cache.bits), kind: cache.kind.clone() }
    });
    let outputs = if state.algorithm.has_canary() { 5 } else { 0 };
    Stream {
        algorithm: state.algorithm.as_str().to_owned(),
        caches: caches.collect(),
        fork: None,
        next_raw: canary(state.algorithm, &state.state, outputs).unwrap(),
        on_reshape,
        origin: None,
        purpose: None,
        seed_rule: None,
        state: State::Inline(state.state.clone()),
    }
}

/// A stream on CUDA at an offset.
pub fn cuda(seed: u64, offset: u64) -> StreamState {
    let state = [seed.to_le_bytes(), offset.to_le_bytes()].concat();
    StreamState::new(RngAlgorithm::Philox4x32TorchCuda, state).unwrap()
}

pub fn rng(state: &StreamState, on_reshape: OnReshape) -> Typed {
    Typed::Rng(Box::new(recorded(state, on_reshape)))
}

/// A stream whose record says that its next outputs are those of another one.
pub fn mixed_up(state: &StreamState, canary_of: &StreamState) -> Typed {
    let next_raw = recorded(canary_of, OnReshape::Require).next_raw;
    Typed::Rng(Box::new(Stream { next_raw, ..recorded(state, OnReshape::Require) }))
}

/// The same generator after some draws.
pub fn drawn(state: &StreamState, outputs: usize) -> StreamState {
    let mut engine = state.engine().unwrap();
    engine.draw(outputs);
    StreamState { state: engine.encode().unwrap(), ..state.clone() }
}

/// Records of the corpus.
pub const CORPUS: u64 = 100;

pub fn corpus() -> Source {
    let sha256 = Digest::of(b"the corpus, first edition");
    Source { name: None, records: CORPUS, sha256 }
}

/// The corpus in an order that differs from epoch to epoch.
pub fn shuffled(seed: u64, epoch: u64, position: u64) -> Node {
    let order = Order::TorchRandpermCpu { seed, seed_rule: SeedRule::SeedPlusEpoch };
    leaf(order, epoch, position)
}

pub fn leaf(order: Order, epoch: u64, position: u64) -> Node {
    let (epoch_end, source) = (EpochEnd::Wrap, corpus());
    Node::PermutedIndex(PermutedIndex { epoch, epoch_end, n: CORPUS, order, position, source })
}

/// A cursor with the canary that it has.
pub fn cursor(root: Node, consumed: u64) -> Cursor {
    let bare =
        Cursor { augment: None, consumed: Some(consumed), next: None, partition: None, root };
    walk(&bare).cursor(8).unwrap()
}

pub fn walk(cursor: &Cursor) -> Walk {
    Walk::new(cursor, &NoTensors, Budget::of_validator()).unwrap()
}

pub fn data(cursor: &Cursor) -> Typed {
    Typed::Cursor(Box::new(cursor.clone()))
}

/// The next records of a cursor: their ordinals.
pub fn ordinals(cursor: &Cursor, count: usize) -> Vec<u64> {
    walk(cursor).take(count).map(|item| *item.unwrap().integers().last().unwrap()).collect()
}

/// Where the cursor `train` of a place goes on.
pub fn train(restored: &Restored) -> &Cursor {
    restored.cursors.iter().find(|c| c.name == "train").and_then(|c| c.cursor.as_ref()).unwrap()
}

pub fn param(name: &str) -> Param {
    Param { component: "main".to_owned(), name: name.to_owned() }
}

/// An optimizer of one group, at the checkpoint's step.
pub fn optimizer(params: &[&str]) -> Optimizer {
    let params = params.iter().map(|name| param(name)).collect();
    let group = Group { hyper: vec![], implementation: None, name: "all".to_owned(), params };
    Optimizer {
        algorithm: "adamw".to_owned(),
        groups: vec![group],
        masters: None,
        steps: vec![Steps { params: StepParams::All, step: STEP, stored_as: "F32[]".to_owned() }],
    }
}

/// A slot of a parameter, of the optimizer `main`.
pub fn slot(name: &str, slot: &str) -> Identity {
    let (role, owner) = (Role::Optimizer, "main".to_owned());
    Identity { role, slot: slot.to_owned(), owner, ..Identity::param(name) }
}

/// Bytes of so many elements of 4 bytes that all differ.
pub fn floats(count: u16) -> Vec<u8> {
    (0..count).flat_map(|i| (f32::from(i) + 0.123_456_7).to_le_bytes()).collect()
}

pub fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}
