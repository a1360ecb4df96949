//! What the example's training job has: tensors with their elements, records, an attachment.
//!
//! It knows values and how they are split over the two writers. It must not know files, offsets
//! or JSON beyond that of records.

use waystation_format::common::{Coordinate, Topology};
use waystation_format::entry::{Alias, Native, NativeStep, Tensor};
use waystation_format::identity::{Identity, MAIN};
use waystation_format::json::Value;
use waystation_format::record::Record;
use waystation_format::{Attempt, Digest, Dims, Dtype, Incarnation, Region, Result, Role};

/// The step of the example.
pub const STEP: u64 = 1000;
/// The smallest that the format allows, so that small tensors have block CRCs.
pub const BLOCK_BYTES: u64 = 4096;
/// The run.
pub const RUN: &str = "example";
/// Each writer's incarnation; a real one is drawn at random.
pub const INCARNATIONS: [Incarnation; 2] =
    [Incarnation(0x1111_1111_1111_1111), Incarnation(0x2222_2222_2222_2222)];
/// The logical path of the attachment, and what is in it.
pub const ATTACHMENT: (&str, &[u8]) = ("config.json", b"{\"hidden_size\": 64, \"layers\": 1}\n");

/// A first job's first save, with the nonce 00 01 02 … 0f.
#[must_use]
pub fn attempt() -> Attempt {
    const NONCE: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    Attempt::derive(1, &NONCE, STEP, 0)
}

/// Two ranks that split the batch, and one writer each.
#[must_use]
pub fn topology() -> Topology {
    Topology(vec![("dp".to_owned(), 2)])
}

/// A tensor without its chunks, its elements packed as one chunk, and who stores which box.
#[derive(Clone, Debug)]
pub struct Content {
    /// The entry, no chunk in it yet.
    pub tensor: Tensor,
    /// All elements, packed.
    pub elements: Vec<u8>,
    /// The writer of each box. A box is a run of whole rows, so its bytes are a run of
    /// `elements`.
    pub boxes: Vec<(u32, Region)>,
}

/// The five tensors, numbered in this order.
#[must_use]
pub fn tensors() -> Vec<Content> {
    let block = Identity::param("block.0.weight");
    let momentum = Identity {
        role: Role::Optimizer,
        slot: "adam.m".to_owned(),
        owner: MAIN.to_owned(),
        ..block.clone()
    };
    let steps_seen = Identity { role: Role::Buffer, ..Identity::param("steps_seen") };
    let rows = |at: u64, count: u64| region(&[at, 0], &[count, 64]);

    let mut momentum = Tensor::new(momentum, Dtype::F32, &[48, 64]);
    momentum.axes = Some(vec![Some(0), Some(1)]);
    momentum.native = vec![Native {
        framework: "torch.dcp".to_owned(),
        path: ["optimizer", "state", "block.0.weight", "exp_avg"]
            .map(|step| NativeStep::Key(step.to_owned()))
            .to_vec(),
    }];
    let mut packed = noise(5, 3);
    if let Some(last) = packed.last_mut() {
        *last &= 0x0f; // five elements of 4 bits leave 4 bits unused
    }
    vec![
        Content {
            tensor: Tensor::new(Identity::param("embed.weight"), Dtype::F32, &[4, 8]),
            elements: noise(1, 4 * 8 * 4),
            boxes: vec![(0, region(&[0, 0], &[4, 8]))],
        },
        Content {
            tensor: Tensor::new(block, Dtype::BF16, &[48, 64]),
            elements: noise(2, 48 * 64 * 2),
            boxes: vec![(0, rows(0, 40)), (1, rows(40, 8))],
        },
        Content {
            tensor: Tensor::new(steps_seen, Dtype::I64, &[]),
            elements: STEP.to_le_bytes().to_vec(),
            boxes: vec![(1, region(&[], &[]))],
        },
        Content {
            tensor: momentum,
            elements: noise(4, 48 * 64 * 4),
            boxes: vec![(0, rows(0, 40)), (1, rows(40, 8))],
        },
        Content {
            tensor: Tensor::new(Identity::param("packed"), Dtype::F4E2M1, &[5]),
            elements: packed,
            boxes: vec![(1, region(&[0], &[5]))],
        },
    ]
}

/// The tied head.
#[must_use]
pub fn alias() -> Alias {
    Alias {
        component: MAIN.to_owned(),
        name: "lm_head.weight".to_owned(),
        role: Role::Param,
        of: Identity::param("embed.weight"),
        native: Vec::new(),
    }
}

