//! Resume state through `verify`: what is wrong in records and between them, and what is strange.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a test that cannot go on should say where"
)]

mod support;

use support::records::{cuda, cursor, findings, open, place, rng, stream};
use support::{Making, adam, store_of};
use waystation_format::value_tree::hex;
use waystation_format::{Code, Dtype, Identity, RngAlgorithm, Role, rule};
use waystation_reader::restore::RestoreOptions;
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};

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
    let mut making = making.record("rng", "dropout", &value);
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
    // A tensor may be of any length: one that no state has is not read, so that it is torn does not
    // matter.
    making.tensors.clear();
    let identity = Identity { role: Role::Blob, ..Identity::param("rng") };
    let mut files = making.whole(identity, Dtype::U8, &[1 << 20], 0).files();
    for (name, bytes) in &mut files {
        if name.ends_with(".safetensors") {
            bytes[9000] ^= 1;
        }
    }
    let torn = Checkpoint::open_store(store_of(&files), OpenOptions::default()).unwrap();
    let error = torn.restore(&place(&[], &[]), &RestoreOptions::default()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::BadRngState, Some(rule::RNG_STATE)));
}
