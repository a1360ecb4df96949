//! `import`: a checkpoint from safetensors files or a Hugging Face directory.

use waystation_format::Result;

use super::Context;
use crate::args::Import;
use crate::{operations, output};

pub(super) fn run(args: &Import, context: &Context) -> Result<u8> {
    let import = operations::Import {
        source: &args.source,
        target: args.target.place(),
        step: args.step,
        writers: args.writers,
        attach: &args.attach,
        name: args.name.as_deref(),
    };
    let done = operations::import(&import, &context.work())?;
    context.bars.clear();
    if context.json {
        output::object(&done.json())?;
    } else {
        output::line(&done.path.display().to_string())?;
        for skipped in &done.skipped {
            output::note(&format!("left out: {skipped}"));
        }
    }
    Ok(0)
}
