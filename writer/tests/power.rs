//! Real file systems that stop without writing back: ext4, and XFS where its tools are there, on a
//! loop device, shut down before every call that changes something. What the journal replays is read.
//!
//! It needs root, loop devices and the tools; where they are not it says so and passes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    unsafe_code,
    reason = "a test that cannot go on should say where, this one prints what it met, and one ioctl"
)]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use waystation_format::{Code, Dtype};
use waystation_reader::{NoProgress, latest, verify};
use waystation_store::testing::{FailingFs, Op, skipped};
use waystation_store::{DirStore, PosixFs, Store, open_path};
use waystation_writer::{CommitOptions, commit};

use support::*;

/// `EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`: `_IOR('X', 125, u32)`.
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// Neither data nor journal is written first.
const NO_LOG_FLUSH: u32 = 2;

/// Calls that change something: before each the disk stops.
const CHANGES: [Op; 10] = [
    Op::MakeDir,
    Op::Create,
    Op::Allocate,
    Op::WriteAt,
    Op::SyncFile,
    Op::Close,
    Op::SyncDir,
    Op::Link,
    Op::Rename,
    Op::Unlink,
];

/// A file system in a file, mounted; unmounted when it goes.
struct Disk {
    kind: &'static str,
    directory: TempDir,
}

impl Disk {
    /// # Errors
    /// Why there is none here.
    fn new(kind: &'static str, bytes: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let directory = tempfile::tempdir().unwrap();
        let disk = Self { kind, directory };
        File::create(disk.image()).unwrap().set_len(bytes).unwrap();
        fs::create_dir(disk.mounted()).unwrap();
        let force = if kind == "xfs" { "-f" } else { "-F" };
        run(Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(disk.image()))?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn mounted(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn mount(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        run(mount.args(["-t", self.kind, "-o", "loop"]).arg(self.image()).arg(self.mounted()))
    }

    /// Stops it and starts it again: what was not on the disk is gone.
    fn restart(&self) {
        run(Command::new("umount").arg(self.mounted())).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily should somebody still have it open; the loop device goes with it.
        let gone = run(Command::new("umount").arg(self.mounted()));
        if gone.is_err() {
            drop(run(Command::new("umount").arg("-l").arg(self.mounted())));
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// From here on the file system writes nothing and answers with errors.
fn shut_down(path: &Path) {
    let root = File::open(path).unwrap();
    // SAFETY: the call reads one `u32` through the pointer that it is given, as its number says, and
    // the pointer is that of a `u32`.
    let call = unsafe { rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH) };
    // SAFETY: the descriptor is open, the file system one of the two that know this call.
    unsafe { rustix::ioctl::ioctl(&root, call) }.unwrap();
}

fn models() -> [Model; 2] {
    [Model::param("w", Dtype::F32, &[3000]), Model::param("b", Dtype::U8, &[70_000])]
}

/// A save on a disk that stops before the `nth` call of `op`. Gives what is left: `None` when there
/// was no such call.
fn stop_before(disk: &Disk, op: Op, nth: usize, step: u64) -> Option<&'static str> {
    let path = disk.mounted();
    let old = latest(&open_path(&path).unwrap()).unwrap().name;
    let failing = FailingFs::new(PosixFs);
    let stopped = Arc::new(AtomicBool::new(false));
    let (did, root) = (Arc::clone(&stopped), path.clone());
    failing.before(op, nth, move || {
        shut_down(&root);
        did.store(true, Ordering::Relaxed);
    });
    let saved = {
        let store = DirStore::open(Arc::new(failing.clone()), &path).unwrap();
        let run: Arc<dyn Store> = Arc::new(store);
        try_plan(&run, 2).and_then(|plan| save(&run, &plan, step, &models()))
    };
    let saved = saved.map(|(name, ..)| name);
    if !stopped.load(Ordering::Relaxed) {
        saved.unwrap();
        return None;
    }
    disk.restart();
    let run = open_path(&path).unwrap();
    let found = latest(&run).unwrap();
    let place = format!("{} before {op:?} {nth}", disk.kind);
    let is_new = found.name != old;
    assert_eq!(found.step, if is_new { step } else { latest_step(&old) }, "{place}");
    if let Ok(name) = &saved {
        assert_eq!(found.name, *name, "{place}: the commit was reported");
    }
    let report = verify(&found.store, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{place}: {:?}", report.findings);
    check_equal(&found.store, &models());
    for (name, why) in &found.skipped {
        assert_eq!(why.code(), Code::NotCommitted, "{place}: {name}");
    }
    if is_new {
        return Some("new");
    }
    // Whoever has all parts has a checkpoint.
    let Some((name, _)) = found.skipped.first() else { return Some("old, no attempt") };
    let attempt = run.dir(name).unwrap().unwrap();
    let options = CommitOptions::in_run(Arc::clone(&run), name);
    match commit(&attempt, &options, &NoProgress) {
        Ok(_) => {
            check_equal(&attempt, &models());
            assert_eq!(latest(&run).unwrap().name, *name, "{place}");
            Some("old, committed afterwards")
        }
        Err(e) => {
            assert_eq!(e.code(), Code::WriterMissing, "{place}: {e}");
            Some("old, parts missing")
        }
    }
}

fn latest_step(name: &str) -> u64 {
    waystation_format::names::parse_attempt_dir(name).unwrap().0
}

fn stop_everywhere(kind: &'static str, megabytes: u64) {
    let disk = match Disk::new(kind, megabytes << 20) {
        Ok(disk) => disk,
        Err(why) => return skipped(format_args!("{kind} that stops before every call"), why),
    };
    let run = open_path(&disk.mounted()).unwrap();
    let first = plan(&run, 2);
    save(&run, &first, 1, &models()).unwrap();
    drop(run);
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    let mut step = 1;
    for op in CHANGES {
        for nth in 1.. {
            step += 1;
            let Some(what) = stop_before(&disk, op, nth, step) else { break };
            *left.entry(what).or_default() += 1;
        }
    }
    // And just after the answer.
    let run = open_path(&disk.mounted()).unwrap();
    let plan = plan(&run, 2);
    let (name, ..) = save(&run, &plan, step + 1, &models()).unwrap();
    shut_down(&disk.mounted());
    drop(run);
    disk.restart();
    let found = latest(&open_path(&disk.mounted()).unwrap()).unwrap();
    assert_eq!(found.name, name);
    check_equal(&found.store, &models());
    drop(found);
    let stops: usize = left.values().sum();
    println!("{kind}: stopped {stops} times, {left:?}");
    assert!(stops > 50 && left.len() >= 3, "{left:?}");
}

#[test]
fn ext4_that_stops_before_every_call() {
    stop_everywhere("ext4", 64);
}

#[test]
fn xfs_that_stops_before_every_call() {
    stop_everywhere("xfs", 320);
}
