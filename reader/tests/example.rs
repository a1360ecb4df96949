//! The spec's worked example is a checkpoint.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests: a failure is a panic")]

use std::path::{Path, PathBuf};

use waystation_format::{Entry, Identity};
use waystation_reader::{Checkpoint, VerifyOptions, latest, list, verify};
use waystation_store::open_path;

fn run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/example")
}

#[test]
fn it_is_the_latest_of_its_run_and_verifies() {
    let run = open_path(&run()).unwrap();
    let found = latest(&run).unwrap();
    assert!(found.skipped.is_empty());
    assert_eq!(list(&run).unwrap().len(), 1);
    let report = verify(&found.store, &VerifyOptions::default()).unwrap();
    assert!(report.ok, "{:?}", report.findings);
    assert_eq!(report.digest, Some(found.digest));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn all_of_it_can_be_read() {
    let found = latest(&open_path(&run()).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(&run().join(&found.name)).unwrap();
    let mut aliases = 0;
    for entry in checkpoint.entries() {
        let entry = entry.unwrap();
        aliases += usize::from(matches!(*entry, Entry::Alias(_)));
        let tensor = checkpoint.tensor_of(&entry).unwrap();
        let bytes = tensor.read().unwrap();
        assert_eq!(u64::try_from(bytes.len()).unwrap(), tensor.bytes().unwrap());
    }
    assert_eq!(aliases, 1);
    let alias = checkpoint.tensor(&Identity::param("lm_head.weight")).unwrap();
    assert_eq!(alias.identity(), &Identity::param("embed.weight"));
    assert!(checkpoint.records().all(|record| record.is_ok()));
    for attachment in checkpoint.attachments() {
        let mut bytes = Vec::new();
        checkpoint.read_attachment(attachment.path, &mut bytes).unwrap();
        assert!(!bytes.is_empty());
    }
}
