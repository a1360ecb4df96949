//! What opening reads, what it refuses, and which of several breaches it answers for.

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

use support::{Files, Making, adam, commit, name_of, reseal, small, store_of};
use waystation_format::{Code, Digest, Dtype, Entry, Error, Identity, Region, names, rule};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{Counting, DirStore, MemoryFs, Store};

fn open(files: &Files) -> Result<Checkpoint, Error> {
    Checkpoint::open_store(store_of(files), OpenOptions::new())
}

fn refused(files: &Files) -> Error {
    open(files).unwrap_err()
}

#[test]
fn opening_reads_the_root_only() {
    let counting = Counting::new(small().store());
    let checkpoint =
        Checkpoint::open_store(Arc::new(counting.clone()), OpenOptions::new()).unwrap();
    let read: Vec<String> = counting.reads().into_iter().map(|access| access.name).collect();
    assert_eq!(read, [names::COMMIT, names::MANIFEST]);
    let entries = checkpoint.entries().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(entries.len(), 8);
    assert!(entries.windows(2).all(|pair| pair[0].key() < pair[1].key()));
    assert_eq!(counting.bytes_read(|name| name.ends_with(".safetensors")), 0);
    assert_eq!(checkpoint.step(), 1000);
    assert_eq!(checkpoint.run(), "test");
    let raw = checkpoint.manifest().encode().unwrap();
    assert_eq!(checkpoint.digest(), Digest::of(&raw));
}

/// Many tensors, so that there are several pages.
fn paged() -> Making {
    let mut making = Making::new(1);
    let long = "x".repeat(900);
    for i in 0..2500 {
        making = making.whole(Identity::param(format!("{i:04}.{long}")), Dtype::U8, &[1], 0);
    }
    making
}

#[test]
fn only_the_pages_that_are_needed_are_read() {
    let making = paged();
    let files = making.files();
    let counting = Counting::new(store_of(&files));
    let checkpoint =
        Checkpoint::open_store(Arc::new(counting.clone()), OpenOptions::new()).unwrap();
    assert!(checkpoint.tensor_pages() >= 3);
    let pages = || {
        let mut names: Vec<String> = counting.reads().into_iter().map(|a| a.name).collect();
        names.retain(|name| name.starts_with("tensors-"));
        names.len()
    };
    let last = making.tensors.last().unwrap().tensor.identity.clone();
    assert!(checkpoint.find(&last).unwrap().is_some());
    assert!(checkpoint.find(&last).unwrap().is_some());
    assert_eq!(pages(), 1);
    assert!(checkpoint.find(&Identity::param("0000")).unwrap().is_none());
    assert!(checkpoint.find(&Identity::param("zzz")).unwrap().is_none());
    assert_eq!(pages(), 1);

    // Shares by page and by key are what all entries are.
    let all: Vec<String> = checkpoint.entries().map(|e| e.unwrap().key()).collect();
    assert_eq!(all.len(), 2500);
    let paged: Vec<String> = (0..checkpoint.tensor_pages())
        .flat_map(|page| checkpoint.entries_in_pages(page..page + 1))
        .map(|e| e.unwrap().key())
        .collect();
    assert_eq!(paged, all);
    for (from, until) in [(0, 2500), (1, 2), (700, 2100), (2499, 2500), (5, 5)] {
        let (first, end) = (all.get(from).cloned(), all.get(until).cloned());
        let between: Vec<String> = checkpoint
            .entries_between(first.as_deref(), end.as_deref())
            .unwrap()
            .map(|e| e.unwrap().key())
            .collect();
        assert_eq!(between, all[from..until]);
    }
}

