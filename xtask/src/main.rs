//! The project's own tasks, run as `cargo xtask <task>`.
//!
//! It reads the spec and its registry, and runs tools; it must not depend on any other crate of
//! the workspace, so that it runs when they do not compile.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod asan;
mod deny;
mod dictionary;
mod example;
mod fuzz;
mod generate;
mod markdown;
mod miri;
mod msrv;
mod nightly;
mod pointers;
mod python;
mod python_package;
mod real_model;
mod registry;
mod rust;
mod schema;
mod spec;
mod stages;
mod suite;
mod tree;
mod unsafe_code;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Failures are sentences for the person at the terminal.
type Result<T, E = String> = std::result::Result<T, E>;

const USAGE: &str = "usage: cargo xtask <task>

  gen           write what follows from spec/registry and the chapters
  gen --check   compare instead of writing; fail when a file drifted
  conformance   put the suite to every reader of the project, to broken ones, and to readers that lack one rule each
  conformance --write
                the same, and write conformance/coverage.md and the table in README.md
  fuzz <verb>   fuzz the crates, pack seeds, measure coverage; `cargo xtask fuzz help` says how
  tree          check lengths of source files, that no file names a machine, and what tables say of tests
                and unsafe code
  test [STAGE]… all that must hold before a change lands: fmt, tree, gen, deny, clippy, doc, test, python,
                sweep, model, proof, package
  deny          licences, sources, bans and advisories of dependencies (needs cargo-deny)
  miri          tests on an interpreter that sees undefined behaviour (needs nightly with miri)
  asan          tests that map files, under AddressSanitizer (needs nightly)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let done = match words.as_slice() {
        ["gen"] => generate(&root, false),
        ["gen", "--check"] => generate(&root, true),
        ["conformance"] => suite::prove(&root, true),
        ["conformance", "--write"] => suite::prove(&root, false),
        ["fuzz", verb @ ..] => fuzz::run(&root, verb),
        ["tree"] => tree::run(&root),
        ["deny"] => deny::alone(&root),
        ["miri"] => miri::run(&root),
        ["asan"] => asan::run(&root),
        ["test", stages @ ..] => stages::run(&root, stages),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that is generated: what needs no crate first, so that it is there for the crates.
fn generate(root: &Path, check: bool) -> Result<()> {
    generate::run(root, check)?;
    example::run(root, check)?;
    suite::run(root, check)
}

/// The repository's root: the folder above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
