//! An adapter as a process: started, asked, watched, ended. Knows the line protocol and limits;
//! what answer is right is not its business.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use waystation_format::{Code, Error, Result};
use waystation_state::Stop;

use super::answer::{Answer, Crash, excerpt};
use super::lines::{Line, Tail, read_lines};
use super::meter::{Cost, Meter};
use crate::case::Profile;

/// What one request may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory that may be asked for above what the process had, in bytes. It is a bound on the
    /// system's side; how much a case may really take follows from its size.
    pub memory: u64,
    /// Processor time.
    pub processor: Duration,
    /// Time.
    pub time: Duration,
    /// Time until the answer to `hello`: interpreters start slowly.
    pub hello: Duration,
    /// Bytes of a line.
    pub line: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            processor: Duration::from_secs(10),
            time: Duration::from_secs(10),
            hello: Duration::from_secs(60),
            line: 16 << 20,
        }
    }
}

/// Memory that any request may take above what the process had, in bytes.
const MEMORY: u64 = 16 << 20;
/// Memory for each byte of a case's files.
const MEMORY_A_BYTE: u64 = 64;

/// Whether a request about `bytes` bytes of files may take so much memory (protocol: Verdicts).
///
/// # Errors
/// [`Crash::Memory`].
pub fn check_memory(cost: Cost, bytes: u64) -> Result<(), Crash> {
    let allowed = bytes.saturating_mul(MEMORY_A_BYTE).saturating_add(MEMORY);
    if cost.memory > allowed {
        return Err(Crash::Memory { took: cost.memory, allowed });
    }
    Ok(())
}

/// What an adapter says of itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Hello {
    /// Of the line protocol.
    pub protocol: u64,
    /// What stands behind the adapter.
    pub implementation: Implementation,
    /// The roles of chapter 1.5 that it plays.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The profiles that it claims.
    pub profiles: Vec<Profile>,
}

/// An implementation of the format.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Implementation {
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub language: String,
    #[serde(default)]
    pub url: String,
}

/// A running adapter.
#[derive(Debug)]
pub struct Adapter {
    child: Child,
    group: Pid,
    killed: bool,
    requests: Option<Sender<Vec<u8>>>,
    lines: Receiver<Line>,
    errors: Tail,
    limits: Limits,
    id: u64,
    meter: Option<Meter>,
    stop: Stop,
    hello: Hello,
}

