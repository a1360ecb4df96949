//! What a store does, and in which order, when the disk fails.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use waystation_format::{Code, rule};
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{DirStore, MemoryFs, PosixFs, Put, Store, make_durable};

fn disk() -> (FailingFs<MemoryFs>, Arc<dyn Store>) {
    let fs = FailingFs::new(MemoryFs::new());
    let store = Arc::new(DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap());
    fs.clear_log();
    (fs, store)
}

fn names(store: &Arc<dyn Store>) -> Vec<String> {
    store.list().unwrap().into_iter().map(|listed| listed.name).collect()
}

#[test]
fn an_object_is_synced_before_it_has_its_name() {
    let (fs, store) = disk();
    assert_eq!(store.put_new("manifest.json", b"{}").unwrap(), Put::Created);
    store.sync().unwrap();
    let order = [
        "create tmp-*",
        "write tmp-* 0+2",
        "fsync tmp-*",
        "close tmp-*",
        "link tmp-* manifest.json",
        "unlink tmp-*",
        "fsync .",
    ];
    assert_eq!(fs.log(), order);
    let changes: Vec<_> = order.iter().filter(|line| !line.starts_with("write")).collect();
    assert_eq!(fs.changes().iter().collect::<Vec<_>>(), changes);
}

#[test]
fn an_object_in_a_subdirectory_is_logged_by_its_path() {
    let (fs, store) = disk();
    let sub = store.make_dir("step").unwrap();
    let new = sub.create("model", Some(4)).unwrap();
    new.write_at(b"data", 0).unwrap();
    new.finish().unwrap();
    sub.sync().unwrap();
    let expected = [
        "mkdir step",
        "opendir step",
        "create step/model",
        "allocate step/model 4",
        "write step/model 0+4",
        "fsync step/model",
        "close step/model",
        "fsync step",
    ];
    assert_eq!(fs.log(), expected);
}

#[test]
fn a_failed_fsync_is_never_tried_again() {
    let (fs, store) = disk();
    fs.fail(Op::SyncFile, 1, Errno::IO);
    let new = store.create("a", None).unwrap();
    new.write_at(b"x", 0).unwrap();
    let first = new.finish().unwrap_err();
    assert_eq!((first.code(), first.location().file.as_deref()), (Code::Io, Some("a")));
    let second = new.finish().unwrap_err();
    assert_eq!((second.code(), second.rule_id()), (Code::Poisoned, Some(rule::WRITER_DEAD)));
    assert_eq!(new.write_at(b"x", 0).unwrap_err().code(), Code::Poisoned);
    // Not even where a signal interrupted it.
    fs.fail(Op::SyncFile, 1, Errno::INTR);
    let new = store.create("b", None).unwrap();
    assert_eq!(new.finish().unwrap_err().code(), Code::Io);
    assert_eq!(new.finish().unwrap_err().code(), Code::Poisoned);
    assert_eq!(fs.changes(), ["create a", "fsync a failed", "create b", "fsync b failed"]);
}

#[test]
fn a_failed_write_kills_the_object() {
    let (fs, store) = disk();
    fs.fail(Op::WriteAt, 2, Errno::IO);
    let new = store.create("a", None).unwrap();
    new.write_at(b"x", 0).unwrap();
    let e = new.write_at(b"x", 7).unwrap_err();
    assert_eq!((e.code(), e.location().offset), (Code::Io, Some(7)));
    assert_eq!(new.write_at(b"x", 1).unwrap_err().code(), Code::Poisoned);
    assert_eq!(new.read_at(&mut [0], 0).unwrap_err().code(), Code::Poisoned);
    assert_eq!(new.finish().unwrap_err().code(), Code::Poisoned);
    assert!(!fs.changes().contains(&"fsync a".to_owned()));
}

#[test]
fn a_failed_close_kills_the_object() {
    let (fs, store) = disk();
    fs.lose_reply(Op::Close, 1, Errno::DQUOT);
    let new = store.create("a", None).unwrap();
    assert_eq!(new.finish().unwrap_err().code(), Code::IoFull);
    assert_eq!(new.finish().unwrap_err().code(), Code::Poisoned);
}

#[test]
fn a_failed_fsync_of_a_directory_is_never_tried_again() {
    let (fs, store) = disk();
    fs.fail(Op::SyncDir, 1, Errno::IO);
    assert_eq!(store.sync().unwrap_err().code(), Code::Io);
    assert_eq!(store.sync().unwrap_err().code(), Code::Poisoned);
    assert_eq!(fs.log(), ["fsync . failed"]);
}

#[test]
fn a_disk_that_makes_no_progress_is_not_asked_for_ever() {
    let (fs, store) = disk();
    let new = store.create("a", None).unwrap();
    fs.limit_transfer(0);
    assert_eq!(new.read_at(&mut [0], 0).unwrap_err().code(), Code::LengthMismatch);
    assert_eq!(new.write_at(b"x", 0).unwrap_err().code(), Code::Io);
}

#[test]
fn a_write_says_where_the_disk_was_full() {
    let (fs, store) = disk();
    fs.limit_space(3);
    let new = store.create("a", None).unwrap();
    let e = new.write_at(b"12345", 0).unwrap_err();
    assert_eq!((e.code(), e.location().offset), (Code::IoFull, Some(3)));
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (fs, store) = disk();
    fs.limit_space(10);
    let e = store.create("shard", Some(11)).unwrap_err();
    assert_eq!((e.code(), e.location().file.as_deref()), (Code::IoFull, Some("shard")));
    assert_eq!(store.put_new("page", b"eleven byte").unwrap_err().code(), Code::IoFull);
    assert!(names(&store).is_empty());
    fs.limit_space(10);
    assert_eq!(store.put_new("page", b"ten bytes!").unwrap(), Put::Created);
    assert_eq!(names(&store), ["page"]);
}

