//! The tour as it is told: one run without interruption, one that is killed and resumed twice, and
//! the comparison of the two.
//!
//! It knows the order of events and words for people who meet all this for the first time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use waystation_format::{Code, Error, Result, names};
use waystation_reader::Progress;

use crate::compare;
use crate::fault::Fault;
use crate::hub::Program;
use crate::jobs::{Ended, HELD, Launcher, Spec};
use crate::orders::Event;
use crate::plot::{Mark, Point, plot};
use crate::records::TRAIN;
use crate::reduce::Place;
use crate::report::{Compared, JobReport, KillReport, Report};
use crate::trainer::{BATCH, STEPS, Trainer};
use crate::tree;
use crate::words::{Say, Teller, grouped};

/// Steps between two checkpoints.
const SAVE_EVERY: u64 = 5;
/// The step in whose save the first job is killed.
const KILLED_AT: u64 = 85;
/// The last step of the second job.
const SECOND_UNTIL: u64 = 160;
/// Ranks of the jobs.
const RANKS: [usize; 3] = [4, 3, 1];

/// How to take the tour.
#[derive(Clone, Debug)]
pub struct Options {
    /// How a rank is started.
    pub program: Program,
    /// Keep the files in this directory, which must not exist or be empty, instead of a temporary
    /// one that is removed.
    pub keep: Option<PathBuf>,
    /// Columns of the terminal.
    pub width: usize,
    /// Do this wrong once after the first resume, to see the tour notice.
    pub fault: Option<Fault>,
}

/// Takes the tour; `say` is given one line at a time.
///
/// Whether everything was equal is in the report.
///
/// # Errors
///
/// What a rank or the system failed of; `exists` when the directory to keep holds something;
/// `interrupted` when the user wants to stop. Then no process is left, and no temporary file.
pub fn tour(options: &Options, say: Say<'_>, progress: &dyn Progress) -> Result<Report> {
    let begin = Instant::now();
    let home = Home::make(options.keep.as_deref())?;
    let reference = Launcher::new(&options.program, &home.path().join("reference"), progress)?;
    let run = Launcher::new(&options.program, &home.path().join("run"), progress)?;
    let parameters = Trainer::new(Place { rank: 0, ranks: 1 })?.values.len();

    let tell = &mut Teller::new(say, options.width);
    introduce(tell, parameters)?;
    let alone = without_interruption(&reference, tell)?;
    let (first, mut kill) = killed(&run, tell)?;
    let second = resumed_by_three(&run, options.fault, &mut kill, tell)?;
    let third = resumed_by_one(&run, tell)?;

    let jobs = vec![first, second, third];
    let mut compared = Compared::default();
    compare::losses(&alone.losses, &jobs, &mut compared);
    let [expected, found] = [&reference, &run].map(|launcher| {
        launcher
            .latest()?
            .ok_or_else(|| Error::new(Code::NoCheckpoint, "expected a last one, found none"))
    });
    let (expected, found) = (expected?, found?);
    let same_state = compare::checkpoints(&expected.store, &found.store, &mut compared)?;
    let whole = compared.losses > alone.losses.len() && expected.step == found.step;
    let equal = same_state && whole && compared.different_losses == 0;

    let report = Report {
        equal,
        steps: STEPS,
        batch: BATCH,
        parameters,
        reference: alone.losses,
        jobs,
        kill,
        compared,
        seconds: begin.elapsed().as_secs_f64(),
        kept: options.keep.clone(),
    };
    conclude(&report, options, [&expected.name, &found.name], tell)?;
    Ok(report)
}

fn introduce(tell: &mut Teller<'_>, parameters: usize) -> Result<()> {
    tell.line("A tour of Waystation")?;
    tell.line("====================")?;
    tell.line("")?;
    tell.paragraph(
        "A small network learns to guess the next letter of a short story. We train it twice. The \
         first time nothing happens to it. The second time its processes are killed in the middle \
         of writing a checkpoint; it goes on from the checkpoint before, on fewer processes, and \
         then on fewer again. If checkpoints keep their promise, both trainings end at the same \
         place, to the last bit.",
    )?;
    tell.line("")?;
    tell.paragraph(&format!(
        "The network has {} parameters (numbers to learn). A training takes {STEPS} steps of \
         {BATCH} samples, in an order shuffled anew in every epoch; at each step some units are \
         dropped at random (dropout). Its loss says how wrong its guesses are.",
        grouped(parameters)
    ))
}

fn without_interruption(reference: &Launcher<'_>, tell: &mut Teller<'_>) -> Result<JobReport> {
    tell.heading(1, "Train without interruption, in one process")?;
    // Saved once, at the end, to compare with.
    let spec = Spec { ranks: 1, until: STEPS, save_every: STEPS, hold_at: None, fault: None };
    let Ended { report, seconds, .. } = reference.run(&spec)?;
    tell.under(&format!("{} ({seconds:.1} s).", steps_text(&report)))?;
    Ok(report)
}

