//! The promises of [`Store`], checked one after another on any store.
//!
//! It knows the documentation of the trait and nothing of any implementation.

use std::sync::Arc;
use std::thread;

use waystation_format::{Code, Result};

use crate::fs::Kind;
use crate::store::{Put, Store};

type Checked = std::result::Result<(), String>;

/// Checks the contract of a store that is empty and may be filled.
///
/// # Errors
///
/// The first broken promise, in words.
pub fn store_conforms(store: &Arc<dyn Store>) -> Checked {
    type Check = fn(&dyn Store) -> Checked;
    let checks: [(&str, Check); 8] = [
        ("names", names_are_single_components),
        ("create", created_objects_are_exclusive_and_finished_once),
        ("read", reads_are_exact),
        ("put", put_new_never_replaces),
        ("list", listing_is_complete_and_sorted),
        ("kinds", directories_are_not_files),
        ("remove", removal_is_by_name_and_empty),
        ("threads", writes_run_on_many_threads),
    ];
    ensure(ok("list", store.list())?.is_empty(), "the store to be empty at first")?;
    for (name, check) in checks {
        let own = ok("make_dir", store.make_dir(name))?;
        check(&*own).map_err(|broken| format!("{name}: {broken}"))?;
        ok("sync of a subdirectory", own.sync())?;
    }
    ok("sync", store.sync())?;
    ensure(ok("list", store.list())?.len() == checks.len(), "only what was made to be there")
}

fn names_are_single_components(store: &dyn Store) -> Checked {
    for name in ["", ".", "..", "/", "a/b", "../names", "a/", "/a", "a\0"] {
        let bad =
            |what: &str, code| expect(&format!("{what} of {name:?}"), Code::BadArgument, code);
        bad("stat", code_of(&store.stat(name)))?;
        bad("open", code_of(&store.open(name)))?;
        bad("create", code_of(&store.create(name, None)))?;
        bad("put_new", code_of(&store.put_new(name, b"x")))?;
        bad("remove", code_of(&store.remove(name)))?;
        bad("dir", code_of(&store.dir(name)))?;
        bad("make_dir", code_of(&store.make_dir(name)))?;
        bad("remove_dir", code_of(&store.remove_dir(name)))?;
    }
    for name in ["...", "-rf", "a b", "ü", "\\", "a\n"] {
        created(store, name, b"x")?;
    }
    Ok(())
}

fn created_objects_are_exclusive_and_finished_once(store: &dyn Store) -> Checked {
    let new = ok("create", store.create("a", None))?;
    ensure(new.name() == "a", "a new object to know its name")?;
    expect("create of a name that is there", Code::Exists, code_of(&store.create("a", None)))?;
    ok("write", new.write_at(b"world", 6))?;
    ok("write", new.write_at(b"hello ", 0))?;
    ok("an empty write", new.write_at(b"", 0))?;
    let mut back = [0; 11];
    ok("reading back", new.read_at(&mut back, 0))?;
    ensure(&back == b"hello world", "to read back what was written")?;
    let past = code_of(&new.read_at(&mut [0; 2], 10));
    expect("reading back past the end", Code::LengthMismatch, past)?;
    ok("finish", new.finish())?;
    expect("a second finish", Code::Poisoned, code_of(&new.finish()))?;
    expect("a write after finish", Code::Poisoned, code_of(&new.write_at(b"x", 0)))?;
    expect("a read after finish", Code::Poisoned, code_of(&new.read_at(&mut back, 0)))?;
    holds(store, "a", b"hello world")?;
    expect("create of a finished name", Code::Exists, code_of(&store.create("a", None)))?;

    let sized = ok("create", store.create("sized", Some(10_000)))?;
    ok("write", sized.write_at(b"end", 9_997))?;
    ok("finish", sized.finish())?;
    let mut bytes = vec![0; 9_997];
    bytes.extend_from_slice(b"end");
    holds(store, "sized", &bytes)?;

    let empty = ok("create", store.create("empty", Some(0)))?;
    ok("finish", empty.finish())?;
    holds(store, "empty", b"")
}

