//! One file a command: arguments to an operation, and its answer to a terminal.

mod bench;
mod cat;
mod commit;
mod conformance;
mod copy;
mod diff;
mod export;
mod gc;
mod import;
mod inspect;
mod marks;
mod order;
mod reshard;
mod rng;
mod run_list;
mod tour;
mod verify;

use std::path::Path;

use waystation_format::{Error, Result};
use waystation_reader::{Checkpoint, OpenOptions};

use crate::Launcher;
use crate::args::{Cli, Command};
use crate::operations::{self, Work, cores};
use crate::progress::Bars;

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) bars: Bars,
    pub(crate) threads: usize,
    launcher: Option<Launcher>,
}

impl Context {
    pub(crate) fn new(cli: &Cli, launcher: Option<Launcher>) -> Self {
        let threads = cli.threads.map_or_else(cores, usize::from).max(1);
        Self { json: cli.json, bars: Bars::new(cli.quiet), threads, launcher }
    }

    /// For an operation: what this command was told, and the terminal.
    fn work(&self) -> Work<'_> {
        Work { threads: self.threads, watcher: &self.bars }
    }

    fn open_options(&self) -> OpenOptions {
        self.work().open_options()
    }

    /// How to start this program again.
    fn launcher(&self) -> Result<Launcher> {
        let this = || {
            let path = std::env::current_exe().map_err(|e| Error::io("find this program", e))?;
            Ok(Launcher { path, arguments: Vec::new() })
        };
        self.launcher.clone().map_or_else(this, Ok)
    }
}

/// Runs a command; the number is the exit status.
pub(crate) fn run(command: Command, context: &Context) -> Result<u8> {
    match command {
        Command::Import(args) => import::run(&args, context),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Cat(args) => cat::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Reshard(args) => reshard::run(&args, context),
        Command::Copy(args) => copy::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::List(args) => run_list::list(&args, context),
        Command::Latest(args) => run_list::latest(&args, context),
        Command::Gc(args) => gc::run(&args, context),
        Command::Commit(args) => commit::commit(&args, context),
        Command::Salvage(args) => commit::salvage(&args, context),
        Command::Reject(args) => marks::reject(&args, context),
        Command::Pin(args) => marks::pin(&args, context),
        Command::Unpin(args) => marks::unpin(&args, context),
        Command::Tour(args) => tour::run(&args, context),
        Command::Rng(args) => rng::run(&args, context),
        Command::Order(args) => order::run(&args, context),
        Command::Conformance(args) => conformance::run(&args, context),
        Command::Bench(args) => bench::run(&args, context),
    }
}

/// Opens a checkpoint. A path to a run gets the advice to resolve it first.
fn open_checkpoint(path: &Path, context: &Context) -> Result<Checkpoint> {
    operations::open_checkpoint(path, context.open_options())
}
