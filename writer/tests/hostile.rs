//! A keeper in a directory that somebody else changes at every moment: nothing outside is removed.
//! On a real file system.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and this one prints its counts"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use waystation_format::{Dtype, names};
use waystation_reader::latest;
use waystation_store::testing::{FailingFs, Op};
use waystation_store::{DirStore, PosixFs, Store, open_path};
use waystation_writer::{GcPolicy, delete, gc};

use support::*;

const CALLS: [Op; 12] = [
    Op::OpenDir,
    Op::List,
    Op::Stat,
    Op::OpenRead,
    Op::StatFile,
    Op::ReadAt,
    Op::Create,
    Op::SyncFile,
    Op::Close,
    Op::SyncDir,
    Op::Unlink,
    Op::RemoveDir,
];

/// Everything below a directory, links not followed.
fn tree(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            all.insert(path, b"link".to_vec());
        } else if path.is_dir() {
            all.extend(tree(&path));
            all.insert(path, b"directory".to_vec());
        } else {
            let bytes = fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}

/// What somebody does to a victim: its path, and a folder outside that has a copy of it.
type Prank = fn(&Path, &Path);

/// The victim goes elsewhere, and a link to a directory with the same names is in its place.
fn link_to_a_directory(victim: &Path, outside: &Path) {
    let away = outside.parent().unwrap().join("away");
    if fs::rename(victim, away).is_ok() {
        symlink(outside, victim).unwrap();
    }
}

/// Every file of the victim becomes a link to one outside.
fn links_to_files(victim: &Path, outside: &Path) {
    for entry in fs::read_dir(outside).unwrap() {
        let name = entry.unwrap().file_name();
        let path = victim.join(&name);
        if fs::remove_file(&path).is_ok() {
            symlink(outside.join(&name), path).unwrap();
        }
    }
}

/// Every file of the victim becomes a second name of one outside.
fn hard_links_to_files(victim: &Path, outside: &Path) {
    for entry in fs::read_dir(outside).unwrap() {
        let name = entry.unwrap().file_name();
        let path = victim.join(&name);
        if fs::remove_file(&path).is_ok() {
            fs::hard_link(outside.join(&name), path).unwrap();
        }
    }
}

/// A file of the victim becomes a directory, or a link to one.
fn directories_in_files(victim: &Path, outside: &Path) {
    let manifest = victim.join(names::MANIFEST);
    if fs::remove_file(&manifest).is_ok() {
        symlink(outside, manifest).unwrap();
    }
    let page = victim.join("tensors-00000.json");
    if fs::remove_file(&page).is_ok() {
        fs::create_dir(&page).unwrap();
        fs::copy(outside.join(names::COMMIT), page.join("kept")).unwrap();
    }
}

#[test]
fn a_keeper_removes_nothing_outside_of_its_run() {
    let pranks: [(&str, Prank); 4] = [
        ("a link in place of the directory", link_to_a_directory),
        ("links in place of files", links_to_files),
        ("second names in place of files", hard_links_to_files),
        ("directories in place of files", directories_in_files),
    ];
    for (what, prank) in pranks {
        let mut count = 0;
        for op in CALLS {
            for nth in 1.. {
                let whole = nth % 2 == 0;
                if !play(what, prank, op, nth, whole) {
                    break;
                }
                count += 1;
            }
        }
        println!("{what}: at {count} calls");
        assert!(count > 50, "{count}");
    }
}

/// Plays a prank before a call; false when the call was never made.
fn play(what: &str, prank: Prank, op: Op, nth: usize, whole: bool) -> bool {
    let disk = tempfile::tempdir().unwrap();
    let (inside, outside) = (disk.path().join("run"), disk.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let small = [Model::param("w", Dtype::F32, &[10])];
    // Made in memory and put there: what costs most of a save is to make it durable.
    let (_, made) = memory_run();
    let plan = plan(&made, 1);
    let [victim, kept] = [1, 2].map(|step| save(&made, &plan, step, &small).unwrap().0);
    for name in [&victim, &kept] {
        let attempt = made.dir(name).unwrap().unwrap();
        fs::create_dir(inside.join(name)).unwrap();
        for listed in attempt.list().unwrap() {
            let bytes = read_file(&attempt, &listed.name);
            fs::write(inside.join(name).join(&listed.name), bytes).unwrap();
        }
    }
    for entry in fs::read_dir(inside.join(&victim)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), outside.join(entry.file_name())).unwrap();
    }
    let before = tree(&outside);

    let failing = FailingFs::new(PosixFs);
    let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(failing.clone()), &inside).unwrap());
    let played = Arc::new(AtomicBool::new(false));
    let did = Arc::clone(&played);
    let (path, there) = (inside.join(&victim), outside.clone());
    failing.before(op, nth, move || {
        prank(&path, &there);
        did.store(true, Ordering::Relaxed);
    });
    // It may fail, or say that it left something; either is fine.
    if whole {
        drop(gc(&run, &GcPolicy::keep_last(1)));
    } else {
        drop(delete(&run, &victim));
    }
    let place = format!("{what}, before {op:?} {nth}");
    assert_eq!(tree(&outside), before, "{place}");
    if inside.join(&victim).join("tensors-00000.json").is_dir() {
        assert!(inside.join(&victim).join("tensors-00000.json/kept").exists(), "{place}");
    }
    let run = open_path(&inside).unwrap();
    assert_eq!(latest(&run).unwrap().name, kept, "{place}");
    check_equal(&run.dir(&kept).unwrap().unwrap(), &small);
    played.load(Ordering::Relaxed)
}