#[test]
fn every_named_file_must_be_there_regular_and_of_its_length() {
    let good = small().files();
    open(&good).unwrap();
    for name in good.keys() {
        let missing = match name.as_str() {
            names::COMMIT => Code::NotCommitted,
            _ => Code::FileMissing,
        };
        let mut files = good.clone();
        let bytes = files.remove(name).unwrap();
        let e = refused(&files);
        assert_eq!((e.code(), e.location().file.as_deref()), (missing, Some(name.as_str())));

        let length = match name.as_str() {
            names::COMMIT => Code::CommitGrammar,
            names::MANIFEST => Code::DigestMismatch,
            _ => Code::LengthMismatch,
        };
        for longer in [true, false] {
            let mut changed = bytes.clone();
            changed.resize(if longer { bytes.len() + 1 } else { bytes.len() - 1 }, 0);
            files.insert(name.clone(), changed);
            let e = refused(&files);
            assert_eq!((e.code(), e.location().file.as_deref()), (length, Some(name.as_str())));
        }

        // Another case of the name is another name.
        files.remove(name);
        files.insert(name.to_uppercase(), bytes);
        assert_eq!(refused(&files).code(), missing);

        files.remove(&name.to_uppercase());
        let store = store_of(&files);
        store.make_dir(name).unwrap();
        let e = Checkpoint::open_store(store, OpenOptions::new()).unwrap_err();
        assert_eq!((e.code(), e.rule_id()), (Code::NotRegular, Some(rule::DIR_REGULAR)));
    }
}

#[test]
fn the_first_breach_is_the_answer() {
    let mut files = small().files();
    let part = name_of(&files, "part-00001");
    let page = name_of(&files, "tensors-");
    files.remove(&page);
    assert_eq!(refused(&files).location().file.as_deref(), Some(page.as_str()));
    files.remove(&part);
    assert_eq!(refused(&files).location().file.as_deref(), Some(part.as_str()));
    files.get_mut(names::MANIFEST).unwrap()[5] ^= 1;
    let e = refused(&files);
    assert_eq!((e.code(), e.rule_id()), (Code::DigestMismatch, Some(rule::INTEGRITY_MANIFEST)));
    files.get_mut(names::COMMIT).unwrap()[70] ^= 1;
    let e = refused(&files);
    assert_eq!((e.code(), e.location().offset), (Code::CommitGrammar, Some(70)));
    files.remove(names::COMMIT);
    assert_eq!(refused(&files).code(), Code::NotCommitted);
    files.insert("deleted".to_owned(), vec![]);
    assert_eq!(refused(&files).code(), Code::Deleted);
    // A rejected checkpoint may be opened by its path.
    let mut files = small().files();
    files.insert("rejected".to_owned(), b"loss is NaN".to_vec());
    files.insert("tmp-0123456789abcdef".to_owned(), vec![1]);
    open(&files).unwrap();
}

#[test]
fn a_manifest_is_checked_though_its_digest_is_right() {
    let mut files = small().files();
    let mut raw = files[names::MANIFEST].clone();
    raw.push(b'\n');
    commit(&mut files, raw);
    let e = refused(&files);
    assert_eq!(
        (e.code(), e.location().file.as_deref()),
        (Code::NotCanonical, Some(names::MANIFEST))
    );
    let text = String::from_utf8(small().files()[names::MANIFEST].clone()).unwrap();
    for (from, to, code) in [
        ("\"version\":\"1.0\"", "\"version\":\"2.0\"", Code::UnsupportedVersion),
        ("\"required\":[]", "\"required\":[\"new\"]", Code::UnsupportedFeature),
        ("\"kind\":\"manifest\"", "\"kind\":\"part\"", Code::BadFormat),
        ("\"block_bytes\":4096", "\"block_bytes\":4097", Code::BadMember),
    ] {
        assert!(text.contains(from));
        commit(&mut files, text.replace(from, to).into_bytes());
        assert_eq!(refused(&files).code(), code, "{to}");
    }
}

