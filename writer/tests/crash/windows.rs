//! The windows of the table of crash points, told by what was done, and what was seen in each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::job::WRITERS;

/// A row of `spec/registry/crash-points.toml`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub id: String,
    pub from: String,
    #[serde(default)]
    pub to: String,
    pub latest: Vec<String>,
    pub repairs: Vec<String>,
    #[serde(default)]
    pub note: String,
}

/// The table as it stands in the specification.
pub fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/registry/crash-points.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all: BTreeMap<String, Vec<Row>> = toml::from_str(&text).unwrap();
    all.remove("window").unwrap()
}

/// Where each window of a save begins: the crash points, by what begins it.
pub struct Windows {
    begins: Vec<(usize, String)>,
}

impl Windows {
    /// Of the save of the attempt `name`, by the log of the disk.
    pub fn of(rows: &[Row], log: &[String], name: &str) -> Self {
        let begins = rows.iter().map(|row| {
            let at = log
                .iter()
                .enumerate()
                .find(|(at, line)| begins(&row.from, line, &log[..*at], name));
            let (at, _) = at.unwrap_or_else(|| panic!("{} has no begin: {log:#?}", row.id));
            (at + 1, row.id.clone())
        });
        Self { begins: begins.collect() }
    }

    /// The window of a crash point; `None` before the first.
    pub fn at(&self, point: usize) -> Option<&str> {
        let begun = self.begins.iter().rev().find(|(begin, _)| *begin <= point);
        begun.map(|(_, id)| id.as_str())
    }

    /// The crash point with which a window begins.
    pub fn begin(&self, id: &str) -> usize {
        self.begins.iter().find(|(_, window)| window == id).unwrap().0
    }
}

/// Whether this call, after those in `before`, is what a window begins with.
fn begins(from: &str, line: &str, before: &[String], name: &str) -> bool {
    let shard = |line: &str, call: &str| {
        ["model-", "state-"].iter().any(|class| line.starts_with(&format!("{call} {name}/{class}")))
    };
    let linked = |line: &str, file: &str| {
        line.starts_with("link ") && line.contains(&format!(" {name}/{file}"))
    };
    let parts = || before.iter().filter(|line| linked(line, "part-")).count();
    match from {
        "directory made" => line == format!("mkdir {name}"),
        "first shard created" => shard(line, "create"),
        "first shard synced" => shard(line, "fsync"),
        "first part linked" => linked(line, "part-"),
        "last part linked" => linked(line, "part-") && parts() + 1 == WRITERS as usize,
        "first page linked" => linked(line, "tensors-") || linked(line, "records-"),
        "manifest linked" => linked(line, "manifest.json"),
        "commit file linked" => linked(line, "waystation.commit"),
        "run synced" => {
            line == "fsync ." && before.iter().any(|line| linked(line, "waystation.commit"))
        }
        other => panic!("what is {other:?}?"),
    }
}

/// What the simulation saw in one window.
#[derive(Debug, Default)]
pub struct Met {
    pub states: usize,
    /// `old`, `new`: what `latest` answered.
    pub latest: BTreeSet<String>,
    /// By repair: how often it worked, and did not.
    pub repairs: BTreeMap<&'static str, (usize, usize)>,
    /// Disks that lack a part though it was linked: its name was not durable.
    pub parts_lost: usize,
}

impl Met {
    pub fn repair(&mut self, what: &'static str, worked: bool) {
        let count = self.repairs.entry(what).or_default();
        *(if worked { &mut count.0 } else { &mut count.1 }) += 1;
    }

    /// The repairs that always worked.
    pub fn works(&self) -> BTreeSet<String> {
        let works = self.repairs.iter().filter(|(_, (worked, failed))| *worked > 0 && *failed == 0);
        works.map(|(what, _)| (*what).to_owned()).collect()
    }
}
