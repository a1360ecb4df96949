//! What a case asks and expects: `expect.json`. Knows the suite's words, not how checkpoints are made.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::Files;

/// A case with its files.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is asked and expected.
    pub expect: Expect,
    /// The checkpoint or run that is given, by path beneath `given`; empty for `write`.
    pub given: Files,
}

/// `expect.json`, members in this order.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// `<profile>/<slug>`, permanent.
    pub id: String,
    /// The version of the specification that brought the case.
    pub since: String,
    /// Which claim the case belongs to.
    pub profile: Profile,
    /// Whether a claim of the profile stands or falls with it.
    pub level: Level,
    /// The operation.
    pub op: Op,
    /// Members of the request beside `id`, `op`, and `path` or `out`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub request: Map<String, Value>,
    /// What must come of it.
    pub outcome: Outcome,
    /// Of `accept`: the `ok` object, as far as it is compared. Of `write`: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Of `reject` and `either`: the codes, the one of the rule first. Others are as right, for a reason that `latitude` gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// Class of the first code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Where the fault is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Rules that a reject breaks, the one tested first, or that an accept keeps though it comes near.
    pub rules: Vec<String>,
    /// Why more than one answer is right, with the rule or paragraph that leaves it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latitude: Option<String>,
    /// Features of the format that an implementation needs for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// What is wrong, or of an accept what is special, in one sentence.
    pub fault: String,
    /// What becomes of an implementation's user when the case fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Address of a report of the like in other formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How it was made.
    pub made: Made,
    /// What git cannot hold, done to a copy of the files in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<Step>,
}

/// A claim that an implementation makes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
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

/// How much depends on a case.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The profile's claim.
    Required,
    /// A SHOULD of the specification.
    Recommended,
    /// A MAY.
    Optional,
}

/// An operation of the protocol.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "protocol.md says what each is")]
pub enum Op {
    Read,
    Slice,
    Validate,
    Latest,
    State,
    Write,
}

/// What must come of a request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// `ok` with the expected content.
    Accept,
    /// `error`, or findings.
    Reject,
    /// One of both, as the latitude says.
    Either,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Other values than were saved are taken for them.
    SilentCorruption,
    /// Training goes on from a state that it never had.
    WrongResume,
    /// Something that is not a checkpoint is taken for one.
    HalfWritten,
    /// A checkpoint that is good is refused, or not found.
    LostCheckpoint,
    /// Bytes outside the file or buffer are read.
    Overread,
    /// Memory or time out of proportion.
    Exhaustion,
    /// Files outside the directory are read or written.
    Escape,
    /// Two implementations read two things from one file.
    Ambiguity,
    /// What a person sees is not what there is.
    Deception,
}

/// A place in the given files.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Path beneath `given`.
    pub file: String,
    /// Of the first byte that is wrong, from the start of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// JSON pointer to the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

/// How a case came to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Name of the files in `bases/` that those of git lie over; absent where all files are in git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Files of the base that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The one change, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation: Option<String>,
    /// Whether lengths, checksums and digests above the change were made to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_up: Option<bool>,
    /// SHA-256 over path, newline, length in decimal, newline and bytes of each given file, ascending by path: of a
    /// case too large for git, which holds none of its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The case with the same change and the other answer to `fixed_up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
}

/// Something to be done to the copy of the given files, with paths beneath it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// A symbolic link; a target that begins with `given/` is made absolute.
    Symlink {
        /// The link; what is there gives way, but for `rename` before it.
        path: String,
        /// What it points to.
        target: String,
    },
    /// A hard link.
    Link {
        /// The new name.
        path: String,
        /// The old one.
        target: String,
    },
    /// A named pipe, which nobody writes to.
    Fifo {
        /// Its name.
        path: String,
    },
    /// A directory.
    Mkdir {
        /// Its name.
        path: String,
    },
    /// Makes a file longer with a hole, or shorter.
    Truncate {
        /// The file, made when it is not there.
        path: String,
        /// Its new length.
        bytes: u64,
    },
    /// Another name for a file.
    Rename {
        /// The old name.
        path: String,
        /// The new one.
        to: String,
    },
    /// Takes all permissions away; skipped, and the case with it, where the user may read it all the same.
    Deny {
        /// The file or directory.
        path: String,
    },
}
