//! A checkpoint as small as the format permits that has one of everything.
//!
//! It knows what is in it and how three writers share it. Nothing in it is drawn at random, so a
//! place that a test names is the same in every run.

use std::collections::BTreeMap;
use std::sync::Arc;

use waystation_format::common::{Coordinate, Topology};
use waystation_format::digest::Digest;
use waystation_format::entry::{Alias, Native, NativeStep};
use waystation_format::identity::Identity;
use waystation_format::json::Value;
use waystation_format::part::{Inventory, Omitted, OmittedReason, Producer};
use waystation_format::record::Record;
use waystation_format::{Dims, Dtype, Incarnation, Region, Role, names, pack};
use waystation_reader::NoProgress;
use waystation_store::{MemoryFs, Store};
use waystation_writer::{CommitOptions, Session, SessionPlan, TensorDecl, commit, make_attempt};

use crate::support::{noise, optimizer, optimizer_of, progress, zero_tail};

pub const WRITERS: u32 = 3;
/// The smallest that the format allows.
pub const BLOCK_BYTES: u64 = 4096;
/// Who attaches what, under which logical path.
pub const ATTACHMENTS: [(u32, &str, &[u8]); 3] = [
    (0, "config.json", b"{\"layers\": 1}\n"),
    (2, "tokenizer/vocab.txt", b"the\nof\nand\n"),
    (2, "tokenizer/empty", b""),
];

/// A tensor and its bytes.
pub struct Held {
    pub decl: TensorDecl,
    /// All elements packed as one chunk.
    pub bytes: Vec<u8>,
    /// Who writes which box, and the bytes of it.
    pub chunks: Vec<(u32, Region, Vec<u8>)>,
}

/// A committed checkpoint: its files, and what was put into it.
pub struct Small {
    /// By name. The name of a part says which bytes it has, so it is another in every checkpoint.
    pub files: BTreeMap<String, Vec<u8>>,
    pub tensors: Vec<Held>,
    pub alias: Alias,
    pub records: Vec<Record>,
}

impl Small {
    /// Saves it. `variant` decides step, nonce and every element, but no length and no name of a
    /// shard: two variants differ as two saves do whose files were mixed up.
    pub fn save(variant: u8) -> Self {
        let fs = MemoryFs::new();
        let run = fs.store();
        let step = step_of(variant);
        let plan = SessionPlan {
            run: "small".to_owned(),
            timeline: 1,
            nonce: [variant; 16],
            writers: WRITERS,
            topology: Topology(vec![("dp".to_owned(), 3)]),
            parent: Some(Digest::of(b"the checkpoint before")),
            block_bytes: BLOCK_BYTES,
        };
        let (name, attempt) = make_attempt(&run, &plan, step, 0).unwrap();
        let tensors = tensors(variant);
        let target = tensors[0].decl.identity.clone();
        let (component, second) = ("main".to_owned(), "head.weight".to_owned());
        let alias =
            Alias { component, name: second, role: Role::Param, of: target, native: Vec::new() };
        let mut records = Vec::new();
        for writer in 0..WRITERS {
            let common = plan.common(step, 0);
            let inc = Incarnation(0x1111_1111_1111_1111 * u64::from(writer + 1));
            let mut session =
                Session::with_incarnation(Arc::clone(&attempt), common, writer, inc).unwrap();
            records.extend(declare_rest(&mut session, writer, variant, &tensors, &alias));
            write_tensors(session, writer, &tensors);
        }
        records.sort_by_key(|record| record.key.key());
        records.dedup();
        commit(&attempt, &CommitOptions::in_run(Arc::clone(&run), &name), &NoProgress).unwrap();
        Self { files: files_of(&*attempt), tensors, alias, records }
    }

    /// The name of a writer's part.
    pub fn part_of(&self, writer: u32) -> &str {
        let mut names = self.files.keys();
        let own = |name: &&String| names::parse_part(name).is_some_and(|(of, _)| of == writer);
        names.find(own).unwrap()
    }
}

fn step_of(variant: u8) -> u64 {
    1000 + u64::from(variant)
}

