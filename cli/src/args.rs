//! The command line: names, flags, help with examples. Knows nothing of checkpoints.

mod conformance;
mod order;
mod rng;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use conformance::{
    Conformance, ConformanceAction, ConformanceExplain, ConformanceExport, ConformanceList,
    ConformanceMatrix, ConformanceRun, ConformanceVerify, ProfileArg,
};
pub(crate) use order::Order;
pub(crate) use rng::{Rng, RngAction, RngConvert, RngForm, RngNext};

use crate::operations;

/// Sharded, resumable training checkpoints: import, inspect, verify, reshard, export, keep.
#[derive(Debug, Parser)]
#[command(
    name = "waystation",
    version,
    max_term_width = 100,
    after_help = "\
Exit status: 0 fine; 1 the checkpoint is rejected, differs or is absent; 2 the command line; 3 the \
environment failed (permission, full disk, I/O error); 130 interrupted.

Examples:
  waystation tour                     # what it is for, shown on a small training
  waystation import model.safetensors --out ckpt --writers 4
  waystation verify ckpt
  waystation cat ckpt encoder.layer.0.weight --region 0:2,:
  waystation export ckpt --out hf-model"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON object on standard output instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show no progress bars.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Threads to read, write and check with [default: one a core].
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Import(Import),
    Inspect(Inspect),
    Verify(Verify),
    Cat(Cat),
    Export(Export),
    Reshard(Reshard),
    Copy(Copy),
    Diff(Diff),
    List(List),
    Latest(Latest),
    Gc(Gc),
    Commit(Commit),
    Salvage(Salvage),
    Reject(Reject),
    Pin(Pin),
    Unpin(Unpin),
    Tour(Tour),
    Rng(Rng),
    Order(Order),
    Conformance(Conformance),
    Bench(Bench),
}

/// Where a new checkpoint goes.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Target {
    /// The directory to make; it must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// A run: the checkpoint is made in it as step-… of a new timeline, so it is what jobs will resume from; its path is
    /// printed.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<PathBuf>,
}

impl Target {
    /// One of the two, as the group demands.
    pub(crate) fn place(&self) -> operations::Target<'_> {
        match (&self.out, &self.run) {
            (Some(out), _) => operations::Target::Alone(out),
            (None, run) => {
                operations::Target::InRun(run.as_deref().unwrap_or_else(|| Path::new("")))
            }
        }
    }
}

/// Make a checkpoint from a safetensors file or a Hugging Face model directory.
#[derive(Debug, Args)]
#[command(after_help = "\
The weights of a directory are the files that its model.safetensors.index.json names, else its
model.safetensors, else all its *.safetensors; every other file becomes an attachment under its
relative path, but for .git and .cache at the top, which are left out.

Examples:
  waystation import model.safetensors --out ckpt
  waystation import ~/models/all-MiniLM-L6-v2 --run runs/minilm --step 0 --writers 4")]
pub(crate) struct Import {
    /// A .safetensors file, or a directory with some. Links are followed.
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) target: Target,
    /// The step to give the checkpoint, of at most twelve digits.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=999_999_999_999))]
    pub(crate) step: u64,
    /// How many writers to split the data over.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) writers: u32,
    /// One more file to attach, under its own name. May be given again.
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// The run's name in the metadata [default: the run's directory, or the source's].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Show what a checkpoint holds, without reading tensor data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  waystation inspect ckpt
  waystation inspect ckpt --tensors --json | jq '.tensors[].name'
  waystation inspect ckpt --state --topology dp=3 --place dp=2 --source train=12000:8b57…
  waystation inspect ckpt --state --topology dp=3 --place dp=2 --demand fork --leave-out train")]
pub(crate) struct Inspect {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// List every tensor and alias.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// List every record, and how well training can be resumed from it.
    #[arg(long)]
    pub(crate) state: bool,
    /// With --state: the topology to resume on, such as dp=3,tp=2, at --place.
    #[arg(long, value_name = "AXES", requires_all = ["state", "place"])]
    pub(crate) topology: Option<String>,
    /// The place in that topology, an index along each axis, such as dp=2,tp=0.
    #[arg(long, value_name = "INDICES", requires = "topology")]
    pub(crate) place: Option<String>,
    /// The data that a cursor is resumed with, as --state prints it; as often as there are sources.
    #[arg(long, value_name = "CURSOR=RECORDS:SHA256", requires = "place")]
    pub(crate) source: Vec<String>,
    /// Fail when a stream or cursor is graded worse for the place: exact, requantised, fork,
    /// opaque-same-topology, none.
    #[arg(long, value_name = "GRADE", default_value = "exact", requires = "place")]
    pub(crate) demand: String,
    /// A stream or cursor that is done without, by name.
    #[arg(long, value_name = "NAME", requires = "place")]
    pub(crate) leave_out: Vec<String>,
    /// List the items of each cursor's next batch that the place takes; fail when it cannot share.
    #[arg(long, requires = "place")]
    pub(crate) share: bool,
}

/// Check every rule and every byte; one finding a line.
#[derive(Debug, Args)]
#[command(after_help = "\
A finding is `code: file place: what is wrong [rule] (what to do)`.

