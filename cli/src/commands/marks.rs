//! `reject`, `pin` and `unpin`: markers.

use std::path::Path;

use serde_json::json;
use waystation_format::Result;

use super::Context;
use crate::args::{Pin, Reject, Unpin};
use crate::{operations, output};

pub(super) fn reject(args: &Reject, context: &Context) -> Result<u8> {
    operations::reject(&args.checkpoint, &args.reason)?;
    say(context, &args.checkpoint, "rejected", &args.reason)
}

pub(super) fn pin(args: &Pin, context: &Context) -> Result<u8> {
    operations::pin(&args.checkpoint, &args.name, &context.work())?;
    say(context, &args.checkpoint, "pinned", &args.name)
}

pub(super) fn unpin(args: &Unpin, context: &Context) -> Result<u8> {
    operations::unpin(&args.checkpoint, &args.name)?;
    say(context, &args.checkpoint, "unpinned", &args.name)
}

fn say(context: &Context, path: &Path, what: &str, with: &str) -> Result<u8> {
    let path = path.display().to_string();
    if context.json {
        output::object(&json!({ "path": path, what: with }))?;
    } else {
        output::line(&format!("{what} {path}: {with}"))?;
    }
    Ok(0)
}