fn reads_are_exact(store: &dyn Store) -> Checked {
    expect("open of nothing", Code::FileMissing, code_of(&store.open("a")))?;
    created(store, "a", b"0123456789")?;
    let object = ok("open", store.open("a"))?;
    ensure(object.name() == "a" && object.bytes() == 10, "an object to know its name and length")?;
    let mut middle = [0; 3];
    ok("read", object.read_at(&mut middle, 4))?;
    ensure(&middle == b"456", "a read to begin at its offset")?;
    ok("an empty read at the end", object.read_at(&mut [], 10))?;
    for (bytes, offset) in [(11, 0), (1, 10), (4, 7), (1, 1 << 40)] {
        let mut buf = vec![0; bytes];
        let code = code_of(&object.read_at(&mut buf, offset));
        expect(&format!("a read of {bytes} at {offset} of 10"), Code::LengthMismatch, code)?;
    }
    let last = code_of(&object.read_at(&mut [0; 2], u64::MAX));
    ensure(last.is_some(), "a read at the last offset to fail")
}

fn put_new_never_replaces(store: &dyn Store) -> Checked {
    created(store, "a", b"first")?;
    let again = ok("put_new", store.put_new("a", b"second"))?;
    ensure(again == Put::Exists, "put_new of a name that is there to say so")?;
    holds(store, "a", b"first")?;
    created(store, "empty", b"")?;
    ok("make_dir", store.make_dir("d"))?;
    let over = ok("put_new", store.put_new("d", b"x"))?;
    ensure(over == Put::Exists, "put_new over a directory to say that it exists")?;
    let names: Vec<String> = ok("list", store.list())?.into_iter().map(|l| l.name).collect();
    ensure(names == ["a", "d", "empty"], "put_new to leave no temporary")
}

fn listing_is_complete_and_sorted(store: &dyn Store) -> Checked {
    ensure(ok("list", store.list())?.is_empty(), "a new directory to be empty")?;
    for name in ["b", "a", "Z", "ü", "a-", "10", "9"] {
        created(store, name, name.as_bytes())?;
    }
    ok("make_dir", store.make_dir("dir"))?;
    let listed = ok("list", store.list())?;
    let names: Vec<&str> = listed.iter().map(|l| l.name.as_str()).collect();
    ensure(names == ["10", "9", "Z", "a", "a-", "b", "dir", "ü"], "names in byte order")?;
    for one in &listed {
        let stat = ok("stat", store.stat(&one.name))?;
        ensure(stat == Some(one.stat), "list and stat to agree")?;
        let (kind, bytes) = match one.name.as_str() {
            "dir" => (Kind::Directory, one.stat.bytes),
            name => (Kind::Regular, u64::try_from(name.len()).unwrap_or(0)),
        };
        ensure((one.stat.kind, one.stat.bytes) == (kind, bytes), "kind and length of each")?;
    }
    Ok(())
}

fn directories_are_not_files(store: &dyn Store) -> Checked {
    ensure(ok("dir", store.dir("d"))?.is_none(), "no directory before it is made")?;
    let made = ok("make_dir", store.make_dir("d"))?;
    created(&*made, "inner", b"x")?;
    let opened = ok("dir", store.dir("d"))?.ok_or("expected a directory that was made")?;
    holds(&*opened, "inner", b"x")?;
    ensure(opened.describe().ends_with('d'), "a subdirectory to be described by its name")?;
    created(store, "f", b"x")?;
    expect("dir of a file", Code::NotRegular, code_of(&store.dir("f")))?;
    expect("open of a directory", Code::NotRegular, code_of(&store.open("d")))?;
    expect("make_dir of what is there", Code::Exists, code_of(&store.make_dir("d")))?;
    expect("make_dir over a file", Code::Exists, code_of(&store.make_dir("f")))?;
    expect("create over a directory", Code::Exists, code_of(&store.create("d", None)))
}