/// `count` bytes that look like nothing: the top bytes of x₁, x₂, … where x₀ = `seed` and
/// xₙ₊₁ = 6364136223846793005 xₙ + 1442695040888963407 mod 2^64.
#[must_use]
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [.., top] = state.to_le_bytes();
        top
    };
    (0..count).map(|_| next()).collect()
}

/// The records of a writer. Both write `progress`, which merges; each has its own random stream.
///
/// # Errors
///
/// None in fact: the values are what they must be.
pub fn records(writer: u32) -> Result<Vec<Record>> {
    let mut records =
        vec![record("progress", "main", Vec::new(), PROGRESS)?, random_stream(writer)?];
    if writer == 0 {
        records.push(record("optimizer", "main", Vec::new(), OPTIMIZER)?);
        records.push(record("cursor", "train", Vec::new(), &cursor())?);
        records.push(record("value", "torch.lr_scheduler", Vec::new(), SCHEDULER)?);
    }
    Ok(records)
}

const PROGRESS: &str = r#"{"batch":32,"epoch":2,"iteration":1000,"optimizer_step":1000,"samples":32000,"skipped":0,"tokens":2048000}"#;

const OPTIMIZER: &str = concat!(
    r#"{"algorithm":"adamw","groups":[{"hyper":[["lr",{"f64":"3f50624dd2f1a9fc"}],"#,
    r#"["betas",{"tuple":[{"f64":"3feccccccccccccd"},{"f64":"3feff7ced916872b"}]}],"#,
    r#"["eps",{"f64":"3e45798ee2308c3a"}],["weight_decay",{"f64":"3f847ae147ae147b"}]],"#,
    r#""name":"default","params":[["main","block.0.weight"]]}],"#,
    r#""steps":[{"params":"all","step":1000,"stored_as":"F32[]"}]}"#
);

const SCHEDULER: &str = concat!(
    r#"{"map":[["last_epoch",1000],["base_lrs",{"list":[{"f64":"3f50624dd2f1a9fc"}]}],"#,
    r#"["verbose",false],["seed",{"int":"18446744073709551615"}]]}"#
);

/// Philox4x32-10 keyed with 42 and 43, 4000 words into subsequence 0.
fn random_stream(writer: u32) -> Result<Record> {
    let (state, next) = if writer == 0 {
        (
            "2a00000000000000a00f000000000000",
            r#"["c7f39578","ae44bf6c","b9b0a1bb","f42d5e4c","94199656"]"#,
        )
    } else {
        (
            "2b00000000000000a00f000000000000",
            r#"["6ec7056b","62129d9b","ebdefcb0","0fabee5b","c39c0677"]"#,
        )
    };
    let value = format!(
        r#"{{"algorithm":"philox4x32-10/torch-cuda","caches":[],"next_raw":{next},"on_reshape":"fork","origin":{{"form":"torch.cuda.get_rng_state","framework":"torch"}},"state":"{state}"}}"#
    );
    record("rng", "dropout", vec![("dp".to_owned(), u64::from(writer))], &value)
}

/// 12,000 records in their own order, read 32 at a time: 1000 steps are two epochs and 8000.
fn cursor() -> String {
    const COUNT: u64 = 64;
    const POSITION: u64 = 8000;
    let end = POSITION.saturating_add(COUNT);
    let ordinals: Vec<u8> = (POSITION..end).flat_map(u64::to_le_bytes).collect();
    format!(
        concat!(
            r#"{{"consumed":32000,"epoch":2,"epoch_end":{{"rule":"drop-last","unit":32}},"#,
            r#""kind":"permuted-index","next":{{"count":{},"first":[8000,8001,8002,8003],"sha256":"{}"}},"#,
            r#""order":{{"algorithm":"identity","n":12000}},"position":{},"#,
            r#""source":{{"records":12000,"sha256":"{}"}}}}"#
        ),
        COUNT,
        Digest::of(&ordinals),
        POSITION,
        Digest::of(b"the example's data"),
    )
}

fn record(kind: &str, name: &str, coordinate: Coordinate, value: &str) -> Result<Record> {
    Record::new(kind, name, coordinate, &Value::parse(value)?)
}

fn region(at: &[u64], extent: &[u64]) -> Region {
    Region { at: Dims::from_slice(at), extent: Dims::from_slice(extent) }
}
