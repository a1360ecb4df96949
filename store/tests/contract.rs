//! Every store keeps the contract of `Store`, and the kit that says so can tell one that does not.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use waystation_store::testing::{Errno, FailingFs, Op, store_conforms};
use waystation_store::{Counting, DirStore, MemoryFs, PosixFs, Store, open_path};

#[test]
fn the_operating_systems_files_conform() {
    let dir = tempfile::tempdir().unwrap();
    store_conforms(&open_path(dir.path()).unwrap()).unwrap();
}

#[test]
fn memory_conforms() {
    store_conforms(&MemoryFs::new().store()).unwrap();
}

#[test]
fn a_counting_store_conforms() {
    let counting: Arc<dyn Store> = Arc::new(Counting::new(MemoryFs::new().store()));
    store_conforms(&counting).unwrap();
}

/// Partial transfers of one byte and interrupted calls must not be seen.
#[test]
fn files_that_move_a_byte_at_a_time_conform() {
    let fs = FailingFs::new(MemoryFs::new());
    fs.limit_transfer(1);
    for nth in [1, 5, 17, 100] {
        for op in [Op::ReadAt, Op::WriteAt, Op::Stat, Op::List, Op::OpenRead, Op::OpenDir] {
            fs.fail(op, nth, Errno::INTR);
        }
    }
    fs.fail(Op::Allocate, 1, Errno::INTR);
    store_conforms(&over(&fs)).unwrap();
}

/// Where there are no hard links, renaming keeps the same promises.
#[test]
fn disks_without_links_conform() {
    for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS] {
        let fs = FailingFs::new(MemoryFs::new());
        fs.fail_always(Op::Link, errno);
        store_conforms(&over(&fs)).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let fs = FailingFs::new(PosixFs);
        fs.fail_always(Op::Link, errno);
        let store: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(fs), dir.path()).unwrap());
        store_conforms(&store).unwrap();
    }
}

/// Each fault breaks a promise, and the kit names it.
#[test]
fn broken_stores_do_not_conform() {
    let faults: [(Op, &str); 8] = [
        (Op::List, "list"),
        (Op::MakeDir, "make_dir"),
        (Op::Link, "put_new"),
        (Op::ReadAt, "read"),
        (Op::SyncFile, "fsync"),
        (Op::Close, "close"),
        (Op::SyncDir, "sync"),
        (Op::RemoveDir, "remove"),
    ];
    for (op, word) in faults {
        let fs = FailingFs::new(MemoryFs::new());
        fs.fail_always(op, Errno::IO);
        let broken = store_conforms(&over(&fs)).unwrap_err();
        assert!(broken.contains(word), "{op:?}: {broken}");
    }
    // A store that is not empty cannot be checked.
    let store = MemoryFs::new().store();
    store.make_dir("x").unwrap();
    assert!(store_conforms(&store).unwrap_err().contains("empty"));
}

fn over(fs: &FailingFs<MemoryFs>) -> Arc<dyn Store> {
    Arc::new(DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap())
}
