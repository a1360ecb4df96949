//! `gc`: deleting what a policy does not keep.

use std::time::Duration;

use serde_json::{Value, json};
use waystation_format::{Code, Error, Result};
use waystation_writer::{Fate, GcItem, GcPolicy, Why};

use super::{Context, open_run};
use crate::args::Gc;
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
        let items: Vec<Value> = report.items.iter().map(as_json).collect();
        output::object(&json!({ "dry_run": args.dry_run, "items": items }))?;
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

fn why(why: Why) -> &'static str {
    match why {
        Why::Latest => "is the latest",
        Why::Last => "is among the last",
        Why::Every => "is a step to keep",
        Why::NothingBetter => "is rejected, and there is nothing better",
        Why::Pinned => "is pinned",
        Why::Writing => "may still be written",
        Why::Elsewhere => "is being removed by another keeper, or was until a minute ago",
        Why::Committed => "was committed a moment ago",
        Why::Damaged => "is damaged; look at it with verify",
        Why::Older => "is older than those kept",
        Why::Rejected => "is rejected",
        Why::Succeeded => "is uncommitted, of an earlier timeline",
        Why::Stale => "is uncommitted and untouched for long",
        Why::Begun => "was being removed",
        _ => "",
    }
}

fn as_json(item: &GcItem) -> Value {
    let (fate, error) = match &item.fate {
        Fate::Kept => ("kept", None),
        Fate::Removed => ("removed", None),
        Fate::Left { .. } => ("left", None),
        Fate::Failed(e) => ("failed", Some(output::error_json(e))),
        _ => ("unknown", None),
    };
    json!({ "name": item.name, "fate": fate, "why": why(item.why), "error": error })
}
