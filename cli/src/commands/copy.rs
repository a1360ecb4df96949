//! `copy`: a verified copy in a new directory.

use serde_json::json;
use waystation_format::Result;

use super::Context;
use crate::args::Copy;
use crate::{operations, output};

pub(super) fn run(args: &Copy, context: &Context) -> Result<u8> {
    let done = operations::copy(&args.checkpoint, &args.to, &context.work())?;
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
