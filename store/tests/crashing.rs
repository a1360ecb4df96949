//! What a disk that loses power promises, and what it does not.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use waystation_store::testing::{Bound, Coverage, CrashingFs, Image, store_conforms};
use waystation_store::{MemoryFs, Put, Store};

const BOUND: Bound = Bound { exhaustive: 12, sampled: 50, seed: 7 };

/// Every disk that may be left by a crash now, told by `look`.
fn left<T: Ord>(fs: &CrashingFs, look: impl Fn(&MemoryFs) -> T) -> BTreeSet<T> {
    let (coverage, images) = fs.crash(fs.points()).images(&BOUND);
    assert_eq!(coverage, Coverage::Exhaustive);
    images.iter().map(|image| look(&image.memory())).collect()
}

/// The bytes of a file, `None` where it is not.
fn bytes<'n>(name: &'n str) -> impl Fn(&MemoryFs) -> Option<Vec<u8>> + 'n {
    move |memory| memory.bytes(name).ok()
}

fn names(store: &Arc<dyn Store>) -> Vec<String> {
    store.list().unwrap().into_iter().map(|listed| listed.name).collect()
}

#[test]
fn while_power_is_there_it_is_as_any_other() {
    store_conforms(&CrashingFs::new().store()).unwrap();
    let fs = CrashingFs::new();
    fs.store().make_dir("a").unwrap();
    let after = CrashingFs::on(&fs.crash(fs.points()).everything());
    assert_eq!(names(&after.store()), ["a"]);
    after.store().remove_dir("a").unwrap();
    store_conforms(&after.store()).unwrap();
}

#[test]
fn a_file_that_is_synced_may_have_no_name() {
    let fs = CrashingFs::new();
    let file = fs.store().create("a", None).unwrap();
    file.write_at(b"data", 0).unwrap();
    // The name, the length and the bytes, each there or not; what is not is zeros or stale.
    let all = left(&fs, bytes("a"));
    let some = |text: &[u8]| Some(text.to_vec());
    let expected =
        [None, some(b""), some(b"data"), some(&[0; 4]), some(&[0xa5; 4])].into_iter().collect();
    assert_eq!(all, expected);
    file.finish().unwrap();
    assert_eq!(left(&fs, bytes("a")), [None, some(b"data")].into_iter().collect());
    fs.store().sync().unwrap();
    assert_eq!(left(&fs, bytes("a")), [some(b"data")].into_iter().collect());
}

#[test]
fn a_name_that_is_synced_may_have_no_bytes() {
    let fs = CrashingFs::new();
    let file = fs.store().create("a", Some(4)).unwrap();
    fs.store().sync().unwrap();
    file.write_at(b"data", 0).unwrap();
    let lengths = left(&fs, |memory| memory.bytes("a").unwrap().len());
    assert_eq!(lengths, [0, 4].into_iter().collect());
}

#[test]
fn a_long_write_may_be_torn() {
    let fs = CrashingFs::new();
    let file = fs.store().create("a", Some(8192)).unwrap();
    file.finish().unwrap();
    fs.store().sync().unwrap();
    let fs = CrashingFs::on(&fs.crash(fs.points()).everything());
    let file = fs.store().create("b", Some(8192)).unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    let torn = left(&fs, |memory| {
        let bytes = memory.bytes("b").unwrap_or_default();
        bytes.len() == 8192 && bytes.first() == Some(&1) && bytes.last() != Some(&1)
    });
    assert!(torn.contains(&true));
}