fn removal_is_by_name_and_empty(store: &dyn Store) -> Checked {
    ensure(!ok("remove", store.remove("a"))?, "remove of nothing to say so")?;
    created(store, "a", b"held")?;
    let held = ok("open", store.open("a"))?;
    ensure(ok("remove", store.remove("a"))?, "remove to say that it removed")?;
    ensure(ok("stat", store.stat("a"))?.is_none(), "a removed name to be gone")?;
    let mut bytes = [0; 4];
    ok("read of a removed file that is open", held.read_at(&mut bytes, 0))?;
    ensure(&bytes == b"held", "an open file to outlive its name")?;
    created(store, "a", b"new")?;

    let dir = ok("make_dir", store.make_dir("d"))?;
    created(&*dir, "x", b"x")?;
    expect("remove of a directory", Code::NotRegular, code_of(&store.remove("d")))?;
    expect("remove_dir of a file", Code::NotRegular, code_of(&store.remove_dir("a")))?;
    expect("remove_dir of nothing", Code::NotFound, code_of(&store.remove_dir("none")))?;
    expect("remove_dir of a full one", Code::Io, code_of(&store.remove_dir("d")))?;
    ok("remove", dir.remove("x"))?;
    ok("remove_dir", store.remove_dir("d"))?;
    ensure(ok("dir", store.dir("d"))?.is_none(), "a removed directory to be gone")?;
    let late = code_of(&dir.create("y", None));
    ensure(late.is_some(), "nothing to be made in a removed directory")
}

fn writes_run_on_many_threads(store: &dyn Store) -> Checked {
    const BLOCK: usize = 4096;
    let threads: [(u8, u64); 4] = [(1, 0), (2, 4096), (3, 8192), (4, 12288)];
    let new = ok("create", store.create("a", Some(16384)))?;
    thread::scope(|scope| {
        let new = &new;
        let writers: Vec<_> = threads
            .iter()
            .map(|&(byte, offset)| scope.spawn(move || new.write_at(&[byte; BLOCK], offset)))
            .collect();
        writers.into_iter().try_for_each(|writer| {
            ok("write", writer.join().map_err(|_| "a write panicked".to_owned())?)
        })
    })?;
    ok("finish", new.finish())?;
    let bytes: Vec<u8> = threads.iter().flat_map(|&(byte, _)| [byte; BLOCK]).collect();
    holds(store, "a", &bytes)
}

fn created(store: &dyn Store, name: &str, bytes: &[u8]) -> Checked {
    let put = ok("put_new", store.put_new(name, bytes))?;
    ensure(put == Put::Created, &format!("put_new to create {name:?}"))?;
    holds(store, name, bytes)
}

fn holds(store: &dyn Store, name: &str, bytes: &[u8]) -> Checked {
    let object = ok("open", store.open(name))?;
    let mut found = vec![0; bytes.len()];
    ok("read", object.read_at(&mut found, 0))?;
    let length = u64::try_from(bytes.len()) == Ok(object.bytes());
    ensure(length && found == bytes, &format!("{name:?} to hold what was put"))
}

fn ok<T>(what: &str, result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|e| format!("expected {what} to succeed, found {e}"))
}

fn ensure(truth: bool, promise: &str) -> Checked {
    if truth { Ok(()) } else { Err(format!("expected {promise}")) }
}

fn expect(what: &str, wanted: Code, found: Option<Code>) -> Checked {
    if found == Some(wanted) {
        return Ok(());
    }
    let found = found.map_or("success".to_owned(), |code| code.to_string());
    Err(format!("expected {what} to be {wanted}, found {found}"))
}

fn code_of<T>(result: &Result<T>) -> Option<Code> {
    result.as_ref().err().map(waystation_format::Error::code)
}
