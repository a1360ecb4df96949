//! `cargo xtask gen`: everything that follows from the spec, written or compared.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::registry::Registry;
use crate::spec::{self, Rule};
use crate::{dictionary, markdown, python, rust, schema};

/// Writes the generated files, or with `check` compares them.
///
/// What can be generated is written even when the spec has problems, so that work goes on while
/// a chapter is half written; the problems are an error all the same.
///
/// # Errors
/// Problems of the registry and the chapters; with `check`, files that differ.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let registry = Registry::load(&root.join("spec/registry"))?;
    let mut problems = registry.problems();
    let chapters = spec::chapters(&root.join("spec"))?;
    let rules: Vec<Rule> = chapters.iter().flat_map(|c| c.rules(&mut problems)).collect();
    problems.extend(spec::problems(&rules, &registry.codes));

    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for (name, text) in rust::files(&registry, &compilable(&rules, &registry)) {
        let text = rustfmt(root, &text).map_err(|e| format!("{name}: {e}"))?;
        files.push((root.join("format/src/registry").join(name), text));
    }
    let schemas = schema::files(&registry)?;
    for (name, text) in dictionary::files(&registry, &schemas)? {
        files.push((root.join("fuzz/dict").join(name), text));
    }
    for (name, text) in schemas {
        files.push((root.join("spec/schema").join(name), text));
    }
    for (name, text) in python::files(&registry) {
        files.push((root.join("python/waystation").join(name), text));
    }
    for chapter in &chapters {
        match markdown::fill(&chapter.text, &registry, &rules) {
            Ok(text) => files.push((chapter.path.clone(), text)),
            Err(why) => problems.push(format!("{}: {why}", chapter.name())),
        }
    }

    for (path, text) in &files {
        let there = fs::read_to_string(path).unwrap_or_default();
        if there == *text {
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(path).display();
        if check {
            problems.push(format!("{name} drifted: run `cargo xtask gen`"));
        } else {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(|e| format!("{name}: {e}"))?;
            }
            fs::write(path, text).map_err(|e| format!("{name}: {e}"))?;
            println!("wrote {name}");
        }
    }
    println!("{} rules, {} codes, {} files", rules.len(), registry.codes.len(), files.len());
    if problems.is_empty() { Ok(()) } else { Err(format!("gen:\n  {}", problems.join("\n  "))) }
}

/// The rules whose Rust compiles: each id once, no unknown code. The others are problems already.
fn compilable(rules: &[Rule], registry: &Registry) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for rule in rules {
        if out.iter().any(|known| known.id == rule.id) {
            continue;
        }
        let known = |id: &&String| registry.codes.iter().any(|code| code.id == **id);
        out.push(Rule {
            codes: rule.codes.iter().filter(known).cloned().collect(),
            ..rule.clone()
        });
    }
    out
}

/// `text` as `cargo fmt` would leave it.
fn rustfmt(root: &Path, text: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("rustfmt: {e}"))?;
    // rustfmt reads all of its input before it writes, so this cannot block for ever.
    let mut input = child.stdin.take().ok_or("rustfmt took no input")?;
    input.write_all(text.as_bytes()).map_err(|e| format!("rustfmt: {e}"))?;
    drop(input);
    let output = child.wait_with_output().map_err(|e| format!("rustfmt: {e}"))?;
    if !output.status.success() {
        return Err(format!("rustfmt: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("rustfmt: {e}"))
}
