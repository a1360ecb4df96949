//! Bad resume state, each kind with its code: through `verify`, through `restore`, or already when
//! the record is read.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "tests"
)]

mod support;

use support::{Making, put_all, store_of};
use waystation_format::json::Value;
use waystation_format::record::Record;
use waystation_format::{
    Class, Code, Coordinate, Digest, Grade, Result, RngAlgorithm, Topology, rule,
};
use waystation_reader::restore::{Place, RestoreOptions};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};
use waystation_state::rng::canary;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stream(algorithm: &str, state: &[u8], next: &[String]) -> String {
    let next: Vec<String> = next.iter().map(|output| format!("\"{output}\"")).collect();
    format!(
        r#"{{"algorithm":"{algorithm}","caches":[],"next_raw":[{}],"on_reshape":"require","state":"{}"}}"#,
        next.join(","),
        hex(state)
    )
}

/// A stream whose canary has the right width, whatever its state is worth.
fn any_stream(algorithm: RngAlgorithm, state: &[u8]) -> String {
    let digits = usize::try_from(algorithm.width() / 4).unwrap();
    let count = if algorithm.has_canary() { 4 } else { 0 };
    stream(algorithm.as_str(), state, &vec!["0".repeat(digits); count])
}

fn cursor(kind_members: &str, consumed: u64, ordinals: &[u64]) -> String {
    let bytes: Vec<u8> = ordinals.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect();
    let first: Vec<String> = ordinals.iter().take(4).map(u64::to_string).collect();
    format!(
        r#"{{"consumed":{consumed},{kind_members},"next":{{"count":{},"first":[{}],"sha256":"{}"}},"order":{{"algorithm":"identity","n":12}}"#,
        ordinals.len(),
        first.join(","),
        Digest::of(&bytes)
    )
}

/// A position in 12 records, of which epochs drop what does not fill 5.
fn at(position: u64, ordinals: &[u64]) -> String {
    let members = r#""epoch":0,"epoch_end":{"rule":"drop-last","unit":5},"kind":"permuted-index""#;
    let begin = cursor(members, position, ordinals);
    format!(
        r#"{begin},"position":{position},"source":{{"records":12,"sha256":"{}"}}}}"#,
        "ab".repeat(32)
    )
}

fn place(topology: &[(&str, u64)], at: &[(&str, u64)]) -> Place {
    let axes = |axes: &[(&str, u64)]| -> Coordinate {
        axes.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect()
    };
    Place::new(Topology(axes(topology)), axes(at)).unwrap()
}

fn one() -> Place {
    place(&[("dp", 1)], &[("dp", 0)])
}

/// Puts up with anything, and has the data of [`at`].
fn lenient() -> RestoreOptions {
    let sha256 = Digest::from_hex(&"ab".repeat(32)).unwrap();
    let mut options = RestoreOptions::default().with_source("train", 12, sha256);
    (options.streams, options.cursors) = (Grade::None, Grade::None);
    options
}

