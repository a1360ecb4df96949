//! Small models, and saving them: what all tests of the writer begin with.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where, and each test uses a part of this"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use waystation_format::common::Topology;
use waystation_format::entry::Alias;
use waystation_format::identity::Identity;
use waystation_format::json::Value;
use waystation_format::part::{Omitted, OmittedReason};
use waystation_format::record::Record;
use waystation_format::{Digest, Dtype, Region, Result, Role, names, pack};
use waystation_reader::NoProgress;
use waystation_store::testing::FailingFs;
use waystation_store::{DirStore, MemoryFs, Put, Store};
use waystation_writer::{
    ChunkId, CommitOptions, Committed, Session, SessionOptions, SessionPlan, TensorDecl, Writing,
    commit, make_attempt,
};

/// A tensor and all its bytes, packed.
#[derive(Clone, Debug)]
pub struct Model {
    pub decl: TensorDecl,
    pub bytes: Vec<u8>,
    /// Which box each writer writes.
    pub boxes: Vec<(u32, Region)>,
}

impl Model {
    /// A tensor of bytes that only its name and place decide, whole at one writer.
    pub fn new(identity: Identity, dtype: Dtype, shape: &[u64]) -> Self {
        let elements: u64 = shape.iter().product();
        let length = pack::packed_bytes(dtype.bits(), elements).unwrap();
        let seed = identity.key().bytes().fold(7u64, |seed, b| seed * 31 % 65_537 + u64::from(b));
        let mut bytes = noise(seed, length as usize);
        zero_tail(dtype, elements, &mut bytes);
        let decl = TensorDecl::new(identity, dtype, shape);
        let whole = Region::whole(shape);
        let boxes = if elements == 0 { vec![] } else { vec![(0, whole)] };
        Self { decl, bytes, boxes }
    }

    pub fn param(name: &str, dtype: Dtype, shape: &[u64]) -> Self {
        Self::new(Identity::param(name), dtype, shape)
    }

    /// Split along axis 0 into one strip a writer.
    pub fn rows(mut self, writers: u32) -> Self {
        let rows = self.decl.shape[0];
        let share = rows.div_ceil(u64::from(writers));
        self.boxes.clear();
        for writer in 0..writers {
            let begin = (u64::from(writer) * share).min(rows);
            let end = (begin + share).min(rows);
            if begin < end {
                let mut region = Region::whole(&self.decl.shape);
                region.at[0] = begin;
                region.extent[0] = end - begin;
                self.boxes.push((writer, region));
            }
        }
        self
    }

    pub fn at(mut self, writer: u32) -> Self {
        for one in &mut self.boxes {
            one.0 = writer;
        }
        self
    }

    /// The packed bytes of a region.
    pub fn region(&self, region: &Region) -> Vec<u8> {
        let bits = self.decl.dtype.bits();
        let length = pack::packed_bytes(bits, region.elements().unwrap()).unwrap();
        let mut out = vec![0; length as usize];
        let whole = Region::whole(&self.decl.shape);
        pack::copy_region(bits, &self.bytes, &whole, &mut out, region, region).unwrap();
        out
    }
}

/// Bytes that look random and are always the same.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Clears the bits behind the last element.
pub fn zero_tail(dtype: Dtype, elements: u64, bytes: &mut [u8]) {
    let used = (elements * u64::from(dtype.bits())) % 8;
    if used != 0 {
        *bytes.last_mut().unwrap() &= (1u8 << used) - 1;
    }
}

pub fn optimizer(name: &str, slot: &str) -> Identity {
    let role = Role::Optimizer;
    Identity { role, slot: slot.to_owned(), owner: "main".to_owned(), ..Identity::param(name) }
}

/// A model with big, small, odd and empty tensors over `writers` writers.
pub fn sample(writers: u32) -> Vec<Model> {
    vec![
        Model::param("embed.weight", Dtype::F32, &[64, 40]).rows(writers),
        Model::param("packed", Dtype::F4E2M1, &[5]),
        Model::param("big", Dtype::BF16, &[96, 1024]).rows(writers),
        Model::param("none", Dtype::F32, &[0, 3]),
        Model::new(Identity::buffer("steps"), Dtype::I64, &[]).at(writers - 1),
        Model::new(optimizer("embed.weight", "adam.m"), Dtype::F32, &[64, 40]).rows(writers),
    ]
}

