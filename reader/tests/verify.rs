//! Verification finds every change of every named file, goes on after what it finds, and names
//! what else lies in the directory.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests: a failure is a panic"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{Files, Making, adam, name_of, reseal, small, store_of};
use waystation_format::crc::crc32c;
use waystation_format::shard::layouts_of;
use waystation_format::{Code, Dtype, Identity, Manifest, Part, names, rule};
use waystation_reader::{Note, Progress, Report, VerifyOptions, verify};
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{DirStore, MemoryFs, Store};

fn report(files: &Files) -> Report {
    verify(&store_of(files), &VerifyOptions::default()).unwrap()
}

fn codes(report: &Report) -> Vec<Code> {
    report.findings.iter().map(|e| e.code()).collect()
}

#[test]
fn a_good_checkpoint_has_no_findings() {
    for making in [small(), Making::new(1), Making::new(3).trained(&[])] {
        let report = report(&making.files());
        assert!(report.ok, "{:?}", report.findings);
        assert!(report.digest.is_some());
    }
}

#[test]
fn every_changed_byte_is_found() {
    // Small blocks of every kind: pads, tables, unused bits, several shards.
    let good = small().files();
    for (name, bytes) in &good {
        // All of the metadata; of the shards every byte that is not deep in a chunk.
        let step = if bytes.len() > 20_000 { 97 } else { 13 };
        let quick = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        for at in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            let mut files = good.clone();
            files.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            let report = verify(&store_of(&files), &quick).unwrap();
            assert!(!report.ok, "{name} @{at}");
            let file = report.findings[0].location().file.clone().unwrap();
            // A changed commit file may only be seen at the manifest.
            assert!(file == *name || name == names::COMMIT, "{name} @{at}: {}", report.findings[0]);
        }
    }
}

#[test]
fn every_missing_or_cut_file_is_found() {
    let good = small().files();
    for (name, bytes) in &good {
        let mut files = good.clone();
        files.remove(name);
        assert!(!report(&files).ok, "{name}");
        for length in [0, bytes.len() - 1, bytes.len() + 1] {
            let mut changed = bytes.clone();
            changed.resize(length, 0);
            files.insert(name.clone(), changed);
            let report = report(&files);
            assert!(!report.ok, "{name} {length}");
            assert_eq!(report.findings[0].location().file.as_deref(), Some(name.as_str()));
        }
    }
}

#[test]
fn findings_go_on_and_stand_in_order() {
    let good = small().files();
    let mut files = good.clone();
    let attachment = name_of(&good, "attachment-00000-5f0c000000000000-00001");
    let part = name_of(&good, "part-00001");
    let shard = name_of(&good, "model-00000-5f0c000000000000-00000");
    let table = name_of(&good, "state-00000");
    files.get_mut(&attachment).unwrap()[0] ^= 1;
    files.get_mut(&part).unwrap()[9] ^= 1;
    files.get_mut(&shard).unwrap()[9] ^= 1;
    files.get_mut(&shard).unwrap()[4096] ^= 1;
    files.remove(&table);
    let report = report(&files);
    let found: Vec<(Code, &str)> =
        report.findings.iter().map(|e| (e.code(), e.location().file.as_deref().unwrap())).collect();
    assert_eq!(
        found,
        [
            (Code::FileMissing, table.as_str()),
            (Code::DigestMismatch, part.as_str()),
            (Code::DigestMismatch, attachment.as_str()),
            (Code::HeaderMismatch, shard.as_str()),
            (Code::CrcMismatch, shard.as_str()),
        ]
    );
    assert_eq!(report.findings[3].location().offset, Some(9));
    assert!(report.findings[4].location().tensor.is_some());
}

#[test]
fn data_is_checked_against_pages_where_a_part_is_broken() {
    let good = small().files();
    let part = name_of(&good, "part-00001");
    let shard = name_of(&good, "model-00001");
    let bytes = good[&shard].clone();
    let layout = with_table_of(&good, 1).unwrap().1;
    let long = layout.table_index.iter().position(Option::is_some).unwrap();
    let mut files = good.clone();
    files.get_mut(&part).unwrap()[9] ^= 1;
    assert_eq!(codes(&report(&files)), [Code::DigestMismatch]);
    for (at, code) in [
        (9, None),
        (layout.pads[0].start as usize, None),
        (layout.offsets[long] as usize + 5000, Some(Code::CrcMismatch)),
        (layout.table.unwrap().offset as usize, Some(Code::CrcTableMismatch)),
    ] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        files.insert(shard.clone(), changed);
        let expected: Vec<Code> = [Code::DigestMismatch].into_iter().chain(code).collect();
        assert_eq!(codes(&report(&files)), expected, "{at}");
    }
}