Examples:
  waystation verify ckpt
  waystation verify ckpt --quick      # metadata and lengths, no tensor data")]
pub(crate) struct Verify {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// Leave tensor data and attachments unread.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// How `cat` writes elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CatFormat {
    /// Values, one innermost row a line.
    Text,
    /// A NumPy .npy file.
    Npy,
    /// The packed bytes.
    Raw,
}

/// Print one tensor or a region of it.
#[derive(Debug, Args)]
#[command(after_help = "\
A region has one item an axis: `:` all, `3` one index, `2:10`, `:4`, `4:`.

Examples:
  waystation cat ckpt embeddings.weight --region 0:2,:8
  waystation cat ckpt model.w --role optimizer --slot adam.m --format npy -o m.npy")]
pub(crate) struct Cat {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// The tensor's name, or its whole identity key (canonical JSON).
    #[arg(value_name = "TENSOR")]
    pub(crate) tensor: String,
    #[arg(long, value_name = "ROLE", help = "Its role, if the name alone does not decide")]
    pub(crate) role: Option<String>,
    #[arg(long, value_name = "SLOT", help = "Its slot")]
    pub(crate) slot: Option<String>,
    #[arg(long, value_name = "NAME", help = "Its owner: an optimizer's or average's record")]
    pub(crate) owner: Option<String>,
    #[arg(long, value_name = "NAME", help = "Its component")]
    pub(crate) component: Option<String>,
    /// The part of it to print.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    #[arg(long, value_enum, default_value_t = CatFormat::Text)]
    pub(crate) format: CatFormat,
    /// Write here instead of standard output; the file must not exist.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A Hugging Face directory: model.safetensors, or several with an index, and the attachments.
    Hf,
    /// Only the safetensors files.
    Safetensors,
}

/// Write clean safetensors files that other tools load, byte-identical tensors, no pads.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  waystation export ckpt --out hf-model
  waystation export ckpt --out hf-model --config config.json     # of training, where nobody attached it
  waystation export ckpt --out weights --format safetensors --role param --role buffer")]
pub(crate) struct Export {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// The directory to make; it must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[arg(long, value_enum, default_value_t = ExportFormat::Hf)]
    pub(crate) format: ExportFormat,
    /// Roles to write [default: param and buffer]. May be given again.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Vec<String>,
    /// Only this component, whose name is then left out of the keys [default: all].
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Option<String>,
    /// Begin another file before the tensors of one take more than this (a larger tensor has one of its own); K, M and G
    /// are powers of 1000.
    #[arg(long, value_name = "BYTES", default_value = "5G", value_parser = parse_bytes)]
    pub(crate) max_shard_size: u64,
    /// Becomes config.json, which says to `transformers` what the model is; in place of an attachment of that name.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Write a checkpoint again, split over another number of writers.
#[derive(Debug, Args)]
#[command(after_help = "\
Records, aliases and attachments are kept. Every byte read is verified.

Example:
  waystation reshard ckpt --out ckpt-3 --writers 3")]
pub(crate) struct Reshard {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    #[command(flatten)]
    pub(crate) target: Target,
    /// How many writers to split the data over.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) writers: u32,
}

/// Copy a checkpoint, verifying it on the way; the commit file is written last.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation copy runs/a/step-000000001000-0000000390ab12cd /backup/step-1000"
)]
pub(crate) struct Copy {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// The directory to make; it must not exist.
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,
}

/// Compare the contents of two checkpoints, whatever their split. Exit 1 when they differ.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  waystation diff ckpt ckpt-3")]
pub(crate) struct Diff {
    /// A checkpoint.
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Another.
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
}

/// List the attempts of a run and what state each is in.
#[derive(Debug, Args)]
#[command(after_help = "\
Ordered by step. The latest is marked: that of the newest timeline, which is the newest job's, and in it the greatest
step; so a job that went back to an earlier step is not beaten by what it left behind.

Example:
  waystation list runs/minilm")]
pub(crate) struct List {
    /// A run: the directory that its checkpoints stand in.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
}

/// Print the path of the checkpoint to resume from. Exit 1 when there is none.
#[derive(Debug, Args)]
#[command(after_help = "\
The newest job's checkpoint of the greatest step that is complete (every file there, of its length) and not rejected.
Its bytes are checked only with --verify; if they are damaged, `reject` it and ask again.

Where there is none, the error is `no-checkpoint` if nothing was ever committed, which is a fresh start, and
`none-resumable` if all that was is damaged or rejected, which is none. --or-nothing tells them apart for a shell.

Examples:
  waystation latest runs/minilm --verify
  C=$(waystation latest runs/minilm --or-nothing) || exit     # empty: begin; a path: resume")]
pub(crate) struct Latest {
    /// A run: the directory that its checkpoints stand in.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Verify every byte of it first.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Exit 0 and print no path where the run is not there, or nothing in it was ever committed.
    #[arg(long)]
    pub(crate) or_nothing: bool,
}

