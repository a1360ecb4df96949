//! What a save of a step holds: decided by step and timeline alone, so that any process can say
//! what must be read, and two attempts of one step never hold the same bytes.

use std::sync::Arc;

use waystation_format::common::Common;
use waystation_format::entry::Alias;
use waystation_format::identity::Identity;
use waystation_format::json::Value;
use waystation_format::record::{Record, RecordKey};
use waystation_format::{Dtype, Region, Result, Role, pack};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::Store;
use waystation_writer::{ChunkId, Session, SessionOptions, TensorDecl, Writing};

/// Writers of a job.
pub const WRITERS: u32 = 3;
/// Bytes of a block: small, so that most chunks have a table.
pub const BLOCK_BYTES: u64 = 1 << 16;
/// Small, so that a writer has several shards.
const SHARD_TARGET_BYTES: u64 = 300 << 10;
/// Bytes of one write.
const PIECE: usize = 1 << 16;

/// A tensor, all its bytes, and which rows each writer has.
struct Known {
    decl: TensorDecl,
    bytes: Vec<u8>,
    boxes: Vec<(u32, Region)>,
}

/// 4 MiB in seven tensors: split and whole, model and state, above and below a block.
fn tensors(step: u64, timeline: u32) -> Vec<Known> {
    let seed = step << 32 | u64::from(timeline);
    let slot = |slot: &str| Identity {
        role: Role::Optimizer,
        slot: slot.to_owned(),
        owner: "main".to_owned(),
        ..Identity::param("block.weight")
    };
    let tensors: [(Identity, Dtype, &[u64], Option<u32>); 7] = [
        (Identity::param("embed.weight"), Dtype::F32, &[96, 512], None),
        (Identity::param("block.weight"), Dtype::BF16, &[384, 1024], None),
        (Identity::param("norm.weight"), Dtype::F32, &[512], Some(1)),
        (Identity::param("packed"), Dtype::F4E2M1, &[33], Some(2)),
        (Identity::buffer("seen"), Dtype::I64, &[], Some(0)),
        (slot("adam.m"), Dtype::F32, &[384, 1024], None),
        (slot("adam.v"), Dtype::F32, &[384, 1024], None),
    ];
    (0..)
        .zip(tensors)
        .map(|(n, (identity, dtype, shape, owner))| {
            let elements: u64 = shape.iter().product();
            let mut bytes =
                noise(seed ^ n << 56, pack::packed_bytes(dtype.bits(), elements).unwrap());
            if dtype == Dtype::F4E2M1 && elements % 2 == 1 {
                *bytes.last_mut().unwrap() &= 0x0f;
            }
            let boxes = match owner {
                Some(writer) => vec![(writer, Region::whole(shape))],
                None => (0..WRITERS).map(|writer| (writer, rows(shape, writer))).collect(),
            };
            Known { decl: TensorDecl::new(identity, dtype, shape), bytes, boxes }
        })
        .collect()
}

fn rows(shape: &[u64], writer: u32) -> Region {
    let share = shape[0] / u64::from(WRITERS);
    let mut region = Region::whole(shape);
    (region.at[0], region.extent[0]) = (u64::from(writer) * share, share);
    region
}

impl Known {
    fn region(&self, region: &Region) -> Vec<u8> {
        let bits = self.decl.dtype.bits();
        let length = pack::packed_bytes(bits, region.elements().unwrap()).unwrap();
        let mut out = vec![0; length as usize];
        let whole = Region::whole(&self.decl.shape);
        pack::copy_region(bits, &self.bytes, &whole, &mut out, region, region).unwrap();
        out
    }
}

/// Bytes that look random and are always the same.
fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut bytes = Vec::with_capacity(length as usize + 8);
    while bytes.len() < length as usize {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(length as usize);
    bytes
}

/// SplitMix64.
#[derive(Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn progress(step: u64, timeline: u32) -> Record {
    let members = [("optimizer_step", step), ("iteration", step), ("epoch", u64::from(timeline))];
    let members = members.map(|(name, n)| (name.to_owned(), Value::Int(n as i64)));
    Record::new("progress", "main", vec![], &Value::Object(members.into())).unwrap()
}