/// The first shard of a writer that has a table, and its layout.
fn with_table_of(files: &Files, writer: u32) -> Option<(String, waystation_format::shard::Layout)> {
    let manifest = Manifest::parse(&files[names::MANIFEST]).unwrap();
    let summary = &manifest.parts[writer as usize];
    let part = Part::parse(files[&names::part(writer, &summary.sha256)].clone()).unwrap();
    let layouts = layouts_of(&part).unwrap();
    let (at, layout) =
        (0..).zip(layouts).find(|(_, layout)| layout.table.is_some() && !layout.pads.is_empty())?;
    Some((names::shard(part.shards[at as usize].class, writer, part.inc, at), layout))
}

/// The first shard that has a table, and its layout.
fn with_table(files: &Files) -> (String, waystation_format::shard::Layout) {
    (0..2).find_map(|writer| with_table_of(files, writer)).unwrap()
}

#[test]
fn each_kind_of_byte_of_a_shard_has_its_code() {
    let good = small().files();
    let (shard, layout) = with_table(&good);
    let table = layout.table.unwrap().offset as usize;
    let pad = layout.pads[0].start as usize + 3;
    let long = layout.table_index.iter().position(Option::is_some).unwrap();
    let chunk = layout.offsets[long] as usize;
    for (at, code, rule, offset) in [
        (0, Code::HeaderMismatch, rule::SHARD_HEADER, 0),
        (
            layout.data_start as usize - 1,
            Code::HeaderMismatch,
            rule::SHARD_HEADER,
            layout.data_start as usize - 1,
        ),
        (pad, Code::NonzeroPad, rule::SHARD_PADS, pad),
        (table + 2, Code::CrcTableMismatch, rule::INTEGRITY_TABLE, table),
        // The block is named, not the chunk.
        (chunk + 5000, Code::CrcMismatch, rule::INTEGRITY_ALL, chunk + 4096),
    ] {
        let mut files = good.clone();
        files.get_mut(&shard).unwrap()[at] ^= 0x10;
        let report = report(&files);
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        let e = &report.findings[0];
        assert_eq!((e.code(), e.rule_id()), (code, Some(rule)), "{at}");
        assert_eq!(e.location().offset, Some(offset as u64));
    }
}

/// Seals a checkpoint whose one part was changed by text: everything but the change is consistent.
fn resealed_part(files: &mut Files, change: impl Fn(&str) -> String) {
    let manifest = Manifest::parse(&files[names::MANIFEST]).unwrap();
    let old = names::part(0, &manifest.parts[0].sha256);
    let text = String::from_utf8(files.remove(&old).unwrap()).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    let part = Part::parse(changed.into_bytes()).unwrap();
    files.retain(|name, _| !name.starts_with("tensors-") && !name.starts_with("records-"));
    files.insert(part.file_name(), part.raw().to_vec());
    support::derive_files(&[part], files);
}

#[test]
fn a_table_that_lies_about_a_good_chunk_is_found() {
    let making = Making::new(1).whole(Identity::param("w"), Dtype::F32, &[4096], 0);
    let mut files = making.files();
    let shard = name_of(&files, "model-");
    let (_, layout) = with_table(&files);
    let place = layout.table.unwrap();
    let range = place.offset as usize..place.offset as usize + 4 * place.count as usize;
    let bytes = files.get_mut(&shard).unwrap();
    let old = format!("{:08x}", crc32c(&bytes[range.clone()]));
    bytes[range.start + 4] ^= 1;
    let new = format!("{:08x}", crc32c(&bytes[range.clone()]));
    resealed_part(&mut files, |text| text.replace(&old, &new));
    let report = report(&files);
    assert_eq!(codes(&report), [Code::CrcTableMismatch], "{:?}", report.findings);
    assert_eq!(report.findings[0].rule_id(), Some(rule::INTEGRITY_BLOCKS));
    assert_eq!(report.findings[0].location().offset, Some(range.start as u64 + 4));
}

