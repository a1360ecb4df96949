//! The `waystation` program: the library's [`main`](waystation_cli::main) in a process of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(waystation_cli::main(std::env::args_os().skip(1), None))
}