#[test]
fn pages_are_checked_when_they_are_used() {
    let good = small().files();
    let page = name_of(&good, "tensors-");
    let mut files = good.clone();
    files.get_mut(&page).unwrap()[100] ^= 1;
    let checkpoint = open(&files).unwrap();
    let e = checkpoint.find(&Identity::param("up")).unwrap_err();
    assert_eq!((e.code(), e.location().file.as_deref()), (Code::DigestMismatch, Some(&*page)));
    assert_eq!(checkpoint.entries().next().unwrap().unwrap_err().code(), Code::DigestMismatch);
    assert_eq!(checkpoint.entries().count(), 1);

    // What a hostile writer could seal: a gap, an overlap, a chunk in no shard.
    let text = String::from_utf8(good[&page].clone()).unwrap();
    for (from, to, code) in [
        ("[0,0],[48,64]", "[0,0],[47,64]", Code::CoverGap),
        ("[48,0],[48,64]", "[47,0],[48,64]", Code::CoverOverlap),
        ("\"role\":\"param\"", "\"role\":\"parom\"", Code::UnsupportedRole),
        ("[[0,0,", "[[0,9,", Code::BadChunk),
    ] {
        assert!(text.contains(from), "{text}");
        let mut files = good.clone();
        files.insert(page.clone(), text.replacen(from, to, 1).into_bytes());
        reseal(&mut files, |_| {});
        let e = open(&files).unwrap().find(&Identity::param("up")).unwrap_err();
        assert_eq!(e.code(), code, "{to}: {e}");
        assert_eq!(e.location().file.as_deref(), Some(page.as_str()));
    }
}

#[test]
fn aliases_lead_to_tensors_with_elements() {
    let good = small().files();
    let page = name_of(&good, "tensors-");
    let text = String::from_utf8(good[&page].clone()).unwrap();
    let of = |name: &str| format!("[\"main\",\"param\",\"{name}\",\"\",\"\",[]]");
    assert!(text.contains(&of("embed")));
    for (name, rule) in
        [("lost", rule::ALIAS_TARGET), ("head", rule::ALIAS_TARGET), ("none", rule::ALIAS_ELEMENTS)]
    {
        let mut files = good.clone();
        files.insert(page.clone(), text.replace(&of("embed"), &of(name)).into_bytes());
        reseal(&mut files, |manifest| {
            manifest.tensors[0].first = manifest.tensors[0].first.clone()
        });
        let checkpoint = open(&files).unwrap();
        let e = checkpoint.tensor(&Identity::param("head")).unwrap_err();
        assert_eq!((e.code(), e.rule_id()), (Code::BadAlias, Some(rule)), "{name}");
        // Listing is not reading.
        assert!(checkpoint.find(&Identity::param("head")).unwrap().is_some());
        assert!(checkpoint.entries().all(|entry| entry.is_ok()));
        let report = verify(&store_of(&files), &VerifyOptions::default()).unwrap();
        assert_eq!(report.findings[0].rule_id(), Some(rule), "{:?}", report.findings);
        assert!(checkpoint.tensor(&Identity::param("up")).is_ok());
    }
    let checkpoint = open(&good).unwrap();
    let found = checkpoint.find(&Identity::param("head")).unwrap().unwrap();
    assert!(matches!(&*found, Entry::Alias(alias) if alias.of == Identity::param("embed")));
}

