//! `gc`: deleting what a policy does not keep.

use std::time::Duration;

use waystation_format::{Code, Error, Result};
use waystation_writer::{Fate, GcItem, GcPolicy};

use super::Context;
use crate::args::Gc;
use crate::operations::{self, open_run, why};
use crate::output;

pub(super) fn run(args: &Gc, context: &Context) -> Result<u8> {
    let run = open_run(&args.run)?;
    let keep_last = usize::try_from(args.keep_last)
        .map_err(|_| Error::new(Code::BadArgument, "--keep-last is too large"))?;
    let mut policy = GcPolicy::keep_last(keep_last);
    policy.keep_every = args.keep_every;
    policy.dry_run = args.dry_run;
    policy.uncommitted_older_than = args.uncommitted_older_than.map(Duration::from_secs);
    let report = waystation_writer::gc(&run, &policy)?;
    let exit = report.items.iter().filter_map(failure).map(output::exit_code).max().unwrap_or(0);
    if context.json {
        output::object(&operations::gc_json(&report, args.dry_run))?;
        return Ok(exit);
    }
    if report.items.is_empty() {
        output::line("no attempts")?;
    }
    for item in &report.items {
        let fate = match &item.fate {
            Fate::Kept => "keep".to_owned(),
            Fate::Removed if args.dry_run => "would remove".to_owned(),
            Fate::Removed => "removed".to_owned(),
            Fate::Left { subdirectory } => {
                format!(
                    "emptied, but left: it holds the directory {subdirectory:?}, which is not ours; it"
                )
            }
            Fate::Failed(e) => format!("FAILED: {e}; it"),
            _ => "unknown".to_owned(),
        };
        output::line(&format!("{}  {fate} {}", item.name, why(item.why)))?;
    }
    Ok(exit)
}

fn failure(item: &GcItem) -> Option<&Error> {
    if let Fate::Failed(error) = &item.fate { Some(error) } else { None }
}