/// The optimizer that the slots belong to.
fn optimizer(step: u64) -> Record {
    let value = format!(
        r#"{{"algorithm":"adamw","groups":[{{"hyper":[],"name":"all","params":[["main","block.weight"]]}}],"steps":[{{"params":"all","step":{step},"stored_as":"int"}}]}}"#
    );
    Record::new("optimizer", "main", vec![], &Value::parse(&value).unwrap()).unwrap()
}

/// One a place along `dp`, each from its own writer.
fn place(step: u64, writer: u32) -> Record {
    let text = format!(r#"{{"map":[["step",{step}],["writer",{writer}]]}}"#);
    let coordinate = vec![("dp".to_owned(), u64::from(writer))];
    Record::new("value", "place", coordinate, &Value::parse(&text).unwrap()).unwrap()
}

fn config(step: u64, timeline: u32) -> Vec<u8> {
    format!("{{\"step\":{step},\"timeline\":{timeline}}}").into_bytes()
}

fn tokenizer(step: u64) -> Vec<u8> {
    noise(step, 10_000)
}

fn alias() -> Alias {
    let (component, name) = ("main".to_owned(), "head.weight".to_owned());
    Alias {
        component,
        name,
        role: Role::Param,
        of: Identity::param("embed.weight"),
        native: Vec::new(),
    }
}

/// Declared chunks and their bytes.
pub type Chunks = Vec<(ChunkId, Vec<u8>)>;

/// Says and lays out what `writer` writes. With the chunks and their bytes.
pub fn lay_out(
    mut session: Session,
    common: &Common,
    writer: u32,
    threads: usize,
) -> Result<(Writing, Chunks)> {
    let (step, timeline) = (common.step, common.attempt.timeline);
    let mut options = SessionOptions::default();
    options.shard_target_bytes = SHARD_TARGET_BYTES;
    options.threads = threads;
    session.set_options(options);
    let mut chunks = Chunks::new();
    for known in tensors(step, timeline) {
        for (_, region) in known.boxes.iter().filter(|(of, _)| *of == writer) {
            chunks.push((session.chunk(&known.decl, region)?, known.region(region)));
        }
    }
    session.record(progress(step, timeline));
    session.record(place(step, writer));
    if writer == 0 {
        session.record(optimizer(step));
        session.alias(alias())?;
        session.attach_bytes("config.json", &config(step, timeline))?;
    }
    if writer == 2 {
        session.attach_bytes("text/tokenizer.json", &tokenizer(step))?;
    }
    Ok((session.lay_out()?, chunks))
}

/// Writes all chunks, a piece at a time.
pub fn write(writing: &Writing, chunks: &Chunks) -> Result<()> {
    for (id, bytes) in chunks {
        for (piece, bytes) in (0..).zip(bytes.chunks(PIECE)) {
            writing.write(*id, piece * PIECE as u64, bytes)?;
        }
    }
    Ok(())
}

/// Reads everything back and compares, down to the last record.
pub fn check(store: &Arc<dyn Store>, step: u64, timeline: u32) {
    let checkpoint = Checkpoint::open_store(Arc::clone(store), OpenOptions::default()).unwrap();
    assert_eq!(
        (checkpoint.step(), checkpoint.manifest().common.attempt.timeline),
        (step, timeline)
    );
    let known = tensors(step, timeline);
    assert_eq!(checkpoint.entries().count(), known.len() + 1);
    for known in &known {
        let tensor = checkpoint.tensor(&known.decl.identity).unwrap();
        assert!(tensor.read().unwrap() == known.bytes, "{}", known.decl.identity.key());
    }
    let tied = checkpoint.tensor(&alias().identity()).unwrap();
    assert_eq!(*tied.identity(), alias().of);

    let mut records: Vec<Record> = (0..WRITERS).map(|writer| place(step, writer)).collect();
    records.splice(0..0, [optimizer(step), progress(step, timeline)]);
    let found: Vec<Record> = checkpoint.records().map(Result::unwrap).collect();
    assert_eq!(found, records);
    let key = RecordKey { kind: "progress".into(), name: "main".into(), coordinate: vec![] };
    assert!(checkpoint.record(&key).unwrap().is_some());

    let attached =
        [("config.json", config(step, timeline)), ("text/tokenizer.json", tokenizer(step))];
    assert_eq!(checkpoint.attachments().count(), attached.len());
    for (path, expected) in attached {
        let mut bytes = Vec::new();
        checkpoint.read_attachment(path, &mut bytes).unwrap();
        assert!(bytes == expected, "{path}");
    }
}