#[test]
fn records_and_attachments_are_found() {
    let mut files = small().files();
    let checkpoint = open(&files).unwrap();
    let records = checkpoint.records().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(checkpoint.record(&record.key).unwrap().as_ref(), Some(record));
    }
    let mut other = records[0].key.clone();
    other.name = "zzz".to_owned();
    assert!(checkpoint.record(&other).unwrap().is_none());

    let paths: Vec<&str> = checkpoint.attachments().map(|a| a.path).collect();
    assert_eq!(paths, ["1_Pooling/config.json", "config.json"]);
    let mut out = Vec::new();
    checkpoint.read_attachment("1_Pooling/config.json", &mut out).unwrap();
    assert_eq!(out, [7; 3000]);
    let e = checkpoint.read_attachment("CONFIG.json", &mut out).unwrap_err();
    assert_eq!(e.code(), Code::NotFound);
    let file = checkpoint.attachments().next().unwrap().file;
    files.get_mut(&file).unwrap()[2999] ^= 4;
    let e = open(&files).unwrap().read_attachment("1_Pooling/config.json", &mut out).unwrap_err();
    assert_eq!((e.code(), e.location().file.as_deref()), (Code::DigestMismatch, Some(&*file)));

    let page = name_of(&files, "records-");
    files.get_mut(&page).unwrap()[50] ^= 1;
    let damaged = open(&files).unwrap();
    assert_eq!(damaged.record(&records[0].key).unwrap_err().code(), Code::DigestMismatch);
    assert_eq!(damaged.records().count(), 1);
}

#[test]
fn the_budget_is_asked_before_anything_is_read() {
    let long = "x".repeat(900);
    let making = small().whole(Identity::param(long), Dtype::U8, &[1], 0).whole(
        Identity::param("big"),
        Dtype::F32,
        &[1 << 16],
        0,
    );
    let store = making.store();
    let open = |budget| {
        Checkpoint::open_store(store.clone(), OpenOptions::new().memory_budget(Some(budget)))
    };
    let e = open(100).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::Limit, Some(rule::OPEN_MEMORY)));
    // The manifest fits, its pages do not.
    let manifest = making.files()[names::MANIFEST].len() as u64;
    let e = open(manifest).unwrap().find(&Identity::param("big")).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::Limit, Some(rule::OPEN_MEMORY)));
    let checkpoint = open(64 << 10).unwrap();
    let big = checkpoint.tensor(&Identity::param("big")).unwrap();
    let e = big.read().unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::Limit, Some(rule::OPEN_MEMORY)));
    assert!(checkpoint.tensor(&Identity::param("embed")).unwrap().read().is_ok());
    // Streams and caller's buffers stay within it.
    assert_eq!(big.sha256().unwrap(), Digest::of(&making.tensors.last().unwrap().data));
    let mut out = vec![0; 1 << 18];
    big.read_into(&Region::whole(&[1 << 16]), &mut out).unwrap();
}

#[test]
fn only_needed_blocks_are_read() {
    // 256 rows of 4 KiB: one block each. The table is one read of 1 KiB.
    let making = Making::new(1).whole(Identity::param("w"), Dtype::F32, &[256, 1024], 0).whole(
        adam("w"),
        Dtype::U8,
        &[300],
        0,
    );
    let counting = Counting::new(making.store());
    let checkpoint =
        Checkpoint::open_store(Arc::new(counting.clone()), OpenOptions::new()).unwrap();
    let w = checkpoint.tensor(&Identity::param("w")).unwrap();
    let shard = |name: &str| name.ends_with(".safetensors");
    let region = |at: [u64; 2], extent: [u64; 2]| Region {
        at: at.as_slice().into(),
        extent: extent.as_slice().into(),
    };
    counting.reset();
    w.read_region(&region([17, 5], [3, 1])).unwrap();
    assert_eq!(counting.bytes_read(shard), 1024 + 3 * 4096);
    counting.reset();
    w.read_region(&region([17, 5], [1, 1019])).unwrap();
    w.read_region(&region([20, 0], [2, 1024])).unwrap();
    assert_eq!(counting.bytes_read(shard), 3 * 4096, "the table is kept");
    counting.reset();
    w.read_region(&region([4, 4], [0, 9])).unwrap();
    assert_eq!(counting.bytes_read(shard), 0);
    assert!(counting.reads().iter().all(|read| !read.name.starts_with("state-")));
    // A chunk of less than a block has no table and is read whole.
    let m = checkpoint.tensor(&adam("w")).unwrap();
    m.read_region(&Region { at: [7].as_slice().into(), extent: [2].as_slice().into() }).unwrap();
    assert_eq!(counting.bytes_read(shard), 300);
}

