//! `tour`: the main job on a small model, and the processes that it starts. Knows terminals and
//! exit codes; what the job does is `waystation-tour`'s business.

use std::io;

use waystation_format::{Code, Error, Result};
use waystation_tour::{Fault, Options, Program};

use super::Context;
use crate::args::Tour;
use crate::{Launcher, output};

/// Columns where there is no terminal.
const COLUMNS: u16 = 80;

pub(super) fn run(args: &Tour, context: &Context) -> Result<u8> {
    if args.as_rank {
        return rank();
    }
    let Launcher { path, mut arguments } = context.launcher()?;
    arguments.extend(["tour", "--as-rank"].map(str::to_owned));
    let options = Options {
        program: Program { path, arguments },
        keep: args.keep.clone(),
        width: columns().into(),
        fault: args.fault.as_deref().map(fault).transpose()?,
    };
    let mut say = |line: &str| if context.json { Ok(()) } else { output::line(line) };
    let report = waystation_tour::tour(&options, &mut say, &context.bars)?;
    if context.json {
        let object = serde_json::to_value(&report)
            .map_err(|e| Error::new(Code::BadArgument, format!("the report as JSON: {e}")))?;
        output::object(&object)?;
    }
    Ok(u8::from(!report.equal))
}

/// What failed is told over the pipe, and not a second time on the terminal.
fn rank() -> Result<u8> {
    Ok(match waystation_tour::rank(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => 0,
        Err(e) => output::exit_code(&e),
    })
}

fn fault(name: &str) -> Result<Fault> {
    Fault::from_name(name).ok_or_else(|| {
        Error::new(Code::BadArgument, format!("expected the name of a fault, found {name:?}"))
    })
}

fn columns() -> u16 {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(COLUMNS, |size| size.ws_col)
}