/// Everything but chunks: what each writer says, and the records that it puts.
fn declare_rest(
    session: &mut Session,
    writer: u32,
    variant: u8,
    tensors: &[Held],
    alias: &Alias,
) -> Vec<Record> {
    let (name, version) = ("test".to_owned(), "1".to_owned());
    session.producer(Producer { name, version });
    let alias_key = {
        let of = &alias.of;
        let identity = Identity { name: alias.name.clone(), ..of.clone() };
        identity.key()
    };
    let keys: Vec<String> = tensors.iter().map(|held| held.decl.identity.key()).collect();
    let keys = keys.iter().map(String::as_str).chain([alias_key.as_str()]);
    session.inventory(Inventory::of(keys));
    for (_, path, bytes) in ATTACHMENTS.iter().filter(|(of, ..)| *of == writer) {
        // The variant's digit takes the place of a character, so that the length stays.
        let mut bytes = bytes.to_vec();
        if let Some(first) = bytes.first_mut() {
            *first = b'0' + variant;
        }
        session.attach_bytes(path, &bytes).unwrap();
    }
    if writer == 0 {
        session.alias(alias.clone()).unwrap();
        session.omit(Omitted {
            component: "main".to_owned(),
            names: vec!["frozen.weight".to_owned()],
            reason: OmittedReason::Frozen,
        });
    }
    let record = |kind, name, coordinate: Coordinate, value: &str| {
        Record::new(kind, name, coordinate, &Value::parse(value).unwrap()).unwrap()
    };
    let step = step_of(variant);
    let mut records = vec![
        progress(step),
        record(
            "rng",
            "dropout",
            vec![("dp".to_owned(), u64::from(writer))],
            &format!(
                r#"{{"algorithm":"acme","caches":[],"next_raw":[],"on_reshape":"fork","state":"{variant:02x}{writer:02x}"}}"#
            ),
        ),
    ];
    if writer == 0 {
        let tensors = tensors.iter().map(|held| &held.decl.identity);
        records.extend(optimizer_of(tensors, step));
    }
    if writer == 1 {
        let tree = r#"{"map":[["lr",{"f64":"3f50624dd2f1a9fc"}]]}"#;
        records.push(record("value", "torch.lr_scheduler", vec![], tree));
    }
    for record in &records {
        session.record(record.clone());
    }
    records
}

fn write_tensors(mut session: Session, writer: u32, tensors: &[Held]) {
    let mut chunks = Vec::new();
    for held in tensors {
        if writer == 0 {
            session.declare(&held.decl).unwrap();
        }
        for (_, region, bytes) in held.chunks.iter().filter(|(of, ..)| *of == writer) {
            chunks.push((session.chunk(&held.decl, region).unwrap(), bytes));
        }
    }
    let writing = session.lay_out().unwrap();
    for (id, bytes) in chunks {
        writing.write_all(id, bytes).unwrap();
    }
    writing.finish().unwrap();
}

fn files_of(attempt: &dyn Store) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for listed in attempt.list().unwrap() {
        let object = attempt.open(&listed.name).unwrap();
        let mut bytes = vec![0; object.bytes() as usize];
        object.read_at(&mut bytes, 0).unwrap();
        files.insert(listed.name, bytes);
    }
    files
}

fn region(at: &[u64], extent: &[u64]) -> Region {
    Region { at: Dims::from_slice(at), extent: Dims::from_slice(extent) }
}

/// Whole rows of a matrix: `count` from `at` on.
fn rows(shape: &[u64], at: u64, count: u64) -> Region {
    let mut rows = Region::whole(shape);
    rows.at[0] = at;
    rows.extent[0] = count;
    rows
}

