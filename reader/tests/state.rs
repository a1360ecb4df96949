//! Resume state through the reader: what `verify` finds in records, and what `restore` gives to a
//! place of the same and of another topology.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "tests"
)]

mod support;

use support::{Making, adam, reseal, small, store_of};
use waystation_format::records::rng::Fork;
use waystation_format::{
    Code, Coordinate, Digest, Dtype, Grade, Identity, Region, RngAlgorithm, Role, Topology, names,
    rule,
};
use waystation_reader::restore::{Cut, Place, Placement, RestoreOptions};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};
use waystation_state::rng::{Engine, fork_seed};

/// The canonical state of a stream on CUDA, and the outputs that come next of it.
fn cuda(seed: u64, offset: u64) -> (String, Vec<String>) {
    let state: Vec<u8> = [seed.to_le_bytes(), offset.to_le_bytes()].concat();
    let algorithm = RngAlgorithm::Philox4x32TorchCuda;
    let next = waystation_state::rng::canary(algorithm, &state, 4).unwrap();
    (hex(&state), next)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rng(seed: u64, on_reshape: &str) -> String {
    let (state, next) = cuda(seed, 400);
    stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &next, on_reshape)
}

fn stream(algorithm: &str, state: &str, next: &[String], on_reshape: &str) -> String {
    let next: Vec<String> = next.iter().map(|output| format!("\"{output}\"")).collect();
    format!(
        r#"{{"algorithm":"{algorithm}","caches":[],"next_raw":[{}],"on_reshape":"{on_reshape}","state":{state}}}"#,
        next.join(",")
    )
}

/// 12 records in their own order, 8 of this epoch consumed.
fn cursor(position: u64, first: &[u64]) -> String {
    let bytes: Vec<u8> = first.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect();
    let list: Vec<String> = first.iter().take(4).map(u64::to_string).collect();
    format!(
        r#"{{"consumed":100,"epoch":2,"epoch_end":{{"rule":"wrap"}},"kind":"permuted-index","next":{{"count":{},"first":[{}],"sha256":"{}"}},"order":{{"algorithm":"identity","n":12}},"position":{position},"source":{{"records":12,"sha256":"{}"}}}}"#,
        first.len(),
        list.join(","),
        Digest::of(&bytes),
        "ab".repeat(32),
    )
}

fn axes(axes: &[(&str, u64)]) -> Coordinate {
    axes.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect()
}

fn place(sizes: &[(&str, u64)], at: &[(&str, u64)]) -> Place {
    Place::new(Topology(axes(sizes)), axes(at)).unwrap()
}

fn open(making: &Making) -> Checkpoint {
    Checkpoint::open_store(making.store(), OpenOptions::default()).unwrap()
}

/// Code, rule and place of each finding.
fn findings(making: &Making) -> Vec<(Code, &'static str, String)> {
    let report = verify(&making.store(), &VerifyOptions::default()).unwrap();
    report
        .findings
        .iter()
        .map(|e| {
            let place = e.location();
            let at = place.pointer.clone().or_else(|| place.tensor.clone()).unwrap_or_default();
            (e.code(), e.rule_id().unwrap_or_default(), at)
        })
        .collect()
}

