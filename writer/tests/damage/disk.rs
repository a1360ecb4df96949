//! A disk that holds one checkpoint, and looking at it in both ways: verifying it, and reading
//! everything that a reader can get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use waystation_format::entry::Entry;
use waystation_format::identity::Identity;
use waystation_format::{Code, Error, Region, Result};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};
use waystation_store::{MemoryFs, Store};

use super::Golden;
use super::places::Places;
use super::small::{self, Small};

/// A checkpoint on a disk in memory.
pub struct Disk {
    fs: MemoryFs,
    store: Arc<dyn Store>,
}

/// A read of a tensor, what it must give, and what it depends on.
pub struct Read {
    /// For messages.
    pub label: String,
    identity: Identity,
    region: Option<Region>,
    expected: Vec<u8>,
    /// Chunks, by their position among all, and blocks of them.
    pub units: BTreeSet<(usize, u64)>,
}

/// How tensors are read as a whole.
#[derive(Clone, Copy)]
pub enum How {
    Whole,
    /// In pieces that are no whole blocks.
    Streamed,
}

/// How reading went: what failed, by label.
#[derive(Debug, Default)]
pub struct Outcome {
    pub opened: Option<Error>,
    pub failed: BTreeMap<String, Code>,
}

/// Labels of what is read apart from tensors.
pub const ENTRIES: &str = "entries";
pub const RECORDS: &str = "records";
pub const MANIFEST: &str = "open";

impl Disk {
    pub fn new(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let fs = MemoryFs::new();
        let store = fs.store();
        let disk = Self { fs, store };
        for (name, bytes) in files {
            disk.put(name, bytes.clone());
        }
        disk
    }

    /// Makes a file hold these bytes.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.fs.set(name, bytes).unwrap();
    }

    pub fn remove(&self, name: &str) {
        assert!(self.store.remove(name).unwrap(), "{name}");
    }

    /// Puts something that is no regular file in the place of a file.
    pub fn put_other(&self, name: &str) {
        self.remove(name);
        self.fs.set_other(name).unwrap();
    }

    /// What a validator finds.
    pub fn verify(&self) -> Vec<Error> {
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let report = verify(&self.store, &options).unwrap();
        assert_eq!(report.ok, report.findings.is_empty());
        report.findings
    }

    pub fn open(&self) -> Result<Checkpoint> {
        Checkpoint::open_store(Arc::clone(&self.store), OpenOptions::new().threads(1))
    }

    /// Reads everything there is.
    ///
    /// # Errors
    /// What was returned without an error though it is not what was written.
    pub fn read(&self, golden: &Golden, how: How) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let checkpoint = match self.open() {
            Ok(checkpoint) => checkpoint,
            Err(e) => {
                outcome.failed.insert(MANIFEST.to_owned(), e.code());
                outcome.opened = Some(e);
                return Ok(outcome);
            }
        };
        let mut fail = |label: &str, e: Error| {
            outcome.failed.insert(label.to_owned(), e.code());
        };
        match entries(&checkpoint, golden) {
            Ok(true) => {}
            Ok(false) => return Err("another list of entries".to_owned()),
            Err(e) => fail(ENTRIES, e),
        }
        match checkpoint.records().collect::<Result<Vec<_>>>() {
            Ok(records) if records == golden.small.records => {}
            Ok(_) => return Err("other records".to_owned()),
            Err(e) => fail(RECORDS, e),
        }
        for attachment in checkpoint.attachments() {
            let mut bytes = Vec::new();
            match checkpoint.read_attachment(attachment.path, &mut bytes) {
                Ok(()) if bytes == golden.small.files[&attachment.file] => {}
                Ok(()) => return Err(format!("other bytes of {}", attachment.file)),
                Err(e) => fail(&attachment.file, e),
            }
        }
        for read in &golden.reads {
            match read.run(&checkpoint, how) {
                Ok(true) => {}
                Ok(false) => return Err(format!("other bytes of {}", read.label)),
                Err(e) => fail(&read.label, e),
            }
        }
        Ok(outcome)
    }
}

impl Read {
    /// Whether it gives what it must. What a stream gives before an error must be right as well.
    fn run(&self, checkpoint: &Checkpoint, how: How) -> Result<bool> {
        let tensor = checkpoint.tensor(&self.identity)?;
        let mut got = Vec::new();
        let done = match (&self.region, how) {
            (Some(region), _) => tensor.read_region(region).map(|bytes| got = bytes),
            (None, How::Whole) => tensor.read().map(|bytes| got = bytes),
            (None, How::Streamed) => tensor.stream(1000, &mut |piece| {
                got.extend_from_slice(piece);
                Ok(())
            }),
        };
        match done {
            Ok(()) => Ok(got == self.expected),
            Err(_) if !self.expected.starts_with(&got) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Whether the entries are those that were written: identities, types and shapes.
fn entries(checkpoint: &Checkpoint, golden: &Golden) -> Result<bool> {
    let mut left: BTreeMap<String, &small::Held> =
        golden.small.tensors.iter().map(|held| (held.decl.identity.key(), held)).collect();
    let mut aliases = 0;
    for entry in checkpoint.entries() {
        let same = match &*entry? {
            Entry::Alias(alias) => {
                aliases += 1;
                *alias == golden.small.alias
            }
            Entry::Tensor(tensor) => {
                let held = left.remove(&tensor.identity.key());
                held.is_some_and(|held| waystation_writer::TensorDecl::from(tensor) == held.decl)
            }
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(left.is_empty() && aliases == 1)
}

/// Every tensor whole, one by its alias, and some regions.
pub fn reads(small: &Small, places: &Places) -> Vec<Read> {
    let mut reads = Vec::new();
    for held in &small.tensors {
        let key = held.decl.identity.key();
        reads.push(Read {
            identity: held.decl.identity.clone(),
            region: None,
            expected: held.bytes.clone(),
            units: places.units(&key, None),
            label: key,
        });
    }
    let alias = Identity::param(&*small.alias.name);
    let target = reads.iter().find(|read| read.identity == small.alias.of).unwrap();
    let (expected, units) = (target.expected.clone(), target.units.clone());
    reads.push(Read { label: "alias".to_owned(), identity: alias, region: None, expected, units });
    for (at, region) in small::regions() {
        let held = &small.tensors[at];
        let key = held.decl.identity.key();
        reads.push(Read {
            label: format!("{region} of {key}"),
            identity: held.decl.identity.clone(),
            expected: small::cut(&held.decl, &held.bytes, &region),
            units: places.units(&key, Some(&region)),
            region: Some(region),
        });
    }
    reads
}