fn killed(run: &Launcher<'_>, tell: &mut Teller<'_>) -> Result<(JobReport, KillReport)> {
    let [ranks, ..] = RANKS;
    tell.heading(2, &format!("The same training on {ranks} processes, killed in mid-save"))?;
    tell.under(&format!(
        "Each process (\"rank\") works on {} of the {BATCH} samples of a step, and keeps the \
         optimizer's memory (two running means a parameter) of one part in {ranks} of the \
         parameters. Every {SAVE_EVERY} steps they \
         save a checkpoint: each writes files of its own, and only when all have done so does one \
         of them add the commit file, which makes it a checkpoint.",
        BATCH.checked_div(ranks).unwrap_or(0)
    ))?;
    let spec =
        Spec { ranks, until: STEPS, save_every: SAVE_EVERY, hold_at: Some(KILLED_AT), fault: None };
    let (report, kill) = run.run_and_kill(&spec)?;
    tell.under(&format!("{}; {} checkpoints.", steps_text(&report), report.checkpoints))?;
    tell.line("")?;
    tell.under(&format!(
        "While step {} was being saved, rank {HELD} was stopped half-way through its files, and \
         then all ranks were killed at once (SIGKILL, which no program can catch). They left:",
        kill.step
    ))?;
    tell.line("")?;
    tell.item(&format!("{}/", kill.attempt))?;
    for line in tree::lines(&kill.files) {
        tell.item(&line)?;
    }
    tell.line("")?;
    tell.under(&format!(
        "{} data files, {} of {ranks} ranks done, no {}: not a checkpoint.",
        kill.shards,
        kill.parts,
        names::COMMIT
    ))?;
    Ok((report, kill))
}

fn resumed_by_three(
    run: &Launcher<'_>,
    fault: Option<Fault>,
    kill: &mut KillReport,
    tell: &mut Teller<'_>,
) -> Result<JobReport> {
    let [before, ranks, _] = RANKS;
    tell.heading(3, &format!("Resume on {ranks} processes"))?;
    let Some(from) = run.latest()? else {
        return Err(Error::new(
            Code::NoCheckpoint,
            "expected the checkpoints before the kill, found none",
        ));
    };
    let skipped = from.skipped.iter().find(|(name, _)| *name == kill.attempt);
    let Some((_, why)) = skipped else {
        let message = format!("expected {} to be passed over, found {}", kill.attempt, from.name);
        return Err(Error::new(Code::StateDisagree, message));
    };
    kill.skipped = why.code().as_str().to_owned();
    tell.under(&format!(
        "Asked for the latest checkpoint, the reader passes over step {} ({}) and answers step {}. \
         {before} ranks wrote its files; each of {ranks} now reads the pieces that are its own, \
         wherever they lie.",
        kill.step, kill.skipped, from.step
    ))?;
    let spec = Spec { ranks, until: SECOND_UNTIL, save_every: SAVE_EVERY, hold_at: None, fault };
    let ended = run.run(&spec)?;
    tell_resumed(&ended, tell)?;
    let again = kill.step.saturating_sub(from.step);
    tell.under(&format!(
        "{}; the first {again} of them for the second time.",
        steps_text(&ended.report)
    ))?;
    Ok(ended.report)
}

fn resumed_by_one(run: &Launcher<'_>, tell: &mut Teller<'_>) -> Result<JobReport> {
    let [.., ranks] = RANKS;
    tell.heading(4, "Resume on 1 process, to the end")?;
    let spec = Spec { ranks, until: STEPS, save_every: SAVE_EVERY, hold_at: None, fault: None };
    let ended = run.run(&spec)?;
    tell_resumed(&ended, tell)?;
    tell.under(&format!("{}.", steps_text(&ended.report)))?;
    Ok(ended.report)
}

/// What came back.
fn tell_resumed(ended: &Ended, tell: &mut Teller<'_>) -> Result<()> {
    let read = |event: &Event| match event {
        Event::Resumed { numbers, .. } => *numbers,
        _ => 0,
    };
    let most = ended.resumed.iter().map(read).max().unwrap_or(0);
    let Some(Event::Resumed { dropout, sample, .. }) = ended.resumed.first() else {
        return Err(Error::new(Code::StateDisagree, "expected ranks to resume, heard of none"));
    };
    tell.under(&format!(
        "A rank reads {} numbers: all parameters, and its share of the optimizer's memory. Dropout \
         goes on with the random number {dropout}, the data with sample {sample}: the checkpoint \
         foretells both, and they were compared.",
        grouped(most)
    ))
}

