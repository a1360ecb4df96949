//! The nightly toolchain, for what only it can: Miri and sanitizers. Nothing that must hold before a
//! change lands needs it.

use std::path::Path;
use std::process::Command;

/// Its cargo; the one that runs this program is another's.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root);
    // What the outer one set is of its own toolchain.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}
