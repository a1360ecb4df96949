//! One file a command, and what they share: how a path becomes a store or a checkpoint.

mod bench;
mod cat;
mod commit;
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
mod target;
mod tour;
mod verify;

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use waystation_format::{Code, Error, Result, names};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::Store;

use crate::args::{Cli, Command};
use crate::progress::Bars;

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) bars: Bars,
    pub(crate) threads: usize,
}

impl Context {
    pub(crate) fn new(cli: &Cli) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cli.threads.map_or_else(cores, usize::from).max(1);
        Self { json: cli.json, bars: Bars::new(cli.quiet), threads }
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions::new().threads(self.threads)
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
        Command::Bench(args) => bench::run(&args, context),
    }
}

/// Opens a checkpoint. A path to a run gets the advice to resolve it first.
fn open_checkpoint(path: &Path, context: &Context) -> Result<Checkpoint> {
    let store = waystation_store::open_path(path)?;
    let opened = Checkpoint::open_store(Arc::clone(&store), context.open_options());
    opened.map_err(|error| {
        // What is in it is looked at only when it cannot be opened.
        match refuse_run(&store, path) {
            Err(advice) if error.code() == Code::NotCommitted => advice,
            _ => error.in_file(path.display().to_string()),
        }
    })
}

/// Refuses a run where a checkpoint or an attempt is meant.
fn refuse_run(store: &Arc<dyn Store>, path: &Path) -> Result<()> {
    let all = store.list()?;
    let ours = all.iter().any(|listed| is_ours(&listed.name));
    if !ours && all.iter().any(|l| names::parse_attempt_dir(&l.name).is_some()) {
        let advice = "this is a run, not a checkpoint: expected one of its step-… directories, as \
                      `waystation list` and `waystation latest` print";
        return Err(Error::new(Code::BadArgument, advice).in_file(path.display().to_string()));
    }
    Ok(())
}

/// Whether a name stands in checkpoints and attempts only, never in a run.
fn is_ours(name: &str) -> bool {
    name == names::COMMIT || name == names::MANIFEST || names::parse_part(name).is_some()
}

/// Opens a run. A checkpoint in its place would look like a run without attempts.
fn open_run(path: &Path) -> Result<Arc<dyn Store>> {
    let run = waystation_store::open_path(path)?;
    if run.list()?.iter().any(|listed| is_ours(&listed.name)) {
        let advice = "this is a checkpoint, not a run: expected the directory that holds it";
        return Err(Error::new(Code::BadArgument, advice).in_file(path.display().to_string()));
    }
    Ok(run)
}

/// The attempt at `path` and the run around it, when its name says that there is one.
fn open_attempt(path: &Path) -> Result<Attempt> {
    let store = waystation_store::open_path(path)?;
    refuse_run(&store, path)?;
    let real = std::fs::canonicalize(path).map_err(|e| Error::io("resolve", e))?;
    let name = real.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    // A checkpoint that stands alone may have any name.
    if names::parse_attempt_dir(name).is_none() {
        return Ok(Attempt { store, run: None, name: None });
    }
    let (run, name) = waystation_store::parent_and_name(&real)?;
    Ok(Attempt { store, run: Some(run), name: Some(name) })
}

/// A directory that is, or may become, a checkpoint.
struct Attempt {
    store: Arc<dyn Store>,
    run: Option<Arc<dyn Store>>,
    name: Option<String>,
}