pub fn plan(run: &Arc<dyn Store>, writers: u32) -> SessionPlan {
    try_plan(run, writers).unwrap()
}

pub fn try_plan(run: &Arc<dyn Store>, writers: u32) -> Result<SessionPlan> {
    let topology = Topology(vec![("dp".to_owned(), u64::from(writers))]);
    let mut plan = SessionPlan::next_in(run, "test", writers, topology)?;
    plan.block_bytes = 4096;
    Ok(plan)
}

/// A chunk and its bytes.
pub type Declared = (ChunkId, Vec<u8>);

/// A session of one writer, with its chunks.
pub fn declare(
    attempt: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    writer: u32,
    models: &[Model],
) -> Result<(Session, Vec<Declared>)> {
    let mut session = Session::begin(Arc::clone(attempt), plan.common(step, step), writer)?;
    let mut chunks = Vec::new();
    for model in models {
        if writer == 0 {
            session.declare(&model.decl)?;
        }
        for (_, region) in model.boxes.iter().filter(|(of, _)| *of == writer) {
            chunks.push((session.chunk(&model.decl, region)?, model.region(region)));
        }
    }
    if writer == 0 {
        session.record(progress(step));
        let params = models.iter().map(|model| &model.decl.identity);
        if let Some(record) = optimizer_of(params, step) {
            session.record(record);
        }
        let has = |name: &String| {
            models.iter().any(|model| model.decl.identity == Identity::param(name.as_str()))
        };
        let slots = models.iter().map(|model| &model.decl.identity);
        let slots = slots.filter(|identity| identity.role == Role::Optimizer);
        let names: BTreeSet<String> =
            slots.map(|identity| identity.name.clone()).filter(|name| !has(name)).collect();
        if !names.is_empty() {
            let (component, names) = ("main".to_owned(), Vec::from_iter(names));
            session.omit(Omitted { component, names, reason: OmittedReason::Frozen });
        }
        session.attach_bytes("config.json", b"{}")?;
        if models.iter().any(|model| model.decl.identity == Identity::param("embed.weight")) {
            let target = Identity::param("embed.weight");
            let (component, name) = ("main".to_owned(), "head.weight".to_owned());
            session.alias(Alias {
                component,
                name,
                role: Role::Param,
                of: target,
                native: Vec::new(),
            })?;
        }
    }
    Ok((session, chunks))
}

/// How far training has come.
pub fn progress(step: u64) -> Record {
    let value = Value::Object([("optimizer_step".to_owned(), Value::Int(step as i64))].into());
    Record::new("progress", "main", vec![], &value).unwrap()
}