/// Both halves of a rename by itself.
#[test]
fn a_rename_may_be_half_done() {
    let fs = CrashingFs::new();
    let store = fs.store();
    assert_eq!(store.put_new("old", b"x").unwrap(), Put::Created);
    store.sync().unwrap();
    // Through the trait, as a store does where there are no links.
    let root = waystation_store::Fs::open_root(&fs, "".as_ref()).unwrap();
    waystation_store::Fs::rename(&fs, &root, "old", "new").unwrap();
    let seen = left(&fs, |memory| names(&memory.store()));
    let expected: BTreeSet<Vec<String>> = [vec![], vec!["new"], vec!["old"], vec!["new", "old"]]
        .into_iter()
        .map(|names| names.into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(seen, expected);
    store.sync().unwrap();
    assert_eq!(left(&fs, |memory| names(&memory.store())), [vec!["new".to_owned()]].into());
}

#[test]
fn a_directory_does_not_sync_what_is_in_its_directories() {
    let fs = CrashingFs::new();
    let dir = fs.store().make_dir("dir").unwrap();
    assert_eq!(dir.put_new("a", b"x").unwrap(), Put::Created);
    fs.store().sync().unwrap();
    let seen = left(&fs, bytes("dir/a"));
    assert_eq!(seen, [None, Some(b"x".to_vec())].into());
    dir.sync().unwrap();
    assert_eq!(left(&fs, bytes("dir/a")), [Some(b"x".to_vec())].into());
}

/// Its entries are durable, and nobody finds them.
#[test]
fn a_directory_that_is_synced_may_have_no_name() {
    let fs = CrashingFs::new();
    let dir = fs.store().make_dir("dir").unwrap();
    assert_eq!(dir.put_new("a", b"x").unwrap(), Put::Created);
    dir.sync().unwrap();
    assert_eq!(left(&fs, bytes("dir/a")), [None, Some(b"x".to_vec())].into());
}

#[test]
fn what_is_removed_may_come_back() {
    let fs = CrashingFs::new();
    let store = fs.store();
    assert_eq!(store.put_new("a", b"x").unwrap(), Put::Created);
    store.sync().unwrap();
    store.remove("a").unwrap();
    assert_eq!(left(&fs, bytes("a")), [None, Some(b"x".to_vec())].into());
    store.sync().unwrap();
    assert_eq!(left(&fs, bytes("a")), [None].into());
}

#[test]
fn more_than_the_bound_is_sampled() {
    let fs = CrashingFs::new();
    for n in 0..20 {
        fs.store().create(&format!("file-{n}"), None).unwrap().finish().unwrap();
    }
    let crash = fs.crash(fs.points());
    assert_eq!(crash.pending(), 20);
    let (coverage, images) = crash.images(&BOUND);
    assert_eq!((coverage, images.len()), (Coverage::Sampled, 20 * 3 + 1 + 50));
    let count = |image: &Image| names(&image.memory().store()).len();
    let counts: BTreeSet<usize> = images.iter().map(count).collect();
    assert!(counts.is_superset(&[0, 1, 5, 19, 20].into()), "{counts:?}");
    assert_eq!(count(&crash.nothing_more()), 0);
    assert_eq!(count(&crash.everything()), 20);
}

/// Reads everything on a disk, as somebody would to whom every byte matters.
fn read_all(image: &Image) {
    let read = |store: &Arc<dyn Store>| {
        for listed in store.list().unwrap() {
            if let Ok(object) = store.open(&listed.name) {
                object.read_at(&mut vec![0; usize::try_from(object.bytes()).unwrap()], 0).unwrap();
            }
        }
    };
    let root = image.memory().store();
    read(&root);
    root.dir("dir").unwrap().iter().for_each(read);
}

fn two_files(log: &[String]) -> bool {
    log.iter().filter(|line| line.starts_with("create")).count() > 1
}

/// Shapes, with every byte read, are the disks that every subset leaves; unread they are fewer.
#[test]
fn shapes_stand_for_every_subset() {
    let fs = CrashingFs::new();
    let store = fs.store();
    let dir = store.make_dir("dir").unwrap();
    let file = store.create("a", Some(1024)).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    assert_eq!(dir.put_new("b", b"x").unwrap(), Put::Created);
    dir.sync().unwrap();
    dir.remove("b").unwrap();
    assert_eq!(dir.put_new("b", b"y").unwrap(), Put::Created);
    let mut fewer = 0;
    for point in 0..=fs.points() {
        let crash = fs.crash(point);
        let (coverage, images) = crash.images(&BOUND);
        assert_eq!(coverage, Coverage::Exhaustive);
        let every: BTreeSet<u64> = images.iter().map(Image::fingerprint).collect();
        let (coverage, mut shapes) = crash.shapes(&BOUND);
        assert_eq!(coverage, Coverage::Exhaustive);
        fewer += usize::from(shapes.len() < every.len());
        assert!(shapes.iter().all(|shape| !shape.was_read() && shape.settled().1.is_empty()));
        let mut settled = BTreeSet::new();
        while let Some(shape) = shapes.pop() {
            read_all(&shape);
            let (coverage, more) = shape.settled();
            assert_eq!((coverage, more.is_empty()), (Coverage::Exhaustive, !shape.was_read()));
            if more.is_empty() {
                settled.insert(shape.fingerprint());
            }
            shapes.extend(more);
        }
        let log = fs.log();
        assert!(settled.is_superset(&every), "{:?}", log.get(..point));
        // What is stale is so file by file, where a disk that is drawn is stale altogether.
        assert!(two_files(&log[..point]) || settled == every, "{:?}", log.get(..point));
    }
    assert!(fewer > 0);
    let (coverage, _) = fs.crash(fs.points()).shapes(&Bound { exhaustive: 1, ..BOUND });
    assert_eq!(coverage, Coverage::Sampled);
}

/// Two disks are told apart by what is on them, not by what was drawn for a temporary.
#[test]
fn fingerprints_do_not_see_the_names_of_temporaries() {
    let image = |temporary: &str, bytes: &[u8]| {
        let fs = CrashingFs::new();
        let file = fs.store().create(temporary, None).unwrap();
        file.write_at(bytes, 0).unwrap();
        fs.crash(fs.points()).everything()
    };
    let one = image("tmp-1", b"x");
    assert_eq!(one.fingerprint(), image("tmp-2", b"x").fingerprint());
    assert_ne!(one.fingerprint(), image("tmp-2", b"y").fingerprint());
    assert_ne!(one.fingerprint(), image("a", b"x").fingerprint());
    let fs = CrashingFs::new();
    fs.store().make_dir("a").unwrap();
    let made = fs.crash(fs.points()).everything();
    assert_eq!(one.fingerprint_of("a"), None);
    assert!(made.fingerprint_of("a").is_some());
}
