//! `commit` and `salvage`: making an attempt a checkpoint.

use std::time::Duration;

use serde_json::json;
use waystation_format::{Digest, Result};

use super::Context;
use crate::args::{Commit, Salvage};
use crate::operations::{Deadline, open_attempt};
use crate::{operations, output};

pub(super) fn commit(args: &Commit, context: &Context) -> Result<u8> {
    let attempt = open_attempt(&args.attempt)?;
    let deadline = Deadline { after: Some(Duration::from_secs(args.deadline)), poll: None };
    let done = operations::commit(attempt, deadline, true, &context.work())?;
    context.bars.clear();
    say(context, &args.attempt.display().to_string(), done.digest, done.already)
}

pub(super) fn salvage(args: &Salvage, context: &Context) -> Result<u8> {
    let done = operations::salvage(&args.attempt, args.discard_root, &context.work())?;
    context.bars.clear();
    say(context, &args.attempt.display().to_string(), done.digest, done.already)
}

fn say(context: &Context, path: &str, digest: Digest, already: bool) -> Result<u8> {
    if context.json {
        let object = json!({ "path": path, "digest": digest.to_string(), "already": already });
        output::object(&object)?;
    } else {
        let how =
            if already { "is complete; its commit file was there already" } else { "is committed" };
        output::line(&format!("{path} {how}: {digest}"))?;
    }
    Ok(0)
}
