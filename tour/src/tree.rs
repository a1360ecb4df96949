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

/// A few words, so that the line fits a terminal of 80 columns.
fn gloss(name: &str) -> &'static str {
    match names::parse_shard(name).map(|shard| shard.class) {
        Some(ShardClass::Model) => "parameters",
        Some(_) => "optimizer",
        None if names::parse_part(name).is_some() => "what a rank stored",
        None => "",
    }
}