/// One of everything: big and small, split and whole, odd bits, none at all.
fn tensors(variant: u8) -> Vec<Held> {
    let split = [70, 16];
    let nibbles = [3, 3];
    let whole = |decl: TensorDecl, writer| {
        let all = Region::whole(&decl.shape);
        hold(variant, decl, vec![(writer, all)])
    };
    let param =
        |name: &str, dtype, shape: &[u64]| TensorDecl::new(Identity::param(name), dtype, shape);
    let buffer =
        |name: &str, dtype, shape: &[u64]| TensorDecl::new(Identity::buffer(name), dtype, shape);

    let mut moment = TensorDecl::new(optimizer("norm", "adam.m"), Dtype::F32, &[3, 5]);
    moment.axes = Some(vec![Some(0), Some(1)]);
    moment.valid = Some(Dims::from_slice(&[3, 4]));
    let path = vec![NativeStep::Key("state".to_owned()), NativeStep::Index(3)];
    moment.native = vec![Native { framework: "torch.dcp".to_owned(), path }];

    let (role, slot) = (Role::Quant, "scale".to_owned());
    let scale = Identity { role, slot, ..Identity::param("nibbles") };
    let mut scale = TensorDecl::new(scale, Dtype::F32, &nibbles);
    scale.block = Some(4);

    let mut scoped = buffer("mean", Dtype::F32, &[2]);
    scoped.identity.scope = vec![("dp".to_owned(), 1)];

    vec![
        // Two chunks of two rows, and one of 4224 bytes, which is longer than a block.
        hold(
            variant,
            param("embed.weight", Dtype::F32, &split),
            vec![(0, rows(&split, 0, 2)), (1, rows(&split, 2, 2)), (2, rows(&split, 4, 66))],
        ),
        whole(param("norm", Dtype::BF16, &[3, 5]), 0),
        whole(buffer("mask", Dtype::Bool, &[5]), 1),
        // Three elements leave four bits unused, six none.
        hold(
            variant,
            param("nibbles", Dtype::U4, &nibbles),
            vec![(0, rows(&nibbles, 0, 1)), (2, rows(&nibbles, 1, 2))],
        ),
        whole(param("sixes", Dtype::F6E3M2, &[7]), 1),
        whole(buffer("freqs", Dtype::C64, &[3]), 1),
        whole(param("eights", Dtype::F8E4M3FNUZ, &[2, 3]), 2),
        whole(buffer("seen", Dtype::I64, &[]), 1),
        hold(variant, param("none", Dtype::F32, &[0, 3]), vec![]),
        whole(scoped, 1),
        whole(moment, 1),
        whole(scale, 1),
    ]
}

fn hold(variant: u8, decl: TensorDecl, boxes: Vec<(u32, Region)>) -> Held {
    let bits = decl.dtype.bits();
    let elements = |region: &Region| {
        let elements = region.elements().unwrap();
        decl.block.map_or(elements, |block| elements.div_ceil(block))
    };
    let all = Region::whole(&decl.shape);
    let length = pack::packed_bytes(bits, elements(&all)).unwrap();
    let seed = decl.identity.key().bytes().fold(7u64, |seed, b| seed * 31 % 65_537 + u64::from(b));
    let mut bytes = noise(seed + (u64::from(variant) << 20), length as usize);
    zero_tail(decl.dtype, elements(&all), &mut bytes);
    let chunks = boxes.into_iter().map(|(writer, region)| {
        let bytes = if region == all { bytes.clone() } else { cut(&decl, &bytes, &region) };
        (writer, region, bytes)
    });
    let chunks = chunks.collect();
    Held { decl, bytes, chunks }
}

/// The packed bytes of a box of an ordinary tensor.
pub fn cut(decl: &TensorDecl, bytes: &[u8], region: &Region) -> Vec<u8> {
    let bits = decl.dtype.bits();
    let length = pack::packed_bytes(bits, region.elements().unwrap()).unwrap();
    let mut out = vec![0; length as usize];
    let whole = Region::whole(&decl.shape);
    pack::copy_region(bits, bytes, &whole, &mut out, region, region).unwrap();
    out
}

/// Regions that cross chunks, blocks and bytes, of the tensor at the position given.
pub fn regions() -> Vec<(usize, Region)> {
    vec![
        // Six rows out of the first block of the long chunk.
        (0, region(&[4, 0], &[6, 16])),
        // The last row of each of two chunks, and the first block.
        (0, region(&[1, 3], &[5, 7])),
        // Its end, in the second block only.
        (0, region(&[69, 8], &[1, 8])),
        // A column of elements of half a byte, out of both chunks.
        (3, region(&[0, 1], &[3, 1])),
    ]
}
