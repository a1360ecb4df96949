//! Reports about optimizers, schedules and the moment of saving: state under another parameter,
//! counted twice, or of half a step.

use waystation_format::records::optimizer::{MasterCast, StepParams, Steps};
use waystation_format::records::rng::OnReshape;
use waystation_format::records::schedule::Unit;
use waystation_format::records::{Optimizer, Progress, Schedule, Typed, Uncaptured};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{
    Code, Dtype, Grade, Identity, Record, Region, Role, ScheduleAlgorithm, flat, rule,
};
use waystation_reader::Checkpoint;
use waystation_reader::restore::{Cut, Placement};
use waystation_state::schedule::{Shape, value as value_at};
use waystation_writer::TensorDecl;

use crate::support::*;

/// Parameters of 4 elements, each with a first moment that its name decides.
fn trained(names: &[&str]) -> Job {
    names.iter().fold(Job::new(&[]), |job, name| {
        job.whole(Identity::param(*name), Dtype::BF16, &[4], &[0; 8]).whole(
            slot(name, "adam.m"),
            Dtype::F32,
            &[4],
            &moment(name),
        )
    })
}

fn moment(name: &str) -> Vec<u8> {
    name.bytes().next().map_or(vec![], |first| vec![first; 16])
}

fn adamw(params: &[&str]) -> Typed {
    Typed::Optimizer(optimizer(params))
}

fn read(checkpoint: &Checkpoint, identity: &Identity) -> Vec<u8> {
    checkpoint.tensor(identity).unwrap().read().unwrap()
}

/// deepspeedai/DeepSpeed#5289 and #562: the step count stood here in one optimizer and there in
/// another, or was lost track of.
#[test]
fn step_counts_have_one_place_and_cannot_be_forgotten() {
    let steps = |names: &[&str], step, stored_as: &str| Steps {
        params: StepParams::Listed(names.iter().map(|name| param(name)).collect()),
        step,
        stored_as: stored_as.to_owned(),
    };
    // A tensor for each parameter, an integer for a group, a late starter.
    let mut all = optimizer(&["a", "b", "c"]);
    all.steps =
        vec![steps(&["a"], 1000, "F32[]"), steps(&["b"], 1000, "int"), steps(&["c"], 3, "int")];
    let checkpoint = trained(&["a", "b", "c"]).record("main", Typed::Optimizer(all.clone())).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(restored.optimizers["main"].steps, all.steps);
    // A record without them is none.
    let Ok(mut text) = Typed::Optimizer(all.clone()).to_value().unwrap().encode() else { panic!() };
    let cut = text.find(",\"steps\"").unwrap();
    text.replace_range(cut.., "}");
    let without = Record::new("optimizer", "main", vec![], &value(&text));
    assert_eq!(refused(without), (Code::BadMember, rule::JSON_UNKNOWN_MEMBER));
    // Stages that count a shared parameter differently are found.
    let stages = |second: u64| {
        let (mut first, mut other) = (optimizer(&["a"]), optimizer(&["a"]));
        first.steps[0].step = 1000;
        other.steps[0].step = second;
        let mut job = Job::new(&[("pp", 2)]).whole(Identity::param("a"), Dtype::F32, &[1], &[0; 4]);
        job = job.record_at(0, &[("pp", 0)], "main", Typed::Optimizer(first));
        job.record_at(0, &[("pp", 1)], "main", Typed::Optimizer(other))
    };
    stages(1000).save();
    let (disagreeing, found) = stages(999).save_broken();
    assert_eq!(found, (Code::StateDisagree, rule::OPTIMIZER_JOIN));
    let refusal = refused(restore(&disagreeing, &place(&[("pp", 2)], &[0])));
    assert_eq!(refusal, (Code::StateDisagree, rule::OPTIMIZER_JOIN));
}

