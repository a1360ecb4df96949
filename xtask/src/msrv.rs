//! What dependencies ask of the compiler, against what we say: nobody can build this with less than the
//! most that one of them needs. Knows what packages state; that our own code keeps to it is clippy's
//! `incompatible_msrv`.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::Result;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    rust_version: Option<String>,
}

/// Compares them.
///
/// # Errors
/// Every package that needs a newer compiler than each of ours states.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--locked", "--format-version", "1"]).current_dir(root);
    let output = command.output().map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata: {}: {said}", output.status));
    }
    let metadata = serde_json::from_slice(&output.stdout);
    judge(&metadata.map_err(|e| format!("cargo metadata: {e}"))?)
}

fn judge(metadata: &Metadata) -> Result<()> {
    let ours = metadata.packages.iter().filter(|one| metadata.workspace_members.contains(&one.id));
    let least = ours.filter_map(|one| one.rust_version.as_deref()).map(parse).min();
    let least = least.ok_or("no package of the workspace states a rust-version")?;
    let newer: Vec<String> = metadata
        .packages
        .iter()
        .filter(|one| one.rust_version.as_deref().is_some_and(|version| parse(version) > least))
        .map(|one| {
            let needs = one.rust_version.as_deref().unwrap_or_default();
            format!("{} {} needs Rust {needs}", one.name, one.version)
        })
        .collect();
    let silent = metadata.packages.iter().filter(|one| one.rust_version.is_none()).count();
    println!(
        "{} packages need Rust {}.{} or less, {silent} do not say",
        metadata.packages.len(),
        least.0,
        least.1
    );
    if newer.is_empty() { Ok(()) } else { Err(newer.join("\n  ")) }
}

/// Major, minor and patch; what is no number is newer than everything.
fn parse(version: &str) -> (u64, u64, u64) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(u64::MAX));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_needs_more_is_named() {
        let package = |name: &str, rust_version: Option<&str>| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            rust_version: rust_version.map(str::to_owned),
        };
        let with = |needs| Metadata {
            packages: vec![package("ours", Some("1.88")), package("a", needs), package("b", None)],
            workspace_members: vec!["ours".to_owned()],
        };
        judge(&with(Some("1.88.0"))).unwrap();
        judge(&with(Some("1.9"))).unwrap();
        assert_eq!(judge(&with(Some("1.88.1"))).unwrap_err(), "a 1.0.0 needs Rust 1.88.1");
        assert_eq!(judge(&with(Some("1.100"))).unwrap_err(), "a 1.0.0 needs Rust 1.100");
    }
}
