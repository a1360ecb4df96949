//! Names of the files of a checkpoint and of the attempts of a run, computed and recognised.
//!
//! It knows the table of chapter 3 and nothing of what the files hold. No name is ever taken
//! from metadata: integers go in, names come out.

use crate::digest::Digest;
use crate::limits;
use crate::registry::ShardClass;
use crate::session::{Attempt, Incarnation};

/// The root of a checkpoint's metadata.
pub const MANIFEST: &str = "manifest.json";
/// The file that makes an attempt a checkpoint. It sorts last of all named files.
pub const COMMIT: &str = "waystation.commit";
/// The marker of a checkpoint that is being removed.
pub const DELETED: &str = "deleted";
/// The marker of a checkpoint that must not be resumed from.
pub const REJECTED: &str = "rejected";
/// What temporary files begin with.
pub const TEMPORARY: &str = "tmp-";

const CLAIM: &str = "timeline-";
const PIN: &str = "pin-";
const PIN_BYTES: usize = 64;
const SHARD_SUFFIX: &str = ".safetensors";
const JSON_SUFFIX: &str = ".json";
/// Hex digits of a part's digest that stand in its name.
const PART_DIGITS: usize = 16;

/// The attachment at `position` of a writer's list.
#[must_use]
pub fn attachment(writer: u32, inc: Incarnation, position: u32) -> String {
    format!("attachment-{writer:05}-{inc}-{position:05}")
}

/// The shard at `position` of a writer's list.
#[must_use]
pub fn shard(class: ShardClass, writer: u32, inc: Incarnation, position: u32) -> String {
    format!("{}-{writer:05}-{inc}-{position:05}{SHARD_SUFFIX}", class.as_str())
}

/// The part of `writer`, whose bytes have this digest.
#[must_use]
pub fn part(writer: u32, digest: &Digest) -> String {
    format!("part-{writer:05}-{:.PART_DIGITS$}{JSON_SUFFIX}", digest.to_string())
}

/// A page of tensors and aliases.
#[must_use]
pub fn tensors_page(page: u32) -> String {
    format!("tensors-{page:05}{JSON_SUFFIX}")
}

/// A page of records.
#[must_use]
pub fn records_page(page: u32) -> String {
    format!("records-{page:05}{JSON_SUFFIX}")
}

/// The directory of an attempt in a run.
#[must_use]
pub fn attempt_dir(step: u64, attempt: &Attempt) -> String {
    format!("step-{step:012}-{attempt}")
}

/// The file in a run by which a job claims a timeline.
#[must_use]
pub fn timeline_claim(timeline: u32) -> String {
    format!("{CLAIM}{timeline:08x}")
}

/// The timeline that a file in a run claims; `None` when it claims none.
#[must_use]
pub fn parse_timeline_claim(name: &str) -> Option<u32> {
    let timeline = u32::from_str_radix(name.strip_prefix(CLAIM)?, 16).ok()?;
    (timeline_claim(timeline) == name).then_some(timeline)
}

/// The step and attempt that a directory in a run is named by; `None` when it is no attempt.
#[must_use]
pub fn parse_attempt_dir(name: &str) -> Option<(u64, Attempt)> {
    let (step, attempt) = name.strip_prefix("step-")?.split_at_checked(12)?;
    let step = decimal(step, 12, limits::STEP)?;
    Some((step, Attempt::parse(attempt.strip_prefix('-')?)?))
}

/// The writer of a part and the 16 hex digits of the digest in its name; `None` when it is not
/// the name of a part.
#[must_use]
pub fn parse_part(name: &str) -> Option<(u32, String)> {
    let (writer, digits) =
        name.strip_prefix("part-")?.strip_suffix(JSON_SUFFIX)?.split_once('-')?;
    let writer = index(writer)?;
    Incarnation::parse(digits)?; // the same form: 16 lower-case hex digits
    Some((writer, digits.to_owned()))
}

/// What the name of a shard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardName {
    /// Which roles it holds.
    pub class: ShardClass,
    /// Who wrote it.
    pub writer: u32,
    /// The writer's incarnation.
    pub inc: Incarnation,
    /// Position in the writer's list.
    pub position: u32,
}

/// What a name says if it is a shard's.
#[must_use]
pub fn parse_shard(name: &str) -> Option<ShardName> {
    let (class, rest) = name.strip_suffix(SHARD_SUFFIX)?.split_once('-')?;
    let class = ShardClass::from_id(class)?;
    let (writer, inc, position) = owned(rest)?;
    Some(ShardName { class, writer, inc, position })
}

/// Writer, incarnation and position if it is the name of an attachment.
#[must_use]
pub fn parse_attachment(name: &str) -> Option<(u32, Incarnation, u32)> {
    owned(name.strip_prefix("attachment-")?)
}

/// The page's number if it is the name of a page of tensors.
#[must_use]
pub fn parse_tensors_page(name: &str) -> Option<u32> {
    index(name.strip_prefix("tensors-")?.strip_suffix(JSON_SUFFIX)?)
}

/// The page's number if it is the name of a page of records.
#[must_use]
pub fn parse_records_page(name: &str) -> Option<u32> {
    index(name.strip_prefix("records-")?.strip_suffix(JSON_SUFFIX)?)
}

/// Whether it is a temporary file, which is garbage whenever its writer is gone.
#[must_use]
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

/// A file that marks a checkpoint for those who keep it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Marker {
    /// It is being removed.
    Deleted,
    /// It must not be resumed from; the file holds the reason.
    Rejected,
    /// It must not be deleted. Holds the pin's own name, without the prefix.
    Pin(String),
}