/// pytorch/pytorch#113673: state was keyed by the number of a parameter, and a model that listed
/// them in another order got the state of others.
#[test]
fn state_belongs_to_a_name_and_not_to_a_number() {
    // The framework's order is kept, and does not decide what is whose.
    let checkpoint = trained(&["a", "b"]).record("main", adamw(&["b", "a"])).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(restored.optimizers["main"].groups[0].params, [param("b"), param("a")]);
    for name in ["a", "b"] {
        assert_eq!(read(&checkpoint, &slot(name, "adam.m")), moment(name));
    }
    // Numbers do not stand for parameters.
    let numbered = value(
        r#"{"algorithm":"adamw","groups":[{"hyper":[],"name":"all","params":[0,1]}],"steps":[]}"#,
    );
    let numbered = Record::new("optimizer", "main", vec![], &numbered);
    assert_eq!(refused(numbered), (Code::BadMember, rule::JSON_TYPES));
    // State of no parameter of the optimizer, and a parameter that is not there, are found.
    let (_, found) = trained(&["a", "b"]).record("main", adamw(&["a"])).save_broken();
    assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_SLOT));
    let (_, found) = trained(&["a"]).record("main", adamw(&["a", "renamed"])).save_broken();
    assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_PARAMS));
}

/// Lightning-AI/pytorch-lightning#16815: flattened optimizer state had the padded length of one
/// world size and fitted no other.
#[test]
fn flat_shares_of_any_number_of_ranks_are_boxes_of_the_parameter() {
    let (shape, bytes) = ([10, 3], floats(30));
    let save = |ranks: u64| {
        let decl = TensorDecl::new(slot("w", "adam.m"), Dtype::F32, &shape);
        let mut job = Job::new(&[("dp", ranks)]).writers(ranks as usize);
        job = job.whole(Identity::param("w"), Dtype::F32, &shape, &bytes);
        for rank in 0..ranks {
            let each = 30_u64.div_ceil(ranks);
            let mut at = (each * rank).min(30);
            for region in flat::boxes_of_range(&shape, at, (at + each).min(30)).unwrap() {
                let end = at + region.elements().unwrap();
                let piece = &bytes[at as usize * 4..end as usize * 4];
                job = job.piece(rank as usize, &decl, &region, piece);
                at = end;
            }
        }
        job.record("main", adamw(&["w"])).save()
    };
    for saved in [1, 4, 7] {
        let checkpoint = save(saved);
        for ranks in [1, 3, 4, 8] {
            let mut together = Vec::new();
            for rank in 0..ranks {
                let at = place(&[("dp", ranks)], &[rank]);
                let flat = |_: &_| Placement::Flat { over: vec!["dp".to_owned()] };
                for placed in checkpoint.placed(&at, flat).map(Result::unwrap) {
                    if placed.tensor.identity().role == Role::Optimizer {
                        assert_eq!(placed.grade, Grade::Exact);
                        for region in &placed.regions {
                            together.extend(placed.tensor.read_region(region).unwrap());
                        }
                    }
                }
            }
            assert_eq!(together, bytes, "{saved} -> {ranks}");
        }
    }
    // What pads the last rank is no element of anything.
    let decl = TensorDecl::new(slot("w", "adam.m"), Dtype::F32, &shape);
    let mut padded = Region::whole(&[1, 3]);
    padded.at[0] = 10;
    let padded = Job::new(&[]).piece(0, &decl, &padded, &[0; 12]);
    assert_eq!(refused(padded.try_save()), (Code::BadChunk, rule::CHUNK_BOUNDS));
}

/// karpathy/llm.c#702: parameters rounded at random cannot be made again from masters without the
/// stream of the last update.
#[test]
fn parameters_rounded_at_random_are_stored_and_so_is_the_stream_that_rounds() {
    let master = Identity { role: Role::Master, ..Identity::param("w") };
    let record = Optimizer { masters: Some(MasterCast::Stochastic), ..optimizer(&["w"]) };
    let rounding = cuda(7, 256);
    let job = Job::new(&[]).whole(master.clone(), Dtype::F32, &[4], &floats(4));
    let job = job.record("rounding", rng(&rounding, OnReshape::Require));
    // Rounded up where truncation, and rounding to the nearest, would go down.
    let rounded: Vec<u8> = floats(4)
        .chunks(4)
        .flat_map(|f| {
            let bits = u32::from_le_bytes(f.try_into().unwrap());
            (((bits >> 16) + 1) as u16).to_le_bytes()
        })
        .collect();
    let with = job.clone().whole(Identity::param("w"), Dtype::BF16, &[4], &rounded);
    let checkpoint = with.record("main", Typed::Optimizer(record)).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(restored.optimizers["main"].masters, Some(MasterCast::Stochastic));
    assert_eq!(restored.streams[0].state.as_ref(), Some(&rounding));
    assert_eq!(read(&checkpoint, &Identity::param("w")), rounded);
    assert_eq!(read(&checkpoint, &master), floats(4));
    // Masters alone are not enough.
    let (_, found) = job.save_broken();
    assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_SLOT));
}

