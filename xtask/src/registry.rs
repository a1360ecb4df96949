//! The registry as it stands in `spec/registry/*.toml`. Knows the files' members; judges only
//! what their types say.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// All of `spec/registry`.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) classes: Vec<Class>,
    pub(crate) codes: Vec<Code>,
    pub(crate) dtypes: Vec<Dtype>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) roles: Vec<Role>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) features: Vec<Feature>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) orders: Vec<Order>,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) grades: Vec<Grade>,
    pub(crate) windows: Vec<Window>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Class {
    pub(crate) id: String,
    pub(crate) meaning: String,
    pub(crate) exit: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Code {
    pub(crate) id: String,
    pub(crate) class: String,
    pub(crate) meaning: String,
    pub(crate) remedy: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dtype {
    pub(crate) id: String,
    pub(crate) bits: u32,
    pub(crate) header: HeaderForm,
    pub(crate) elements: String,
    /// What NumPy, ml_dtypes and PyTorch call it; None where they have no such type.
    pub(crate) numpy: Option<String>,
    pub(crate) ml_dtypes: Option<String>,
    pub(crate) torch: Option<String>,
    /// DLPack's code of the type, without its bits.
    pub(crate) dlpack: u8,
}

/// How a chunk of a dtype stands in a shard's header.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HeaderForm {
    #[serde(rename = "self")]
    Own,
    Bytes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) id: String,
    pub(crate) value: u64,
    pub(crate) unit: String,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Role {
    pub(crate) id: String,
    pub(crate) class: ShardClass,
    pub(crate) slot: Presence,
    pub(crate) owner: Presence,
    pub(crate) meaning: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShardClass {
    Model,
    State,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    Required,
    Optional,
    Forbidden,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slot {
    pub(crate) id: String,
    pub(crate) role: String,
    pub(crate) torch: Option<String>,
    pub(crate) optax: Option<String>,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Feature {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) meaning: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Reserved,
    Active,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kind {
    pub(crate) id: String,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Algorithm {
    pub(crate) id: String,
    /// Name of the variant in Rust.
    pub(crate) rust: String,
    pub(crate) bytes: u64,
    pub(crate) width: u32,
    pub(crate) advance: Advance,
    pub(crate) canary: bool,
    pub(crate) layout: String,
    pub(crate) legal: String,
    pub(crate) meaning: String,
}

/// What drawing does to a state.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Advance {
    Draw,
    Block,
    Key,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    pub(crate) id: String,
    pub(crate) bits: u32,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// Name of the variant in Rust.
    pub(crate) rust: String,
    pub(crate) computed: bool,
    pub(crate) parameters: String,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schedule {
    pub(crate) id: String,
    /// Name of the variant in Rust.
    pub(crate) rust: String,
    pub(crate) parameters: String,
    pub(crate) meaning: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grade {
    pub(crate) id: String,
    pub(crate) meaning: String,
}

/// A window of the table of crash points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    pub(crate) id: String,
    /// What begins it.
    pub(crate) from: String,
    /// What ends it; empty for the last.
    #[serde(default)]
    pub(crate) to: String,
    /// What `latest` may answer.
    pub(crate) latest: Vec<Answer>,
    /// What makes the run as if nothing had happened, or the save done.
    pub(crate) repairs: Vec<String>,
    #[serde(default)]
    pub(crate) note: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Old,
    New,
}

impl Registry {
    /// Reads every file of `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        Ok(Self {
            classes: table(folder, "classes", "class")?,
            codes: table(folder, "codes", "code")?,
            dtypes: table(folder, "dtypes", "dtype")?,
            limits: table(folder, "limits", "limit")?,
            roles: table(folder, "roles", "role")?,
            slots: table(folder, "slots", "slot")?,
            features: table(folder, "features", "feature")?,
            kinds: table(folder, "record-kinds", "kind")?,
            algorithms: table(folder, "rng-algorithms", "algorithm")?,
            caches: table(folder, "rng-caches", "cache")?,
            orders: table(folder, "orders", "order")?,
            schedules: table(folder, "schedules", "schedule")?,
            grades: table(folder, "grades", "grade")?,
            windows: table(folder, "crash-points", "window")?,
        })
    }

    /// What is wrong with it, one sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        twice("classes", self.classes.iter().map(|c| c.id.clone()), &mut found);
        twice("codes", self.codes.iter().map(|c| c.id.clone()), &mut found);
        twice("dtypes", self.dtypes.iter().map(|d| d.id.clone()), &mut found);
        twice("limits", self.limits.iter().map(|l| l.id.clone()), &mut found);
        twice("roles", self.roles.iter().map(|r| r.id.clone()), &mut found);
        twice("slots", self.slots.iter().map(|s| format!("{} {}", s.role, s.id)), &mut found);
        twice("features", self.features.iter().map(|f| f.id.clone()), &mut found);
        twice("record-kinds", self.kinds.iter().map(|k| k.id.clone()), &mut found);
        twice("rng-algorithms", self.algorithms.iter().map(|a| a.id.clone()), &mut found);
        twice("rng-caches", self.caches.iter().map(|c| c.id.clone()), &mut found);
        twice("orders", self.orders.iter().map(|o| o.id.clone()), &mut found);
        twice("schedules", self.schedules.iter().map(|s| s.id.clone()), &mut found);
        twice("grades", self.grades.iter().map(|g| g.id.clone()), &mut found);
        twice("crash-points", self.windows.iter().map(|w| w.id.clone()), &mut found);
        for pair in self.windows.windows(2) {
            if let [one, next] = pair
                && one.to != next.from
            {
                found.push(format!(
                    "crash-points: {} does not end where {} begins",
                    one.id, next.id
                ));
            }
        }
        for code in &self.codes {
            if !self.classes.iter().any(|class| class.id == code.class) {
                found.push(format!("code {}: no class {}", code.id, code.class));
            }
        }
        for dtype in &self.dtypes {
            if dtype.numpy.is_some() == dtype.ml_dtypes.is_some() {
                found.push(format!("dtype {}: one of numpy and ml_dtypes", dtype.id));
            }
        }
        for slot in &self.slots {
            if !self.roles.iter().any(|role| role.id == slot.role) {
                found.push(format!("slot {}: no role {}", slot.id, slot.role));
            }
        }
        found
    }
}

/// The array `member`, the only member of `folder/file.toml`.
fn table<T: DeserializeOwned>(folder: &Path, file: &str, member: &str) -> Result<Vec<T>> {
    let path = folder.join(file).with_extension("toml");
    let name = path.display();
    let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
    let mut all: std::collections::BTreeMap<String, Vec<T>> =
        toml::from_str(&text).map_err(|e| format!("{name}: {e}"))?;
    let rows = all.remove(member).unwrap_or_default();
    match all.keys().next() {
        Some(other) => Err(format!("{name}: unknown table {other}")),
        None => Ok(rows),
    }
}

fn twice(file: &str, ids: impl Iterator<Item = String>, found: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    for id in ids {
        if !seen.insert(id.clone()) {
            found.push(format!("{file}: {id} stands twice"));
        }
    }
}
