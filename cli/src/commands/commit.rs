//! `commit` and `salvage`: making an attempt a checkpoint.

use std::time::Duration;

use serde_json::json;
use waystation_format::{Digest, Result};
use waystation_writer::{CommitOptions, SalvageOptions};

use super::{Context, open_attempt};
use crate::args::{Commit, Salvage};
use crate::output;

pub(super) fn commit(args: &Commit, context: &Context) -> Result<u8> {
    let attempt = open_attempt(&args.attempt)?;
    let mut options = CommitOptions::default();
    options.run = attempt.run;
    options.name = attempt.name;
    options.deadline = Some(Duration::from_secs(args.deadline));
    options.threads = context.threads;
    let done = waystation_writer::commit(&attempt.store, &options, &context.bars)?;
    context.bars.clear();
    say(context, &args.attempt.display().to_string(), done.digest, done.already)
}

pub(super) fn salvage(args: &Salvage, context: &Context) -> Result<u8> {
    let attempt = open_attempt(&args.attempt)?;
    let mut options = SalvageOptions::new();
    options.run = attempt.run;
    options.name = attempt.name;
    options.discard_root = args.discard_root;
    let done = waystation_writer::salvage(&attempt.store, &options, &context.bars)?;
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
