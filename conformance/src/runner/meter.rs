//! Memory and processor time of an adapter, as `/proc` tells them. Knows processes and no protocol.
//!
//! An adapter may be a script that starts another program, so all processes of its group after `hello` count. Of one that
//! starts a process for each request, the processor time of those counts that it waited for; their memory is gone
//! with them, and only the bound that they inherit holds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// The processes of an adapter and where they began.
#[derive(Debug)]
pub(super) struct Meter {
    processes: Vec<i32>,
    /// Resident memory after `hello`, in bytes.
    resident: u64,
    /// Processor time before the request.
    before: Duration,
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Peak of resident memory above what the process had after `hello`, in bytes.
    pub memory: u64,
    /// Processor time.
    pub processor: Duration,
}

impl Meter {
    /// Of the process group `group`, after `hello`; nothing where `/proc` does not tell.
    pub(super) fn new(group: i32) -> Option<Self> {
        let processes = members(group);
        let mut meter = Self { processes, resident: 0, before: Duration::ZERO };
        meter.resident = meter.status("VmRSS:")?;
        Some(meter)
    }

    /// Before a request: forgets peaks, and allows `memory` bytes more than there are.
    pub(super) fn begin(&mut self, memory: u64) {
        for process in &self.processes {
            // Where this is refused, the peak is that of the whole life: too much is seen, never too little,
            // and what seems too much is asked again of a fresh process.
            let _ = fs::write(proc(*process, "clear_refs"), "5");
            let (Some(pid), Some(data)) = (Pid::from_raw(*process), field(*process, "VmData:"))
            else {
                continue;
            };
            let limit = Rlimit { current: Some(data.saturating_add(memory)), maximum: None };
            if prlimit(Some(pid), Resource::Data, limit).is_err() {
                // A hard limit stands already, and may not be lifted.
                let hard = rustix::process::getrlimit(Resource::Data).maximum;
                let _ = prlimit(Some(pid), Resource::Data, Rlimit { maximum: hard, ..limit });
            }
        }
        self.before = self.processor();
    }

    /// Processor time since the request began.
    pub(super) fn spent(&self) -> Duration {
        self.processor().saturating_sub(self.before)
    }

    /// After the answer; nothing when the process is gone.
    pub(super) fn end(&self) -> Option<Cost> {
        let peak = self.status("VmHWM:")?;
        Some(Cost { memory: peak.saturating_sub(self.resident), processor: self.spent() })
    }

    /// A line of `status`, summed up; nothing when no process has it.
    fn status(&self, name: &str) -> Option<u64> {
        let each = self.processes.iter().filter_map(|process| field(*process, name));
        each.reduce(u64::saturating_add)
    }

    fn processor(&self) -> Duration {
        let ticks: u64 = self.processes.iter().filter_map(|p| Some(stat(*p)?.ticks)).sum();
        let second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(ticks.saturating_mul(1000).checked_div(second).unwrap_or(0))
    }
}

fn proc(process: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/{file}"))
}

/// A size of `/proc/<pid>/status`, in bytes.
fn field(process: i32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(proc(process, "status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

struct Stat {
    group: i32,
    /// Of user and system, and of children that it waited for.
    ticks: u64,
}

fn stat(process: i32) -> Option<Stat> {
    let text = fs::read_to_string(proc(process, "stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses; the state is the first word after it.
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let signed =
        |at: usize| words.get(at)?.parse::<i64>().ok().map(|n| u64::try_from(n).unwrap_or(0));
    let ticks = [number(11)?, number(12)?, signed(13)?, signed(14)?];
    let ticks = ticks.into_iter().fold(0, u64::saturating_add);
    Some(Stat { group: words.get(2)?.parse().ok()?, ticks })
}

/// The processes of a group.
fn members(group: i32) -> Vec<i32> {
    let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| stat(*id).is_some_and(|stat| stat.group == group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured() {
        let own = i32::try_from(std::process::id()).unwrap();
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(members(group).contains(&own));
        assert!(field(own, "VmRSS:").unwrap() > 1 << 16);
        assert_eq!(stat(own).unwrap().group, group);
    }
}
