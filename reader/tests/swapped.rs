//! Files that become something else between a look and an open, and that lose their end while they
//! are read. On a real file system.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::print_stdout,
    unsafe_code,
    missing_docs,
    reason = "tests: a failure is a panic, and one maps a file to see what becomes of it"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::{Making, name_of, small, write_all};
use waystation_format::{Code, Dtype, Identity, Result};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::testing::{FailingFs, Op};
use waystation_store::{DirStore, PosixFs};

/// What comes in place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swap {
    /// A link to the very same bytes: followed, it would not be noticed.
    Link,
    Pipe,
    Directory,
    Nothing,
    /// A second name of a file with the same bytes, which is as good.
    HardLink,
    /// A file of the same length with other bytes.
    Other,
    /// A shorter file.
    Shorter,
}

const SWAPS: [Swap; 7] = [
    Swap::Link,
    Swap::Pipe,
    Swap::Directory,
    Swap::Nothing,
    Swap::HardLink,
    Swap::Other,
    Swap::Shorter,
];

/// Puts something else under the name of a file, of which `copy` is a copy elsewhere.
fn swap(path: &Path, copy: &Path, by: Swap) {
    fs::remove_file(path).unwrap();
    let mut bytes = fs::read(copy).unwrap();
    match by {
        Swap::Link => symlink(copy, path).unwrap(),
        Swap::Pipe => {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        }
        Swap::Directory => fs::create_dir(path).unwrap(),
        Swap::Nothing => {}
        Swap::HardLink => fs::hard_link(copy, path).unwrap(),
        Swap::Other => {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
            fs::write(path, bytes).unwrap();
        }
        Swap::Shorter => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
    }
}

/// Opens the checkpoint and reads all of it.
fn read_all(fs: FailingFs<PosixFs>, dir: &Path) -> Result<()> {
    let store = DirStore::open(Arc::new(fs), dir)?;
    let options = OpenOptions::new().threads(1);
    let checkpoint = Checkpoint::open_store(Arc::new(store), options)?;
    for made in &small().tensors {
        let read = checkpoint.tensor(&made.tensor.identity)?.read()?;
        assert!(read == made.data, "{}", made.tensor.identity.name);
    }
    for record in checkpoint.records() {
        record?;
    }
    let paths: Vec<String> = checkpoint.attachments().map(|a| a.path.to_owned()).collect();
    for path in paths {
        checkpoint.read_attachment(&path, &mut Vec::new())?;
    }
    Ok(())
}

/// Every file, just before it is looked at and just before it is opened, for everything else that
/// can be in its place.
#[test]
fn a_file_that_becomes_something_else_is_seen_for_what_it_is() {
    let files = small().files();
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    let mut swaps = 0;
    // Of the looks, which are many, every fifth.
    for (op, step) in [(Op::List, 1), (Op::Stat, 5), (Op::OpenRead, 1)] {
        for nth in (1..).step_by(step) {
            let mut any = false;
            for name in files.keys() {
                for by in SWAPS {
                    let (dir, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                    write_all(dir.path(), &files);
                    write_all(far.path(), &files);
                    let (path, copy) = (dir.path().join(name), far.path().join(name));
                    let fs = FailingFs::new(PosixFs);
                    let swapped = Arc::new(AtomicBool::new(false));
                    let did = Arc::clone(&swapped);
                    fs.before(op, nth, move || {
                        swap(&path, &copy, by);
                        did.store(true, Ordering::Relaxed);
                    });
                    let done = read_all(fs.clone(), dir.path());
                    if !swapped.load(Ordering::Relaxed) {
                        done.unwrap();
                        continue;
                    }
                    any = true;
                    swaps += 1;
                    let place = format!("{name} as {by:?} before {op:?} {nth}");
                    let opened =
                        fs.log().iter().filter(|l| l.starts_with("open ")).nth(nth - 1).cloned();
                    let this = op == Op::OpenRead && opened == Some(format!("open {name}"));
                    check(done, by, this, &place, &mut codes);
                }
            }
            if !any {
                break;
            }
        }
    }
    println!("{swaps} swaps: {codes:?}");
    assert!(swaps > 300, "{swaps}");
}

/// What may come of it; `this`: it was the very file that was opened next.
fn check(done: Result<()>, by: Swap, this: bool, place: &str, codes: &mut BTreeMap<String, usize>) {
    let Err(e) = done else {
        // Read before it was swapped, or as good.
        assert!(!this || by == Swap::HardLink, "{place}");
        *codes.entry(format!("{by:?} read")).or_default() += 1;
        return;
    };
    assert!(by != Swap::HardLink, "{place}: {e}");
    *codes.entry(format!("{by:?} {}", e.code())).or_default() += 1;
    let expected: &[Code] = match by {
        Swap::Link | Swap::Pipe | Swap::Directory | Swap::HardLink => &[Code::NotRegular],
        Swap::Nothing => &[Code::FileMissing, Code::NotCommitted],
        Swap::Shorter => &[Code::LengthMismatch, Code::CommitGrammar, Code::DigestMismatch],
        Swap::Other => {
            &[Code::CommitGrammar, Code::DigestMismatch, Code::CrcMismatch, Code::CrcTableMismatch]
        }
    };
    assert!(expected.contains(&e.code()), "{place}: {e}");
    assert!(e.location().file.is_some(), "{place}: {e}");
}

fn long() -> Making {
    Making::new(1).whole(Identity::param("w"), Dtype::F32, &[64, 512], 0)
}

/// Before it is mapped, a file of another length is an error as it is for reads.
#[test]
fn a_file_that_lost_its_end_is_not_mapped() {
    let files = long().files();
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &files);
    // SAFETY: the directory is the test's own; the file is changed before any view is made.
    let mapped = unsafe { Checkpoint::map(dir.path()) }.unwrap();
    let shard = dir.path().join(name_of(&files, "model-"));
    fs::File::options().write(true).open(shard).unwrap().set_len(4096).unwrap();
    let e = mapped.view(&Identity::param("w")).unwrap_err();
    assert_eq!(e.code(), Code::LengthMismatch);
}