#[test]
fn damage_is_seen_by_reads_that_touch_it() {
    let making = Making::new(1).whole(Identity::param("w"), Dtype::F32, &[8, 1024], 0);
    let good = making.files();
    let shard = name_of(&good, "model-");
    let checkpoint = open(&good).unwrap();
    let entry = checkpoint.tensor(&Identity::param("w")).unwrap().entry().clone();
    let place = checkpoint.manifest().shards_table();
    let row =
        |at: u64| Region { at: [at, 0].as_slice().into(), extent: [1, 1024].as_slice().into() };
    let mut files = good.clone();
    let offset = entry.chunks[0].offset + 3 * 4096 + 17;
    files.get_mut(&shard).unwrap()[offset as usize] ^= 0x40;
    let damaged = open(&files).unwrap();
    let w = damaged.tensor(&Identity::param("w")).unwrap();
    w.read_region(&row(2)).unwrap();
    w.read_region(&row(4)).unwrap();
    for e in [w.read_region(&row(3)).unwrap_err(), w.read().unwrap_err(), w.sha256().unwrap_err()] {
        assert_eq!((e.code(), e.rule_id()), (Code::CrcMismatch, Some(rule::INTEGRITY_CHUNK)));
        let location = e.location();
        assert_eq!(location.file.as_deref(), Some(shard.as_str()));
        assert_eq!(location.offset, Some(entry.chunks[0].offset + 3 * 4096));
        assert_eq!(location.tensor.as_deref(), Some(&*entry.identity.key()));
    }
    let unchecked =
        Checkpoint::open_store(store_of(&files), OpenOptions::new().verify_reads(false)).unwrap();
    assert!(unchecked.tensor(&Identity::param("w")).unwrap().read().is_ok());

    let mut files = good.clone();
    files.get_mut(&shard).unwrap()[place as usize + 5] ^= 1;
    let e = open(&files).unwrap().tensor(&Identity::param("w")).unwrap().read().unwrap_err();
    assert_eq!((e.code(), e.location().offset), (Code::CrcTableMismatch, Some(place)));
}

trait ShardsTable {
    fn shards_table(&self) -> u64;
}

impl ShardsTable for waystation_format::Manifest {
    fn shards_table(&self) -> u64 {
        self.parts[0].shards[0].crc_table.as_ref().unwrap().offset
    }
}

#[test]
fn failures_of_the_system_are_not_breaches() {
    let files = small().files();
    let memory = MemoryFs::new();
    support::put_all(&*memory.store(), &files);
    let failing = Arc::new(FailingFs::new(memory));
    let store: Arc<dyn Store> =
        Arc::new(DirStore::open(Arc::clone(&failing), std::path::Path::new("/")).unwrap());
    let open = || Checkpoint::open_store(store.clone(), OpenOptions::new());
    for (op, name, errno, code) in [
        (Op::List, ".", Errno::IO, Code::Io),
        (Op::Stat, names::MANIFEST, Errno::ACCESS, Code::IoDenied),
        (Op::OpenRead, names::COMMIT, Errno::ACCESS, Code::IoDenied),
        (Op::ReadAt, names::MANIFEST, Errno::IO, Code::Io),
    ] {
        failing.fail_on(op, name, errno);
        assert_eq!(open().unwrap_err().code(), code, "{op:?} {name}");
        failing.heal();
    }
    let checkpoint = open().unwrap();
    let up = checkpoint.tensor(&Identity::param("up")).unwrap();
    failing.fail_always(Op::ReadAt, Errno::IO);
    let e = up.read().unwrap_err();
    assert_eq!(e.code(), Code::Io);
    assert!(e.location().file.is_some() && e.location().tensor.is_some());
    failing.heal();
    failing.limit_transfer(1000);
    assert_eq!(up.read().unwrap(), small().tensors[1].data);
}
