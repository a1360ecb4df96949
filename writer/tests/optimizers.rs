//! Whole optimizer states through the writer, `reshard` and `restore`: what a loader of another
//! framework has to get back.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use waystation_format::entry::Alias;
use waystation_format::identity::Identity;
use waystation_format::part::{Omitted, OmittedReason};
use waystation_format::record::Record;
use waystation_format::records::optimizer::{Group, Optimizer, Param, StepParams, Steps};
use waystation_format::records::{Progress, Typed};
use waystation_format::value_tree::Tree;
use waystation_format::{Dtype, Grade, Region, Role, Topology};
use waystation_reader::restore::{Cut, Place, Placement, RestoreOptions};
use waystation_reader::{Checkpoint, NoProgress, verify};
use waystation_store::Store;
use waystation_writer::{
    CommitOptions, ReshardOptions, Session, TensorDecl, commit, make_attempt, reshard,
};

use support::*;

const STEP: u64 = 1000;

fn param(name: &str) -> Param {
    Param { component: "main".to_owned(), name: name.to_owned() }
}

fn group(name: &str, params: &[&str], hyper: Vec<(&str, Tree)>) -> Group {
    Group {
        hyper: hyper.into_iter().map(|(name, tree)| (name.to_owned(), tree)).collect(),
        implementation: None,
        name: name.to_owned(),
        params: params.iter().map(|name| param(name)).collect(),
    }
}

fn adamw(groups: Vec<Group>, steps: Vec<Steps>) -> Typed {
    Typed::Optimizer(Optimizer { algorithm: "adamw".to_owned(), groups, masters: None, steps })
}

fn all(step: u64) -> Vec<Steps> {
    vec![Steps { params: StepParams::All, step, stored_as: "F32[]".to_owned() }]
}

/// What one writer adds to its tensors.
type More<'m> = &'m dyn Fn(&mut Session);

/// A checkpoint of two writers that passes `verify`.
fn saved(models: &[Model], optimizer: &Typed, more: More<'_>) -> Arc<dyn Store> {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let (_, attempt) = make_attempt(&run, &plan, STEP, 0).unwrap();
    for writer in 0..2 {
        let common = plan.common(STEP, 0);
        let mut session = Session::begin(Arc::clone(&attempt), common, writer).unwrap();
        let mut chunks = Vec::new();
        for model in models {
            if writer == 0 {
                session.declare(&model.decl).unwrap();
            }
            for (_, region) in model.boxes.iter().filter(|(of, _)| *of == writer) {
                chunks.push((session.chunk(&model.decl, region).unwrap(), bytes_of(model, region)));
            }
        }
        if writer == 0 {
            session.record(Record::of("main", vec![], optimizer).unwrap());
            session.record(progress(STEP));
            more(&mut session);
        }
        let writing = session.lay_out().unwrap();
        write(&writing, &chunks).unwrap();
        writing.finish().unwrap();
    }
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    verified(&attempt);
    attempt
}

/// The bytes of a box; of a flat companion, one element for each block of the box.
fn bytes_of(model: &Model, region: &Region) -> Vec<u8> {
    match model.decl.block {
        None => model.region(region),
        Some(block) => {
            let before = region.at[0] * model.decl.shape[1..].iter().product::<u64>();
            assert_eq!(before % block, 0, "this test cuts between blocks");
            let begin = (before / block) as usize * 4;
            let length = region.elements().unwrap().div_ceil(block) as usize * 4;
            model.bytes[begin..begin + length].to_vec()
        }
    }
}

