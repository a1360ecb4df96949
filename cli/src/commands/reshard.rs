//! `reshard`: the same contents, split over another number of writers.

use serde_json::json;
use waystation_format::part::Producer;
use waystation_format::{Result, names};
use waystation_writer::{ReshardOptions, SessionPlan, make_attempt};

use super::{Context, open_checkpoint, target};
use crate::args::Reshard;
use crate::output;

pub(super) fn run(args: &Reshard, context: &Context) -> Result<u8> {
    let from = open_checkpoint(&args.checkpoint, context)?;
    let common = &from.manifest().common;
    let mut options = ReshardOptions::new(args.writers);
    options.producer = producer();
    options.session.threads = context.threads;
    let (store, path) = match (&args.target.out, &args.target.run) {
        (Some(out), _) => {
            let (parent, name) = target::parent_and_name(out)?;
            if let Some((_, attempt)) = names::parse_attempt_dir(&name) {
                options.attempt = Some(attempt);
                options.run = Some((std::sync::Arc::clone(&parent), name.clone()));
            }
            (waystation_store::make_durable(&*parent, &name)?, out.clone())
        }
        (None, run) => {
            let path = run.clone().unwrap_or_default();
            let run = target::open_or_make_run(&path)?;
            let plan = SessionPlan::next_in(
                &run,
                common.run.clone(),
                args.writers,
                common.topology.clone(),
            )?;
            let (name, store) = make_attempt(&run, &plan, common.step, 0)?;
            options.attempt = Some(plan.attempt(common.step, 0));
            options.run = Some((run, name.clone()));
            (store, path.join(name))
        }
    };
    let done = waystation_writer::reshard(&from, &store, &options, &context.bars);
    let done = target::or_left_behind(&path, context, done)?;
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

/// This program, as parts name it.
pub(super) fn producer() -> Producer {
    Producer { name: "waystation".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}
