//! This project's own crates pass every case, at level 3: one test for each.
//!
//! Another implementation does the same with its own adapter in place of ours.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use waystation_conformance::case::Case;
use waystation_conformance::catalogue;
use waystation_conformance::runner::{self, Options, Unwatched, Verdict};

fn main() {
    let arguments = Arguments::from_args();
    let trials = catalogue::cases().into_iter().map(|case| {
        let name = case.expect.id.clone();
        Trial::ignorable_test(name, move || put(&case))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn put(case: &Case) -> Result<Completion, Failed> {
    let mut options = Options::new(vec![env!("CARGO_BIN_EXE_waystation-adapter").into()]);
    options.level = 3;
    let report = runner::run(std::slice::from_ref(case), &options, None, &Unwatched)?;
    let Some(result) = report.results.first() else {
        return Err(format!("the adapter does not claim {}", case.expect.profile).into());
    };
    match result.verdict {
        Verdict::Pass => Ok(Completion::Completed),
        Verdict::NotRun => Ok(Completion::ignored_with(&result.got)),
        _ => Err(runner::report::text(&report).into()),
    }
}
