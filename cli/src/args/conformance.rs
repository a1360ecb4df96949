//! The arguments of `conformance`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use waystation_conformance::case::Profile;
use waystation_conformance::runner::Limits;
use waystation_conformance::runner::matrix::Party;

/// Put the cases of the conformance suite to any implementation of the format.
#[derive(Debug, Args)]
#[command(after_help = "\
An implementation answers behind an adapter: any program that reads one JSON object a line and answers with one, as
conformance/protocol.md says. The suite is in this program; nothing is fetched.

Examples:
  waystation conformance run -- python3 adapter.py
  waystation conformance list --profile core
  waystation conformance explain core/bare")]
pub(crate) struct Conformance {
    #[command(subcommand)]
    pub(crate) action: ConformanceAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConformanceAction {
    Run(ConformanceRun),
    List(ConformanceList),
    Explain(ConformanceExplain),
    Export(ConformanceExport),
    Verify(ConformanceVerify),
    Matrix(ConformanceMatrix),
}

/// A claim that an implementation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// Reading whole checkpoints.
    Core,
    /// Reading regions.
    Reshard,
    /// Restoring training state, and finding what to restore.
    Resume,
    /// Writing.
    Writer,
    /// Writing, killed at any moment.
    Durability,
    /// Validating.
    Extended,
}

impl ProfileArg {
    pub(crate) fn profile(self) -> Profile {
        match self {
            Self::Core => Profile::Core,
            Self::Reshard => Profile::Reshard,
            Self::Resume => Profile::Resume,
            Self::Writer => Profile::Writer,
            Self::Durability => Profile::Durability,
            Self::Extended => Profile::Extended,
        }
    }
}

/// Ask an adapter every case of the profiles that it claims. Exit 1 when a case fails that is not listed, or nothing was
/// run of what was asked for; a claim that is skipped in part is `partial`, and exits 0.
#[derive(Debug, Args)]
#[command(after_help = "\
A refusal is right at level 1 when there is one, at level 2 with a code of the right class, at level 3 with the right
code. A crash, a time-out or too much memory fails any case.

Failures that are known stand in a file, by convention waystation-conformance.toml:

  [[expected]]
  case = \"core/some-case\"            # or a pattern, core/json-*, of at most 20 cases
  reason = \"why it fails\"
  issue = \"https://…\"                 # may be left out
  code = \"not-canonical\"              # may be left out: what is answered instead

The file is strict: a failure that is not listed, a case that is listed and passes or is skipped, and a case
that does not exist fail the run. A crash in core cannot be listed.

Examples:
  waystation conformance run -- python3 adapter.py
  waystation conformance run --profile core --level 3 -- ./adapter
  waystation conformance run --case 'core/json-*' --isolate -- ./adapter
  waystation conformance run --expect waystation-conformance.toml --report out -- ./adapter")]
pub(crate) struct ConformanceRun {
    /// Only cases of this profile. May be given again. It must be run then: an adapter that does not claim it fails.
    #[arg(long, value_enum, value_name = "PROFILE")]
    pub(crate) profile: Vec<ProfileArg>,
    /// Only cases with this id, or of this pattern: * stands for anything but /, ** for anything. May be given again; each must
    /// name a case that is run.
    #[arg(long = "case", value_name = "ID")]
    pub(crate) cases: Vec<String>,
    /// How exactly refusals must be right.
    #[arg(long, value_name = "1|2|3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) level: u8,
    /// Start a process for every case.
    #[arg(long)]
    pub(crate) isolate: bool,
    /// The list of failures that are known.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Rewrite that list so that it says what was found; comments are kept. It is made where it is not there.
    #[arg(long, requires = "expect")]
    pub(crate) fix: bool,
    /// Write report.json, junit.xml, summary.md and badge.json (for shields.io) into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Saves that are killed in each case of durability, spread over the time that a save takes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) kills: u32,
    #[command(flatten)]
    pub(crate) limits: ConformanceLimits,
    /// The adapter's program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "ADAPTER")]
    pub(crate) adapter: Vec<OsString>,
}

