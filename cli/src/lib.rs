//! The `waystation` program as a library: [`main`] is the whole of it, and [`operations`] are its
//! commands as functions that give data instead of printing.
//!
//! The Python package stands on both, so that what a command and a call do is written once. All
//! knowledge of checkpoints is that of the crates beneath.

mod args;
mod commands;
mod elements;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod npy;
pub mod operations;
mod output;
mod place_arg;
pub mod plain_json;
mod progress;
mod region_arg;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;

/// How a process of this program is started; `tour` and `bench` start more of it.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The file to run.
    pub path: PathBuf,
    /// What comes before the program's own arguments.
    pub arguments: Vec<String>,
}

/// Runs the program with `arguments`, without its own name, and gives the exit status.
///
/// It is the whole program of its process: it prints to the process's standard output and error, and
/// from then on Ctrl-C, SIGTERM and SIGHUP stop the work, the second one the process. `launcher` says
/// how to start it again where the process's file alone would not do that.
pub fn main(arguments: impl IntoIterator<Item = OsString>, launcher: Option<Launcher>) -> u8 {
    let named = std::iter::once(OsString::from("waystation")).chain(arguments);
    let named: Vec<OsString> = named.collect();
    let cli = match args::Cli::try_parse_from(&named) {
        Ok(cli) => cli,
        Err(answer) => {
            // It quotes arguments, and those may be names of files that somebody else gave them
            // (`verify *`): asked again with what may stand on a terminal.
            let printable = named.iter().map(|one| output::printable(&one.to_string_lossy()));
            let shown = args::Cli::try_parse_from(printable).err();
            // Help and version are answers of this kind, too; where they go is clap's to know.
            let _ = shown.as_ref().unwrap_or(&answer).print();
            return u8::try_from(answer.exit_code()).unwrap_or(2);
        }
    };
    progress::watch_signals();
    let context = commands::Context::new(&cli, launcher);
    let outcome = commands::run(cli.command, &context);
    context.bars.clear();
    let status = outcome.unwrap_or_else(|error| {
        // In JSON mode the object is the answer; a person reads standard error either way.
        if context.json {
            let object = serde_json::json!({ "error": output::error_json(&error) });
            let _ = output::object(&object);
        }
        output::note(&format!("waystation: {error}"));
        output::exit_code(&error)
    });
    // A host process may end without running what empties our buffer.
    let _ = io::stdout().flush();
    status
}