/// What `verify` finds and what `restore` answers, each as code and rule.
fn answers(making: &Making) -> [Vec<(Code, &'static str)>; 2] {
    let store = making.store();
    let of = |e: &waystation_format::Error| (e.code(), e.rule_id().unwrap_or_default());
    let report = verify(&store, &VerifyOptions::default()).unwrap();
    let mut options = lenient();
    if !making.records.iter().any(|record| record.key.kind == "cursor") {
        options.offers.clear();
    }
    let restored = Checkpoint::open_store(store, OpenOptions::default())
        .and_then(|checkpoint| checkpoint.restore(&one(), &options));
    [report.findings.iter().map(of).collect(), restored.err().iter().map(of).collect()]
}

/// `verify` and `restore` both refuse with this code and rule, and nothing else is found.
fn both_refuse(kind: &str, value: &str, code: Code, rule: &'static str) {
    let expected = [vec![(code, rule)], vec![(code, rule)]];
    assert_eq!(answers(&Making::new(1).record(kind, "train", value)), expected, "{value}");
}

fn mt19937(pos: u32, word: u32) -> Vec<u8> {
    let words = std::iter::repeat_n(word, 624).chain([pos]);
    words.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_state_of_another_length() {
    for algorithm in RngAlgorithm::ALL.iter().copied() {
        for length in [0, algorithm.state_bytes() - 1, algorithm.state_bytes() + 1] {
            let value = any_stream(algorithm, &vec![1; length]);
            both_refuse("rng", &value, Code::BadRngState, rule::RNG_STATE);
        }
    }
}

#[test]
fn a_position_in_the_twister_above_624() {
    for pos in [625, u32::MAX] {
        let value = any_stream(RngAlgorithm::Mt19937, &mt19937(pos, 1));
        both_refuse("rng", &value, Code::BadRngState, rule::RNG_STATE);
    }
}

#[test]
fn an_even_increment_of_pcg() {
    for algorithm in [RngAlgorithm::Pcg64XslRr, RngAlgorithm::Pcg64Dxsm, RngAlgorithm::Pcg32XshRr] {
        let value = any_stream(algorithm, &vec![2; algorithm.state_bytes()]);
        both_refuse("rng", &value, Code::BadRngState, rule::RNG_STATE);
    }
}

#[test]
fn an_offset_of_philox_that_is_no_multiple_of_4() {
    for offset in [1_u64, 2, 3, u64::MAX] {
        let state = [7_u64.to_le_bytes(), offset.to_le_bytes()].concat();
        let value = any_stream(RngAlgorithm::Philox4x32TorchCuda, &state);
        both_refuse("rng", &value, Code::BadRngState, rule::RNG_STATE);
    }
}

#[test]
fn states_of_nothing_but_zeros() {
    for (algorithm, state) in [
        (RngAlgorithm::Mt19937, mt19937(624, 0)),
        (RngAlgorithm::Xoshiro256PlusPlus, vec![0; 32]),
        (RngAlgorithm::Pcg64XslRr, vec![0; 32]),
    ] {
        both_refuse("rng", &any_stream(algorithm, &state), Code::BadRngState, rule::RNG_STATE);
    }
    // The lower bits of the first word are no part of the twister's state.
    let mut state = mt19937(624, 0);
    state[0] = 1;
    let value = any_stream(RngAlgorithm::Mt19937, &state);
    both_refuse("rng", &value, Code::BadRngState, rule::RNG_STATE);
}

#[test]
fn a_canary_that_disagrees_in_any_output() {
    let state = vec![3; 32];
    for algorithm in [RngAlgorithm::Sfc64, RngAlgorithm::Xoshiro256PlusPlus] {
        let good = canary(algorithm, &state, 6).unwrap();
        let fine =
            answers(&Making::new(1).record("rng", "x", &stream(algorithm.as_str(), &state, &good)));
        assert_eq!(fine, [vec![], vec![]]);
        for index in 0..good.len() {
            let mut bad = good.clone();
            let last = bad[index].pop().unwrap();
            bad[index].push(if last == '0' { '1' } else { '0' });
            let value = stream(algorithm.as_str(), &state, &bad);
            both_refuse("rng", &value, Code::CanaryMismatch, rule::RNG_CANARY);
        }
    }
    both_refuse("cursor", &at(3, &[3, 4, 0, 2]), Code::CanaryMismatch, rule::CURSOR_CANARY);
    assert_eq!(answers(&Making::new(1).record("cursor", "t", &at(3, &[3, 4, 5, 6])))[0], []);
}

#[test]
fn a_grid_of_places_with_a_hole_and_a_cursor_of_one_rank_dropped() {
    let fingerprint = r#"{"map":[["ranks",3]]}"#;
    let opaque = format!(
        r#"{{"fingerprint":{fingerprint},"kind":"opaque","media_type":"vendor/loader","state":{{"bytes":"00"}}}}"#
    );
    let pcg = stream("vendor/engine", &[1], &[]);
    for (kind, value) in [("rng", &pcg), ("cursor", &opaque)] {
        let whole = (0..3).fold(Making::new(3), |making, dp| {
            making.record_at(&[("dp", dp)], kind, "train", value)
        });
        assert!(verify(&whole.store(), &VerifyOptions::default()).unwrap().ok);
        for dropped in 0..3 {
            let mut holed = whole.clone();
            holed.records.remove(dropped);
            let refused = std::panic::catch_unwind(|| holed.files());
            assert!(refused.is_err(), "no committer makes it: {kind} without {dropped}");
        }
    }
    // Nor is it taken when someone made it all the same: the derivation is done again.
    let files = Making::new(3).record("vendor/x", "train", "{}").files();
    let report = verify(&store_of(&files), &VerifyOptions::default()).unwrap();
    assert!(report.ok);
    let keys: Result<Vec<_>> = (0..2)
        .map(|dp| {
            let coordinate = vec![("dp".to_owned(), dp)];
            Record::new("rng", "train", coordinate, &Value::parse(&pcg).unwrap()).map(|r| r.key)
        })
        .collect();
    let topology = Topology(vec![("dp".to_owned(), 3)]);
    let error = waystation_format::record::check_grid(&keys.unwrap(), &topology).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::RecordGrid, Some(rule::RECORD_GRID)));
}