/// NVIDIA/Megatron-LM#6920: with Muon and a distributed optimizer the resumed model was another
/// one, and nothing said so.
#[test]
fn a_loader_can_hold_each_parameter_against_its_digest_whoever_wrote_it() {
    let (w, b) = (Identity::param("w"), Identity::param("b"));
    let bytes = floats(24);
    let muon = |owner: &str| Identity { owner: owner.to_owned(), ..slot("w", "muon.momentum") };
    let save = |writers: usize, owner: &str| {
        let rows = 6 / writers as u64;
        let mut job = Job::new(&[]).writers(writers);
        for writer in 0..writers {
            let mut region = Region::whole(&[rows, 4]);
            region.at[0] = rows * writer as u64;
            let share = &bytes[writer * bytes.len() / writers..][..bytes.len() / writers];
            for identity in [&w, &muon(owner)] {
                let decl = TensorDecl::new(identity.clone(), Dtype::F32, &[6, 4]);
                job = job.piece(writer, &decl, &region, share);
            }
        }
        job.whole(b.clone(), Dtype::F32, &[1], &[0; 4])
            .whole(
                Identity { owner: "adam".to_owned(), ..slot("b", "adam.m") },
                Dtype::F32,
                &[1],
                &[0; 4],
            )
            .record(
                "muon",
                Typed::Optimizer(Optimizer { algorithm: "muon".to_owned(), ..optimizer(&["w"]) }),
            )
            .record("adam", Typed::Optimizer(optimizer(&["b"])))
    };
    let digests = |checkpoint: &Checkpoint| {
        [&w, &muon("muon")].map(|of| checkpoint.tensor(of).unwrap().sha256().unwrap())
    };
    let expected = waystation_format::Digest::of(&bytes);
    for writers in [1, 2, 6] {
        assert_eq!(digests(&save(writers, "muon").save()), [expected; 2], "{writers}");
    }
    // The model that a loader makes of the same shards in another order is not that.
    let checkpoint = save(2, "muon").save();
    let mut lower = Region::whole(&[3, 4]);
    let upper = lower.clone();
    lower.at[0] = 3;
    let stored = checkpoint.tensor(&w).unwrap();
    let gather = |order: [&Region; 2]| {
        waystation_format::Digest::of(&order.map(|at| stored.read_region(at).unwrap()).concat())
    };
    assert_eq!(gather([&upper, &lower]), stored.sha256().unwrap());
    assert_ne!(gather([&lower, &upper]), stored.sha256().unwrap());
    // State under the other optimizer of the two is found without loading anything.
    let (_, found) = save(1, "adam").save_broken();
    assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_SLOT));
}

/// THUDM/slime#1546 and #1761, vllm-project/speculators#900: a schedule that was stepped twice, or
/// whose position was of another unit, went on at another learning rate.
#[test]
fn a_schedule_that_stands_elsewhere_contradicts_its_own_value() {
    let algorithm = ScheduleAlgorithm::LinearWarmupCosine;
    let shape = Shape { base: 1e-3, floor: 1e-5, warmup: 100, total: 10_000 };
    let at = |unit, position, value_of| {
        let float = |name: &str, value| (MapKey::Str(name.to_owned()), Tree::f64(value));
        let count = |name: &str, value| (MapKey::Str(name.to_owned()), Tree::Int(value));
        Typed::Schedule(Schedule {
            algorithm: algorithm.as_str().to_owned(),
            last_value: vec![Tree::f64(value_at(algorithm, &shape, value_of))],
            parameters: Tree::Map(vec![
                float("base", shape.base),
                float("floor", shape.floor),
                count("warmup", 100),
                count("total", 10_000),
            ]),
            unit,
            position,
        })
    };
    let good = Job::new(&[]).record("lr", at(Unit::OptimizerSteps, STEP, STEP)).save();
    let restored = restore(&good, &place(&[], &[])).unwrap();
    let schedule = &restored.schedules["lr"];
    assert_eq!((schedule.unit, schedule.position), (Unit::OptimizerSteps, STEP));
    for (unit, position) in [
        (Unit::OptimizerSteps, 2 * STEP),
        (Unit::OptimizerSteps, STEP + 1),
        (Unit::Epochs, 3),
        (Unit::Samples, 64 * STEP),
    ] {
        let (bad, found) = Job::new(&[]).record("lr", at(unit, position, STEP)).save_broken();
        assert_eq!(found, (Code::CanaryMismatch, rule::SCHEDULE_CANARY), "{unit:?} {position}");
        let error = restore(&bad, &place(&[], &[])).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule::SCHEDULE_CANARY));
        let place = format!("after {position} {}", unit.as_str());
        assert!(error.message().contains(&place), "{error}");
        assert_eq!(error.location().record.as_deref(), Some(r#"["schedule","lr",[]]"#));
    }
}

