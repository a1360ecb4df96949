//! Jobs of real processes: this very test program, started again with a role in its environment.
//!
//! It knows how processes are told what to do, what they answer on standard output, and that none
//! outlives its handle.

#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where, and each test uses a part of this"
)]

pub mod content;
pub mod deck;
pub mod stop_at;
pub mod window;

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use waystation_format::common::Topology;
use waystation_format::{Code, Digest, Error, Incarnation, Result, names};
use waystation_reader::{Latest, NoProgress, VerifyOptions, latest, verify};
use waystation_store::{DirStore, PosixFs, Store, open_path};
use waystation_writer::{
    CommitOptions, GcPolicy, SalvageOptions, Session, SessionPlan, commit, gc, make_attempt,
    salvage,
};

use content::{BLOCK_BYTES, WRITERS};
use stop_at::{Counts, Stop, StopAt, say};

/// Begins the names of the variables that tell a process its role.
const PREFIX: &str = "WAYSTATION_KILL_";
/// The test by whose name a process is started.
const ENTRY: &str = "process";
/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Makes the attempt.
    Coordinator,
    Writer(u32),
    /// Commits what is there.
    Committer,
    /// Commits as soon as all parts are there.
    Waiting,
    /// Salvages, root and all.
    Salvager,
    /// Keeps the last checkpoint of the run and removes the others.
    Keeper,
}

/// One save of one job.
#[derive(Clone, Debug)]
pub struct Job {
    pub path: PathBuf,
    pub plan: SessionPlan,
    pub step: u64,
}

impl Job {
    /// A job that starts now in the run at `path`, resumes from its latest checkpoint and saves.
    pub fn next(path: &Path, step: u64) -> Self {
        let run = open_path(path).unwrap();
        let topology = Topology(vec![("dp".to_owned(), u64::from(WRITERS))]);
        let mut plan = SessionPlan::next_in(&run, "killed", WRITERS, topology).unwrap();
        plan.block_bytes = BLOCK_BYTES;
        plan.parent = latest(&run).ok().map(|latest| latest.digest);
        Self { path: path.to_owned(), plan, step }
    }

    pub fn timeline(&self) -> u32 {
        self.plan.timeline
    }

    /// The attempt's directory.
    pub fn name(&self) -> String {
        names::attempt_dir(self.step, &self.plan.attempt(self.step, 0))
    }

    /// The attempt, if its directory is there.
    pub fn attempt(&self) -> Option<Arc<dyn Store>> {
        open_path(&self.path).unwrap().dir(&self.name()).unwrap()
    }

    /// How this process commits.
    pub fn options(&self) -> CommitOptions {
        CommitOptions::in_run(open_path(&self.path).unwrap(), self.name())
    }

    pub fn start(&self, role: Role) -> Process {
        self.start_at(role, None)
    }

    /// Starts a process that works on one thread and stops at a call.
    pub fn start_at(&self, role: Role, stop: Option<Stop>) -> Process {
        Process::start(self.command(role, stop, 1))
    }

    /// Starts a process that works on as many threads as it likes.
    pub fn start_free(&self, role: Role) -> Process {
        Process::start(self.command(role, None, 2))
    }

    /// As [`start_at`](Self::start_at), with a given incarnation.
    pub fn start_as(&self, role: Role, stop: Option<Stop>, inc: Incarnation) -> Process {
        let mut command = self.command(role, stop, 1);
        command.env(format!("{PREFIX}INC"), inc.to_string());
        Process::start(command)
    }

    /// Saves by processes of their own, all writers at once, and nobody is killed.
    pub fn save(&self) {
        self.start(Role::Coordinator).succeed();
        let writers: Vec<Process> =
            (0..WRITERS).map(|writer| self.start(Role::Writer(writer))).collect();
        writers.into_iter().for_each(|writer| drop(writer.succeed()));
        self.start(Role::Committer).succeed();
    }