impl Adapter {
    /// Starts the program of `command`, in a process group of its own, and says `hello`. Nobody waits for it longer
    /// than until `stop` is wished.
    ///
    /// # Errors
    /// [`Code::BadArgument`] for an empty command, and for a program that does not answer `hello` as the protocol says;
    /// [`Code::Io`] and others of the system when it does not start.
    pub fn start(command: &[OsString], limits: Limits, stop: &Stop) -> Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::new(Code::BadArgument, "expected the command of an adapter"));
        };
        let shown = program.to_string_lossy().into_owned();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| Error::io(&format!("start {shown}"), e))?;
        let group = Pid::from_child(&child);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else {
            return Err(Error::new(Code::Io, format!("{shown}: expected three pipes")));
        };
        // A process that does not read its input must not hold us.
        let (requests, waiting) = channel::<Vec<u8>>();
        thread::spawn(move || {
            for line in waiting {
                if input.write_all(&line).and_then(|()| input.flush()).is_err() {
                    return;
                }
            }
        });
        let hello = Hello {
            protocol: 0,
            implementation: Implementation {
                name: String::new(),
                version: String::new(),
                language: String::new(),
                url: String::new(),
            },
            roles: Vec::new(),
            profiles: Vec::new(),
        };
        let lines = read_lines(output, limits.line);
        let (errors, requests) = (Tail::of(errors), Some(requests));
        let mut adapter = Self {
            child,
            group,
            killed: false,
            requests,
            lines,
            errors,
            limits,
            id: 0,
            meter: None,
            stop: stop.clone(),
            hello,
        };
        adapter.greet(&shown)?;
        adapter.meter = Meter::new(group.as_raw_nonzero().get());
        Ok(adapter)
    }

    /// What it said of itself.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether it was asked nothing but `hello` yet.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.id <= 1
    }

    /// Whether memory and processor time can be told here.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.meter.is_some()
    }

    /// How much it said on standard error so far.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.errors.mark()
    }

    /// What it said on standard error since a mark, at most the last 64 KiB.
    #[must_use]
    pub fn errors_since(&self, mark: u64) -> String {
        self.errors.since(mark)
    }

    fn greet(&mut self, shown: &str) -> Result<()> {
        /// Lines of its standard error that are told.
        const HEARD: usize = 8;
        let members = [("protocol", json!(1)), ("spec", json!("1.0"))];
        let members = members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let said = self.send("hello", members).and_then(|id| self.receive(id, self.limits.hello));
        let errors = self.errors.clone();
        let wrong = |why: String| {
            // A message is one line; the end of a trace says most.
            let errors = errors.since(0);
            let lines: Vec<&str> =
                errors.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let last = lines.get(lines.len().saturating_sub(HEARD)..).unwrap_or_default();
            let heard = if last.is_empty() {
                String::new()
            } else {
                format!("; it said: {}", last.join(" | "))
            };
            Error::new(
                Code::BadArgument,
                format!(
                    "{shown}: expected an answer to hello as protocol.md has it, found {why}{heard}"
                ),
            )
        };
        let ok = match said {
            Ok(Answer::Ok(ok)) => ok,
            Ok(other) => return Err(wrong(other.brief())),
            Err(crash) => return Err(wrong(crash.to_string())),
        };
        self.hello = serde_json::from_value(Value::Object(ok)).map_err(|e| wrong(e.to_string()))?;
        if self.hello.protocol != 1 {
            return Err(wrong(format!("protocol {}", self.hello.protocol)));
        }
        Ok(())
    }

    /// Asks one thing.
    ///
    /// # Errors
    /// A crash; the adapter is of no use afterwards.
    pub fn ask(
        &mut self,
        op: &str,
        members: Map<String, Value>,
    ) -> Result<(Answer, Option<Cost>), Crash> {
        self.heard_nothing()?;
        if let Some(meter) = &mut self.meter {
            meter.begin(self.limits.memory);
        }
        let id = self.send(op, members)?;
        let answer = self.receive(id, self.limits.time)?;
        let cost = self.meter.as_ref().and_then(Meter::end);
        if self.meter.is_some() && cost.is_none() {
            // What it took nobody can tell any more.
            let Crash::Ended(how) = self.ended() else { return Err(Crash::Stopped) };
            return Err(Crash::Gone(how));
        }
        if cost.is_some_and(|cost| cost.processor > self.limits.processor) {
            return Err(Crash::Processor(self.limits.processor));
        }
        Ok((answer, cost))
    }

    /// Whether `crash` is about what was asked before the last request, and not about that.
    #[must_use]
    pub fn blames_before(&self, crash: &Crash) -> bool {
        match crash {
            Crash::Unasked(_) | Crash::Left(_) => true,
            Crash::WrongId(id) => self.id.checked_sub(1).is_some_and(|before| *id == json!(before)),
            _ => false,
        }
    }

    /// Sends a request and waits for nothing: for those who kill.
    ///
    /// # Errors
    /// [`Crash::Ended`].
    pub fn send(&mut self, op: &str, members: Map<String, Value>) -> Result<u64, Crash> {
        self.id = self.id.saturating_add(1);
        let mut request =
            Map::from_iter([("id".to_owned(), json!(self.id)), ("op".to_owned(), json!(op))]);
        request.extend(members);
        let line = format!("{}\n", Value::Object(request)).into_bytes();
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(line).is_ok());
        // A thread that is gone met a closed pipe; why it is closed the process's end tells.
        if sent { Ok(self.id) } else { Err(self.ended()) }
    }

    /// Whether there is an answer to `id` within `time`.
    ///
    /// # Errors
    /// All crashes but those of [`Crash::Unasked`], [`Crash::Left`] and [`Crash::Memory`].
    pub fn receive(&mut self, id: u64, time: Duration) -> Result<Answer, Crash> {
        /// How often processor time is looked at.
        const LOOK: Duration = Duration::from_millis(250);
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok(Line::Text(line)) => return Answer::parse(&line, id),
                Ok(Line::TooLong) => return Err(Crash::LongLine(self.limits.line)),
                Ok(Line::End) | Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {
                    if self.meter.as_ref().is_some_and(|m| m.spent() > self.limits.processor) {
                        return Err(Crash::Processor(self.limits.processor));
                    }
                    // A child of it may hold its output open for ever.
                    if self.peek(Duration::ZERO).is_some() {
                        return self.last_word(id);
                    }
                    if self.stop.is_requested() {
                        return Err(Crash::Stopped);
                    }
                    if start.elapsed() >= time {
                        return Err(Crash::Silent(time));
                    }
                }
            }
        }
    }

    /// What a process said that has just ended.
    fn last_word(&mut self, id: u64) -> Result<Answer, Crash> {
        match self.lines.try_recv() {
            Ok(Line::Text(line)) => Answer::parse(&line, id),
            _ => Err(self.ended()),
        }
    }

    /// # Errors
    /// [`Crash::Unasked`] when a line waits that answers nothing, [`Crash::Left`] when the process is gone already.
    fn heard_nothing(&mut self) -> Result<(), Crash> {
        match self.lines.try_recv() {
            Ok(Line::Text(line)) => Err(Crash::Unasked(excerpt(&line))),
            Ok(Line::TooLong) => Err(Crash::Unasked("one too long".to_owned())),
            Ok(Line::End) => Err(self.left()),
            // A child of it may hold its output open.
            Err(_) if self.peek(Duration::ZERO).is_some() => Err(self.left()),
            Err(_) => Ok(()),
        }
    }

    /// How the process ended that had answered all it was asked.
    fn left(&mut self) -> Crash {
        match self.ended() {
            Crash::Ended(how) => Crash::Left(how),
            other => other,
        }
    }

    /// How the process ended, whose output did.
    fn ended(&mut self) -> Crash {
        let how = match self.peek(Duration::from_secs(2)) {
            Some(status) => match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => format!("signal {signal}"),
                (Some(code), None) => format!("exit status {code}"),
                (None, None) => "the process stopped".to_owned(),
            },
            None => "the process goes on".to_owned(),
        };
        Crash::Ended(how)
    }

    /// Waits for the process without taking it away, so that its group's number stays its own until [`Self::kill`].
    fn peek(&self, time: Duration) -> Option<WaitIdStatus> {
        let start = Instant::now();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.group), options) {
                Ok(None) if start.elapsed() < time => thread::sleep(Duration::from_millis(2)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Kills every process of the adapter's group at once.
    pub fn kill(&mut self) {
        if !self.killed {
            /// A process that may not be killed, or that the system holds, is not waited for.
            const END: Duration = Duration::from_secs(5);
            self.killed = true;
            let _ = kill_process_group(self.group, Signal::KILL);
            drop(self.requests.take());
            if self.peek(END).is_some() {
                let _ = self.child.wait();
            }
        }
    }

    /// Ends it as its input ends, and gives what it did wrong after its last answer: a line too much, an end before its
    /// input's or by a signal.
    pub fn end(mut self) -> Option<Crash> {
        /// An adapter that has work left when its input ends is killed.
        const LEAVE: Duration = Duration::from_secs(2);
        /// What a process said before its end is read at once, but by another thread.
        const READ: Duration = Duration::from_millis(100);
        if let Err(crash) = self.heard_nothing() {
            return Some(crash);
        }
        drop(self.requests.take());
        let status = self.peek(LEAVE);
        match self.lines.recv_timeout(READ) {
            Ok(Line::Text(line)) => return Some(Crash::Unasked(excerpt(&line))),
            Ok(Line::TooLong) => return Some(Crash::Unasked("one too long".to_owned())),
            Ok(Line::End) | Err(_) => {}
        }
        status.and_then(|status| status.terminating_signal()).map(|_| self.left())
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.kill();
    }
}