/// The optimizer whose slots are among these tensors, if there are any.
pub fn optimizer_of<'a>(tensors: impl Iterator<Item = &'a Identity>, step: u64) -> Option<Record> {
    let slots = tensors.filter(|identity| identity.role == Role::Optimizer);
    let params: BTreeSet<String> =
        slots.map(|identity| format!(r#"["main","{}"]"#, identity.name)).collect();
    if params.is_empty() {
        return None;
    }
    let params = Vec::from_iter(params).join(",");
    let value = format!(
        r#"{{"algorithm":"adamw","groups":[{{"hyper":[],"name":"all","params":[{params}]}}],"steps":[{{"params":"all","step":{step},"stored_as":"int"}}]}}"#
    );
    Some(Record::new("optimizer", "main", vec![], &Value::parse(&value).unwrap()).unwrap())
}

pub fn write(writing: &Writing, chunks: &[Declared]) -> Result<()> {
    chunks.iter().try_for_each(|(id, bytes)| writing.write_all(*id, bytes))
}

/// Writes as one writer up to the part.
pub fn write_part(
    attempt: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    writer: u32,
    models: &[Model],
) -> Result<()> {
    let (session, chunks) = declare(attempt, plan, step, writer, models)?;
    let writing = session.lay_out()?;
    write(&writing, &chunks)?;
    writing.finish().map(drop)
}

/// An attempt with all its parts, not committed.
pub fn write_parts(
    run: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    models: &[Model],
) -> Result<(String, Arc<dyn Store>)> {
    let (name, attempt) = make_attempt(run, plan, step, step)?;
    for writer in 0..plan.writers {
        write_part(&attempt, plan, step, writer, models)?;
    }
    Ok((name, attempt))
}

/// A committed checkpoint.
pub fn save(
    run: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    models: &[Model],
) -> Result<(String, Arc<dyn Store>, Committed)> {
    let (name, attempt) = write_parts(run, plan, step, models)?;
    let options = CommitOptions::in_run(Arc::clone(run), &name);
    let committed = commit(&attempt, &options, &NoProgress)?;
    Ok((name, attempt, committed))
}

/// A save by one writer on one thread, so that every call has its place; the attempt's name.
pub fn save_in_order(
    run: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    models: &[Model],
) -> Result<String> {
    let (name, attempt) = make_attempt(run, plan, step, step)?;
    let (mut session, chunks) = declare(&attempt, plan, step, 0, models)?;
    let mut options = SessionOptions::default();
    options.threads = 1;
    session.set_options(options);
    let writing = session.lay_out()?;
    write(&writing, &chunks)?;
    writing.finish()?;
    let mut options = CommitOptions::in_run(Arc::clone(run), &name);
    options.threads = 1;
    commit(&attempt, &options, &NoProgress)?;
    Ok(name)
}

pub fn memory_run() -> (MemoryFs, Arc<dyn Store>) {
    let fs = MemoryFs::new();
    let run = fs.store();
    (fs, run)
}

pub fn open(attempt: &Arc<dyn Store>) -> waystation_reader::Checkpoint {
    waystation_reader::Checkpoint::open_store(
        Arc::clone(attempt),
        waystation_reader::OpenOptions::default(),
    )
    .unwrap()
}

/// Everything reads back as it was.
pub fn check_equal(attempt: &Arc<dyn Store>, models: &[Model]) {
    let checkpoint = open(attempt);
    for model in models {
        let tensor = checkpoint.tensor(&model.decl.identity).unwrap();
        assert_eq!(tensor.read().unwrap(), model.bytes, "{}", model.decl.identity.key());
    }
}

/// A run on a disk that fails on demand.
pub fn failing_run() -> (FailingFs<MemoryFs>, MemoryFs, Arc<dyn Store>) {
    let memory = MemoryFs::new();
    let fs = FailingFs::new(memory.clone());
    let run = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
    (fs, memory, Arc::new(run))
}

/// A log with the attempt as `@` and without incarnations and digests.
pub fn masked(log: &[String], attempt: &str) -> Vec<String> {
    let mask = |line: &String| {
        let mut words = Vec::new();
        for word in line.replace(attempt, "@").split(' ') {
            let mut pieces: Vec<&str> = word.split('-').collect();
            pieces.retain(|piece| piece.split('.').next().unwrap().len() != 16);
            words.push(pieces.join("-"));
        }
        words.join(" ")
    };
    log.iter().map(mask).collect()
}

/// The bytes of a file.
pub fn read_file(store: &Arc<dyn Store>, name: &str) -> Vec<u8> {
    let object = store.open(name).unwrap();
    let mut bytes = vec![0; object.bytes() as usize];
    object.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// The first name that begins so.
pub fn find(store: &Arc<dyn Store>, prefix: &str) -> String {
    let listed = store.list().unwrap();
    listed.into_iter().find(|listed| listed.name.starts_with(prefix)).unwrap().name
}

/// A part that says something else, under the name that it then has.
pub fn rewrite_part(attempt: &Arc<dyn Store>, writer: u32, edit: &dyn Fn(&str) -> String) {
    let old = find(attempt, &format!("part-{writer:05}-"));
    let text = String::from_utf8(read_file(attempt, &old)).unwrap();
    let new = edit(&text);
    assert_ne!(new, text, "the edit must change something");
    attempt.remove(&old).unwrap();
    let name = names::part(writer, &Digest::of(new.as_bytes()));
    assert_eq!(attempt.put_new(&name, new.as_bytes()).unwrap(), Put::Created);
}
