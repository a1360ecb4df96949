//! `cargo xtask miri`: tests on Miri, which sees undefined behaviour, leaks and races that a processor
//! hides. Knows what runs there and what cannot, and says both.

use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::nightly::cargo;

/// Tests of one target, and those that are left out by their names.
struct Run {
    package: &'static str,
    target: &'static [&'static str],
    /// Names, and why these are left out.
    without: &'static [(&'static str, &'static str)],
}

const LONG: &str = "minutes on an interpreter, of code that other tests here run with less";

/// What runs, cheap ones first.
const RUNS: [Run; 4] = [
    Run { package: "waystation-python", target: &["--test", "dlpack_layout"], without: &[] },
    Run {
        package: "waystation-format",
        target: &["--lib"],
        without: &[
            ("nine_split_axes_are_too_many", LONG),
            ("joining_long_zeros_agrees_with_hashing_them", LONG),
            ("a_page_may_be_as_long_as_the_target_and_no_longer", LONG),
            ("an_entry_too_long_for_any_page_is_refused", LONG),
            ("long_runs_of_small_elements_shift", LONG),
        ],
    },
    Run {
        package: "waystation-state",
        target: &["--lib"],
        without: &[
            ("one_bit_short", LONG),
            ("any_place_in_any_order_of_asking", LONG),
            ("few_of_many_hold_little", LONG),
            ("a_state_is_what_was_read", LONG),
            ("what_frameworks_compute_in_another_order_agrees_to_the_last_step", LONG),
        ],
    },
    Run {
        package: "waystation-reader",
        target: &["--lib"],
        without: &[
            (
                "every_job_is_done_where_no_thread_can_be_had",
                "it starts a process, which is not emulated",
            ),
            ("writers_get_nearly_equal_bytes", LONG),
        ],
    },
];

/// What never runs, so that nobody takes it for seen.
const NEVER: [(&str, &str); 4] = [
    ("reader/tests", "a checkpoint, with its digests, takes minutes to make on an interpreter"),
    (
        "store/src/posix.rs, reader/src/map.rs",
        "files are not mapped on an interpreter, and few calls of the system are there; `cargo xtask asan` runs them",
    ),
    (
        "python/src/dlpack.rs",
        "it calls Python's interpreter; what needs none is in dlpack/layout.rs and runs",
    ),
    (
        "writer, tour, conformance, cli, example",
        "no unsafe code of their own, and their tests write files",
    ),
];

/// Runs all of it on the nightly toolchain.
///
/// # Errors
/// What Miri found, or that it is not installed.
pub(crate) fn run(root: &Path) -> Result<()> {
    let there = cargo(root).args(["miri", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return Err(
            "Miri is not installed: rustup component add --toolchain nightly miri rust-src"
                .to_owned(),
        );
    }
    let mut summary = Vec::new();
    for run in &RUNS {
        let what = format!("{} {}", run.package, run.target.join(" "));
        println!("\n=== miri: {what} ===");
        for (name, why) in run.without {
            println!("LEFT OUT {name}: {why}");
        }
        let start = Instant::now();
        let mut command = cargo(root);
        command.args(["miri", "test", "--locked", "-p", run.package]).args(run.target).arg("--");
        command.args(run.without.iter().flat_map(|(name, _)| ["--skip", name]));
        // Property tests look where they are; what they try is cut down to what an interpreter can.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-strict-provenance");
        command.env("PROPTEST_CASES", "2");
        let status = command.status().map_err(|e| format!("cargo miri: {e}"))?;
        if !status.success() {
            return Err(format!("miri: {what}: {status}"));
        }
        let left = run.without.len();
        summary.push(format!("{what}: {:.0} s, {left} left out", start.elapsed().as_secs_f64()));
    }
    println!("\n=== miri ===\n{}", summary.join("\n"));
    for (what, why) in NEVER {
        println!("NOT RUN {what}: {why}");
    }
    Ok(())
}
