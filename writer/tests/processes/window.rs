//! In which window of the table of crash points a job died, told by what it left.

use std::collections::BTreeSet;
use std::sync::Arc;

use waystation_format::names;
use waystation_store::Store;

use super::content::WRITERS;
use super::{Job, Process};

/// What was on disk when everything stopped: the table of chapter 11. `Before` is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    Before,
    W1,
    W2,
    W3,
    W4,
    W5,
    W6,
    W7,
    W8,
    W9,
}

impl Window {
    /// With their names and what begins them.
    pub const TABLE: [(Self, &'static str, &'static str); 10] = [
        (Self::Before, "-", "no directory yet"),
        (Self::W1, "W1", "directory made"),
        (Self::W2, "W2", "first shard created"),
        (Self::W3, "W3", "first shard synced"),
        (Self::W4, "W4", "first part linked"),
        (Self::W5, "W5", "last part linked"),
        (Self::W6, "W6", "first page linked"),
        (Self::W7, "W7", "manifest linked"),
        (Self::W8, "W8", "commit file linked"),
        (Self::W9, "W9", "run synced"),
    ];

    /// Out of the files that are there; where files do not tell, of what the dead said.
    pub fn of(job: &Job, dead: &[Process]) -> (Self, Found) {
        let did = |begin: &str| {
            let begin = format!("did fsync {begin}");
            dead.iter().any(|process| process.said.iter().any(|line| line.starts_with(&begin)))
        };
        let Some(attempt) = job.attempt() else { return (Self::Before, Found::default()) };
        let found = Found::in_attempt(&attempt);
        let name = job.name();
        let window = if found.commit {
            let committed = dead.iter().any(|process| {
                let mut lines = process.said.iter();
                lines.any(|line| line.ends_with(&format!("/{}", names::COMMIT)))
                    && lines.any(|line| line == "did fsync .")
            });
            if committed { Self::W9 } else { Self::W8 }
        } else if found.manifest {
            Self::W7
        } else if found.pages > 0 {
            Self::W6
        } else if found.parts.len() == WRITERS as usize {
            Self::W5
        } else if !found.parts.is_empty() {
            Self::W4
        } else if found.shards == 0 {
            Self::W1
        } else if did(&format!("{name}/model-")) || did(&format!("{name}/state-")) {
            Self::W3
        } else {
            Self::W2
        };
        (window, found)
    }
}

/// The files of an attempt, by kind.
#[derive(Debug, Default)]
pub struct Found {
    pub shards: usize,
    /// Writers.
    pub parts: BTreeSet<u32>,
    pub pages: usize,
    pub manifest: bool,
    pub commit: bool,
    pub temporaries: usize,
}

impl Found {
    pub fn in_attempt(attempt: &Arc<dyn Store>) -> Self {
        let mut found = Self::default();
        for listed in attempt.list().unwrap() {
            let name = listed.name.as_str();
            if names::parse_shard(name).is_some() {
                found.shards += 1;
            } else if let Some((writer, _)) = names::parse_part(name) {
                found.parts.insert(writer);
            } else if names::parse_tensors_page(name).is_some()
                || names::parse_records_page(name).is_some()
            {
                found.pages += 1;
            } else if names::is_temporary(name) {
                found.temporaries += 1;
            }
            found.manifest |= name == names::MANIFEST;
            found.commit |= name == names::COMMIT;
        }
        found
    }

    pub fn has_all_parts(&self) -> bool {
        self.parts.len() == WRITERS as usize
    }
}