fn conclude(
    report: &Report,
    options: &Options,
    last: [&str; 2],
    tell: &mut Teller<'_>,
) -> Result<()> {
    tell.heading(5, "Compare with the training that nobody interrupted, bit by bit")?;
    let found = &report.compared;
    for (count, what, different) in [
        (found.losses, "losses of steps", found.different_losses),
        (found.numbers, "final parameters and numbers of the optimizer", found.different_numbers),
        (
            found.records,
            "final records: progress, optimizer, schedule, dropout, data",
            found.different_records.len(),
        ),
    ] {
        let verdict =
            if different == 0 { "equal".to_owned() } else { format!("{different} DIFFER") };
        tell.item(&format!("{:>7} {what}: {verdict}", grouped(count)))?;
    }
    tell.line("")?;
    for line in picture(report, tell.width()) {
        tell.line(&line)?;
    }
    tell.line("         4 3 1: ranks that computed a step   x killed   ^ resumed on fewer ranks")?;
    tell.line("")?;
    if report.equal {
        tell.line(&format!("Everything is equal, to the last bit. ({:.1} s)", report.seconds))?;
    } else {
        tell.line("NOT EQUAL: the resumed training is another one.")?;
        if let Some(first) = &found.first_difference {
            tell.paragraph(&format!(
                "The first loss that differs is that of step {}, on {} ranks: {} instead of {}.",
                first.step, first.ranks, first.found, first.expected
            ))?;
        }
        for record in &found.different_records {
            tell.line(&format!("A record differs: {record}"))?;
        }
    }
    tell.line("")?;
    try_next(report, options, last, tell)
}

fn try_next(
    report: &Report,
    options: &Options,
    [expected, found]: [&str; 2],
    tell: &mut Teller<'_>,
) -> Result<()> {
    let Some(home) = &options.keep else {
        return tell.line("The files are gone. To look at them: waystation tour --keep DIR");
    };
    let home = home.display();
    let resumed = report.jobs.iter().find_map(|job| job.resumed_from.as_deref()).unwrap_or(found);
    let (records, sha256) = Trainer::new(Place { rank: 0, ranks: 1 })?.data.source()?;
    let [_, ranks, _] = RANKS;
    let at = format!("--topology dp={ranks} --place dp=1 --source {TRAIN}={records}:{sha256}");
    tell.line("Look for yourself:")?;
    for command in [
        format!("waystation list {home}/run"),
        format!("waystation verify {home}/run/{}    # what the kill left", report.kill.attempt),
        format!("waystation inspect {home}/run/{resumed} --tensors --state"),
        format!("waystation inspect {home}/run/{resumed} --state {at}    # for rank 1 of {ranks}"),
        format!("waystation diff {home}/reference/{expected} {home}/run/{found}"),
    ] {
        tell.item(&command)?;
    }
    Ok(())
}

/// The loss of every step as it was computed last, and where the job was cut.
fn picture(report: &Report, width: usize) -> Vec<String> {
    let mut points: Vec<Point> = Vec::new();
    for job in &report.jobs {
        let kept = usize::try_from(job.first.saturating_sub(1)).unwrap_or(usize::MAX);
        points.truncate(kept);
        points.extend(job.losses.iter().map(|&loss| Point { loss, ranks: job.ranks }));
    }
    let step = |step: u64| usize::try_from(step).unwrap_or(usize::MAX);
    let mut marks: Vec<Mark> = report
        .jobs
        .iter()
        .filter(|job| job.resumed_from.is_some())
        .map(|job| Mark { step: step(job.first), sign: '^' })
        .collect();
    marks.push(Mark { step: step(report.kill.step), sign: 'x' });
    plot(&points, &marks, width)
}

fn steps_text(job: &JobReport) -> String {
    let mut text = format!("Steps {}", job.first);
    let last = job.first.saturating_add(job.losses.len() as u64).saturating_sub(1);
    let _ = write!(text, "-{last}");
    if let (Some(begin), Some(end)) = (job.losses.first(), job.losses.last()) {
        let _ = write!(text, ": loss {begin:.2} to {end:.2}");
    }
    text
}

/// The directory of the tour.
enum Home {
    /// Removed at the end, whatever happens.
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Home {
    fn make(keep: Option<&Path>) -> Result<Self> {
        let Some(path) = keep else {
            let made = tempfile::Builder::new().prefix("waystation-tour-").tempdir();
            return Ok(Self::Temporary(made.map_err(|e| Error::io("make a directory", e))?));
        };
        std::fs::create_dir_all(path).map_err(|e| Error::io("make a directory", e))?;
        let mut found = std::fs::read_dir(path).map_err(|e| Error::io("list", e))?;
        if found.next().is_some() {
            let message = "expected a directory to make, or an empty one, found files in it";
            return Err(Error::new(Code::Exists, message).in_file(path.display().to_string()));
        }
        Ok(Self::Kept(path.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(made) => made.path(),
            Self::Kept(path) => path,
        }
    }
}
