//! `copy`: a verified copy in a new directory.

use serde_json::json;
use waystation_format::Result;

use super::{Context, refuse_run, target};
use crate::args::Copy;
use crate::output;

pub(super) fn run(args: &Copy, context: &Context) -> Result<u8> {
    let from = waystation_store::open_path(&args.checkpoint)?;
    refuse_run(&from, &args.checkpoint)?;
    let (parent, name) = target::parent_and_name(&args.to)?;
    let was_there = std::fs::symlink_metadata(&args.to).is_ok();
    let done = waystation_writer::copy_into(&from, &parent, &name, &context.bars);
    let done = if was_there { done? } else { target::or_left_behind(&args.to, context, done)? };
    context.bars.clear();
    let path = args.to.display().to_string();
    if context.json {
        let digest = done.digest.to_string();
        output::object(
            &json!({ "path": path, "digest": digest, "bytes": done.bytes, "files": done.files }),
        )?;
    } else {
        output::line(&format!(
            "{path}: {} files, {}, verified",
            done.files,
            output::bytes(done.bytes)
        ))?;
    }
    Ok(0)
}
