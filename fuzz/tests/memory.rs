//! Reading a checkpoint takes memory in proportion to the files that are there: of every golden, every conformance case, the worked
//! example and every regression, a counting allocator sees at most 8 times the bytes of the files and 16 MiB.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use waystation_conformance::catalogue::cases;
use waystation_conformance::files::Files;
use waystation_fuzz::gen_archive::{self, Directory};
use waystation_fuzz::memory::{self, DIRECTORY};
use waystation_fuzz::replay::inputs;
use waystation_fuzz::{goldens, reader};
use waystation_store::Store;

/// Bytes of the files, and the peak above them.
type Measured = (usize, usize);

/// Opens, reads everything through a buffer, and verifies.
fn measure(directory: &Directory) -> Measured {
    let store = directory.memory().store();
    let (_, peak) = memory::peak(|| {
        for checkpoint in checkpoints(&store, &directory.files) {
            drop(reader::answers(&checkpoint));
        }
    });
    (directory.bytes(), peak)
}

/// The directory itself, and those in it.
fn checkpoints(store: &Arc<dyn Store>, files: &Files) -> Vec<Arc<dyn Store>> {
    let mut folders: Vec<&str> =
        files.keys().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    folders.dedup();
    let below = folders.into_iter().filter_map(|folder| store.dir(folder).ok().flatten());
    std::iter::once(Arc::clone(store)).chain(below).collect()
}

fn of(files: Files) -> Directory {
    Directory { files, ..Directory::default() }
}

fn worked_example() -> Files {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/example");
    let mut listed = fs::read_dir(&example).unwrap().map(|entry| entry.unwrap().path());
    let folder = listed.find(|path| path.is_dir()).unwrap();
    let mut files = Files::new();
    for path in inputs(&folder) {
        files.insert(
            path.file_name().unwrap().to_string_lossy().into_owned(),
            fs::read(&path).unwrap(),
        );
    }
    assert!(files.contains_key("waystation.commit"), "no worked example in {}", folder.display());
    files
}

#[test]
fn reading_takes_memory_in_proportion() {
    let mut all: BTreeMap<String, Measured> = BTreeMap::new();
    for (number, name) in goldens::NAMES.iter().enumerate() {
        all.insert(format!("base {name}"), measure(&of(goldens::files(number).unwrap().clone())));
    }
    all.insert("worked example".to_owned(), measure(&of(worked_example())));
    for case in cases() {
        all.insert(format!("case {}", case.expect.id), measure(&of(case.given)));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for target in ["open", "sources", "differential"] {
        for path in inputs(&folder.join(target)) {
            let directory = gen_archive::decode(&fs::read(&path).unwrap());
            all.insert(
                format!("regression {target}/{}", path.file_name().unwrap().display()),
                measure(&directory),
            );
        }
    }
    assert!(all.len() > 2000, "{} directories", all.len());
    let share = |(bytes, peak): &Measured| {
        *peak as f64 / (bytes * DIRECTORY.factor + DIRECTORY.base) as f64
    };
    let mut worst: Vec<(&String, &Measured)> = all.iter().collect();
    worst.sort_by(|a, b| share(b.1).total_cmp(&share(a.1)));
    for (name, measured) in &worst[..10] {
        println!(
            "{:>5.1} % of what is allowed: {name}, {} KiB for {} KiB",
            share(measured) * 100.0,
            measured.1 >> 10,
            measured.0 >> 10
        );
    }
    let over: Vec<&String> =
        worst.iter().filter(|(_, measured)| share(measured) > 1.0).map(|(name, _)| *name).collect();
    assert!(over.is_empty(), "above 8 times their bytes and 16 MiB: {over:#?}");
}
