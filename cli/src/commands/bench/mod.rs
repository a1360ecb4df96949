//! `bench`: what this machine does, beside its own limits measured in the same run.

mod chunks;
mod io;

use std::fs;
use std::path::{Path, PathBuf};

use waystation_format::{Code, Error, Result};

use super::Context;
use crate::args::{Bench, Workload};

pub(super) fn run(args: &Bench, context: &Context) -> Result<u8> {
    match &args.workload {
        Workload::Chunks(args) => chunks::run(args, context),
        Workload::Io(args) => io::run(args, context),
        Workload::Stage(args) => chunks::stage(args, context),
    }
}

/// A directory of our own that is removed at the end, also after an error.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(within: Option<&Path>) -> Result<Self> {
        let number = getrandom::u64().map_err(|e| Error::io("draw a name", e.into()))?;
        let within = within.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = within.join(format!("waystation-bench-{number:016x}"));
        fs::create_dir(&path)
            .map_err(|e| Error::io("make directory", e).in_file(path.display().to_string()))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            crate::output::note(&format!(
                "waystation: {} is left behind: {e}",
                self.path.display()
            ));
        }
    }
}

/// Greatest resident memory of this process so far, in bytes.
fn peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|e| Error::io("read /proc/self/status", e))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| Error::new(Code::Io, "expected a line VmHWM in /proc/self/status"))
}

/// The middle one of an odd number, the lower middle of an even one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(f64::NAN)
}