/// huggingface/transformers#22143 and Nerogar/OneTrainer#1465: gradients accumulated before a save
/// were lost.
#[test]
fn a_checkpoint_is_of_a_whole_step_or_says_what_it_leaves_out() {
    let progress = |optimizer_step| {
        Typed::Progress(Progress {
            optimizer_step,
            iteration: Some(4 * STEP + 2),
            ..Progress::default()
        })
    };
    Job::new(&[]).record("main", progress(STEP)).save();
    // A step that is begun does not count.
    let (_, found) = Job::new(&[]).record("main", progress(STEP + 1)).save_broken();
    assert_eq!(found, (Code::StateDisagree, rule::PROGRESS_STEP));
    // Ranks that are not at the same step are not one checkpoint.
    let two = trained(&["a"]).record("main", adamw(&["a"])).writers(2);
    two.save();
    assert_eq!(refused(two.ahead(1).try_save()), (Code::PartDisagree, rule::PART_SESSION));
    // Who must keep half a step keeps it as what it is.
    let partial = Identity {
        role: Role::Extension,
        slot: "vendor/partial-gradient".to_owned(),
        ..Identity::param("a")
    };
    let what = Uncaptured { kind: "gradients".to_owned(), reason: "2 of 4 passes".to_owned() };
    let checkpoint = trained(&["a"])
        .record("main", adamw(&["a"]))
        .whole(partial.clone(), Dtype::F32, &[4], &floats(4))
        .record("accumulation", Typed::Uncaptured(what))
        .save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    let (grade, reason) = grade(&restored, "uncaptured", "accumulation");
    assert_eq!(grade, Grade::None);
    assert!(reason.contains("2 of 4 passes"), "{reason}");
    assert_eq!(read(&checkpoint, &partial), floats(4));
    // An optimizer that accumulates by itself has it among its state.
    let own = trained(&["a"]).record("main", adamw(&["a"]));
    let own = own.whole(slot("a", "accumulated.gradient"), Dtype::F32, &[4], &floats(4)).save();
    assert_eq!(read(&own, &slot("a", "accumulated.gradient")), floats(4));
}

/// meta-pytorch/torchrec#2394 and radixark/Megatron-LM#66: names of slots, and lengths of lists,
/// followed from how a job was sharded.
#[test]
fn names_do_not_depend_on_how_a_job_is_sharded() {
    let bytes = floats(16);
    let save = |split: usize, axis: usize| {
        let mut job = Job::new(&[]).writers(split);
        for identity in [Identity::param("table"), slot("table", "adagrad.sum")] {
            let decl = TensorDecl::new(identity, Dtype::F32, &[4, 4]);
            for writer in 0..split {
                let mut region = Region::whole(&[4, 4]);
                region.extent[axis] = 4 / split as u64;
                region.at[axis] = region.extent[axis] * writer as u64;
                let piece = slice(&bytes, &region);
                job = job.piece(writer, &decl, &region, &piece);
            }
        }
        job.record("main", adamw(&["table"])).save()
    };
    let content = |checkpoint: &Checkpoint| -> Vec<(String, Vec<u8>)> {
        let entries = checkpoint.entries().map(Result::unwrap);
        entries.map(|e| (e.key(), checkpoint.tensor_of(&e).unwrap().read().unwrap())).collect()
    };
    let whole = content(&save(1, 0));
    for (split, axis) in [(2, 0), (4, 0), (4, 1)] {
        assert_eq!(content(&save(split, axis)), whole, "{split} along {axis}");
    }
    // A name that a rank made up for its shard is the name of no parameter.
    let (_, found) = trained(&["table"])
        .record("main", adamw(&["table"]))
        .whole(slot("table_shard_0", "adagrad.sum"), Dtype::F32, &[4], &[0; 16])
        .save_broken();
    assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_SLOT));

    // A list that has one element a rank is not common to all.
    let list = |ranks: usize| Typed::Value(Tree::List(vec![Tree::Int(1); ranks]));
    let sizes = [("dp", 2)];
    let common = Job::new(&sizes).writers(2);
    let common = common.record_at(0, &[], "common", list(1)).record_at(1, &[], "common", list(2));
    assert_eq!(refused(common.try_save()), (Code::RecordConflict, rule::DERIVE_RECORDS));
    // Under the rank that it is of, another number of ranks is not handed it.
    let own = Job::new(&sizes)
        .record_at(0, &[("dp", 0)], "common", list(1))
        .record_at(0, &[("dp", 1)], "common", list(2))
        .save();
    let same = restore(&own, &place(&sizes, &[1])).unwrap();
    assert_eq!(same.values["common"], Tree::List(vec![Tree::Int(1); 2]));
    let other = restore(&own, &place(&[("dp", 3)], &[1])).unwrap();
    assert!(other.values.is_empty());
    assert_eq!(grade(&other, "value", "common").0, Grade::None);
}

