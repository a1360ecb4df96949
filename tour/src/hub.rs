//! A job of rank processes, seen from the process that started them.
//!
//! It starts them, hands frames from one to the other, hears what they tell, and kills them. None
//! outlives its handle. It must not know what they compute: it adds nothing up.

use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use waystation_format::{Code, Error, Result};
use waystation_reader::Progress;

use crate::orders::{Event, Orders};
use crate::wire::{HUB, decode, encode, read_frame, write_frame};

/// No step or save takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How a rank process is started: the program must call [`rank`](crate::rank()) when it is given
/// these arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Running rank processes. Dropping it kills them.
pub(crate) struct Job {
    children: Vec<Child>,
    events: Receiver<Vec<u8>>,
}

impl Job {
    /// Starts a process for each rank.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn start(program: &Program, orders: &[Orders]) -> Result<Self> {
        let (tell, events) = channel();
        let mut job = Self { children: Vec::new(), events };
        let mut inboxes = Vec::new();
        let mut outputs = Vec::new();
        for orders in orders {
            let child = Command::new(&program.path)
                .args(&program.arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| Error::io("start a rank", e))?;
            job.children.push(child);
            let child = job.children.last_mut();
            let (Some(input), Some(output)) =
                child.map_or((None, None), |child| (child.stdin.take(), child.stdout.take()))
            else {
                return Err(Error::new(Code::Io, "expected pipes to a process, found none"));
            };
            // Frames wait in memory, so no rank waits for another to read.
            let (inbox, frames) = channel();
            thread::spawn(move || deliver(input, &frames));
            let _ = inbox.send((HUB, encode(orders)?));
            inboxes.push(inbox);
            outputs.push(output);
        }
        for (rank, output) in (0..).zip(outputs) {
            let (inboxes, tell) = (inboxes.clone(), tell.clone());
            thread::spawn(move || forward(rank, output, &inboxes, &tell));
        }
        Ok(job)
    }

    /// The next thing that a rank tells; `None` when all of them have ended.
    ///
    /// # Errors
    /// What a rank failed of; `interrupted` when the user wants to stop; `io` when nothing is heard
    /// for a long time.
    pub(crate) fn next(&mut self, progress: &dyn Progress) -> Result<Option<Event>> {
        let begin = Instant::now();
        let mut lost = None;
        loop {
            if progress.cancelled() {
                return Err(Error::new(Code::Interrupted, "stopped before the tour was over"));
            }
            match self.events.recv_timeout(LOOK) {
                Ok(bytes) => {
                    let event = decode(&bytes)?;
                    if let Event::Failed { rank, code, message } = event {
                        let code = Code::from_id(&code).unwrap_or(Code::Io);
                        return Err(Error::new(code, format!("rank {rank}: {message}")));
                    }
                    return Ok(Some(event));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > PATIENCE => {
                    let message = "expected word of the ranks within a minute, heard nothing";
                    return Err(Error::new(Code::Io, message));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Its last words may still be on their way: it is blamed at the second look.
                    if let Some((rank, status)) = lost {
                        let message = format!("rank {rank} ended without a word: {status}");
                        return Err(Error::new(Code::Io, message));
                    }
                    lost = self.lost();
                }
            }
        }
    }

    /// A rank that has ended, and not well.
    fn lost(&mut self) -> Option<(usize, ExitStatus)> {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        let mut ended = self.children.iter_mut().map(ended).enumerate();
        ended.find_map(|(rank, status)| Some((rank, status.filter(|status| !status.success())?)))
    }

    /// Sends SIGKILL to every rank and waits for their ends: the signal that each died of.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn kill(mut self) -> Result<Vec<Option<i32>>> {
        for child in &mut self.children {
            child.kill().map_err(|e| Error::io("kill a rank", e))?;
        }
        let mut signals = Vec::new();
        for child in &mut self.children {
            let status = child.wait().map_err(|e| Error::io("wait for a rank", e))?;
            signals.push(status.signal());
        }
        Ok(signals)
    }

    /// Waits for the good end of every rank.
    ///
    /// # Errors
    /// `io` when one ended otherwise; those of the system.
    pub(crate) fn end(mut self) -> Result<()> {
        for (rank, child) in self.children.iter_mut().enumerate() {
            let status = child.wait().map_err(|e| Error::io("wait for a rank", e))?;
            if !status.success() {
                return Err(Error::new(Code::Io, format!("rank {rank} ended with {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

type Frame = (u32, Vec<u8>);

/// Writes what waits for one rank. It ends when nobody can send any more, or the rank is gone.
fn deliver(mut input: ChildStdin, frames: &Receiver<Frame>) {
    for (peer, bytes) in frames {
        if write_frame(&mut input, peer, &bytes).is_err() {
            return;
        }
    }
}

/// Reads what one rank sends, until its end.
fn forward(rank: u32, output: impl Read, inboxes: &[Sender<Frame>], tell: &Sender<Vec<u8>>) {
    let mut output = BufReader::new(output);
    while let Ok(Some((peer, bytes))) = read_frame(&mut output) {
        let inbox = usize::try_from(peer).ok().and_then(|peer| inboxes.get(peer));
        // Nobody there: the rank or the job is ending.
        let _ = match inbox {
            Some(inbox) => inbox.send((rank, bytes)).is_ok(),
            None => tell.send(bytes).is_ok(),
        };
    }
}