const VICTIM: &str = "WAYSTATION_TEST_TRUNCATED";
const PRIVATE: &str = "WAYSTATION_TEST_PRIVATE";

/// Where the shard ends that is cut: within a page.
const CUT: u64 = 2 * 4096 + 100;

/// The part of the next test that ends.
#[test]
#[ignore = "a process that the next test starts, and that is killed"]
fn truncate_under_a_view() {
    let Some(dir) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    let w = Identity::param("w");
    let begin = Checkpoint::open(&dir).unwrap().tensor(&w).unwrap().entry().chunks[0].offset;
    let shard = dir.join(name_of(&long().files(), "model-"));
    let cut = || fs::File::options().write(true).open(&shard).unwrap().set_len(CUT).unwrap();
    if std::env::var_os(PRIVATE).is_some() {
        let checkpoint = Checkpoint::open(&dir).unwrap();
        // SAFETY: none: the promise is broken on purpose, in a process that is there for that only.
        let mut view = unsafe { checkpoint.map_private(&w) }.unwrap();
        // Of a private mapping the pages that were written to go, too.
        let last = view.len() - 1;
        view.as_mut_slice()[last] = 0x5a;
        cut();
        touch(&view, begin, last);
    } else {
        // SAFETY: none: as above.
        let mapped = unsafe { Checkpoint::map(&dir) }.unwrap();
        let view = mapped.view(&w).unwrap();
        cut();
        let after = (CUT.next_multiple_of(4096) - begin) as usize;
        touch(&view, begin, after);
    }
}

/// Looks at what the file still has, at the rest of its last page, and at a byte after that.
fn touch(view: &[u8], begin: u64, after: usize) {
    let [end, page] = [CUT - begin, CUT.next_multiple_of(4096) - begin].map(|at| at as usize);
    assert!(view[..end] == long().tensors[0].data[..end]);
    println!("\nzeros: {}", std::hint::black_box(&view[end..page]).iter().all(|byte| *byte == 0));
    println!("after: {}", std::hint::black_box(view[after]));
}

/// What the documentation of `Checkpoint::map` and of `map_private` says becomes of who breaks their
/// promise: the page in which the file now ends reads as zeros from there on, and the first look at
/// a page after it ends the process by SIGBUS, also at one that the process has written to. Whoever
/// started it lives and sees the signal. Reads
/// without mapping say `length-mismatch` (`a_file_that_shrinks_after_opening_is_an_error`).
#[test]
fn a_mapped_file_that_is_truncated_ends_the_process() {
    for private in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), &long().files());
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["truncate_under_a_view", "--ignored", "--exact", "--nocapture"]);
        child.env(VICTIM, dir.path());
        if private {
            child.env(PRIVATE, "1");
        }
        let output = child.output().unwrap();
        let signal = output.status.signal();
        assert_eq!(signal, Some(rustix::process::Signal::BUS.as_raw()), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("zeros: true") && !said.contains("after:"), "{said}");
    }
}

/// Read by read, as all but views are: cut at every moment, the answer is an error, and that of a
/// file with another length.
#[test]
fn a_file_that_is_truncated_between_two_reads_is_an_error() {
    let files = long().files();
    let shard = name_of(&files, "model-");
    let mut cuts = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), &files);
        let fs = FailingFs::new(PosixFs);
        let (path, cut) = (dir.path().join(&shard), Arc::new(AtomicBool::new(false)));
        let did = Arc::clone(&cut);
        fs.before(Op::ReadAt, nth, move || {
            fs::File::options().write(true).open(path).unwrap().set_len(CUT).unwrap();
            did.store(true, Ordering::Relaxed);
        });
        let store = DirStore::open(Arc::new(fs.clone()), dir.path()).unwrap();
        let options = OpenOptions::new().threads(1);
        let read = Checkpoint::open_store(Arc::new(store), options)
            .and_then(|checkpoint| checkpoint.tensor(&Identity::param("w"))?.read());
        if !cut.load(Ordering::Relaxed) {
            assert!(read.unwrap() == long().tensors[0].data);
            break;
        }
        cuts += 1;
        let e = read.unwrap_err();
        assert_eq!(e.code(), Code::LengthMismatch, "before read {nth}: {e}");
        assert_eq!(e.location().file.as_deref(), Some(shard.as_str()), "before read {nth}: {e}");
    }
    println!("cut before each of {cuts} reads");
    assert!(cuts > 3, "{cuts}");
}
