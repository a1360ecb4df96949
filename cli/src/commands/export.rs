//! `export`: clean safetensors files and the attachments, for tools that know nothing of checkpoints.

use waystation_format::Result;

use super::Context;
use crate::args::{Export, ExportFormat};
use crate::{operations, output};

pub(super) fn run(args: &Export, context: &Context) -> Result<u8> {
    let export = operations::Export {
        checkpoint: &args.checkpoint,
        out: &args.out,
        attachments: args.format == ExportFormat::Hf,
        roles: &args.role,
        component: args.component.as_deref(),
        max_shard_bytes: args.max_shard_size,
        config: args.config.as_deref(),
    };
    let done = operations::export(&export, &context.work())?;
    context.bars.clear();
    if context.json {
        output::object(&done.json())?;
    } else {
        output::line(&format!(
            "{}: {} in {} files, {} attachments",
            done.path.display(),
            output::bytes(done.bytes),
            done.files,
            done.attachments
        ))?;
        for (alias, of) in &done.tied {
            output::line(&format!("tied: {alias} is {of}, named in __metadata__ only"))?;
        }
    }
    if args.format == ExportFormat::Hf && !done.config {
        output::note(
            "note: there is no config.json, without which transformers loads nothing: export again with \
             --config FILE (`model.config.to_json_file(FILE)` writes it), or attach it when saving",
        );
    }
    Ok(0)
}
