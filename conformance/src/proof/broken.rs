//! Readers and writers that are wrong on purpose, and the cases that must find them out.

use std::path::Path;
use std::time::Duration;

use waystation_format::{Code, Error, Result};

use super::{lines, python};
use crate::case::Case;
use crate::runner::{self, Options, Selection, Unwatched, Verdict};

/// A reader's name, patterns of each of which it must fail some case, and cases that it must pass: what is wrong with it is
/// that and nothing else.
type Wrong = (&'static str, &'static [&'static str], &'static [&'static str]);

const WRONG: &[Wrong] = &[
    (
        "ignores-checksums",
        &["core/manifest-bit-flipped", "core/attachment-bit-flipped"],
        &["core/small", "core/json-duplicate-member", "core/cover-gap-first"],
    ),
    (
        "takes-last-duplicate",
        &["core/json-duplicate-member"],
        &["core/small", "core/cover-gap-first"],
    ),
    (
        "fills-gaps",
        &["core/cover-gap-*", "core/missing-shard"],
        &["core/small", "core/chunk-outside"],
    ),
    (
        "follows-links",
        &["core/commit-symlink", "core/manifest-symlink*"],
        &["core/small", "core/missing-part"],
    ),
    ("follows-dots", &["core/path-parent-there"], &["core/small", "core/cover-gap-first"]),
    ("trusts-lengths", &["core/page-stated-limit"], &["core/small"]),
    ("takes-uncommitted", &["core/commit-absent"], &["core/small"]),
    ("ignores-features", &["core/feature-required-unknown"], &["core/small", "core/feature-twice"]),
    ("ignores-markers", &["core/marker-deleted"], &["core/small"]),
    ("swaps-tensors", &["core/small"], &["core/bare"]),
    ("never-commits", &["writer/small", "writer/bare"], &["core/small"]),
    ("forgets-parent", &["writer/topology-and-parent"], &["writer/small"]),
    ("forgets-topology", &["writer/topology-and-parent", "writer/two"], &[]),
    ("changes-block", &["writer/small", "writer/blocks"], &["core/small"]),
    ("writes-stale-bytes", &["writer/small", "writer/two"], &["core/small"]),
    ("loses-records", &["writer/small", "writer/values"], &["writer/bare"]),
    ("crashes", &["core/commit-absent"], &[]),
    ("hangs", &["core/commit-fifo"], &[]),
    ("says-ok", &["core/small", "core/commit-absent", "extended/json-duplicate-in-part"], &[]),
    ("refuses-everything", &["core/small", "core/bare"], &["core/commit-absent"]),
];

/// What became of one of them.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The reader.
    pub name: &'static str,
    /// What real readers it stands for.
    pub about: String,
    /// Cases that it failed or crashed in.
    pub by: Vec<String>,
    /// Cases that should have found it out and did not, or that it should have passed.
    pub wrong: Vec<String>,
}

/// Puts the cases to each broken reader of `adapter.py`.
///
/// # Errors
///
/// A reader that is listed on one side only, or cannot be started; a pattern that chooses no case.
pub fn broken(cases: &[Case], script: &Path) -> Result<Vec<Caught>> {
    let listed = lines(&python(script, &["--list"]))?;
    let mut all = Vec::new();
    for line in &listed {
        let (name, about) = line.split_once('\t').unwrap_or((line, ""));
        let known = WRONG.iter().find(|(known, _, _)| *known == name);
        let (name, fails, passes) = known.ok_or_else(|| unknown(name, "cases that find it out"))?;
        let mut caught =
            Caught { name, about: about.to_owned(), by: Vec::new(), wrong: Vec::new() };
        for (patterns, must_fail) in [(fails, true), (passes, false)] {
            for pattern in *patterns {
                one(cases, script, pattern, must_fail, &mut caught)?;
            }
        }
        all.push(caught);
    }
    match WRONG.iter().find(|(name, _, _)| all.iter().all(|caught| caught.name != *name)) {
        Some((name, _, _)) => Err(unknown(name, "a reader of that name")),
        None => Ok(all),
    }
}

fn one(
    cases: &[Case],
    script: &Path,
    pattern: &str,
    must_fail: bool,
    caught: &mut Caught,
) -> Result<()> {
    let mut options = Options::new(python(script, &[caught.name]));
    options.level = 1;
    options.selection = Selection { profiles: Vec::new(), cases: vec![pattern.to_owned()] };
    options.limits.time = options.limits.time.min(Duration::from_secs(3));
    let report = runner::run(cases, &options, None, &Unwatched)?;
    let (failed, passed): (Vec<_>, Vec<_>) = report
        .results
        .into_iter()
        .partition(|result| matches!(result.verdict, Verdict::Fail | Verdict::Crash));
    if must_fail {
        if failed.is_empty() {
            caught.wrong.push(format!("fails none of {pattern}"));
        }
        caught.by.extend(failed.into_iter().map(|result| result.id));
    } else {
        caught.wrong.extend(failed.iter().map(|result| format!("{}: {}", result.id, result.got)));
        let passes = passed.iter().any(|result| result.verdict == Verdict::Pass);
        if failed.is_empty() && !passes {
            caught.wrong.push(format!("passes none of {pattern}"));
        }
    }
    Ok(())
}

fn unknown(name: &str, what: &str) -> Error {
    Error::new(Code::NotFound, format!("expected {what}, found none for {name}"))
}