impl Marker {
    /// The marker that a file of this name is.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            DELETED => Some(Self::Deleted),
            REJECTED => Some(Self::Rejected),
            _ => Self::pin(name.strip_prefix(PIN)?),
        }
    }

    /// The pin of this name: 1 to 64 of `A-Z a-z 0-9 . _ -`, else `None`.
    #[must_use]
    pub fn pin(name: &str) -> Option<Self> {
        let plain =
            |byte: u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        let fits = (1..=PIN_BYTES).contains(&name.len()) && name.bytes().all(plain);
        fits.then(|| Self::Pin(name.to_owned()))
    }

    /// The name of its file.
    #[must_use]
    pub fn file_name(&self) -> String {
        match self {
            Self::Deleted => DELETED.to_owned(),
            Self::Rejected => REJECTED.to_owned(),
            Self::Pin(name) => format!("{PIN}{name}"),
        }
    }
}

/// `<writer>-<inc>-<position>`.
fn owned(text: &str) -> Option<(u32, Incarnation, u32)> {
    let mut fields = text.split('-');
    let writer = index(fields.next()?)?;
    let inc = Incarnation::parse(fields.next()?)?;
    let position = index(fields.next()?)?;
    fields.next().is_none().then_some((writer, inc, position))
}

/// `%05d` of an integer: exactly five digits, or more without a leading zero.
fn index(text: &str) -> Option<u32> {
    u32::try_from(decimal(text, 5, u64::from(u32::MAX))?).ok()
}

fn decimal(text: &str, width: usize, largest: u64) -> Option<u64> {
    let padded = text.len() == width || (text.len() > width && !text.starts_with('0'));
    if !padded || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|value| *value <= largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INC: Incarnation = Incarnation(0x5f0c_0000_0000_00e1);

    #[test]
    fn every_name_of_the_table_round_trips() {
        let digest = Digest::of(b"part");
        let name = part(7, &digest);
        assert_eq!(name, format!("part-00007-{}.json", &digest.to_string()[..16]));
        assert_eq!(parse_part(&name), Some((7, digest.to_string()[..16].to_owned())));

        let name = shard(ShardClass::State, 65_535, INC, 12);
        assert_eq!(name, "state-65535-5f0c0000000000e1-00012.safetensors");
        let parsed = ShardName { class: ShardClass::State, writer: 65_535, inc: INC, position: 12 };
        assert_eq!(parse_shard(&name), Some(parsed));

        assert_eq!(attachment(1, INC, 2), "attachment-00001-5f0c0000000000e1-00002");
        assert_eq!(parse_attachment(&attachment(1, INC, 2)), Some((1, INC, 2)));
        assert_eq!(tensors_page(0), "tensors-00000.json");
        assert_eq!(parse_tensors_page(&tensors_page(123_456)), Some(123_456));
        assert_eq!(parse_records_page(&records_page(3)), Some(3));
    }

    #[test]
    fn attempts_are_recognised_exactly() {
        let attempt = Attempt { timeline: 3, nonce: 0x90ab_12cd };
        let name = attempt_dir(1000, &attempt);
        assert_eq!(name, "step-000000001000-0000000390ab12cd");
        assert_eq!(parse_attempt_dir(&name), Some((1000, attempt)));
        for other in [
            "step-00000001000-0000000390ab12cd",
            "step-0000000001000-0000000390ab12cd",
            "step-000000001000-0000000390AB12CD",
            "step-000000001000-0000000390ab12cd.old",
            "step-00000000100é-0000000390ab12cd",
            "step-000000001000",
            "lost+found",
        ] {
            assert_eq!(parse_attempt_dir(other), None, "{other}");
        }
    }

    #[test]
    fn near_names_are_unnamed() {
        for name in [
            "part-7-9b1d77aa02c4f310.json",
            "part-000007-9b1d77aa02c4f310.json",
            "part-00007-9b1d77aa02c4f31.json",
            "part-00007-9B1D77AA02C4F310.json",
            "part-+0007-9b1d77aa02c4f310.json",
            "Part-00007-9b1d77aa02c4f310.json",
        ] {
            assert_eq!(parse_part(name), None, "{name}");
        }
        assert_eq!(parse_shard("optim-00000-5f0c0000000000e1-00000.safetensors"), None);
        assert_eq!(parse_shard("model-00000-5f0c0000000000e1-00000-0.safetensors"), None);
        assert_eq!(parse_tensors_page("tensors-99999999999999999999999.json"), None);
        assert_eq!(parse_records_page("records-0000.json"), None);
    }

    #[test]
    fn named_files_sort_before_the_commit_file() {
        let mut names = [
            COMMIT.to_owned(),
            MANIFEST.to_owned(),
            tensors_page(9),
            shard(ShardClass::State, 9, INC, 0),
            part(9, &Digest::of(b"")),
        ];
        names.sort();
        assert_eq!(names.last().unwrap(), COMMIT);
    }

    #[test]
    fn markers_are_recognised() {
        assert_eq!(Marker::parse("deleted"), Some(Marker::Deleted));
        assert_eq!(Marker::parse("rejected"), Some(Marker::Rejected));
        assert_eq!(parse_timeline_claim(&timeline_claim(0x2f)), Some(0x2f));
        for other in ["timeline-2f", "timeline-0000002F", "timeline-+000002f", "timeline-00000002f"]
        {
            assert_eq!(parse_timeline_claim(other), None, "{other}");
        }
        assert_eq!(Marker::parse("pin-best.v1"), Some(Marker::Pin("best.v1".to_owned())));
        assert_eq!(Marker::Pin("best".to_owned()).file_name(), "pin-best");
        for other in ["pin-", "pin-a b", "Deleted", &format!("pin-{}", "a".repeat(65))] {
            assert_eq!(Marker::parse(other), None, "{other}");
        }
        assert!(is_temporary("tmp-x") && !is_temporary("temp"));
    }
}
