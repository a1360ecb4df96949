//! Runs inputs that lie in files. Knows nothing of what they say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs every file named on the command line; a folder stands for the files in it. A fault ends the program, as it does when it is
/// fuzzed.
#[must_use]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the main of a program")]
pub fn arguments(run: fn(&[u8])) -> ExitCode {
    let named: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if named.is_empty() {
        eprintln!(
            "usage: name files to replay, or folders of them; to fuzz, use `cargo xtask fuzz`"
        );
        return ExitCode::from(2);
    }
    for path in named.iter().flat_map(|path| inputs(path)) {
        match fs::read(&path) {
            Ok(bytes) => {
                println!("{} ({} bytes)", path.display(), bytes.len());
                run(&bytes);
            }
            Err(e) => {
                eprintln!("{}: {e}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

/// The file, or the files in the folder, ascending.
#[must_use]
pub fn inputs(path: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(path) else { return vec![path.to_owned()] };
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}
