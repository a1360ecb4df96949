//! Answers the conformance runner with this project's own crates. There are no arguments.

#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use waystation_conformance::adapter;

fn main() -> ExitCode {
    match adapter::serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