    /// What it saved is the latest of its run: whole, nothing wrong, and the content it must have.
    pub fn check_latest(&self) -> Latest {
        let latest = latest(&open_path(&self.path).unwrap()).unwrap();
        assert_eq!(latest.name, self.name(), "{:?}", latest.skipped);
        let report = verify(&latest.store, &VerifyOptions::default()).unwrap();
        assert!(report.ok && report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(report.digest, Some(latest.digest));
        content::check(&latest.store, self.step, self.timeline());
        latest
    }

    /// The same job, in a copy of its run.
    pub fn at(&self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    fn command(&self, role: Role, stop: Option<Stop>, threads: usize) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([ENTRY, "--exact", "--ignored", "--nocapture"]);
        let mut tell = |name: &str, value: String| {
            command.env(format!("{PREFIX}{name}"), value);
        };
        let (role, writer) = match role {
            Role::Coordinator => ("coordinator", 0),
            Role::Writer(writer) => ("writer", writer),
            Role::Committer => ("committer", 0),
            Role::Waiting => ("waiting", 0),
            Role::Salvager => ("salvager", 0),
            Role::Keeper => ("keeper", 0),
        };
        tell("ROLE", role.to_owned());
        tell("WRITER", writer.to_string());
        tell("RUN", self.path.to_str().unwrap().to_owned());
        tell("STEP", self.step.to_string());
        tell("TIMELINE", self.plan.timeline.to_string());
        tell("NONCE", u128::from_le_bytes(self.plan.nonce).to_string());
        tell("PARENT", self.plan.parent.map_or_else(String::new, |parent| parent.to_string()));
        tell("STOP", stop.map_or_else(String::new, |stop| stop.to_string()));
        tell("THREADS", threads.to_string());
        command
    }
}

/// A running process. Dropping it kills it.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    /// What it has said.
    pub said: Vec<String>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It did what it was told; what it answered.
    Done(String),
    /// It met an error: the code's name, the rule's or `-`, and the message.
    Failed { code: String, rule: String, message: String },
    /// It died by SIGKILL.
    Killed,
}

