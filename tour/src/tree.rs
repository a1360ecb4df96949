//! A directory as people see it: names, lengths, and what each file is.
//!
//! It knows the names that the format gives to files.

use waystation_format::{Result, ShardClass, names};
use waystation_store::{Kind, Store};

/// Files of an attempt, by name, and their lengths in bytes.
///
/// # Errors
/// Those of the system.
pub(crate) fn files(attempt: &dyn Store) -> Result<Vec<(String, u64)>> {
    let mut files: Vec<(String, u64)> = attempt
        .list()?
        .into_iter()
        .filter(|listed| listed.stat.kind == Kind::Regular)
        .map(|listed| (listed.name, listed.stat.bytes))
        .collect();
    files.sort();
    Ok(files)
}

/// One line a file.
pub(crate) fn lines(files: &[(String, u64)]) -> Vec<String> {
    let longest = files.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    files
        .iter()
        .enumerate()
        .map(|(at, (name, bytes))| {
            let last = at.saturating_add(1) == files.len();
            let branch = if last { "└─" } else { "├─" };
            format!("{branch} {name:<longest$} {bytes:>7}  {}", gloss(name))
        })
        .collect()
}

fn gloss(name: &str) -> String {
    if let Some(shard) = names::parse_shard(name) {
        let what = match shard.class {
            ShardClass::Model => "parameters",
            _ => "optimizer memory",
        };
        return format!("rank {}: {what}", shard.writer);
    }
    if let Some((writer, _)) = names::parse_part(name) {
        return format!("rank {writer}: \"this is what I wrote\"");
    }
    match name {
        names::COMMIT => "the commit: now it is a checkpoint".to_owned(),
        names::MANIFEST => "the root: what belongs to it".to_owned(),
        _ if names::parse_tensors_page(name).is_some() => "where each tensor lies".to_owned(),
        _ if names::parse_records_page(name).is_some() => {
            "step, schedule, dropout, place in the data".to_owned()
        }
        _ => String::new(),
    }
}