/// The elements of a region of a 4 x 4 tensor of 4 bytes each.
fn slice(bytes: &[u8], region: &Region) -> Vec<u8> {
    let mut out = vec![0; region.elements().unwrap() as usize * 4];
    let whole = Region::whole(&[4, 4]);
    waystation_format::pack::copy_region(32, bytes, &whole, &mut out, region, region).unwrap();
    out
}

/// bitsandbytes-foundation/bitsandbytes#89, #1403 and #1732, pytorch/ao#1185: optimizers of 8 bits
/// could not be saved sharded, since their scales are not of the parameter's shape.
#[test]
fn block_quantised_slots_are_saved_sharded_and_cut_exactly_between_blocks() {
    let shape = [8, 256];
    let codes: Vec<u8> = (0..2048).map(|i: u32| (i * 7 % 256) as u8).collect();
    let scales = floats(4);
    let scale =
        Identity { role: Role::Quant, slot: "adam.m:scale".to_owned(), ..Identity::param("w") };
    let codebook = Identity { slot: "adam.m:codebook".to_owned(), ..scale.clone() };
    // Blocks of 512: two rows each.
    let of_codes = TensorDecl::new(slot("w", "adam.m"), Dtype::U8, &shape);
    let of_scales =
        TensorDecl { block: Some(512), ..TensorDecl::new(scale.clone(), Dtype::F32, &shape) };
    let mut job = Job::new(&[("dp", 4)]).writers(4);
    for rank in 0..4 {
        let mut region = Region::whole(&[2, 256]);
        region.at[0] = 2 * rank as u64;
        job = job.piece(rank, &of_codes, &region, &codes[rank * 512..][..512]);
        job = job.piece(rank, &of_scales, &region, &scales[rank * 4..][..4]);
    }
    let checkpoint = job
        .whole(Identity::param("w"), Dtype::BF16, &shape, &[0; 4096])
        .whole(codebook, Dtype::F32, &[256], &floats(256))
        .record("main", adamw(&["w"]))
        .save();
    assert_eq!(read(&checkpoint, &slot("w", "adam.m")), codes);
    assert_eq!(read(&checkpoint, &scale), scales);
    for (ranks, expected) in [(1, Grade::Exact), (2, Grade::Exact), (8, Grade::Requantised)] {
        let at = place(&[("dp", ranks)], &[0]);
        let rows = |tensor: &waystation_format::Tensor| match tensor.shape.len() {
            2 => Placement::Split(vec![Cut { dim: 0, over: vec!["dp".to_owned()] }]),
            _ => Placement::Whole,
        };
        let mut placed = checkpoint.placed(&at, rows).map(Result::unwrap);
        let placed = placed.find(|placed| *placed.tensor.identity() == scale).unwrap();
        assert_eq!(placed.grade, expected, "{ranks}");
        let read = placed.tensor.read_region(&placed.regions[0]);
        match expected {
            Grade::Exact => assert_eq!(read.unwrap(), scales[..16 / ranks as usize]),
            // Nobody is handed half a block, nor its scale for another.
            _ => assert_eq!(refused(read), (Code::BlockBoundary, rule::COMPANION_REGION)),
        }
    }
}