#[test]
fn unused_bits_must_be_zero() {
    let making = Making::new(1).whole(Identity::param("p"), Dtype::U4, &[5], 0);
    let mut files = making.files();
    let shard = name_of(&files, "model-");
    let bytes = files.get_mut(&shard).unwrap();
    let old = format!("{:08x}", crc32c(&bytes[4096..4099]));
    bytes[4098] |= 0x80;
    let new = format!("{:08x}", crc32c(&bytes[4096..4099]));
    resealed_part(&mut files, |text| text.replace(&old, &new));
    let report = report(&files);
    assert_eq!(codes(&report), [Code::NonzeroPad]);
    assert_eq!(report.findings[0].rule_id(), Some(rule::TENSOR_UNUSED_BITS));
    assert_eq!(report.findings[0].location().offset, Some(4098));
    // And reads do not let them through.
    let checkpoint =
        waystation_reader::Checkpoint::open_store(store_of(&files), Default::default()).unwrap();
    let read = checkpoint.tensor(&Identity::param("p")).unwrap().read().unwrap();
    assert_eq!(read, making.tensors[0].data);
}

#[test]
fn what_is_not_derived_is_found() {
    let good = small().files();
    let page = name_of(&good, "tensors-");
    let mut files = good.clone();
    let text = String::from_utf8(files[&page].clone()).unwrap();
    let changed = text.replacen("\"dtype\":\"BF16\"", "\"dtype\":\"F16\"", 1);
    assert_ne!(changed, text);
    files.insert(page.clone(), changed.into_bytes());
    reseal(&mut files, |_| {});
    let report = report(&files);
    assert_eq!(codes(&report), [Code::DeriveMismatch; 2], "{:?}", report.findings);
    let places: Vec<_> =
        report.findings.iter().map(|e| e.location().file.clone().unwrap()).collect();
    assert_eq!(places, [page.as_str(), names::MANIFEST]);
    assert!(report.findings[0].location().offset.is_some());

    let mut files = good.clone();
    reseal(&mut files, |manifest| manifest.contents[0].1[0].1 += 1);
    assert_eq!(
        codes(&verify(&store_of(&files), &VerifyOptions::default()).unwrap()),
        [Code::DeriveMismatch]
    );
}

#[test]
fn a_wrong_length_of_a_page_is_wrong_in_the_manifest_alone() {
    let mut files = small().files();
    reseal(&mut files, |manifest| manifest.tensors[0].bytes += 1);
    let report = report(&files);
    let found: Vec<_> =
        report.findings.iter().map(|e| (e.code(), e.location().file.as_deref().unwrap())).collect();
    assert_eq!(
        found,
        [(Code::LengthMismatch, "tensors-00000.json"), (Code::DeriveMismatch, names::MANIFEST)]
    );
}

#[test]
fn layouts_are_rebuilt() {
    let mut making = Making::new(1).whole(Identity::param("a"), Dtype::U8, &[300], 0).whole(
        adam("a"),
        Dtype::U8,
        &[300],
        0,
    );
    making = making.trained(&["a"]);
    making.block_bytes = 4096;
    let good = making.files();
    let mut files = good.clone();
    // The chunk is said to stand where the pad is; the rest agrees.
    resealed_part(&mut files, |text| text.replacen("[[0,4096,", "[[0,4352,", 1));
    let report = report(&files);
    // Data is still looked at where the part says it is.
    assert_eq!(codes(&report), [Code::LayoutMismatch, Code::CrcMismatch], "{:?}", report.findings);
    assert!(report.findings[0].location().pointer.is_some());
}

#[test]
fn a_wrong_layout_hides_nothing_of_the_other_shards() {
    let making = Making::new(1).whole(Identity::param("a"), Dtype::U8, &[300], 0).trained(&["a"]);
    let mut files = making.whole(adam("a"), Dtype::U8, &[300], 0).files();
    resealed_part(&mut files, |text| text.replacen("[[0,4096,", "[[0,4352,", 1));
    let other = name_of(&files, "state-");
    files.get_mut(&other).unwrap()[20] ^= 1;
    let found = report(&files).findings;
    let found: Vec<_> = found.iter().map(|e| (e.code(), e.location().file.as_deref())).collect();
    assert!(found.contains(&(Code::HeaderMismatch, Some(other.as_str()))), "{found:?}");
}

