//! What derives from parts that agree.

use waystation_format::entry::{Entry, Native, NativeStep, Tensor};
use waystation_format::identity::Identity;
use waystation_format::part::{Extension, Inventory, Omitted, OmittedReason};
use waystation_format::{Digest, Dtype, Role, limits};

use crate::job::{Job, run, tensor};

#[test]
fn chunks_of_all_writers_stand_in_one_entry() {
    let mut job = Job::new(3);
    let weight = tensor("w", Dtype::F32, &[6, 4]);
    job.store(2, &weight, &[0, 0], &[2, 4]);
    job.store(0, &weight, &[2, 0], &[1, 4]);
    job.store(2, &weight, &[3, 0], &[1, 4]);
    job.store(1, &weight, &[4, 0], &[2, 4]);
    let output = job.derive().unwrap();
    let entries = output.entries();
    let [Entry::Tensor(merged)] = entries.as_slice() else { panic!("{entries:?}") };
    let writers: Vec<u32> = merged.chunks.iter().map(|chunk| chunk.writer).collect();
    assert_eq!(writers, [2, 0, 2, 1]);
    assert_eq!(output.manifest().contents, [("main".to_owned(), vec![(Role::Param, 1)])]);
}

#[test]
fn a_manifest_says_what_the_parts_say() {
    let mut job = Job::new(2);
    job.attach(1, "config.json");
    job.store_whole(1, &tensor("w", Dtype::U8, &[3]));
    let feature = |name: &str, keep| Extension {
        feature: name.to_owned(),
        keep,
        value: r#"{"a":[1]}"#.to_owned(),
    };
    job.0[0].extensions = vec![feature("x/kept", true), feature("x/dropped", false)];
    job.0[1].extensions = vec![feature("x/kept", true), feature("x/dropped", false)];
    job.0[1].extensions[1].value = "2".to_owned(); // data that need not agree
    for part in &mut job.0 {
        part.common.features.optional = vec!["x/dropped".to_owned(), "x/kept".to_owned()];
    }
    job.0[0].common.features.optional.push("x/other".to_owned());
    let omit = |reason, names: &[&str]| Omitted {
        component: "main".to_owned(),
        reason,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    job.0[0].omitted = vec![omit(OmittedReason::Frozen, &["b", "c"])];
    job.0[1].omitted =
        vec![omit(OmittedReason::Base, &["z"]), omit(OmittedReason::Frozen, &["a", "b"])];

    let parts = job.parts();
    let manifest = run(&parts).unwrap().manifest();
    assert_eq!(manifest.common.features.optional, ["x/dropped", "x/kept", "x/other"]);
    assert_eq!(
        manifest.omitted,
        [omit(OmittedReason::Base, &["z"]), omit(OmittedReason::Frozen, &["a", "b", "c"])]
    );
    for (part, summary) in parts.iter().zip(&manifest.parts) {
        assert_eq!(summary.bytes, part.raw().len() as u64);
        assert_eq!(summary.sha256, Digest::of(part.raw()));
        assert_eq!((summary.inc, &summary.shards), (part.inc, &part.shards));
        assert_eq!(summary.attachments, part.attachments);
        assert_eq!(summary.extensions, part.extensions);
    }
}

#[test]
fn an_empty_checkpoint_has_no_pages() {
    let output = Job::new(1).derive().unwrap();
    assert!(output.tensors.is_empty() && output.records.is_empty());
    assert!(output.manifest().contents.is_empty());
}

#[test]
fn equal_records_and_aliases_merge() {
    let mut job = Job::new(2);
    let weight = tensor("w", Dtype::U8, &[3]);
    job.store_whole(1, &weight);
    for writer in 0..2 {
        let native =
            Native { framework: "torch".to_owned(), path: vec![NativeStep::Key("t".to_owned())] };
        job.alias_called(writer, Role::Param, "tied", &weight.identity, vec![native]);
        job.record(writer, "all", &[], r#"{"a":1}"#);
        job.record(writer, "each", &[("dp", writer.into())], r#"{"a":1}"#);
    }
    let output = job.derive().unwrap();
    let keys: Vec<String> = output.entries().iter().map(Entry::key).collect();
    assert_eq!(keys, [r#"["main","param","tied","","",[]]"#, r#"["main","param","w","","",[]]"#]);
    let Entry::Alias(tied) = &output.entries()[0] else { panic!("a tensor") };
    assert_eq!(tied.native[0].framework, "torch");
    let keys: Vec<String> = output.records().iter().map(|record| record.key.key()).collect();
    assert_eq!(
        keys,
        [
            r#"["acme/state","all",[]]"#,
            r#"["acme/state","each",[["dp",0]]]"#,
            r#"["acme/state","each",[["dp",1]]]"#
        ]
    );
    // An alias is no tensor: contents do not count it.
    assert_eq!(output.manifest().contents, [("main".to_owned(), vec![(Role::Param, 1)])]);
}

#[test]
fn contents_count_by_component_and_role_in_the_order_of_their_ids() {
    let mut job = Job::new(1);
    let with = |component: &str, role, name: &str, slot: &str, owner: &str| {
        Tensor::new(
            Identity {
                component: component.to_owned(),
                role,
                slot: slot.to_owned(),
                owner: owner.to_owned(),
                ..Identity::param(name)
            },
            Dtype::U8,
            &[1],
        )
    };
    for entry in [
        with("main", Role::Param, "a", "", ""),
        with("main", Role::Param, "b", "", ""),
        with("main", Role::Buffer, "c", "", ""),
        with("main", Role::Optimizer, "a", "adam.m", "o"),
        with("critic", Role::Extension, "a", "", ""),
    ] {
        job.store_whole(0, &entry);
    }
    let expected = [
        ("critic".to_owned(), vec![(Role::Extension, 1)]),
        ("main".to_owned(), vec![(Role::Buffer, 1), (Role::Optimizer, 1), (Role::Param, 2)]),
    ];
    assert_eq!(job.derive().unwrap().manifest().contents, expected);
}

#[test]
fn the_inventory_counts_tensors_and_aliases() {
    let mut job = Job::new(2);
    let weight = tensor("w", Dtype::U8, &[3]);
    job.store_whole(1, &weight);
    job.alias(0, Role::Param, "tied", &weight.identity);
    let keys = [r#"["main","param","w","","",[]]"#, r#"["main","param","tied","","",[]]"#];
    job.0[1].inventory = Some(Inventory::of(keys));
    job.derive().unwrap();
}

/// Cuts again by the rule's own words and compares.
#[test]
fn pages_are_cut_before_the_entry_that_would_make_them_too_long() {
    let mut job = Job::new(2);
    let mut lengths = Vec::new();
    for n in 0..900_usize {
        // Names of many lengths, so that pages end at every distance from the target.
        let name = format!("{n:03}{}", "x".repeat(n * 7 % 1000));
        let weight = tensor(&name, Dtype::U8, &[64, 2]);
        let rows = if n == 300 { 64 } else { 1 + n as u64 % 64 };
        for row in 0..rows - 1 {
            job.store((row % 2) as u32, &weight, &[row, 0], &[1, 2]);
        }
        job.store(1, &weight, &[rows - 1, 0], &[65 - rows, 2]);
        job.record((n % 2) as u32, &name, &[], &format!(r#"{{"v":"{}"}}"#, "y".repeat(n * 4)));
    }
    // One entry that is longer than a page by itself.
    job.record(0, "050x", &[], &format!(r#"{{"v":"{}"}}"#, "z".repeat(1_100_000)));
    let output = job.derive().unwrap();
    assert!(output.tensors.len() >= 2 && output.records.len() >= 4);

    for (pages, head, tail) in [
        (
            &output.tensors,
            r#"{"entries":["#,
            r#"],"format":"waystation","kind":"tensors","page":#,"version":"1.0"}"#,
        ),
        (
            &output.records,
            r##"{"format":"waystation","kind":"records","page":#,"records":["##,
            r#"],"version":"1.0"}"#,
        ),
    ] {
        let mut previous: Option<usize> = None;
        for (n, page) in pages.iter().enumerate() {
            let frame =
                |n: usize| (head.replace('#', &n.to_string()), tail.replace('#', &n.to_string()));
            let (head, tail) = frame(n);
            let text = std::str::from_utf8(page).unwrap();
            let inner = text.strip_prefix(&head).unwrap().strip_suffix(&tail).unwrap();
            let entries: Vec<serde_json::Value> =
                serde_json::from_str(&format!("[{inner}]")).unwrap();
            assert!(page.len() as u64 <= limits::PAGE_TARGET_BYTES || entries.len() == 1);
            let first = entries[0].to_string().len();
            if let Some(previous) = previous {
                assert!(
                    (previous + 1 + first) as u64 > limits::PAGE_TARGET_BYTES,
                    "page {n} cut too early"
                );
            }
            previous = Some(page.len());
            lengths.push(page.len());
        }
    }
    assert!(lengths.iter().any(|length| *length as u64 > limits::PAGE_TARGET_BYTES));
    assert_eq!(output.entries().len(), 900);
    assert_eq!(output.records().len(), 901);
}
