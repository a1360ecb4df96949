//! The parts of an attempt: finding, reading and checking them, without any tensor data.
//!
//! It knows which files must be there before an attempt can be committed. It must not know the
//! root that is derived from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use waystation_format::part::Part;
use waystation_format::shard::{self, Layout};
use waystation_format::{Code, Digest, Error, Result, arith, limits, names, rule};
use waystation_reader::Progress;
use waystation_store::{Kind, Listed, Stat, Store};

use crate::commit::go_on;
use crate::marks;
use crate::put;
use crate::workers;

/// Writers named in a message; the rest is counted.
const NAMED: usize = 16;

/// One look at an attempt's directory.
pub(crate) struct Look {
    pub(crate) files: BTreeMap<String, Stat>,
    /// Names of parts by writer.
    pub(crate) parts: BTreeMap<u32, String>,
}

impl Look {
    /// # Errors
    ///
    /// `deleted`; `duplicate-writer` for two parts of one writer; the store's.
    pub(crate) fn at(attempt: &Arc<dyn Store>) -> Result<Self> {
        let files = attempt.list()?.into_iter().map(|Listed { name, stat }| (name, stat));
        let files: BTreeMap<String, Stat> = files.collect();
        if files.contains_key(names::DELETED) {
            return Err(marks::deleted());
        }
        let mut parts = BTreeMap::new();
        for name in files.keys() {
            let Some((writer, _)) = names::parse_part(name) else { continue };
            if let Some(first) = parts.insert(writer, name.clone()) {
                let message = format!("expected one part of writer {writer}, found also {first}");
                return Err(Error::rule(Code::DuplicateWriter, rule::PART_ONE_PER_WRITER, message)
                    .in_file(name));
            }
        }
        Ok(Self { files, parts })
    }

    /// The number of writers, out of any part; `None` while there is none.
    ///
    /// # Errors
    ///
    /// As [`read_part`].
    pub(crate) fn writers(&self, attempt: &Arc<dyn Store>) -> Result<Option<u32>> {
        match self.parts.values().next() {
            None => Ok(None),
            Some(name) => Ok(Some(read_part(attempt, name)?.common.writers)),
        }
    }

    /// # Errors
    ///
    /// `writer-missing` when a part of one of `writers` is not there, with the numbers.
    pub(crate) fn check_all(&self, writers: Option<u32>) -> Result<()> {
        let missing =
            |message| Err(Error::rule(Code::WriterMissing, rule::PART_ALL_WRITERS, message));
        let Some(writers) = writers else {
            return missing("expected a part of each writer, found none".to_owned());
        };
        let absent = (0..writers).filter(|writer| !self.parts.contains_key(writer));
        let named: Vec<String> = absent.clone().take(NAMED).map(|w| w.to_string()).collect();
        if named.is_empty() {
            return Ok(());
        }
        let more = match absent.count().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let lacking = match named.as_slice() {
            [one] => format!("that of writer {one} is missing"),
            many => format!("those of writers {}{more} are missing", many.join(", ")),
        };
        missing(format!("expected a part of each of {writers} writers; {lacking}"))
    }
}

/// All parts of an attempt, read, and checked by every rule that needs no data.
///
/// # Errors
///
/// That of the first part in order of writer; `file-missing`, `not-regular` and `length-mismatch`
/// for the files that it names.
pub(crate) fn read_parts(
    attempt: &Arc<dyn Store>,
    look: &Look,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<Part>> {
    let names: Vec<&String> = look.parts.values().collect();
    let length = |name: &&String| look.files.get(*name).map_or(0, |stat| stat.bytes);
    let total = names.iter().map(length).fold(0, u64::saturating_add);
    progress.begin("read parts", total);
    workers::map(threads, &names, |_, name| {
        go_on(progress)?;
        let part = read_part(attempt, name)?;
        progress.advance(put::length(part.raw()));
        check_files(&part, look)?;
        layouts(&part)?;
        Ok(part)
    })
}

/// Reads one part and proves that it has its own name.
///
/// # Errors
///
/// What the part breaks; `bad-format` when its digest or writer is not in its name; the store's.
pub(crate) fn read_part(attempt: &Arc<dyn Store>, name: &str) -> Result<Part> {
    let raw = read_all(attempt, name, limits::PART_BYTES)?;
    let part = Part::parse(raw).map_err(|e| e.in_file(name))?;
    let own = part.file_name();
    if own != name {
        let message = format!("expected a part named by its writer and digest, {own}");
        return Err(Error::rule(Code::BadFormat, rule::PART_NAME, message).in_file(name));
    }
    Ok(part)
}

/// The layouts of a part's shards, checked against what the part says.
///
/// # Errors
///
/// `layout-mismatch` and what else the part's shards break.
pub(crate) fn layouts(part: &Part) -> Result<Vec<Layout>> {
    shard::layouts_of(part).map_err(|e| e.in_file(part.file_name()))
}

/// Reads a whole file of metadata, once its real length is known to be within the limit.
///
/// # Errors
///
/// `limit` when it is longer than `limit` bytes; the store's.
pub(crate) fn read_all(store: &Arc<dyn Store>, name: &str, limit: u64) -> Result<Vec<u8>> {
    let object = store.open(name)?;
    if object.bytes() > limit {
        let message = format!("expected up to {limit} bytes, found {}", object.bytes());
        return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message).in_file(name));
    }
    let mut raw = vec![0; arith::to_usize(object.bytes(), "length of metadata")?];
    object.read_at(&mut raw, 0)?;
    Ok(raw)
}

/// A file that a part names.
pub(crate) struct Owned {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Of an attachment.
    pub(crate) sha256: Option<Digest>,
}

/// The files that a part names: its attachments, then its shards, each in order.
pub(crate) fn files_of(part: &Part) -> Result<Vec<Owned>> {
    let mut files = Vec::new();
    for (position, entry) in (0..).zip(&part.attachments) {
        let name = names::attachment(part.writer, part.inc, position);
        files.push(Owned { name, bytes: entry.bytes, sha256: Some(entry.sha256) });
    }
    for (position, shard) in (0..).zip(&part.shards) {
        let name = names::shard(shard.class, part.writer, part.inc, position);
        files.push(Owned { name, bytes: shard.bytes, sha256: None });
    }
    Ok(files)
}

fn check_files(part: &Part, look: &Look) -> Result<()> {
    for file in files_of(part)? {
        check_file(&file, look.files.get(&file.name)).map_err(|e| e.in_file(&file.name))?;
    }
    Ok(())
}

fn check_file(file: &Owned, found: Option<&Stat>) -> Result<()> {
    let (code, rule, message) = match found {
        None => {
            let message = "expected a file that a part names, found none";
            (Code::FileMissing, rule::DIR_PRESENT, message.to_owned())
        }
        Some(stat) if stat.kind != Kind::Regular => {
            let message = "expected a regular file, found something else";
            (Code::NotRegular, rule::DIR_REGULAR, message.to_owned())
        }
        Some(stat) if stat.bytes != file.bytes => {
            let message = format!("expected {} bytes, found {}", file.bytes, stat.bytes);
            (Code::LengthMismatch, rule::DIR_LENGTH, message)
        }
        Some(_) => return Ok(()),
    };
    Err(Error::rule(code, rule, message))
}