#[test]
fn a_named_file_is_never_called_unnamed() {
    let notes = |files: &Files| verify(&store_of(files), &VerifyOptions::default()).unwrap().notes;
    let whole = small().files();
    for name in whole.keys() {
        let mut files = whole.clone();
        files.get_mut(name).unwrap().pop();
        assert_eq!(notes(&files), [], "{name} is too short");
    }
    let mut files = whole.clone();
    files.insert(names::MANIFEST.to_owned(), b"{}".to_vec());
    files.insert("README".to_owned(), Vec::new());
    assert_eq!(notes(&files), [Note::Unnamed("README".to_owned())], "nobody knows what is named");
}

#[test]
fn other_files_are_notes() {
    let mut files = small().files();
    files.insert("README".to_owned(), vec![]);
    files.insert("tmp-00".to_owned(), vec![]);
    files.insert("rejected".to_owned(), b"why".to_vec());
    files.insert("pin-best".to_owned(), vec![]);
    let store = store_of(&files);
    store.make_dir("sub").unwrap();
    let report = verify(&store, &VerifyOptions::default()).unwrap();
    assert!(report.ok);
    assert_eq!(
        report.notes,
        [
            Note::Unnamed("README".to_owned()),
            Note::Marker("pin-best".to_owned()),
            Note::Marker("rejected".to_owned()),
            Note::Unnamed("sub".to_owned()),
            Note::Temporary("tmp-00".to_owned()),
        ]
    );
    let mut files = small().files();
    files.insert("deleted".to_owned(), vec![]);
    assert_eq!(
        codes(&verify(&store_of(&files), &VerifyOptions::default()).unwrap()),
        [Code::Deleted]
    );
}

#[test]
fn quick_leaves_data_out() {
    let mut files = small().files();
    let (shard, _) = with_table(&files);
    files.get_mut(&shard).unwrap()[9] ^= 1;
    let quick = VerifyOptions { quick: true, ..VerifyOptions::default() };
    let store = store_of(&files);
    let report = verify(&store, &quick).unwrap();
    assert!(report.ok);
    let full = verify(&store, &VerifyOptions::default()).unwrap();
    assert_eq!(codes(&full), [Code::HeaderMismatch]);
    assert!(report.bytes < full.bytes);
}

#[test]
fn what_a_disk_cannot_read_is_a_finding_and_the_rest_goes_on() {
    let good = small().files();
    let shard = name_of(&good, "state-00000");
    let other = name_of(&good, "model-00000-5f0c000000000000-00000");
    let mut files = good.clone();
    files.get_mut(&other).unwrap()[9] ^= 1;
    let memory = MemoryFs::new();
    support::put_all(&*memory.store(), &files);
    let failing = Arc::new(FailingFs::new(memory));
    failing.fail_on(Op::ReadAt, &shard, Errno::IO);
    let store: Arc<dyn Store> =
        Arc::new(DirStore::open(Arc::clone(&failing), std::path::Path::new("/")).unwrap());
    let report = verify(&store, &VerifyOptions::default()).unwrap();
    assert!(codes(&report).contains(&Code::Io));
    assert!(codes(&report).contains(&Code::HeaderMismatch));
    failing.heal();
    failing.fail_always(Op::List, Errno::IO);
    assert_eq!(verify(&store, &VerifyOptions::default()).unwrap_err().code(), Code::Io);
}

#[derive(Default)]
struct Watching {
    total: AtomicU64,
    done: AtomicU64,
    stop_after: u64,
}

impl Progress for Watching {
    fn begin(&self, _what: &str, total_bytes: u64) {
        self.total.store(total_bytes, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.stop_after > 0 && self.done.load(Ordering::Relaxed) >= self.stop_after
    }
}

#[test]
fn progress_ends_at_its_total_and_can_be_stopped() {
    let store = small().store();
    let watching = Watching::default();
    let options = VerifyOptions { progress: &watching, ..VerifyOptions::default() };
    let report = verify(&store, &options).unwrap();
    assert_eq!(watching.done.into_inner(), watching.total.into_inner());
    for stop_after in [1, 5000, report.bytes / 2, report.bytes - 1] {
        let watching = Watching { stop_after, ..Watching::default() };
        let options = VerifyOptions { progress: &watching, ..VerifyOptions::default() };
        assert_eq!(verify(&store, &options).unwrap_err().code(), Code::Interrupted);
    }
}
