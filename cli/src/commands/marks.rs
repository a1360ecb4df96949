//! `reject`, `pin` and `unpin`: markers.

use serde_json::json;
use waystation_format::Result;

use super::{Context, open_attempt, open_checkpoint};
use crate::args::{Pin, Reject, Unpin};
use crate::output;

pub(super) fn reject(args: &Reject, context: &Context) -> Result<u8> {
    let attempt = open_attempt(&args.checkpoint)?;
    waystation_writer::reject(&attempt.store, &args.reason)?;
    say(context, &args.checkpoint.display().to_string(), "rejected", &args.reason)
}

pub(super) fn pin(args: &Pin, context: &Context) -> Result<u8> {
    // Only what is whole can be worth keeping.
    let checkpoint = open_checkpoint(&args.checkpoint, context)?;
    waystation_writer::pin(checkpoint.store(), &args.name)?;
    say(context, &args.checkpoint.display().to_string(), "pinned", &args.name)
}

pub(super) fn unpin(args: &Unpin, context: &Context) -> Result<u8> {
    let attempt = open_attempt(&args.checkpoint)?;
    waystation_writer::unpin(&attempt.store, &args.name)?;
    say(context, &args.checkpoint.display().to_string(), "unpinned", &args.name)
}

fn say(context: &Context, path: &str, what: &str, with: &str) -> Result<u8> {
    if context.json {
        output::object(&json!({ "path": path, what: with }))?;
    } else {
        output::line(&format!("{what} {path}: {with}"))?;
    }
    Ok(0)
}
