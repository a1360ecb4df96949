//! Resume state through `restore`: what a place of the same and of another topology gets.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a test that cannot go on should say where"
)]

mod support;

use support::records::{axes, cuda, cursor, findings, open, place, rng, stream};
use support::{Making, reseal, small, store_of};
use waystation_format::records::Stream;
use waystation_format::records::rng::{Fork, State};
use waystation_format::{
    Code, Digest, Dtype, Grade, Identity, Region, RngAlgorithm, Role, Topology, names, rule,
};
use waystation_reader::restore::{Cut, Placement, RestoreOptions};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_state::rng::{Engine, check_canary, fork_seed};

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
    // Saved again at once, it is a record that tells where it comes from, and has its own canary.
    let record = dropout.to_record().unwrap().unwrap();
    assert_eq!(record.fork.as_ref(), Some(&lineage));
    assert_eq!(record.next_raw, dropout.next_raw);
    let again = Stream::parse(&record.to_value()).unwrap();
    let State::Inline(state) = &again.state else { panic!("{again:?}") };
    check_canary(RngAlgorithm::Philox4x32TorchCuda, state, &again.next_raw).unwrap();
    assert_eq!(model.to_record().unwrap().as_ref(), Some(&model.record), "as it was");
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
fn an_order_in_a_tensor_of_many_pieces_is_read_as_it_is() {
    let n = 300_000_u64;
    let identity = Identity { role: Role::Blob, ..Identity::param("order") };
    let mut making = Making::new(2).cut(identity, Dtype::U64, &[n], 0, 3);
    let ordinals: Vec<u64> = (0..n).map(|i| i * 7919 % n).collect();
    making.tensors[0].data = ordinals.iter().flat_map(|o| o.to_le_bytes()).collect();
    let value = |position: u64, next: &[u64]| {
        let order = format!(
            r#"{{"algorithm":"explicit","n":{n},"ordinals":{{"tensor":["main","blob","order","","",[]]}}}}"#
        );
        cursor(position, next)
            .replace(r#"{"algorithm":"identity","n":12}"#, &order)
            .replace(r#""records":12"#, &format!(r#""records":{n}"#))
            .replace(r#""consumed":100,"#, r#""consumed":1000000,"#)
    };
    for position in [0, 131_069, 262_143, n - 9] {
        let next: Vec<u64> =
            ordinals[usize::try_from(position).unwrap()..].iter().take(9).copied().collect();
        let saved = making.clone().record("cursor", "train", &value(position, &next));
        let source = Digest::from_hex(&"ab".repeat(32)).unwrap();
        let options = RestoreOptions::default().with_source("train", n, source);
        let restored = open(&saved).restore(&place(&[], &[]), &options).unwrap();
        assert_eq!(restored.cursors[0].grade, Grade::Exact, "{position}");
        assert_eq!(findings(&saved), []);
    }
}

#[test]
fn half_an_optimizer_is_none() {
    let value = |param: &str| {
        format!(
            r#"{{"algorithm":"adamw","groups":[{{"hyper":[],"name":"all","params":[["main","{param}"]]}}],"steps":[]}}"#
        )
    };
    let record = |making: Making, pp: u64| {
        making.record_at(&[("pp", pp)], "optimizer", "main", &value(&format!("w{pp}")))
    };
    let mut making = Making::new(1);
    making.topology = Topology(axes(&[("pp", 2)]));
    let mut files = record(record(making, 0), 1).files();
    let at = place(&[("pp", 1)], &[("pp", 0)]);
    let restored = |files: &_| {
        let checkpoint = Checkpoint::open_store(store_of(files), OpenOptions::default()).unwrap();
        checkpoint.restore(&at, &RestoreOptions::default()).unwrap()
    };
    let whole = restored(&files);
    assert_eq!(
        (whole.report[0].grade, whole.optimizers["main"].params().count()),
        (Grade::Exact, 2)
    );
    let one = format!(
        r#",{{"coordinate":[["pp",1]],"kind":"optimizer","name":"main","value":{}}}"#,
        value("w1")
    );
    let page = files.get_mut(&names::records_page(0)).unwrap();
    *page = String::from_utf8(page.clone()).unwrap().replace(&one, "").into_bytes();
    reseal(&mut files, |_| {});
    let half = restored(&files);
    assert_eq!((half.report[0].grade, half.optimizers.len()), (Grade::None, 0));
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
fn what_is_left_out_is_not_looked_into() {
    let (state, mut next) = cuda(1, 0);
    next.swap(0, 1);
    let value = stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &next, "require");
    let making = job().record("rng", "zz", &value);
    let checkpoint = open(&making);
    let at = place(&[("dp", 2), ("tp", 2)], &[("dp", 0), ("tp", 0)]);
    let mut options = offered();
    let refused = checkpoint.restore(&at, &options).unwrap_err();
    assert_eq!(refused.code(), Code::CanaryMismatch);
    options.leave_out.extend(["zz", "train"].map(str::to_owned));
    let restored = checkpoint.restore(&at, &options).unwrap();
    let of = |name: &str| restored.report.iter().find(|graded| graded.key.name == name).unwrap();
    for name in ["zz", "train"] {
        assert_eq!(of(name).grade, Grade::None);
        assert!(of(name).reason.as_deref().unwrap().contains("leaves it out"));
    }
    assert_eq!(of("shared").grade, Grade::Exact);
    assert!(restored.cursors[0].cursor.is_none());
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

/// All grades can be looked at, also where nothing is handed out.
#[test]
fn an_appraisal_has_every_grade_beside_the_refusal() {
    let checkpoint = open(&job());
    let at = place(&[("dp", 3), ("tp", 4)], &[("dp", 2), ("tp", 1)]);
    let appraisal = checkpoint.appraise(&at, &RestoreOptions::default()).unwrap();
    let grades: Vec<(&str, Grade)> = appraisal
        .restored
        .report
        .iter()
        .map(|graded| (graded.key.name.as_str(), graded.grade))
        .collect();
    let expected = [
        ("train", Grade::None),
        ("dropout", Grade::Fork),
        ("model", Grade::None),
        ("shared", Grade::Exact),
    ];
    assert_eq!(grades, expected);
    let refused = appraisal.refused.unwrap();
    assert_eq!((refused.code(), refused.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    // The first with its place, all with what they are graded and why.
    let source = format!("its source of 12 records of {} was not offered", "ab".repeat(32));
    for part in [
        &format!("at least the grade exact for cursor \"train\", found none: {source}"),
        "rng \"dropout\" (fork: axis \"dp\" had 2 places and has 3; it is a new stream)",
        "rng \"model\" (none: axis \"tp\" had 2 places and has 4)",
    ] {
        assert!(refused.message().contains(part), "{part}\n{refused}");
    }
    let digest = Digest::from_hex(&"ab".repeat(32)).unwrap();
    assert_eq!(appraisal.restored.cursors[0].wanted, [(12, digest)]);
    let same = checkpoint.restore(&at, &RestoreOptions::default()).unwrap_err();
    assert_eq!(same.to_string(), refused.to_string());
    // An error about the place names it, not that of some record.
    let dropout = checkpoint.restore(&at, &offered()).unwrap_err();
    assert!(dropout.message().contains("for rng \"dropout\" at dp=2,"), "{dropout}");
    assert_eq!(dropout.location().record.as_deref(), Some(r#"["rng","dropout",[["dp",2]]]"#));

    let own = place(&[("dp", 2), ("tp", 2)], &[("dp", 1), ("tp", 0)]);
    let appraisal = checkpoint.appraise(&own, &offered()).unwrap();
    assert!(appraisal.refused.is_none());
    assert_eq!(appraisal.restored.streams.len(), 3);
}

#[test]
fn names_that_no_record_has_are_refused_with_those_that_there_are() {
    let checkpoint = open(&job());
    let at = place(&[("dp", 2), ("tp", 2)], &[("dp", 0), ("tp", 0)]);
    let digest = Digest::from_hex(&"ab".repeat(32)).unwrap();
    let mut left_out = offered();
    left_out.leave_out.insert("dropuot".to_owned());
    for (options, says) in [
        (offered().with_source("trainx", 12, digest), "\"trainx\"; there is train"),
        // A stream reads no data.
        (offered().with_source("dropout", 12, digest), "\"dropout\"; there is train"),
        (left_out, "\"dropuot\"; there is train, dropout, model, shared"),
    ] {
        let error = checkpoint.restore(&at, &options).unwrap_err();
        assert_eq!(error.code(), Code::BadArgument, "{error}");
        assert!(error.message().ends_with(says), "{error}");
    }
    // A trainer says what it reads, whatever checkpoint it begins from.
    open(&Making::new(1)).restore(&place(&[], &[]), &offered()).unwrap();
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