#[test]
fn every_failure_of_put_new_leaves_the_name_absent() {
    for op in [Op::Create, Op::WriteAt, Op::SyncFile, Op::Close, Op::Link] {
        let (fs, store) = disk();
        fs.fail(op, 1, Errno::IO);
        let e = store.put_new("a", b"x").unwrap_err();
        assert_eq!((e.code(), e.location().file.as_deref()), (Code::Io, Some("a")), "{op:?}");
        assert!(names(&store).is_empty(), "{op:?}");
        assert!(!fs.changes().contains(&"link tmp-* a".to_owned()), "{op:?}");
    }
}

#[test]
fn a_lost_reply_is_an_error_for_the_caller_to_read_back() {
    let (fs, store) = disk();
    fs.lose_reply(Op::Link, 1, Errno::IO);
    assert_eq!(store.put_new("a", b"x").unwrap_err().code(), Code::Io);
    assert_eq!(names(&store), ["a"]);
    fs.fail_always(Op::Link, Errno::NOSYS);
    fs.lose_reply(Op::Rename, 1, Errno::IO);
    assert_eq!(store.put_new("b", b"y").unwrap_err().code(), Code::Io);
    assert_eq!(names(&store), ["a", "b"]);
}

#[test]
fn a_temporary_that_stays_is_no_failure() {
    let (fs, store) = disk();
    fs.fail(Op::Unlink, 1, Errno::IO);
    assert_eq!(store.put_new("a", b"x").unwrap(), Put::Created);
    let names = names(&store);
    assert_eq!((names.len(), &*names[0]), (2, "a"));
    assert!(names[1].starts_with("tmp-") && names[1].len() == 20, "{names:?}");
}

#[test]
fn errors_keep_their_kind() {
    let (fs, store) = disk();
    assert_eq!(store.put_new("a", b"x").unwrap(), Put::Created);
    fs.fail_on(Op::OpenRead, "a", Errno::ACCESS);
    assert_eq!(store.open("a").unwrap_err().code(), Code::IoDenied);
    fs.fail_on(Op::Create, "b", Errno::ROFS);
    assert_eq!(store.create("b", None).unwrap_err().code(), Code::IoDenied);
    fs.fail(Op::List, 1, Errno::IO);
    assert_eq!(store.list().unwrap_err().code(), Code::Io);
    fs.fail(Op::Stat, 1, Errno::IO);
    assert_eq!(store.stat("a").unwrap_err().code(), Code::Io);
    fs.fail(Op::OpenDir, 1, Errno::MFILE);
    assert_eq!(store.dir("d").unwrap_err().code(), Code::Io);
    fs.fail(Op::Unlink, 1, Errno::ACCESS);
    assert_eq!(store.remove("a").unwrap_err().code(), Code::IoDenied);
    fs.heal();
    assert_eq!(store.open("a").unwrap().bytes(), 1);
}

#[test]
fn a_directory_is_durable_when_its_parent_is_synced() {
    let (fs, store) = disk();
    make_durable(&*store, "a").unwrap();
    assert_eq!(fs.changes(), ["mkdir a", "fsync ."]);
    fs.fail(Op::SyncDir, 1, Errno::IO);
    assert_eq!(make_durable(&*store, "b").unwrap_err().code(), Code::Io);
}

/// A pipe or device is refused by looking at it: opening alone can have effects.
#[test]
fn what_is_no_file_is_never_opened() {
    let memory = MemoryFs::new();
    memory.set_other("pipe").unwrap();
    let fs = FailingFs::new(memory);
    let store = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
    fs.clear_log();
    assert_eq!(store.open("pipe").unwrap_err().code(), Code::NotRegular);
    assert_eq!(fs.log(), ["stat pipe"]);
}

/// Another process swaps the file between the look and the open.
#[test]
fn a_file_swapped_while_it_is_opened_is_refused() {
    for swap in ["pipe", "link", "directory", "nothing"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"x").unwrap();
        let fs = FailingFs::new(PosixFs);
        let store = DirStore::open(Arc::new(fs.clone()), dir.path()).unwrap();
        fs.before(Op::OpenRead, 1, move || {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            std::fs::remove_file(&path).unwrap();
            match swap {
                "pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                "link" => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
                "directory" => std::fs::create_dir(&path).unwrap(),
                _ => {}
            }
        });
        let code = store.open("a").unwrap_err().code();
        assert_eq!(code, if swap == "nothing" { Code::FileMissing } else { Code::NotRegular });
    }
}

#[test]
fn a_name_that_vanishes_while_listing_is_left_out() {
    let (fs, store) = disk();
    for name in ["a", "b", "c"] {
        assert_eq!(store.put_new(name, b"x").unwrap(), Put::Created);
    }
    let other = store.clone();
    fs.before(Op::Stat, 2, move || assert!(other.remove("b").unwrap()));
    assert_eq!(names(&store), ["a", "c"]);
}

/// A file that is cut short after it was opened is not what was stated.
#[test]
fn a_file_that_shrinks_is_short() {
    let memory = MemoryFs::new();
    let store = memory.store();
    memory.set("a", vec![7; 100]).unwrap();
    let object = store.open("a").unwrap();
    memory.set("a", vec![7; 60]).unwrap();
    let e = object.read_at(&mut [0; 40], 40).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::LengthMismatch, Some(rule::DIR_LENGTH)));
    assert_eq!(e.location().offset, Some(60));
    assert_eq!(object.bytes(), 100);
}
