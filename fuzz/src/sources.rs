//! `sources`: one directory in memory, on disk, mapped, and from a disk that gives few bytes at a time and is interrupted. All of
//! them say the same.

#![allow(unsafe_code, reason = "mapping files is what is tested; the call carries its proof")]

use std::path::Path;
use std::sync::Arc;

use waystation_format::{Class, Code, Digest, Entry, Result};
use waystation_reader::{Checkpoint, Listed, State, latest, list};
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{DirStore, Store, open_path};

use crate::gen_archive::{self, Directory};
use crate::judge;
use crate::reader::{self, Answers};

/// Reads what the bytes stand for from every source.
///
/// # Panics
/// If two sources differ: in what they say, or in why and where they refuse.
pub fn run(data: &[u8]) {
    let directory = gen_archive::decode(data);
    let memory = directory.memory();
    let expected = reader::answers(&memory.store());

    let most = usize::from(data.first().copied().unwrap_or(0)) % 700 + 1;
    let failing = FailingFs::new(memory);
    failing.limit_transfer(most);
    for (op, nth) in [
        (Op::ReadAt, 1),
        (Op::ReadAt, 3),
        (Op::Stat, 2),
        (Op::OpenRead, 2),
        (Op::List, 1),
        (Op::StatFile, 3),
    ] {
        failing.fail(op, nth, Errno::INTR);
    }
    let slow: Arc<dyn Store> =
        Arc::new(DirStore::open(Arc::new(failing), Path::new("")).expect("the root is there"));
    same(&expected, &reader::answers(&slow), "few bytes at a time");

    let placed = tempfile::Builder::new().prefix("waystation-fuzz-").tempdir();
    let placed = placed.expect("a temporary directory can be made");
    // What the disk cannot hold is left out in memory, too.
    directory.place(placed.path());
    let store = open_path(placed.path()).expect("it was made just now");
    same(&expected, &reader::answers(&store), "files on disk");
    if expected.read.is_ok() || !expected.findings.is_empty() {
        mapped(&store, &expected);
    }
    failing_disk(&directory, data, &expected);
}

/// A disk that cannot do one thing, once: whatever is said then was said of the whole one, too, or is that the disk failed.
fn failing_disk(directory: &Directory, data: &[u8], expected: &Answers) {
    const OPS: [Op; 5] = [Op::ReadAt, Op::Stat, Op::OpenRead, Op::List, Op::StatFile];
    let number = usize::from(data.last().copied().unwrap_or(0));
    let (op, nth) = (OPS[number % OPS.len()], number / OPS.len() % 9 + 1);
    let open = || -> Arc<dyn Store> {
        let failing = FailingFs::new(directory.memory());
        failing.fail(op, nth, Errno::IO);
        Arc::new(DirStore::open(Arc::new(failing), Path::new("")).expect("the root is there"))
    };
    let read = reader::open(&open()).and_then(|checkpoint| reader::everything(&checkpoint));
    match (read, &expected.read) {
        (Ok(read), Ok(expected)) => assert_eq!(read, *expected, "after {op:?} failed"),
        (Ok(_), Err(e)) => panic!("after {op:?} failed what is refused is read: {e}"),
        (Err(e), _) if e.class() == Class::Io => {}
        (Err(e), Ok(_)) => panic!("after {op:?} failed what is read is refused: {e}"),
        (Err(e), Err(expected)) => judge::same(&e, expected, "after a call failed"),
    }
    if let Ok(found) = list(&open()) {
        let whole = list(&directory.memory().store()).expect("memory can be listed");
        assert_eq!(found.len(), whole.len(), "after {op:?} failed attempts are missing");
        for (found, whole) in found.iter().zip(&whole) {
            let state = |one: &Listed| std::mem::discriminant(&one.state);
            let known = !matches!(found.state, State::Unreadable(_));
            assert!(!known || state(found) == state(whole), "after {op:?} failed: {found:?}");
        }
    }
    let whole = latest(&directory.memory().store());
    match (latest(&open()), &whole) {
        (Ok(found), Ok(expected)) => assert_eq!(found.name, expected.name, "{op:?} failed"),
        (Err(e), _) if e.class() == Class::Io => {}
        (Err(e), Err(expected)) => assert_eq!(e.code(), expected.code(), "{e} and {expected}"),
        (found, _) => panic!("after {op:?} failed the latest is {found:?}, and was {whole:?}"),
    }
}

fn same(a: &Answers, b: &Answers, what: &str) {
    match (&a.read, &b.read) {
        (Ok(a), Ok(b)) => assert_eq!(a, b, "{what}"),
        (Err(a), Err(b)) => judge::same(a, b, what),
        (Ok(_), Err(e)) => panic!("{what} are refused: {e}"),
        (Err(e), Ok(_)) => panic!("{what} are accepted, memory is not: {e}"),
    }
    assert_eq!(a.findings.len(), b.findings.len(), "{what}: {:?} and {:?}", a.findings, b.findings);
    for (a, b) in a.findings.iter().zip(&b.findings) {
        judge::same(a, b, what);
    }
}

/// Views of every tensor, beside what reading it gives.
fn mapped(store: &Arc<dyn Store>, expected: &Answers) {
    let Ok(checkpoint) = reader::open(store) else { return };
    let Ok(entries) = checkpoint.entries().collect::<Result<Vec<Arc<Entry>>>>() else { return };
    // SAFETY: the files lie in a temporary directory of this call, which nobody else knows, and are not touched until it ends.
    let mapped = unsafe { reader::open(store).expect("a moment ago").into_mapped() };
    for entry in entries {
        let read = reader::digest(&checkpoint, &entry);
        let of = |bytes: &[u8]| (bytes.len() as u64, Digest::of(bytes));
        let identity = match &*entry {
            Entry::Tensor(tensor) => tensor.identity.clone(),
            Entry::Alias(alias) => alias.identity(),
        };
        let views =
            [mapped.view(&identity).map(|view| of(&view)), private(&checkpoint, &entry, of)];
        for view in views {
            if let Err(e) = &view
                && e.code() == Code::NonzeroPad
            {
                let seen = expected.findings.iter().any(|found| found.code() == Code::NonzeroPad);
                assert!(seen, "a validator does not see {e}");
            }
            agree(&read, view, &entry.key());
        }
    }
}

fn private(
    checkpoint: &Checkpoint,
    entry: &Entry,
    of: fn(&[u8]) -> (u64, Digest),
) -> Result<(u64, Digest)> {
    let Entry::Tensor(tensor) = entry else { return Err(not_one_run()) };
    // SAFETY: as above; the view ends here.
    unsafe { checkpoint.map_private(&tensor.identity) }.map(|view| of(&view))
}

fn not_one_run() -> waystation_format::Error {
    waystation_format::Error::new(Code::NotOneRun, "an alias")
}

/// A view is what was read. One that is refused says why: it is no run of bytes, or the bytes are refused when they are read.
fn agree(read: &Result<(u64, Digest)>, view: Result<(u64, Digest)>, key: &str) {
    match (read, view) {
        (Ok(read), Ok(view)) => assert_eq!(*read, view, "{key}"),
        (Err(e), Ok(_)) => panic!("{key}: a view of what cannot be read: {e}"),
        (_, Err(e)) if e.code() == Code::NotOneRun => {}
        // A view looks at unused bits, which reading passes over.
        (Ok(_), Err(e)) => assert_eq!(e.code(), Code::NonzeroPad, "{key}: {e}"),
        (Err(a), Err(b)) => {
            assert!(a.code() == b.code() || b.code() == Code::NonzeroPad, "{key}: {a} and {b}")
        }
    }
}