/// Delete old checkpoints of a run. Never the latest, never a pinned one.
#[derive(Debug, Args)]
#[command(after_help = "\
Newest is as in `latest`: timeline before step. Rejected checkpoints are removed, unless there is nothing better;
damaged ones are left for people to look at. An attempt without a commit file is removed once a newer timeline has
committed, or when it is old enough for --uncommitted-older-than: until then a job may still be writing it.

Examples:
  waystation gc runs/minilm --keep-last 3 --dry-run
  waystation gc runs/minilm --keep-last 3 --keep-every 10000")]
pub(crate) struct Gc {
    /// A run: the directory that its checkpoints stand in.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Keep this many of the newest complete checkpoints.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_last: u32,
    /// Keep those whose step is a multiple of K as well.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Say what would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete uncommitted attempts untouched for this many seconds, whatever their timeline.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) uncommitted_older_than: Option<u64>,
}

/// Commit an attempt whose writers are done. May be run again, and by several at once.
#[derive(Debug, Args)]
#[command(after_help = "\
A newer timeline in the run fences an older attempt: `salvage` finishes one on purpose.

Example:\n  waystation commit runs/minilm/step-000000001000-0000000390ab12cd --deadline 600")]
pub(crate) struct Commit {
    /// An attempt: a directory that writers wrote into.
    #[arg(value_name = "DIR")]
    pub(crate) attempt: PathBuf,
    /// Wait this many seconds for missing writers.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) deadline: u64,
}

/// Commit an attempt from its parts alone, after verifying every byte.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation salvage runs/minilm/step-000000001000-0000000390ab12cd"
)]
pub(crate) struct Salvage {
    /// An attempt: a directory that writers wrote into.
    #[arg(value_name = "DIR")]
    pub(crate) attempt: PathBuf,
    /// Remove a commit file, manifest or page that differs from what the parts say.
    #[arg(long)]
    pub(crate) discard_root: bool,
}

/// Mark a checkpoint as not to be resumed from; `latest` skips it.
#[derive(Debug, Args)]
#[command(after_help = "\
To take it back, remove the file `rejected` from it.

Example:\n  waystation reject runs/a/step-000000002000-0000000390ab12cd --reason 'loss spike'")]
pub(crate) struct Reject {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// Why, for whoever meets the marker.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
}

/// Protect a checkpoint from `gc`, under a name. It may have several pins.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation pin runs/a/step-000000002000-0000000390ab12cd paper"
)]
pub(crate) struct Pin {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// 1 to 64 of A-Z a-z 0-9 . _ -
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Take a pin away again.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  waystation unpin runs/a/step-000000002000-0000000390ab12cd paper"
)]
pub(crate) struct Unpin {
    /// A checkpoint: its directory.
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// The name that it was pinned under.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Train a small model, kill its processes in mid-save, resume, and compare bit for bit.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs no input: the text that is learnt comes with the program. Takes seconds. Exit status 1 when
anything differs from the same training without interruption.

Examples:
  waystation tour
  waystation tour --keep tour && waystation list tour/run")]
pub(crate) struct Tour {
    /// Keep the files in this directory, which must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Do this wrong after the first resume, to see that it is noticed.
    #[arg(long, value_name = "FAULT", hide = true)]
    pub(crate) fault: Option<String>,
    /// Live as one of the processes, told what to do on standard input.
    #[arg(long, hide = true)]
    pub(crate) as_rank: bool,
}

/// Measure this machine beside its own limits.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Workload {
    Chunks(BenchChunks),
    Io(BenchIo),
    #[command(hide = true)]
    Stage(BenchStage),
}

/// Metadata at scale: commit, validate and open a share of a checkpoint of many chunks.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  waystation bench chunks --count 1000000 --json")]
pub(crate) struct BenchChunks {
    /// Chunks: 64 writers times a 64th of this many tensors.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(64..=4_000_000))]
    pub(crate) count: u64,
    /// Where to build it; removed at the end [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Bytes: writing beside plain pwrite, verified reading beside unverified, in the same minute.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  waystation bench io --bytes 1G --rounds 5")]
pub(crate) struct BenchIo {
    /// Bytes of tensor data, rounded up to 64 MiB. Figures of less than a few hundred mean little.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) bytes: u64,
    /// Pairs of runs; the median of their ratios is printed.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Where to write; removed at the end [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// One measured stage in a process of its own, so that its peak memory is its own.
#[derive(Debug, Args)]
pub(crate) struct BenchStage {
    pub(crate) stage: String,
    pub(crate) dir: PathBuf,
}

/// Parses a byte count: digits, then nothing, K, M or G (powers of 1000).
fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (text.get(..at), 1_000),
        Some((at, 'M' | 'm')) => (text.get(..at), 1_000_000),
        Some((at, 'G' | 'g')) => (text.get(..at), 1_000_000_000),
        _ => (Some(text), 1_u64),
    };
    digits
        .and_then(|d| d.parse::<u64>().ok())
        .and_then(|n| n.checked_mul(unit))
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("expected a number above 0, with K, M or G, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts() {
        assert_eq!(parse_bytes("512"), Ok(512));
        assert_eq!(parse_bytes("5G"), Ok(5_000_000_000));
        for bad in ["", "0", "G", "1T", "-1", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
