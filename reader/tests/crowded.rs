//! Directories in which very much lies that nobody asked for, under names of every kind: it is
//! ignored, costs a few looks each, and is told once.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    missing_docs,
    reason = "tests: a failure is a panic, and this one prints its counts"
)]

mod support;

use std::path::Path;
use std::sync::Arc;

use support::{put_all, small};
use waystation_format::{Identity, names};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, latest, list, verify};
use waystation_store::testing::FailingFs;
use waystation_store::{DirStore, MemoryFs, Store};

/// More than anybody's checkpoint has.
const CROWD: usize = 20_000;

/// Names that sort before, among and after those of the format, and come near to them.
fn crowd(nth: usize) -> String {
    match nth % 8 {
        0 => format!("{nth}"),
        1 => format!("tensors-{nth:06}.json"),
        2 => format!("MODEL-{nth:05}-0000000000000000-00000.SAFETENSORS"),
        3 => format!("step-{nth:012}-0123456789ABCDEF"),
        4 => format!("\u{1b}]0;{nth}\u{7}"),
        5 => format!("waystation.commit\n{nth}"),
        6 => format!("{nth}\u{202e}nosj.tsefinam"),
        _ => format!("~{}{nth}", "x".repeat(200)),
    }
}

/// A run with one checkpoint, a crowd in both; and what counts the calls.
fn crowded() -> (FailingFs<MemoryFs>, Arc<dyn Store>, String) {
    let memory = MemoryFs::new();
    let making = small();
    let name = names::attempt_dir(making.step, &making.attempt);
    let run = memory.store();
    let attempt = run.make_dir(&name).unwrap();
    put_all(&*attempt, &making.files());
    for nth in 0..CROWD {
        for directory in [&run, &attempt] {
            directory.create(&crowd(nth), None).unwrap().finish().unwrap();
        }
    }
    let fs = FailingFs::new(memory);
    let run = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
    fs.clear_log();
    (fs, Arc::new(run), name)
}

/// How many calls `work` made, on how many names it opened beyond `named`.
fn calls<T>(fs: &FailingFs<MemoryFs>, what: &str, work: impl FnOnce() -> T) -> (T, usize) {
    fs.clear_log();
    let done = work();
    let log = fs.log();
    let opened = log.iter().filter(|line| line.starts_with("open ")).count();
    println!("{what}: {} calls, {opened} files opened", log.len());
    assert!(opened < 100, "{what}: {opened}");
    (done, log.len())
}

#[test]
fn a_crowd_costs_a_few_looks_each_and_is_never_opened() {
    let (fs, run, name) = crowded();
    let (found, count) = calls(&fs, "latest", || latest(&run).unwrap());
    assert_eq!(found.name, name);
    assert!(count < 4 * CROWD, "{count}");

    let (all, count) = calls(&fs, "list", || list(&run).unwrap());
    assert_eq!(all.len(), 1);
    assert!(count < 4 * CROWD, "{count}");

    let attempt = run.dir(&name).unwrap().unwrap();
    let open = || Checkpoint::open_store(Arc::clone(&attempt), OpenOptions::new()).unwrap();
    let (checkpoint, count) = calls(&fs, "open", open);
    assert!(count < 2 * CROWD, "{count}");
    let made = small();
    let first = &made.tensors[0];
    let read = || checkpoint.tensor(&first.tensor.identity).unwrap().read().unwrap();
    let (bytes, count) = calls(&fs, "read", read);
    assert!(bytes == first.data && count < 100, "{count}");
    assert!(checkpoint.tensor(&Identity::param("none of it")).is_err());

    let (report, count) =
        calls(&fs, "verify", || verify(&attempt, &VerifyOptions::default()).unwrap());
    assert!(report.findings.is_empty(), "{:?}", report.findings.first());
    assert_eq!(report.notes.len(), CROWD);
    // A note is printed as one line, whatever is in the name.
    assert!(
        report
            .notes
            .iter()
            .all(|note| note.to_string().chars().all(|c| c.is_ascii_graphic() || c == ' '))
    );
    assert!(count < 3 * CROWD, "{count}");
}
