//! A keeper in a directory that somebody else changes: before every call that it makes, by a thread
//! that never rests, and beforehand. Nothing outside is removed. On a real file system.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and this one prints its counts"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;
use waystation_format::{Dtype, names};
use waystation_reader::latest;
use waystation_store::testing::{FailingFs, Op, skipped};
use waystation_store::{DirStore, PosixFs, Store, open_path};
use waystation_writer::{GcPolicy, delete, gc};

use support::*;

/// Every call that a keeper makes, with its word in the log.
const CALLS: [(Op, &str); 12] = [
    (Op::OpenDir, "opendir"),
    (Op::List, "list"),
    (Op::Stat, "stat"),
    (Op::OpenRead, "open"),
    (Op::StatFile, "fstat"),
    (Op::ReadAt, "read"),
    (Op::Create, "create"),
    (Op::SyncFile, "fsync"),
    (Op::Close, "close"),
    (Op::SyncDir, "fsync"),
    (Op::Unlink, "unlink"),
    (Op::RemoveDir, "rmdir"),
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

/// The whole run goes elsewhere, and a link to another with the same names is in its place.
fn link_in_place_of_the_run(victim: &Path, outside: &Path) {
    let (run, disk) = (victim.parent().unwrap(), outside.parent().unwrap());
    if fs::rename(run, disk.join("away")).is_ok() {
        symlink(disk.join("other"), run).unwrap();
    }
}

/// The victim goes elsewhere, and a directory of somebody else comes under its name.
fn a_directory_of_another(victim: &Path, outside: &Path) {
    let disk = outside.parent().unwrap();
    if fs::rename(victim, disk.join("away")).is_ok() {
        fs::create_dir(victim).unwrap();
        fs::create_dir(victim.join("kept")).unwrap();
        fs::copy(outside.join(names::COMMIT), victim.join("kept/file")).unwrap();
        symlink(outside, victim.join("link")).unwrap();
    }
}

#[test]
fn a_keeper_removes_nothing_outside_of_its_run() {
    let pranks: [(&str, Prank); 6] = [
        ("a link in place of the run", link_in_place_of_the_run),
        ("another directory in place of the directory", a_directory_of_another),
        ("a link in place of the directory", link_to_a_directory),
        ("links in place of files", links_to_files),
        ("second names in place of files", hard_links_to_files),
        ("directories in place of files", directories_in_files),
    ];
    for (what, prank) in pranks {
        let mut count = 0;
        for (op, _) in CALLS {
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

fn models() -> [Model; 1] {
    [Model::param("w", Dtype::F32, &[10])]
}

/// A run of two checkpoints, and what must stay: a copy of the older one and another run of both.
struct Disk {
    disk: TempDir,
    victim: String,
    kept: String,
    /// What is outside.
    before: [BTreeMap<PathBuf, Vec<u8>>; 2],
}

impl Disk {
    fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        // Made in memory and put there: what costs most of a save is to make it durable.
        let (_, made) = memory_run();
        let plan = plan(&made, 1);
        let [victim, kept] = [1, 2].map(|step| save(&made, &plan, step, &models()).unwrap().0);
        let path = |name: &str| disk.path().join(name);
        for run in ["run", "other"] {
            for name in [&victim, &kept] {
                put(&made, name, &path(run).join(name));
            }
        }
        put(&made, &victim, &path("outside"));
        let before = [tree(&path("outside")), tree(&path("other"))];
        Self { disk, victim, kept, before }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    fn victim(&self) -> PathBuf {
        self.path("run").join(&self.victim)
    }

    /// What is outside is as it was, and the newer checkpoint whole.
    fn check(&self, place: &str) {
        assert_eq!(tree(&self.path("outside")), self.before[0], "{place}");
        assert_eq!(tree(&self.path("other")), self.before[1], "{place}");
        let run = open_path(&self.path("run")).unwrap();
        assert_eq!(latest(&run).unwrap().name, self.kept, "{place}");
        check_equal(&run.dir(&self.kept).unwrap().unwrap(), &models());
    }
}

/// The files of an attempt as files.
fn put(made: &Arc<dyn Store>, name: &str, path: &Path) {
    let attempt = made.dir(name).unwrap().unwrap();
    fs::create_dir_all(path).unwrap();
    for listed in attempt.list().unwrap() {
        fs::write(path.join(&listed.name), read_file(&attempt, &listed.name)).unwrap();
    }
}

/// Plays a prank before a call; false when the call was never made.
fn play(what: &str, prank: Prank, op: Op, nth: usize, whole: bool) -> bool {
    let disk = Disk::new();
    let (inside, victim) = (disk.path("run"), disk.victim.clone());
    let failing = FailingFs::new(PosixFs);
    let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(failing.clone()), &inside).unwrap());
    let played = Arc::new(AtomicBool::new(false));
    let did = Arc::clone(&played);
    let (path, there) = (disk.victim(), disk.path("outside"));
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
    for line in failing.log() {
        let word = line.split(' ').next().unwrap();
        assert!(word == "root" || CALLS.iter().any(|(_, call)| *call == word), "{line}");
    }
    disk.check(&place);
    let [page, other] = ["tensors-00000.json", "kept"].map(|name| disk.victim().join(name));
    if page.is_dir() {
        assert!(page.join("kept").exists(), "{place}");
    }
    if what.starts_with("another directory") && disk.path("away").exists() {
        assert!(other.join("file").exists(), "{place}");
    }
    played.load(Ordering::Relaxed)
}

/// A thread puts a link in place of the victim and the victim back, atomically and without end,
/// while keepers and deletions go on.
#[test]
fn a_keeper_removes_nothing_outside_while_a_thread_swaps_directories() {
    let rounds = if cfg!(feature = "sweep") { 2000 } else { 150 };
    let (mut swaps, mut gone, mut stayed) = (0, 0, 0);
    let mut policy = GcPolicy::keep_last(1);
    policy.begun_older_than = Duration::ZERO;
    for round in 0..rounds {
        let disk = Disk::new();
        let (victim, link) = (disk.victim(), disk.path("link"));
        symlink(disk.path("outside"), &link).unwrap();
        let run = open_path(&disk.path("run")).unwrap();
        let (stop, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let exchanged = thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                let mut exchanged = 0;
                while !stop.load(Ordering::Relaxed) {
                    let flags = RenameFlags::EXCHANGE;
                    exchanged +=
                        usize::from(renameat_with(CWD, &link, CWD, &victim, flags).is_ok());
                    begun.store(true, Ordering::Relaxed);
                    // Now and then long enough for a keeper to get on.
                    if exchanged % 7 == round % 7 {
                        thread::sleep(Duration::from_micros(round as u64 % 200));
                    }
                }
                exchanged
            });
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // It may fail, or say that it left something; either is fine.
            for _ in 0..4 {
                drop(gc(&run, &policy));
                drop(delete(&run, &disk.victim));
            }
            stop.store(true, Ordering::Relaxed);
            swapper.join().unwrap()
        });
        swaps += exchanged;
        disk.check(&format!("round {round}"));
        // The directory is where it was, or where the link was.
        let whole = [&victim, &link].iter().any(|path| !path.is_symlink() && path.is_dir());
        *(if whole { &mut stayed } else { &mut gone }) += 1;
    }
    println!("{swaps} swaps: removed {gone} times, not {stayed} times");
    assert!(swaps > rounds && gone > 0, "{swaps} {gone}");
}

