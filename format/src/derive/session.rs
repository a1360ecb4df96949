//! What all parts of an attempt have in common.
//!
//! It knows the members that must agree and who must be there. It must not look at entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::Common;
use crate::features::Features;
use crate::part::{Extension, Part};
use crate::{Code, Error, Result, rule};

/// How many missing writers a message names.
const NAMED: usize = 16;

/// The parts in order of their writers: one of each, all of one session.
pub(super) fn in_order(parts: &[Part]) -> Result<Vec<&Part>> {
    let mut parts: Vec<&Part> = parts.iter().collect();
    // The digest makes errors, too, independent of the order in which parts are found.
    parts.sort_by_cached_key(|part| (part.writer, part.digest()));
    let Some((reference, others)) = parts.split_first() else {
        let message = "expected a part of each writer, found no part at all";
        return Err(Error::rule(Code::WriterMissing, rule::PART_ALL_WRITERS, message));
    };
    others.iter().try_for_each(|part| check_agree(reference, part))?;
    check_inventories(&parts)?;
    check_writers(&parts, reference.common.writers)?;
    Ok(parts)
}

fn check_agree(reference: &Part, part: &Part) -> Result<()> {
    let (a, b) = (&reference.common, &part.common);
    let member = if a.attempt != b.attempt {
        "attempt"
    } else if a.block_bytes != b.block_bytes {
        "block_bytes"
    } else if a.parent != b.parent {
        "parent"
    } else if a.run != b.run {
        "run"
    } else if a.step != b.step {
        "step"
    } else if a.topology != b.topology {
        "topology"
    } else if a.version != b.version {
        "version"
    } else if a.writers != b.writers {
        "writers"
    } else {
        return Ok(());
    };
    Err(disagree(member, reference, part, rule::PART_SESSION))
}

fn check_inventories(parts: &[&Part]) -> Result<()> {
    let mut stated = parts.iter().filter(|part| part.inventory.is_some());
    let Some(first) = stated.next() else { return Ok(()) };
    match stated.find(|part| part.inventory != first.inventory) {
        Some(other) => Err(disagree("inventory", first, other, rule::PART_SESSION)),
        None => Ok(()),
    }
}

fn check_writers(parts: &[&Part], writers: u32) -> Result<()> {
    for (part, next) in parts.iter().zip(parts.iter().skip(1)) {
        if part.writer == next.writer {
            let message = format!(
                "expected one part of writer {}, found {} too",
                part.writer,
                part.file_name()
            );
            let error = Error::rule(Code::DuplicateWriter, rule::PART_ONE_PER_WRITER, message);
            return Err(error.in_file(next.file_name()));
        }
    }
    if u32::try_from(parts.len()).is_ok_and(|found| found == writers) {
        return Ok(()); // different, each below the number of writers: all of them
    }
    let present: BTreeSet<u32> = parts.iter().map(|part| part.writer).collect();
    let mut missing = (0..writers).filter(|writer| !present.contains(writer));
    let named: Vec<String> = missing.by_ref().take(NAMED).map(|w| w.to_string()).collect();
    let more = if missing.next().is_some() { ", …" } else { "" };
    let message =
        format!("expected parts of {writers} writers, missing {}{more}", named.join(", "));
    Err(Error::rule(Code::WriterMissing, rule::PART_ALL_WRITERS, message))
}

/// The common members of the manifest.
pub(super) fn merged(parts: &[&Part]) -> Result<Common> {
    let Some(first) = parts.first() else {
        return Err(Error::rule(Code::WriterMissing, rule::PART_ALL_WRITERS, "expected a part"));
    };
    let features = merged_features(parts.iter().map(|part| &part.common.features));
    Ok(Common { features, ..first.common.clone() })
}

/// What some part requires is required; what is optional in all that have it stays optional.
fn merged_features<'f>(all: impl Iterator<Item = &'f Features> + Clone) -> Features {
    let required: BTreeSet<&String> = all.clone().flat_map(|features| &features.required).collect();
    let optional: BTreeSet<&String> = all.flat_map(|features| &features.optional).collect();
    Features {
        optional: optional.difference(&required).map(|name| (*name).clone()).collect(),
        required: required.into_iter().cloned().collect(),
    }
}

/// Checks that the data of each feature agrees as far as it must.
pub(super) fn check_extensions(parts: &[&Part]) -> Result<()> {
    let mut seen: BTreeMap<&str, (&Part, &Extension)> = BTreeMap::new();
    for part in parts {
        for extension in &part.extensions {
            let (first, expected) = *seen.entry(&extension.feature).or_insert((part, extension));
            let agree = extension.keep == expected.keep
                && (!extension.keep || extension.value == expected.value);
            if !agree {
                let member =
                    format!("extensions/{}", crate::json::pointer_step(&extension.feature));
                return Err(disagree(&member, first, part, rule::DERIVE_KEEP));
            }
        }
    }
    Ok(())
}

fn disagree(member: &str, first: &Part, other: &Part, rule: &'static str) -> Error {
    let message = format!("expected the value that {} has, found another", first.file_name());
    Error::rule(Code::PartDisagree, rule, message)
        .in_file(other.file_name())
        .at_pointer(format!("/{member}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_one_part_requires_is_no_longer_optional() {
        let features = |optional: &[&str], required: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Features { optional: owned(optional), required: owned(required) }
        };
        let all =
            [features(&["a", "c"], &[]), features(&[], &["c", "d"]), features(&["a"], &["b"])];
        assert_eq!(merged_features(all.iter()), features(&["a"], &["b", "c", "d"]));
    }
}