/// Refused when the record is read, by every reader of its page.
fn not_even_read(kind: &str, value: &str, code: Code, rule: &'static str) {
    let name = if kind == "progress" { "main" } else { "train" };
    let error = Record::new(kind, name, vec![], &Value::parse(value).unwrap()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (code, Some(rule)), "{value}");
    // A page that holds it all the same.
    let placeholder = format!(r#"{{"kind":"vendor/x","name":"{name}","value":{value}}}"#);
    let made = Making::new(1).record("vendor/x", name, value).files();
    let mut files = made.clone();
    let page = files.get_mut("records-00000.json").unwrap();
    let text = String::from_utf8(page.clone()).unwrap();
    assert!(text.contains(&placeholder));
    let record = format!(r#"{{"kind":"{kind}","name":"{name}","value":{value}}}"#);
    *page = text.replace(&placeholder, &record).into_bytes();
    let (bytes, digest) = (page.len(), Digest::of(page));
    support::reseal(&mut files, |manifest| {
        let first = format!(r#"["{kind}","{name}",[]]"#);
        let reference = &mut manifest.records[0];
        (reference.bytes, reference.sha256, reference.first) = (bytes as u64, digest, first);
    });
    let checkpoint = Checkpoint::open_store(store_of(&files), OpenOptions::default()).unwrap();
    let error = checkpoint.records().find_map(Result::err).unwrap();
    assert_eq!((error.code(), error.rule_id()), (code, Some(rule)), "{value}");
    assert_eq!(error.location().file.as_deref(), Some("records-00000.json"));
    assert!(error.location().pointer.as_deref().unwrap().starts_with("/records/0/value"));
    let error = checkpoint.restore(&one(), &lenient()).unwrap_err();
    assert_eq!(error.code(), code);
    let memory = waystation_store::MemoryFs::new().store();
    put_all(&*memory, &files);
    assert!(!verify(&memory, &VerifyOptions::default()).unwrap().ok);
}

#[test]
fn a_position_past_the_end() {
    // 12 records, 10 of them in an epoch.
    for position in [11, 12, 1 << 52] {
        not_even_read(
            "cursor",
            &at(position, &[0, 1, 2, 3]),
            Code::BadPosition,
            rule::CURSOR_POSITION,
        );
    }
    assert_eq!(answers(&Making::new(1).record("cursor", "t", &at(10, &[0, 1, 2, 3])))[0], []);
}

#[test]
fn a_source_that_changed() {
    let making = Making::new(1).record("cursor", "train", &at(3, &[3, 4]));
    let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::default()).unwrap();
    let digest = |byte: &str| Digest::from_hex(&byte.repeat(32)).unwrap();
    let with = |records, byte| {
        let options = RestoreOptions::default().with_source("train", records, digest(byte));
        checkpoint.restore(&one(), &options)
    };
    assert!(with(12, "ab").is_ok());
    for (records, byte) in [(12, "ac"), (11, "ab")] {
        let error = with(records, byte).unwrap_err();
        assert_eq!((error.code(), error.class()), (Code::SourceChanged, Class::Usage));
        assert_eq!(error.rule_id(), Some(rule::CURSOR_SOURCE));
    }
}

#[test]
fn an_algorithm_that_is_not_known_is_carried_and_graded_and_no_error() {
    let order = r#"{"consumed":3,"epoch":0,"epoch_end":{"rule":"wrap"},"kind":"permuted-index","order":{"algorithm":"vendor/order@2","n":12,"salt":{"deep":[1,null]}},"position":3,"source":{"records":12,"sha256":""#.to_owned()
        + &"ab".repeat(32)
        + r#""}}"#;
    let making = Making::new(1)
        .record("rng", "dropout", &stream("vendor/engine", &[1, 2, 3], &["abc".to_owned()]))
        .record("cursor", "train", &order);
    assert_eq!(answers(&making), [vec![], vec![]]);
    let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::default()).unwrap();
    let restored = checkpoint.restore(&one(), &lenient()).unwrap();
    for graded in &restored.report {
        assert_eq!(graded.grade, Grade::None);
        assert!(graded.reason.is_some());
    }
    // Carried: the records come out byte for byte.
    let mut records: Vec<String> =
        checkpoint.records().map(|record| record.unwrap().json.into_string()).collect();
    let mut given: Vec<String> =
        making.records.iter().map(|record| record.json.clone().into_string()).collect();
    records.sort();
    given.sort();
    assert_eq!(records, given);
    // And refused where exactness is demanded, as it is unless the caller says otherwise.
    let refused = checkpoint.restore(&one(), &RestoreOptions::default()).unwrap_err();
    assert_eq!((refused.code(), refused.class()), (Code::NotExact, Class::Unsupported));
}

#[test]
fn floats_and_integers_outside_the_typed_forms() {
    let value = r#"{"map":[["x",V]]}"#;
    for bad in [
        r#"{"f64":"3ff"}"#,
        r#"{"f64":"3FF0000000000000"}"#,
        r#"{"f32":"3ff0000000000000"}"#,
        r#"{"f16":"3c00"}"#,
        r#"{"int":"9007199254740991"}"#,
        r#"{"int":"+9007199254740993"}"#,
        r#"{"int":"1e400"}"#,
        "[1]",
        r#"{"float":1}"#,
    ] {
        not_even_read("value", &value.replace('V', bad), Code::BadMember, rule::VALUE_FORM);
    }
    not_even_read("ema", r#"{"decay":1,"updates":3}"#, Code::BadMember, rule::EMA_FORM);
    not_even_read(
        "scaler",
        r#"{"backoff":{"f64":"3fe0000000000000"},"good_steps":1,"growth":{"int":"9007199254740993"},"interval":2000,"scale":{"f64":"40f0000000000000"}}"#,
        Code::BadMember,
        rule::SCALER_FORM,
    );
    not_even_read("progress", r#"{"optimizer_step":-1}"#, Code::BadMember, rule::JSON_TYPES);
    // What no JSON of ours may hold at all.
    for text in ["1.5", "1e3", "9007199254740993", "-0", "NaN"] {
        let value = format!(r#"{{"optimizer_step":{text}}}"#);
        assert_eq!(Value::parse(&value).unwrap_err().code(), Code::NotCanonical, "{text}");
    }
}
