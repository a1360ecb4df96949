//! Every regression, every golden and every conformance case once more, through the targets, on stable.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use waystation_fuzz::replay::inputs;
use waystation_fuzz::seeds::Suite;
use waystation_fuzz::{TARGETS, Target, target};

/// Runs inputs by name, all of them, and gives those that fail.
fn failing(
    target: &Target,
    inputs: impl Iterator<Item = (String, Vec<u8>)>,
) -> (usize, Vec<String>) {
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, bytes) in inputs {
        count += 1;
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
            failed.push(format!("{}/{name}", target.name));
        }
    }
    (count, failed)
}

#[test]
fn regressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut failed = Vec::new();
    for target in TARGETS {
        let files = inputs(&folder.join(target.name));
        assert!(files.iter().all(|file| file.is_file()), "no regressions of {}", target.name);
        assert!(!files.is_empty(), "no regressions of {}", target.name);
        let named = files.iter().map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
        });
        let begin = Instant::now();
        let (count, more) = failing(target, named);
        println!(
            "{:<14} {count:>3} regressions in {:.1} s",
            target.name,
            begin.elapsed().as_secs_f64()
        );
        failed.extend(more);
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_folder_of_regressions_is_a_targets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || target(&name).is_some(), "{name} is no target");
    }
}

/// Bases and cases through the targets that take files, and a share of them through those that read whole directories; and a share
/// of the noise of which others make recipes and stories.
#[test]
fn goldens_and_cases() {
    let suite = Suite::build();
    let mut failed = Vec::new();
    for (name, step) in [
        ("manifest", 1),
        ("part", 1),
        ("page", 1),
        ("shard_header", 1),
        ("state", 1),
        ("open", 4),
        ("sources", 16),
        ("roundtrip", 8),
        ("mutate", 8),
        ("reshard", 8),
        ("commit", 8),
    ] {
        let target = target(name).unwrap();
        let seeds = suite.seeds(name);
        assert!(seeds.len() > 100, "{name}: {} seeds", seeds.len());
        let begin = Instant::now();
        let (count, more) = failing(target, seeds.into_iter().step_by(step));
        println!("{name:<14} {count:>5} seeds in {:.1} s", begin.elapsed().as_secs_f64());
        failed.extend(more);
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
