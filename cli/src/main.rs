//! The `waystation` program: a thin face on the crates. Each command stands in a file of its own.

mod args;
mod commands;
mod elements;
mod foreign;
mod npy;
mod output;
mod place_arg;
mod progress;
mod region_arg;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    progress::watch_signals();
    let context = commands::Context::new(&cli);
    let outcome = commands::run(cli.command, &context);
    context.bars.clear();
    ExitCode::from(outcome.unwrap_or_else(|error| {
        // In JSON mode the object is the answer; a person reads standard error either way.
        if context.json {
            let object = serde_json::json!({ "error": output::error_json(&error) });
            let _ = output::object(&object);
        }
        output::note(&format!("waystation: {error}"));
        output::exit_code(&error)
    }))
}
