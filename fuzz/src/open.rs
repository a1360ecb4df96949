//! `open`: a whole directory, in memory. It is opened strictly, read, checked and restored from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use waystation_format::{Class, Code, Result, names};
use waystation_reader::restore::{Place, RestoreOptions};
use waystation_reader::{Checkpoint, State, latest, list};
use waystation_store::{Counting, Kind, Store};

use crate::gen_archive::{self, Directory};
use crate::{judge, memory, reader};

/// Opens what the bytes stand for as a checkpoint, and as a run.
///
/// # Panics
/// If opening reads data or any byte twice; if what a validator accepts cannot be read, or a golden is not accepted; if a refusal
/// names no rule; if memory goes beyond [`memory::DIRECTORY`].
pub fn run(data: &[u8]) {
    let directory = gen_archive::decode(data);
    let store = directory.memory().store();
    let folders: BTreeSet<&str> = directory
        .files
        .keys()
        .filter_map(|path| path.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    if folders.is_empty() {
        checkpoint(&store, &directory, directory.golden);
        return;
    }
    of_run(&store);
    for folder in folders {
        if let Ok(Some(attempt)) = store.dir(folder) {
            checkpoint(&attempt, &directory, directory.golden);
        }
    }
}

/// `latest` answers the greatest of what `list` calls complete and not rejected, unless something greater cannot be known.
fn of_run(run: &Arc<dyn Store>) {
    let mut listed = list(run).expect("a run in memory can be listed");
    listed.sort_by_key(|one| {
        std::cmp::Reverse((one.attempt.timeline, one.step, one.attempt.to_string()))
    });
    let mut lost = false;
    for one in &listed {
        match &one.state {
            _ if one.marks.deleted => {}
            State::Uncommitted => {}
            _ if one.marks.rejected.is_some() => lost = true,
            State::Complete { .. } => {
                named(run, &one.name);
                let found =
                    latest(run).unwrap_or_else(|e| panic!("{} is resumable: {e}", one.name));
                whole(&found.store);
                return assert_eq!(found.name, one.name, "latest is not the greatest");
            }
            State::Unsupported(why) | State::Unreadable(why) => {
                let e = latest(run)
                    .err()
                    .unwrap_or_else(|| panic!("{} is passed over: {why}", one.name));
                return assert_eq!(e.code(), why.code(), "{}: {why}, and {e}", one.name);
            }
            State::Damaged(_) => lost = true,
            _ => {}
        }
    }
    let Err(e) = latest(run) else { panic!("something is the latest of nothing") };
    judge::refusal(&e);
    let expected = if lost { Code::NoneResumable } else { Code::NoCheckpoint };
    assert_eq!(e.code(), expected, "{e}");
}

/// What is to be resumed lacks no file, as a validator that goes on after the first breach sees it.
fn whole(store: &Arc<dyn Store>) {
    let report = reader::validate(store).expect("a directory in memory can be listed");
    let lacks = report.findings.iter().find(|found| {
        matches!(found.code(), Code::FileMissing | Code::LengthMismatch | Code::NotRegular)
    });
    assert!(lacks.is_none(), "the latest is not complete: {}", lacks.expect("there is one"));
}

/// The name of a directory is what the manifest in it says of step and attempt (11).
fn named(run: &Arc<dyn Store>, name: &str) {
    let object = run
        .dir(name)
        .ok()
        .flatten()
        .and_then(|attempt| attempt.open(names::MANIFEST).ok())
        .unwrap_or_else(|| panic!("{name} is complete, and has no manifest"));
    let mut text = vec![0; object.bytes() as usize];
    object.read_at(&mut text, 0).expect("memory can be read");
    let manifest: Value = serde_json::from_slice(&text).expect("a manifest that was read");
    let attempt = manifest["attempt"].as_str().unwrap_or_default();
    let own = format!("step-{:012}-{attempt}", manifest["step"].as_u64().unwrap_or_default());
    assert_eq!(name, own, "complete under another name");
}

/// Opens, reads, checks and restores a checkpoint.
///
/// # Panics
/// As [`run`].
pub fn checkpoint(store: &Arc<dyn Store>, directory: &Directory, golden: bool) {
    let sizes: BTreeMap<String, u64> = store
        .list()
        .expect("a directory in memory can be listed")
        .into_iter()
        .filter(|listed| listed.stat.kind == Kind::Regular)
        .map(|listed| (listed.name, listed.stat.bytes))
        .collect();
    let all = directory.bytes();
    let counting = Counting::new(Arc::clone(store));
    let counted: Arc<dyn Store> = Arc::new(counting.clone());
    let (opened, peak) = memory::peak(|| pages(&counted));
    memory::DIRECTORY.check(peak, all, "opening");
    let mut read: BTreeMap<String, u64> = BTreeMap::new();
    for access in counting.reads() {
        let end = access.offset + access.bytes;
        assert!(end <= sizes[&access.name], "{} has no byte {end}", access.name);
        *read.entry(access.name).or_default() += access.bytes;
    }
    for (name, bytes) in &read {
        let data = names::parse_shard(name).is_some() || names::parse_attachment(name).is_some();
        assert!(!data, "opening reads {name}");
        assert!(
            *bytes <= sizes[name],
            "opening reads {bytes} bytes of {name}, which has {}",
            sizes[name]
        );
    }
    counting.reset();
    let content = match opened {
        Ok(opened) => {
            let (content, peak) = memory::peak(|| reader::everything(&opened));
            memory::DIRECTORY.check(peak, all, "reading");
            restore(&opened);
            content
        }
        Err(e) => Err(e),
    };
    let (report, peak) = memory::peak(|| reader::validate(store));
    memory::DIRECTORY.check(peak, all, "verifying");
    let report = report.expect("a directory in memory can be listed");
    report.findings.iter().for_each(judge::reading);
    match content {
        Ok(_) => assert!(report.ok || !golden, "a golden is refused: {:?}", report.findings),
        Err(e) => {
            judge::refusal(&e);
            assert!(!report.ok, "a validator accepts what a reader refuses: {e}");
            // Of a block whose CRC in the table is wrong a reader that goes by blocks says that the bytes are: it cannot know better.
            let alike = |found: Code| found == e.code() || at_block(found) && at_block(e.code());
            let seen = report.findings.iter().any(|found| alike(found.code()));
            assert!(seen, "a validator does not see {e}: {:?}", report.findings);
        }
    }
}

fn at_block(code: Code) -> bool {
    matches!(code, Code::CrcMismatch | Code::CrcTableMismatch)
}

/// Opens the root and every page.
fn pages(store: &Arc<dyn Store>) -> Result<Checkpoint> {
    let checkpoint = reader::open(store)?;
    for entry in checkpoint.entries() {
        entry?;
    }
    for record in checkpoint.records() {
        record?;
    }
    Ok(checkpoint)
}

/// Restores at the first place of its own topology, and of one that has other sizes.
fn restore(checkpoint: &Checkpoint) {
    let own = &checkpoint.manifest().common.topology;
    for more in [0, 1] {
        let mut topology = own.clone();
        topology.0.iter_mut().for_each(|(_, size)| *size += more);
        let first = topology.0.iter().map(|(axis, _)| (axis.clone(), 0)).collect();
        let Ok(place) = Place::new(topology, first) else { continue };
        if let Err(e) = checkpoint.restore(&place, &RestoreOptions::default()) {
            assert!(e.class() != Class::Io, "restoring from memory fails: {e}");
        }
    }
}