#[test]
fn each_breach_of_state_is_found_where_it_is() {
    let (state, next) = cuda(7, 400);
    let wrong: Vec<String> = next.iter().rev().cloned().collect();
    let quoted = format!("\"{state}\"");
    let cuda = "philox4x32-10/torch-cuda";
    let pcg = format!("\"{}\"", hex(&[2; 32]));
    let outputs: Vec<String> = (0..4).map(|i| format!("{i:016x}")).collect();
    let schedule = |last: f64, position: u64| {
        let f64 = |value: f64| format!(r#"{{"f64":"{:016x}"}}"#, value.to_bits());
        format!(
            r#"{{"algorithm":"linear-warmup","last_value":[{}],"parameters":{{"map":[["base",{}],["warmup",100]]}},"position":{{"unit":"optimizer_steps","value":{position}}}}}"#,
            f64(last),
            f64(1e-3)
        )
    };
    let at = |pointer: &str| format!("/records/0{pointer}");
    for (kind, value, code, rule, pointer) in [
        (
            "progress",
            r#"{"optimizer_step":999}"#.to_owned(),
            Code::StateDisagree,
            rule::PROGRESS_STEP,
            at("/value/optimizer_step"),
        ),
        (
            "rng",
            stream(cuda, &quoted, &wrong, "fork"),
            Code::CanaryMismatch,
            rule::RNG_CANARY,
            at("/value"),
        ),
        (
            "rng",
            stream(cuda, "\"2a00\"", &next, "fork"),
            Code::BadRngState,
            rule::RNG_STATE,
            at("/value"),
        ),
        (
            "rng",
            stream("pcg64-dxsm", &pcg, &outputs, "fork"),
            Code::BadRngState,
            rule::RNG_STATE,
            at("/value"),
        ),
        (
            "rng",
            stream(cuda, r#"{"tensor":["main","blob","gone","","",[]]}"#, &next, "fork"),
            Code::Dangling,
            rule::RNG_TENSOR,
            at("/value"),
        ),
        (
            "schedule",
            schedule(4e-4, 50),
            Code::CanaryMismatch,
            rule::SCHEDULE_CANARY,
            at("/value/last_value/0"),
        ),
        (
            "cursor",
            cursor(8, &[9, 10, 11, 0]),
            Code::CanaryMismatch,
            rule::CURSOR_CANARY,
            at("/value"),
        ),
    ] {
        let making = Making::new(1).record(kind, "main", &value);
        let found = findings(&making);
        assert_eq!(found.len(), 1, "{kind} {value}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (code, rule), "{kind} {value}");
        assert!(found[0].2.starts_with(&pointer), "{kind} {}: {pointer}", found[0].2);
    }
    for (kind, value) in [
        ("progress", r#"{"optimizer_step":1000}"#.to_owned()),
        ("rng", stream(cuda, &quoted, &next, "fork")),
        ("schedule", schedule(5e-4, 50)),
        ("cursor", cursor(8, &[8, 9, 10, 11, 0, 1])),
        // What is not registered is carried and says nothing.
        ("rng", stream("vendor/engine", "\"00\"", &[], "require")),
    ] {
        assert_eq!(findings(&Making::new(1).record(kind, "main", &value)), [], "{kind} {value}");
    }
}

#[test]
fn what_is_right_by_itself_and_strange_together_is_noted() {
    let notes = |making: &Making| -> Vec<String> {
        let report = verify(&making.store(), &VerifyOptions::default()).unwrap();
        assert!(report.ok, "{:?}", report.findings);
        report.notes.iter().map(ToString::to_string).collect()
    };
    let schedule = |position: u64| {
        format!(
            r#"{{"algorithm":"vendor/x","last_value":[],"parameters":{{"map":[]}},"position":{{"unit":"optimizer_steps","value":{position}}}}}"#
        )
    };
    let with = |samples: u64, position: u64, second: u64| {
        let progress = format!(r#"{{"optimizer_step":1000,"samples":{samples}}}"#);
        Making::new(2)
            .record("progress", "main", &progress)
            .record("schedule", "lr", &schedule(position))
            .record("cursor", "train", &cursor(8, &[8, 9]))
            .record_at(&[("dp", 0)], "rng", "dropout", &rng(1, "fork"))
            .record_at(&[("dp", 1)], "rng", "dropout", &rng(second, "fork"))
    };
    assert_eq!(notes(&with(100, 1000, 2)), [""; 0]);
    let found = notes(&with(68, 2000, 1));
    assert_eq!(found.len(), 3, "{found:?}");
    for (note, about) in found.iter().zip(["dropout", "2000 optimizer_steps", "100 items"]) {
        assert!(note.starts_with("doubtful: ") && note.contains(about), "{note}");
    }
    // One that differs is enough, whatever comes after it.
    let streams = [1, 2, 1, 1].iter().zip(0..).fold(Making::new(4), |making, (seed, at)| {
        making.record_at(&[("dp", at)], "rng", "dropout", &rng(*seed, "fork"))
    });
    assert_eq!(notes(&streams), [""; 0]);
}

#[test]
fn streams_of_one_name_are_alike_and_optimizers_of_one_name_join() {
    let making = Making::new(2)
        .record_at(&[("dp", 0)], "rng", "dropout", &rng(1, "fork"))
        .record_at(&[("dp", 1)], "rng", "dropout", &rng(2, "require"));
    assert_eq!(
        findings(&making),
        [(Code::StateDisagree, rule::RNG_ALIKE, "/records/1/value/on_reshape".to_owned())]
    );
    let optimizer = |lr: &str| {
        format!(
            r#"{{"algorithm":"sgd","groups":[{{"hyper":[["lr",{{"f64":"{lr}"}}]],"name":"g","params":[]}}],"steps":[]}}"#
        )
    };
    let two = |second: &str| {
        Making::new(2)
            .record_at(&[("dp", 0)], "optimizer", "main", &optimizer("3f50624dd2f1a9fc"))
            .record_at(&[("dp", 1)], "optimizer", "main", &optimizer(second))
    };
    assert_eq!(findings(&two("3f50624dd2f1a9fc")), []);
    let found = findings(&two("3f50624dd2f1a9fd"));
    assert_eq!(
        (found.len(), found[0].0, found[0].1),
        (1, Code::StateDisagree, rule::OPTIMIZER_JOIN)
    );
}

#[test]
fn what_is_wrong_is_told_by_record_key_and_then_by_tensor() {
    let slot = Identity {
        role: Role::Optimizer,
        slot: "adam.m".to_owned(),
        owner: "main".to_owned(),
        ..Identity::param("up")
    };
    let making = Making::new(1)
        .whole(Identity::param("up"), Dtype::F32, &[4], 0)
        .whole(slot, Dtype::F32, &[4], 0)
        .record("cursor", "train", &cursor(8, &[9, 10, 11, 0]))
        .record("rng", "dropout", &stream("pcg64-dxsm", "\"00\"", &vec!["0".repeat(16); 4], "fork"))
        .trained(&["gone"]);
    let rules: Vec<&str> = findings(&making).iter().map(|found| found.1).collect();
    assert_eq!(
        rules,
        [rule::CURSOR_CANARY, rule::OPTIMIZER_PARAMS, rule::RNG_STATE, rule::OPTIMIZER_SLOT,]
    );
}

#[test]
fn slots_and_params_belong_together() {
    let with = |identity: Identity, params: &[&str]| {
        Making::new(1)
            .whole(Identity::param("up"), Dtype::F32, &[4], 0)
            .whole(Identity::buffer("mean"), Dtype::F32, &[4], 0)
            .whole(identity, Dtype::F32, &[4], 0)
            .trained(params)
            .record("ema", "slow", r#"{"decay":{"f64":"3fefff2e48e8a71e"},"updates":3}"#)
    };
    let role = |role: Role, name: &str, owner: &str| Identity {
        role,
        owner: owner.to_owned(),
        ..Identity::param(name)
    };
    let other = Identity { owner: "other".to_owned(), ..adam("up") };
    for (identity, params, expected) in [
        (adam("up"), &["up"][..], None),
        (adam("up"), &[], Some(rule::OPTIMIZER_SLOT)),
        (other, &["up"], Some(rule::OPTIMIZER_OWNER)),
        (role(Role::Master, "up", ""), &["up"], None),
        (role(Role::Master, "down", ""), &["up"], Some(rule::OPTIMIZER_SLOT)),
        (role(Role::Ema, "up", "slow"), &[], None),
        (role(Role::Ema, "mean", "slow"), &[], None),
        (role(Role::Ema, "up", "main"), &[], Some(rule::OPTIMIZER_OWNER)),
        (role(Role::Ema, "down", "slow"), &[], Some(rule::OPTIMIZER_SLOT)),
    ] {
        let key = identity.key();
        let found = findings(&with(identity, params));
        let expected: Vec<_> =
            expected.into_iter().map(|rule| (Code::Dangling, rule, key.clone())).collect();
        assert_eq!(found, expected, "{key}");
    }
    // A param that is listed and not there.
    assert_eq!(
        findings(&Making::new(1).trained(&["gone"])),
        [(Code::Dangling, rule::OPTIMIZER_PARAMS, "/records/0/value/groups/0/params/0".to_owned())]
    );
    // An alias may be listed: frameworks list tied parameters under either name.
    let tied = Making::new(1)
        .whole(Identity::param("embed"), Dtype::F32, &[4], 0)
        .alias("head", Identity::param("embed"))
        .trained(&["head"]);
    assert_eq!(findings(&tied), []);
}

#[test]
fn a_state_in_a_tensor_is_read_checked_and_restored() {
    let mut making = Making::new(1).whole(
        Identity { role: Role::Blob, ..Identity::param("rng") },
        Dtype::U8,
        &[16],
        0,
    );
    let state = making.tensors[0].data.clone();
    let tensor = r#"{"tensor":["main","blob","rng","","",[]]}"#;
    // The bytes of the tensor are whatever its name gives, so the offset is made a multiple of 4.
    making.tensors[0].data[8] &= !3;
    let bytes = making.tensors[0].data.clone();
    assert_ne!(state.len(), 0);
    let algorithm = RngAlgorithm::Philox4x32TorchCuda;
    let next = waystation_state::rng::canary(algorithm, &bytes, 4).unwrap();
    let value = stream(algorithm.as_str(), tensor, &next, "require");
    let making = making.record("rng", "dropout", &value);
    assert_eq!(findings(&making), []);
    let restored = open(&making).restore(&place(&[], &[]), &RestoreOptions::default()).unwrap();
    assert_eq!(restored.streams[0].state.as_ref().unwrap().state, bytes);
    // Another length is another state.
    let mut longer = making.clone();
    longer.tensors.clear();
    let longer =
        longer.whole(Identity { role: Role::Blob, ..Identity::param("rng") }, Dtype::U64, &[2], 0);
    let found = findings(&longer);
    assert_eq!((found.len(), found[0].0, found[0].1), (1, Code::Dangling, rule::RNG_TENSOR));
}

/// Streams that vary over dp, over tp, and over nothing.
fn job() -> Making {
    let mut making = Making::new(1);
    making.topology = Topology(axes(&[("dp", 2), ("tp", 2)]));
    for dp in 0..2 {
        making = making.record_at(&[("dp", dp)], "rng", "dropout", &rng(10 + dp, "fork"));
    }
    for tp in 0..2 {
        making = making.record_at(&[("tp", tp)], "rng", "model", &rng(20 + tp, "require"));
    }
    making.record("rng", "shared", &rng(30, "require")).record(
        "cursor",
        "train",
        &cursor(8, &[8, 9]),
    )
}

fn offered() -> RestoreOptions {
    let digest = Digest::from_hex(&"ab".repeat(32)).unwrap();
    RestoreOptions::default().with_source("train", 12, digest)
}

#[test]
fn a_place_of_the_same_topology_gets_its_own_exactly() {
    let checkpoint = open(&job());
    let at = place(&[("dp", 2), ("tp", 2)], &[("dp", 1), ("tp", 0)]);
    let restored = checkpoint.restore(&at, &offered()).unwrap();
    assert!(restored.report.iter().all(|graded| graded.grade == Grade::Exact), "{restored:?}");
    let seeds: Vec<u64> = restored
        .streams
        .iter()
        .map(|stream| {
            let state = &stream.state.as_ref().unwrap().state;
            u64::from_le_bytes(state[..8].try_into().unwrap())
        })
        .collect();
    assert_eq!(seeds, [11, 20, 30]);
    assert_eq!(restored.cursors[0].grade, Grade::Exact);
}

#[test]
fn another_data_parallel_size_forks_what_may_fork_and_keeps_the_rest() {
    let checkpoint = open(&job());
    let at = place(&[("dp", 3), ("tp", 2)], &[("dp", 2), ("tp", 1)]);
    // A fork is not exact, so it has to be asked for.
    let refused = checkpoint.restore(&at, &offered()).unwrap_err();
    assert_eq!((refused.code(), refused.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    let mut options = offered();
    options.streams = Grade::Fork;
    let restored = checkpoint.restore(&at, &options).unwrap();
    let [dropout, model, shared] = &restored.streams[..] else { panic!("{restored:?}") };
    assert_eq!(
        [dropout.grade, model.grade, shared.grade],
        [Grade::Fork, Grade::Exact, Grade::Exact]
    );
    // The rule of spec 17.5, by hand.
    let seed = fork_seed("test", 1000, "dropout", &axes(&[("dp", 2)]));
    let engine = Engine::seeded(RngAlgorithm::Philox4x32TorchCuda, seed).unwrap();
    assert_eq!(dropout.state.as_ref().unwrap().state, engine.encode().unwrap());
    let lineage =
        Fork { coordinate: axes(&[("dp", 2)]), manifest: checkpoint.digest(), step: 1000 };
    assert_eq!(dropout.fork.as_ref(), Some(&lineage));
    // Two who resume so agree, and no two places get the same.
    let again = checkpoint.restore(&at, &options).unwrap();
    assert_eq!(again.streams[0].state, dropout.state);
    let other = place(&[("dp", 3), ("tp", 2)], &[("dp", 0), ("tp", 1)]);
    assert_ne!(checkpoint.restore(&other, &options).unwrap().streams[0].state, dropout.state);
}

/// What only a validator compares: a root whose records are not those of its parts.
#[test]
fn a_place_without_its_record_gets_no_other_and_no_fork() {
    let two = || {
        let record = |making: Making, dp| {
            making.record_at(&[("dp", dp)], "rng", "dropout", &rng(dp, "fork"))
        };
        record(record(Making::new(2), 0), 1).files()
    };
    let one = format!(
        r#"{{"coordinate":[["dp",1]],"kind":"rng","name":"dropout","value":{}}}"#,
        rng(1, "fork")
    );
    let elsewhere = one.replace("dp", "tp").replace("1]]", "0]]");
    for (left, reason) in [("", "no record"), (&*format!(",{elsewhere}"), "vary over")] {
        let mut files = two();
        let page = files.get_mut(&names::records_page(0)).unwrap();
        let text = String::from_utf8(page.clone()).unwrap().replace(&format!(",{one}"), left);
        assert_ne!(text.as_bytes(), page.as_slice());
        *page = text.into_bytes();
        reseal(&mut files, |manifest| {
            manifest.common.topology = Topology(axes(&[("dp", 2), ("tp", 1)]));
        });
        let checkpoint = Checkpoint::open_store(store_of(&files), OpenOptions::default()).unwrap();
        let at = place(&[("dp", 2), ("tp", 1)], &[("dp", 1), ("tp", 0)]);
        let refused = checkpoint.restore(&at, &RestoreOptions::default()).unwrap_err();
        assert_eq!(refused.code(), Code::NotExact);
        let mut options = RestoreOptions::default();
        options.streams = Grade::None;
        let restored = checkpoint.restore(&at, &options).unwrap();
        assert_eq!(restored.report[0].grade, Grade::None);
        assert!(restored.report[0].reason.as_deref().unwrap().contains(reason));
        assert_eq!(restored.streams[0].state, None);
    }
}

#[test]
fn a_stream_that_requires_its_axes_is_refused_until_it_is_left_out_by_name() {
    let checkpoint = open(&job());
    for sizes in [&[("dp", 2), ("tp", 4)][..], &[("dp", 2)]] {
        let at = place(sizes, &sizes.iter().map(|(axis, _)| (*axis, 1)).collect::<Vec<_>>());
        let mut options = offered();
        options.streams = Grade::None;
        let refused = checkpoint.restore(&at, &options).unwrap_err();
        let rule = (refused.code(), refused.rule_id());
        assert_eq!(rule, (Code::NotExact, Some(rule::RESTORE_REQUIRE)));
        options.leave_out.insert("model".to_owned());
        let restored = checkpoint.restore(&at, &options).unwrap();
        assert_eq!(restored.streams[1].grade, Grade::None);
        assert!(restored.streams[1].state.is_none());
        assert!(restored.report.iter().any(|g| g.key.name == "model" && g.reason.is_some()));
    }
}

#[test]
fn a_stream_of_an_unknown_engine_that_requires_its_axes_is_refused_as_well() {
    let making = (0..2).fold(Making::new(2), |making, dp| {
        let value = stream("vendor/engine", "\"00\"", &[], "require");
        making.record_at(&[("dp", dp)], "rng", "model", &value)
    });
    let checkpoint = open(&making);
    let mut options = RestoreOptions::default();
    options.streams = Grade::None;
    let kept = place(&[("dp", 2)], &[("dp", 1)]);
    assert_eq!(checkpoint.restore(&kept, &options).unwrap().streams[0].grade, Grade::None);
    let other = place(&[("dp", 3)], &[("dp", 1)]);
    let refused = checkpoint.restore(&other, &options).unwrap_err();
    let rule = (refused.code(), refused.rule_id());
    assert_eq!(rule, (Code::NotExact, Some(rule::RESTORE_REQUIRE)));
    options.leave_out.insert("model".to_owned());
    assert_eq!(checkpoint.restore(&other, &options).unwrap().streams[0].grade, Grade::None);
}

#[test]
fn cursors_ask_for_their_source_and_refuse_another() {
    let checkpoint = open(&job());
    let at = place(&[("dp", 2), ("tp", 2)], &[("dp", 0), ("tp", 0)]);
    let nothing = checkpoint.restore(&at, &RestoreOptions::default()).unwrap_err();
    assert_eq!((nothing.code(), nothing.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    for (records, byte) in [(12, "cd"), (13, "ab")] {
        let digest = Digest::from_hex(&byte.repeat(32)).unwrap();
        let options = RestoreOptions::default().with_source("train", records, digest);
        let changed = checkpoint.restore(&at, &options).unwrap_err();
        let rule = (changed.code(), changed.rule_id());
        assert_eq!(rule, (Code::SourceChanged, Some(rule::CURSOR_SOURCE)));
    }
}

#[test]
fn what_was_not_captured_is_refused_until_it_is_left_out() {
    let making = Making::new(1)
        .record("uncaptured", "workers", r#"{"kind":"rng","reason":"no access"}"#)
        .record("uncaptured", "timer", r#"{"kind":"vendor/x","reason":"of no matter"}"#);
    let checkpoint = open(&making);
    let at = place(&[], &[]);
    let refused = checkpoint.restore(&at, &RestoreOptions::default()).unwrap_err();
    assert_eq!((refused.code(), refused.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    let mut options = RestoreOptions::default();
    options.leave_out.insert("workers".to_owned());
    let restored = checkpoint.restore(&at, &options).unwrap();
    assert!(restored.report.iter().all(|graded| graded.grade == Grade::None));
    assert_eq!(restored.report.len(), 2);
}

#[test]
fn damage_is_refused_before_anything_is_handed_out() {
    let (state, mut next) = cuda(1, 0);
    next.swap(0, 1);
    let value = stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &next, "require");
    let making = job().record("rng", "zz", &value);
    let at = place(&[("dp", 2), ("tp", 2)], &[("dp", 0), ("tp", 0)]);
    let refused = open(&making).restore(&at, &offered()).unwrap_err();
    assert_eq!(refused.code(), Code::CanaryMismatch);
    assert_eq!(refused.location().record.as_deref(), Some(r#"["rng","zz",[]]"#));
}

#[test]
fn without_a_place_records_are_graded_for_what_they_are() {
    let grades = open(&job()).grades().unwrap();
    let of: Vec<(&str, Grade)> =
        grades.iter().map(|graded| (graded.key.name.as_str(), graded.grade)).collect();
    assert_eq!(
        of,
        [
            ("train", Grade::Exact),
            ("dropout", Grade::ExactIfAxesUnchanged),
            ("model", Grade::ExactIfAxesUnchanged),
            ("shared", Grade::Exact),
        ]
    );
}

#[test]
fn without_a_place_every_record_is_compared_and_optimizers_vary_as_they_were_saved() {
    let mut making = Making::new(1);
    making.topology = Topology(axes(&[("dp", 2)]));
    let adamw = r#"{"algorithm":"adamw","groups":[],"steps":[]}"#;
    let sound = making
        .record_at(&[("dp", 0)], "optimizer", "main", adamw)
        .record_at(&[("dp", 1)], "optimizer", "main", adamw)
        .record_at(&[("dp", 0)], "rng", "dropout", &rng(10, "fork"));
    let whole = sound.clone().record_at(&[("dp", 1)], "rng", "dropout", &rng(11, "fork"));
    let grades: Vec<Grade> =
        open(&whole).grades().unwrap().iter().map(|graded| graded.grade).collect();
    assert_eq!(grades, [Grade::ExactIfAxesUnchanged; 2]);
    let (state, next) = cuda(11, 400);
    let other: Vec<String> = next.iter().rev().cloned().collect();
    let other = stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &other, "fork");
    let refused =
        open(&sound.record_at(&[("dp", 1)], "rng", "dropout", &other)).grades().unwrap_err();
    assert_eq!(refused.rule_id(), Some(rule::RNG_CANARY));
}

/// A record of which nothing can be restored is not read: it is graded, whatever is wrong with it.
#[test]
fn what_is_not_restored_is_not_looked_into() {
    let (state, next) = cuda(7, 400);
    let wrong: Vec<String> = next.iter().rev().cloned().collect();
    let wrong = stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &wrong, "fork");
    let cached = wrong.replace("[],", r#"[{"bits":"00","kind":"vendor/x"}],"#);
    let making = Making::new(1).record("rng", "cached", &cached).record(
        "cursor",
        "train",
        &cursor(8, &[9, 10, 11, 0]),
    );
    let rules: Vec<&str> = findings(&making).iter().map(|found| found.1).collect();
    assert_eq!(rules, [rule::CURSOR_CANARY, rule::RNG_CANARY]);
    let mut options = RestoreOptions::default();
    (options.streams, options.cursors) = (Grade::None, Grade::None);
    let restored = open(&making).restore(&place(&[], &[]), &options).unwrap();
    assert!(restored.report.iter().all(|graded| graded.grade == Grade::None), "{restored:?}");
    assert!(restored.streams[0].state.is_none() && restored.cursors[0].cursor.is_none());
}

#[test]
fn a_place_reads_its_regions_of_every_tensor() {
    let making = small();
    let checkpoint = open(&making);
    let placement = |tensor: &waystation_format::Tensor| match tensor.shape.len() {
        0 => Placement::Whole,
        1 => Placement::Flat { over: vec!["dp".to_owned()] },
        _ => Placement::Split(vec![Cut { dim: 0, over: vec!["dp".to_owned()] }]),
    };
    let mut elements = std::collections::BTreeMap::<String, u64>::new();
    for rank in 0..3 {
        let at = place(&[("dp", 3)], &[("dp", rank)]);
        for placed in checkpoint.placed(&at, placement) {
            let placed = placed.unwrap();
            assert_eq!(placed.grade, Grade::Exact);
            let key = placed.tensor.identity().key();
            let made = making.tensors.iter().find(|made| made.tensor.identity.key() == key);
            let made = made.unwrap();
            for region in &placed.regions {
                let bytes = placed.tensor.read_region(region).unwrap();
                assert_eq!(bytes, support::slice_of(&made.tensor, &made.data, region), "{key}");
                *elements.entry(key.clone()).or_default() += region.elements().unwrap();
            }
        }
    }
    for made in making.tensors.iter().filter(|made| !made.tensor.shape.is_empty()) {
        let whole = Region::whole(&made.tensor.shape).elements().unwrap();
        let held = elements.get(&made.tensor.identity.key()).copied().unwrap_or_default();
        assert_eq!(held, whole, "{:?}", made.tensor.identity);
    }
}