/// What may lie in a run and in an attempt beside what belongs there.
#[test]
fn a_keeper_leaves_what_is_strange_in_a_run_and_takes_what_is_strange_in_a_victim() {
    let disk = Disk::new();
    let (run, victim) = (disk.path("run"), disk.victim());
    let mut strange: Vec<OsString> = NAMES.iter().map(OsString::from).collect();
    strange.push("x".repeat(255).into());
    strange.push(disk.victim.to_uppercase().into());
    strange.push(disk.kept.replace('-', "_").into());
    strange.push(OsStr::from_bytes(b"step-\xff\x80\x1b[2J").to_owned());
    let outside = disk.path("outside");
    for (nth, name) in strange.iter().enumerate() {
        for path in [&run, &victim].map(|folder| folder.join(name)) {
            match nth % 4 {
                0 => fs::write(&path, b"strange").unwrap(),
                1 => symlink(&outside, &path).unwrap(),
                2 => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                _ => mknodat(CWD, &path, FileType::Socket, Mode::RWXU, 0).unwrap(),
            }
        }
    }
    let device = rustix::fs::makedev(1, 3);
    let made = mknodat(CWD, victim.join("device"), FileType::CharacterDevice, Mode::RWXU, device);
    if let Err(why) = made {
        skipped("a device in an attempt that a keeper removes", why);
    }
    let before = names_in(&run);
    let store = open_path(&run).unwrap();
    assert_eq!(latest(&store).unwrap().name, disk.kept);
    let report = gc(&store, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(report.items.len(), 2, "{report:?}");
    assert!(!victim.exists(), "{report:?}");
    let mut expected = before;
    assert!(expected.remove(OsStr::new(&disk.victim)));
    assert_eq!(names_in(&run), expected);
    disk.check("strange names");
}

/// Names that a careless program prints, expands, compares or splits.
const NAMES: [&str; 15] = [
    "-rf",
    " ",
    "...",
    "a\nb",
    "\u{1b}[2J\u{7}",
    "\u{202e}txt",
    "*",
    "$(reboot)",
    "tmp-",
    "%00",
    "\\",
    "Deleted",
    "MANIFEST.JSON",
    "Waystation.Commit",
    "step-000000000001",
];

fn names_in(path: &Path) -> BTreeSet<OsString> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}
