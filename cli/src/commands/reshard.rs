//! `reshard`: the same contents, split over another number of writers.

use serde_json::json;
use waystation_format::Result;

use super::Context;
use crate::args::Reshard;
use crate::{operations, output};

pub(super) fn run(args: &Reshard, context: &Context) -> Result<u8> {
    let target = args.target.place();
    let (path, done) =
        operations::reshard(&args.checkpoint, target, args.writers, &context.work())?;
    context.bars.clear();
    let path = path.display().to_string();
    if context.json {
        output::object(
            &json!({ "path": path, "writers": args.writers, "digest": done.digest.to_string() }),
        )?;
    } else {
        output::line(&path)?;
    }
    Ok(0)
}