fn verified(store: &Arc<dyn Store>) {
    let report = verify(store, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn resharded(from: &Arc<dyn Store>, writers: u32) -> Arc<dyn Store> {
    let (_, to) = memory_run();
    reshard(&open(from), &to, &ReshardOptions::new(writers), &NoProgress).unwrap();
    verified(&to);
    to
}

/// A tensor as a reader gives it: key, dtype, shape, axes, bytes.
type Given = (String, Dtype, Vec<u64>, Option<Vec<Option<u8>>>, Vec<u8>);

/// Every tensor.
fn tensors(checkpoint: &Checkpoint) -> Vec<Given> {
    let entries = checkpoint.entries().map(Result::unwrap);
    entries
        .map(|entry| {
            let tensor = checkpoint.tensor_of(&entry).unwrap();
            let bytes = tensor.read().unwrap();
            let it = tensor.entry();
            (entry.key(), it.dtype, it.shape.to_vec(), it.axes.clone(), bytes)
        })
        .collect()
}

fn restored(checkpoint: &Checkpoint) -> Optimizer {
    let topology = checkpoint.manifest().common.topology.clone();
    let first = topology.0.iter().map(|(axis, _)| (axis.clone(), 0)).collect();
    let place = Place::new(topology, first).unwrap();
    let state = checkpoint.restore(&place, &RestoreOptions::default()).unwrap();
    assert!(state.report.iter().all(|graded| graded.grade == Grade::Exact));
    assert_eq!(
        state.progress,
        Some(Progress { optimizer_step: STEP, ..state.progress.clone().unwrap() })
    );
    state.optimizers["main"].clone()
}

/// F32 moments and masters beside BF16 parameters: what PyTorch casts down when it loads them.
fn mixed() -> Vec<Model> {
    let master = Identity { role: Role::Master, ..Identity::param("w") };
    vec![
        Model::param("w", Dtype::BF16, &[24, 16]).rows(2),
        Model::new(master, Dtype::F32, &[24, 16]).rows(2),
        Model::new(optimizer("w", "adam.m"), Dtype::F32, &[24, 16]).rows(2),
        Model::new(optimizer("w", "adam.v"), Dtype::F32, &[24, 16]).rows(2),
    ]
}

#[test]
fn what_is_loaded_and_saved_again_is_the_same_in_every_byte_and_dtype() {
    let hyper =
        || vec![("lr", Tree::f64(0.001)), ("weight_decay", Tree::F64(0x8000_0000_0000_0000))];
    let optimizer = adamw(vec![group("all", &["w"], hyper())], all(STEP));
    let first = saved(&mixed(), &optimizer, &|_| {});
    let loaded = open(&first);
    // Saved again from nothing but what the reader gives.
    let models: Vec<Model> = loaded
        .entries()
        .map(|entry| {
            let tensor = loaded.tensor_of(&entry.unwrap()).unwrap();
            let decl = TensorDecl::from(tensor.entry());
            let bytes = tensor.read().unwrap();
            Model { decl, bytes, boxes: Vec::new() }.rows(2)
        })
        .collect();
    let second = saved(&models, &Typed::Optimizer(restored(&loaded)), &|_| {});
    assert_eq!(tensors(&open(&second)), tensors(&loaded));
    let records = |checkpoint: &Checkpoint| -> Vec<String> {
        checkpoint.records().map(|record| record.unwrap().json.into_string()).collect()
    };
    assert_eq!(records(&open(&second)), records(&loaded));
    let moment = loaded.tensor(&support::optimizer("w", "adam.m")).unwrap();
    assert_eq!(moment.entry().dtype, Dtype::F32, "not the parameter's");
}

#[test]
fn tied_frozen_and_lazily_absent_parameters_keep_what_they_have_and_no_more() {
    let mut models = mixed();
    models.push(Model::param("embed", Dtype::F32, &[8, 4]));
    models.push(Model::new(optimizer("embed", "adam.m"), Dtype::F32, &[8, 4]));
    // Never had a gradient: listed, without slots and without steps.
    models.push(Model::param("unused", Dtype::F32, &[4]));
    // Frozen: declared as omitted, so that listing it dangles for nobody.
    let listed = [param("w"), param("embed")].to_vec();
    let steps =
        vec![Steps { params: StepParams::Listed(listed), step: STEP, stored_as: "int".to_owned() }];
    let optimizer = adamw(vec![group("all", &["w", "embed", "unused", "base"], vec![])], steps);
    let store = saved(&models, &optimizer, &|session| {
        session
            .alias(Alias {
                component: "main".to_owned(),
                name: "head".to_owned(),
                role: Role::Param,
                of: Identity::param("embed"),
                native: Vec::new(),
            })
            .unwrap();
        session.omit(Omitted {
            component: "main".to_owned(),
            reason: OmittedReason::Frozen,
            names: vec!["base".to_owned()],
        });
    });
    for store in [Arc::clone(&store), resharded(&store, 3)] {
        let checkpoint = open(&store);
        assert_eq!(Typed::Optimizer(restored(&checkpoint)), optimizer);
        let head = checkpoint.tensor(&Identity::param("head")).unwrap();
        assert_eq!(head.identity(), &Identity::param("embed"));
        // Absent is not zero: there is no entry, and nothing is made up.
        for absent in ["unused", "head", "base"] {
            let slot = support::optimizer(absent, "adam.m");
            assert!(checkpoint.find(&slot).unwrap().is_none(), "{absent}");
        }
    }
}

#[test]
fn groups_keep_hyper_parameters_of_every_kind_in_their_order() {
    let scalar = Identity { role: Role::Extension, ..Identity::param("lr.of.decay") };
    let models: Vec<Model> =
        mixed().into_iter().chain([Model::new(scalar.clone(), Dtype::F32, &[])]).collect();
    let hyper = vec![
        // A tensor as hyper-parameter, as capturable optimizers have it.
        ("lr", Tree::Tensor(Box::new(scalar))),
        ("betas", Tree::Tuple(vec![Tree::f64(0.9), Tree::f64(0.999)])),
        // As optax injects it: in 32 bits, which 0.001 in 64 is not.
        ("eps", Tree::F32(0.001_f32.to_bits())),
        ("weight_decay", Tree::f64(0.0)),
        ("nan", Tree::F64(0x7ff8_dead_beef_0001)),
        ("amsgrad", Tree::Bool(false)),
        ("maximize", Tree::Null),
        ("seed", Tree::int(i128::from(u64::MAX) * 3)),
    ];
    let decay = group("decay", &["w"], hyper);
    let empty = group("no_decay", &[], vec![("lr", Tree::f64(0.1))]);
    let optimizer = adamw(vec![decay, empty], all(STEP));
    let store = saved(&models, &optimizer, &|_| {});
    for store in [Arc::clone(&store), resharded(&store, 3)] {
        let found = restored(&open(&store));
        let names: Vec<&str> =
            found.groups[0].hyper.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["lr", "betas", "eps"], "in the framework's order");
        assert_eq!(Typed::Optimizer(found), optimizer);
    }
}

/// Adafactor's factors, in the shapes that PyTorch and optax give them, and 8-bit moments with
/// scales over flattened blocks and a codebook.
fn factored_and_quantised() -> Vec<Model> {
    let with = |slot: &str, dtype, shape: &[u64], axes: &[Option<u8>]| {
        let mut model = Model::new(optimizer("w", slot), dtype, shape);
        model.decl.axes = Some(axes.to_vec());
        model
    };
    let quant = |slot: &str, dtype, shape: &[u64]| {
        let identity =
            Identity { role: Role::Quant, slot: slot.to_owned(), ..Identity::param("w") };
        Model::new(identity, dtype, shape)
    };
    // 48 rows of 64: blocks of 256 are four rows.
    let mut scale = quant("adam.m:scale", Dtype::F32, &[48, 64]);
    scale.decl.block = Some(256);
    scale.bytes = noise(9, 48 * 64 / 256 * 4);
    scale.boxes = Model::param("w", Dtype::U8, &[48, 64]).rows(2).boxes;
    vec![
        Model::param("w", Dtype::BF16, &[48, 64]).rows(2),
        with("adafactor.row", Dtype::F32, &[48, 1], &[Some(0), None]).rows(2),
        with("adafactor.col", Dtype::F32, &[1, 64], &[None, Some(1)]),
        with("optax/v_row", Dtype::F32, &[48], &[Some(0)]).rows(2),
        Model::new(optimizer("w", "adam.m"), Dtype::U8, &[48, 64]).rows(2),
        scale,
        quant("adam.m:codebook", Dtype::F32, &[256]),
    ]
}

#[test]
fn adafactor_and_8_bit_state_survive_2_to_3_to_2_writers() {
    let models = factored_and_quantised();
    let optimizer = adamw(vec![group("all", &["w"], vec![])], all(STEP));
    let two = saved(&models, &optimizer, &|_| {});
    let expected = tensors(&open(&two));
    assert_eq!(expected.len(), models.len());
    for (key, .., bytes) in &expected {
        let model = models.iter().find(|model| model.decl.identity.key() == *key).unwrap();
        assert_eq!(bytes, &model.bytes, "{key}");
    }
    let three = resharded(&two, 3);
    assert_eq!(open(&three).manifest().parts.len(), 3);
    assert_eq!(tensors(&open(&three)), expected);
    assert_eq!(tensors(&open(&resharded(&three, 2))), expected);
}

#[test]
fn a_rank_whose_share_cuts_a_block_is_told_so() {
    let optimizer = adamw(vec![group("all", &["w"], vec![])], all(STEP));
    let checkpoint = open(&saved(&factored_and_quantised(), &optimizer, &|_| {}));
    let rows = |_: &waystation_format::Tensor| {
        Placement::Split(vec![Cut { dim: 0, over: vec!["dp".to_owned()] }])
    };
    // 48 rows over 4 ranks are 12, three blocks each; over 5 they are 10, which is none.
    for (ranks, expected) in [(4, Grade::Exact), (5, Grade::Requantised)] {
        let topology = Topology(vec![("dp".to_owned(), ranks)]);
        let place = Place::new(topology, vec![("dp".to_owned(), 1)]).unwrap();
        let scale =
            Identity { role: Role::Quant, slot: "adam.m:scale".to_owned(), ..Identity::param("w") };
        let placed = checkpoint.placed(&place, rows).map(Result::unwrap);
        let placed: Vec<_> = placed.filter(|placed| *placed.tensor.identity() == scale).collect();
        assert_eq!(placed.len(), 1);
        assert_eq!(placed[0].grade, expected, "{ranks}: {:?}", placed[0].reason);
    }
}