/// What a case may take.
#[derive(Debug, Args)]
pub(crate) struct ConformanceLimits {
    /// Seconds for an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) time: u32,
    /// Seconds of processor time for an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) processor: u32,
    /// Bytes of memory that may be asked for at once; K, M and G are powers of 1000 [default: 512 MiB].
    #[arg(long, value_name = "BYTES", value_parser = super::parse_bytes)]
    pub(crate) memory: Option<u64>,
}

impl ConformanceLimits {
    pub(crate) fn limits(&self) -> Limits {
        let usual = Limits::default();
        Limits {
            memory: self.memory.unwrap_or(usual.memory),
            processor: Duration::from_secs(self.processor.into()),
            time: Duration::from_secs(self.time.into()),
            ..usual
        }
    }
}

/// List the cases, one a line.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  waystation conformance list --profile core
  waystation conformance list --json | jq -r '.cases[] | select(.op == \"write\") | .id'")]
pub(crate) struct ConformanceList {
    /// Only cases of this profile. May be given again.
    #[arg(long, value_enum, value_name = "PROFILE")]
    pub(crate) profile: Vec<ProfileArg>,
}

/// Say what a case is about: the fault and its bytes, the request, what must come, and the rules.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  waystation conformance explain core/bare")]
pub(crate) struct ConformanceExplain {
    /// The case.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Write the suite as plain files, for those who run it without this program.
#[derive(Debug, Args)]
#[command(after_help = "\
cases.json lists all; cases/ID/expect.json says what is asked and expected, cases/ID/given holds the checkpoint or
run. Links, pipes and holes are told in expect.json as `setup` and not made.

Example:
  waystation conformance export suite")]
pub(crate) struct ConformanceExport {
    /// The directory to make; it must not exist.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Compare an export, or the suite in a copy of the repository, with the suite in this program.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  waystation conformance verify suite
  waystation conformance verify waystation/conformance")]
pub(crate) struct ConformanceVerify {
    /// What `export` wrote, or the folder `conformance` of the repository.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Read with every implementation what every implementation writes. Exit 1 when any content differs.
#[derive(Debug, Args)]
#[command(after_help = "\
A command is split at spaces; quotes keep words together.

Example:
  waystation conformance matrix --adapter ours=waystation-adapter --adapter py='python3 adapter.py'")]
pub(crate) struct ConformanceMatrix {
    /// A name and the command of an adapter. May be given again.
    #[arg(long, required = true, value_name = "NAME=COMMAND", value_parser = parse_party)]
    pub(crate) adapter: Vec<Party>,
    /// Write the table in Markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) limits: ConformanceLimits,
}

fn parse_party(text: &str) -> Result<Party, String> {
    let (name, command) =
        text.split_once('=').ok_or("expected NAME=COMMAND, found no equals sign")?;
    let command = split(command)?;
    if name.is_empty() || command.is_empty() {
        return Err("expected NAME=COMMAND, found one of both empty".to_owned());
    }
    Ok(Party { name: name.to_owned(), command: command.into_iter().map(OsString::from).collect() })
}

/// The words of a command: parted by spaces, but for those within quotes.
fn split(command: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("expected a second {open}, found the end"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_a_shell_would() {
        for (command, words) in [
            ("a  b", vec!["a", "b"]),
            ("python3 'my adapter.py' \"\"", vec!["python3", "my adapter.py", ""]),
            ("a=\"b c\"d", vec!["a=b cd"]),
            ("", vec![]),
        ] {
            assert_eq!(split(command).unwrap(), words, "{command}");
        }
        assert!(split("a 'b").is_err());
        assert_eq!(parse_party("ours=a b=c").unwrap().command, ["a", "b=c"]);
        assert!(parse_party("ours").is_err() && parse_party("=a").is_err());
    }
}