impl Process {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            out.lines().map_while(|line| send.send(line.ok()?).ok()).for_each(drop)
        });
        Self { child, lines, said: Vec::new() }
    }

    /// Waits until it stops; false when it came to its end instead.
    pub fn stopped(&mut self) -> bool {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.said.push(line);
                    if self.said.last().unwrap().starts_with("stopped ") {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("no word of a process: {:?}", self.said),
            }
        }
    }

    /// Lets a stopped process go on.
    pub fn resume(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGKILL. [`End::Killed`] when that is what it died of.
    pub fn kill(&mut self) -> End {
        self.child.kill().unwrap();
        self.end()
    }

    /// Waits for its end.
    pub fn end(&mut self) -> End {
        while self.stopped() {}
        let status = self.child.wait().unwrap();
        self.judge(status)
    }

    /// Waits for its end, which must be a good one; what it answered.
    pub fn succeed(mut self) -> String {
        match self.end() {
            End::Done(answer) => answer,
            other => panic!("{other:?}; it said {:?}", self.said),
        }
    }

    /// Waits for its end, which must be this error; the message.
    pub fn fail(mut self, code: Code, rule: &str) -> String {
        match self.end() {
            End::Failed { code: found, rule: broken, message }
                if (found.as_str(), broken.as_str()) == (code.as_str(), rule) =>
            {
                message
            }
            other => panic!("expected {code} {rule}, found {other:?}"),
        }
    }

    /// The calls that it said to have made; known after its end.
    pub fn counts(&self) -> Counts {
        let counts = self.said.iter().find_map(|line| line.strip_prefix("counts "));
        Counts::parse(counts.expect("a process that came to its end")).unwrap()
    }

    fn judge(&self, status: ExitStatus) -> End {
        if status.signal() == Some(9) {
            return End::Killed;
        }
        let said = |begin: &str| self.said.iter().find_map(|line| line.strip_prefix(begin));
        match (status.code(), said("done "), said("failed ")) {
            (Some(0), Some(answer), None) => End::Done(answer.to_owned()),
            (Some(1), None, Some(failed)) => {
                let mut words = failed.splitn(3, ' ').map(str::to_owned);
                let mut next = || words.next().unwrap();
                End::Failed { code: next(), rule: next(), message: next() }
            }
            _ => panic!("a process ended with {status}; it said {:?}", self.said),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process does that was started with a role; never returns then.
pub fn play() {
    let told: HashMap<String, String> = env::vars()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
        .collect();
    if !told.contains_key("ROLE") {
        return;
    }
    // The test harness may have begun a line.
    say("");
    let fs = StopAt::new(PosixFs, Stop::parse(&told["STOP"]));
    let done = play_role(&told, &fs);
    say(&format!("counts {}", fs.counts()));
    match done {
        Ok(answer) => {
            say(&format!("done {answer}"));
            process::exit(0);
        }
        Err(e) => {
            let rule = e.rule_id().unwrap_or("-");
            say(&format!("failed {} {rule} {}", e.code(), e.message()));
            process::exit(1);
        }
    }
}

fn play_role(told: &HashMap<String, String>, fs: &StopAt<PosixFs>) -> Result<String> {
    let number = |name: &str| told[name].parse::<u64>().unwrap();
    let threads = number("THREADS") as usize;
    let path = PathBuf::from(&told["RUN"]);
    let fs = StopAt::clone(fs);
    let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(fs), &path)?);
    let plan = SessionPlan {
        run: "killed".to_owned(),
        timeline: number("TIMELINE") as u32,
        nonce: told["NONCE"].parse::<u128>().unwrap().to_le_bytes(),
        writers: WRITERS,
        topology: Topology(vec![("dp".to_owned(), u64::from(WRITERS))]),
        parent: Digest::from_hex(&told["PARENT"]),
        block_bytes: BLOCK_BYTES,
    };
    let job = Job { path, plan, step: number("STEP") };
    let attempt = || {
        let absent = || Error::new(Code::NotFound, "no such attempt");
        run.dir(&job.name())?.ok_or_else(absent)
    };
    match told["ROLE"].as_str() {
        "coordinator" => make_attempt(&run, &job.plan, job.step, 0).map(|(name, _)| name),
        "writer" => {
            let inc = told.get("INC").map(|inc| Incarnation::parse(inc).unwrap());
            write_as(number("WRITER") as u32, &job, attempt()?, inc, threads)
        }
        role @ ("committer" | "waiting") => {
            let mut options = CommitOptions::in_run(Arc::clone(&run), job.name());
            options.deadline = (role == "waiting").then_some(PATIENCE / 2);
            options.poll = Duration::from_millis(2);
            options.threads = threads;
            let committed = commit(&attempt()?, &options, &NoProgress)?;
            Ok(committed.digest.to_string())
        }
        "salvager" => {
            let mut options = SalvageOptions::new();
            options.run = Some(Arc::clone(&run));
            options.name = Some(job.name());
            options.discard_root = true;
            Ok(salvage(&attempt()?, &options, &NoProgress)?.digest.to_string())
        }
        "keeper" => {
            // Here the one before is known to be dead.
            let mut policy = GcPolicy::keep_last(1);
            policy.begun_older_than = Duration::ZERO;
            gc(&run, &policy).map(|report| report.items.len().to_string())
        }
        other => panic!("no role {other}"),
    }
}

fn write_as(
    writer: u32,
    job: &Job,
    attempt: Arc<dyn Store>,
    inc: Option<Incarnation>,
    threads: usize,
) -> Result<String> {
    let common = job.plan.common(job.step, 0);
    let session = match inc {
        Some(inc) => Session::with_incarnation(attempt, common.clone(), writer, inc)?,
        None => Session::begin(attempt, common.clone(), writer)?,
    };
    let (writing, chunks) = content::lay_out(session, &common, writer, threads)?;
    content::write(&writing, &chunks)?;
    Ok(writing.finish()?.part)
}
