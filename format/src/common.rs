//! What parts and manifests have in common: which save of which job this is, and its topology.
//!
//! It knows the common members (7.1) and the order in which a file's head is checked: format and
//! kind, version, features. It must not know what else stands in a part or a manifest.

use std::fmt;

use crate::features::Features;
use crate::identity::check_name;
use crate::json::{Cursor, Encoder};
use crate::{Attempt, Code, Digest, Error, Result, limits, rule};

/// A place along some axes of the topology: `(axis, index)`, in the topology's order.
pub type Coordinate = Vec<(String, u64)>;

/// What every file of metadata says in `format`.
pub(crate) const FORMAT: &str = "waystation";

/// The major version that this crate reads.
const MAJOR: u32 = 1;

/// The axes of the job and their sizes, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(pub Vec<(String, u64)>);

impl Topology {
    /// The size of an axis, if there is one of that name.
    #[must_use]
    pub fn size(&self, axis: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == axis).map(|(_, size)| *size)
    }

    /// Checks that `coordinate` names axes of the topology, in its order, each once, and indices
    /// below their sizes.
    ///
    /// # Errors
    /// [`Code::BadIdentity`] under `rule` when not.
    pub fn check_coordinate(&self, coordinate: &Coordinate, rule: &'static str) -> Result<()> {
        let mut axes = self.0.iter();
        for (axis, index) in coordinate {
            match axes.find(|(name, _)| name == axis) {
                Some((_, size)) if index < size => {}
                Some((_, size)) => {
                    let message =
                        format!("expected an index below {size} along {axis:?}, found {index}");
                    return Err(Error::rule(Code::BadIdentity, rule, message));
                }
                None => {
                    let message =
                        format!("expected axes of the topology in its order, found {axis:?}");
                    return Err(Error::rule(Code::BadIdentity, rule, message));
                }
            }
        }
        Ok(())
    }

    /// Reads the value of `topology`.
    ///
    /// # Errors
    /// [`Code::BadMember`] for another form, [`Code::BadName`] for an axis name, [`Code::Limit`] for too
    /// many axes.
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let mut axes: Coordinate = Vec::new();
        let mut items = cursor.begin_array()?;
        while cursor.next_item(&mut items)? {
            let start = cursor.offset();
            let (axis, size) = parse_axis(cursor)?;
            if size == 0 || axes.iter().any(|(before, _)| *before == axis) {
                let message = format!(
                    "expected each axis once and of size 1 or more, found {axis:?} of size {size}"
                );
                return Err(cursor.fail(start, Code::BadMember, rule::COMMON_TOPOLOGY, message));
            }
            axes.push((axis, size));
            check_limit(cursor, start, axes.len(), limits::TOPOLOGY_AXES, "axes of the topology")?;
        }
        Ok(Self(axes))
    }
}

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Readers refuse another than their own.
    pub major: u32,
    /// Later ones add to the registries and nothing else.
    pub minor: u32,
}

impl Version {
    /// The version that this crate writes.
    pub const CURRENT: Self = Self { major: MAJOR, minor: 0 };

    /// Reads `<major>.<minor>`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: small_decimal(major)?, minor: small_decimal(minor)? })
    }

    /// Reads the value of `version`, whatever its major.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.offset();
        let text = cursor.string()?;
        Self::parse(&text).ok_or_else(|| {
            let message =
                format!("expected two integers below 10000 joined by a dot, found {text:?}");
            cursor.fail(start, Code::BadMember, rule::VERSION_FORM, message)
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The common members of parts and manifests, `format` and `kind` apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Which save of the job this is.
    pub attempt: Attempt,
    /// B: bytes of a block that has a CRC of its own, a power of two.
    pub block_bytes: u64,
    /// Features that the checkpoint uses.
    pub features: Features,
    /// The manifest digest of the checkpoint that the job resumed from.
    pub parent: Option<Digest>,
    /// The run's name.
    pub run: String,
    /// Optimizer steps completed.
    pub step: u64,
    /// The axes of the job.
    pub topology: Topology,
    /// The version of the format.
    pub version: Version,
    /// N: the number of writers.
    pub writers: u32,
}

/// The common members as they are met in a file, in any order.
#[derive(Debug, Default)]
pub(crate) struct CommonMembers {
    attempt: Option<Attempt>,
    block_bytes: Option<u64>,
    features: Option<Features>,
    parent: Option<Option<Digest>>,
    run: Option<String>,
    step: Option<u64>,
    topology: Option<Topology>,
    version: Option<Version>,
    writers: Option<u32>,
}

impl CommonMembers {
    /// Reads the value of the member `name`, which must be a common one.
    pub(crate) fn read(&mut self, name: &str, cursor: &mut Cursor<'_>) -> Result<()> {
        match name {
            "attempt" => self.attempt = Some(spelled(cursor, "16 hex digits", Attempt::parse)?),
            "block_bytes" => self.block_bytes = Some(read_block_bytes(cursor)?),
            "features" => self.features = Some(Features::parse(cursor)?),
            "format" | "kind" => cursor.skip()?, // checked before all members
            "parent" if cursor.null() => self.parent = Some(None),
            "parent" => self.parent = Some(Some(read_digest(cursor)?)),
            "run" => self.run = Some(read_name(cursor, "run name")?),
            "step" => self.step = Some(read_limited(cursor, limits::STEP, "step")?),
            "topology" => self.topology = Some(Topology::read(cursor)?),
            "version" => self.version = Some(Version::read(cursor)?),
            "writers" => self.writers = Some(read_writers(cursor)?),
            _ => return Err(cursor.unknown_member()),
        }
        Ok(())
    }

    /// All of them, of the object at byte `start`.
    pub(crate) fn finish(self, cursor: &Cursor<'_>, start: usize) -> Result<Common> {
        Ok(Common {
            attempt: cursor.required(start, "attempt", self.attempt)?,
            block_bytes: cursor.required(start, "block_bytes", self.block_bytes)?,
            features: cursor.required(start, "features", self.features)?,
            parent: cursor.required(start, "parent", self.parent)?,
            run: cursor.required(start, "run", self.run)?,
            step: cursor.required(start, "step", self.step)?,
            topology: cursor.required(start, "topology", self.topology)?,
            version: cursor.required(start, "version", self.version)?,
            writers: cursor.required(start, "writers", self.writers)?,
        })
    }
}

/// Where the values of a file's outermost members begin.
#[derive(Debug)]
pub(crate) struct Outline<'a> {
    text: &'a str,
    members: Vec<(&'a str, usize)>,
}

impl<'a> Outline<'a> {
    /// Of a canonical text, which is one object.
    pub(crate) fn of(text: &'a str) -> Result<Self> {
        let mut cursor = Cursor::new(text);
        let mut object = cursor.begin_object()?;
        let mut members = Vec::new();
        while let Some(name) = cursor.next_member(&mut object)? {
            // Every listed name stands without escapes; another is met again as unknown.
            if let std::borrow::Cow::Borrowed(name) = name {
                members.push((name, cursor.offset()));
            }
            cursor.skip()?;
        }
        Ok(Self { text, members })
    }

    /// At the value of a member.
    pub(crate) fn member(&self, name: &str) -> Option<Cursor<'a>> {
        let (_, offset) = self.members.iter().find(|(member, _)| *member == name)?;
        Some(Cursor::at(self.text, *offset))
    }

    /// Checks `format` and `kind`. A page's kind is a matter of its own rule.
    pub(crate) fn check_format(&self, kind: &str, kind_rule: &'static str) -> Result<()> {
        for (name, wanted, rule) in
            [("format", FORMAT, rule::COMMON_FORMAT), ("kind", kind, kind_rule)]
        {
            let found = self.member(name).map(|mut cursor| cursor.raw_value()).transpose()?;
            if found != Some(format!("\"{wanted}\"").as_str()) {
                let message =
                    format!("expected {name} {wanted:?}, found {}", found.unwrap_or("none"));
                let error = Error::rule(Code::BadFormat, rule, message);
                return Err(error.at_pointer(format!("/{name}")));
            }
        }
        Ok(())
    }

    /// Checks the form and the major of `version`, and gives it.
    pub(crate) fn check_version(&self) -> Result<Version> {
        let root = Cursor::new(self.text);
        let mut cursor = root.required(0, "version", self.member("version"))?;
        let start = cursor.offset();
        let version = Version::read(&mut cursor)?;
        if version.major == MAJOR {
            return Ok(version);
        }
        let message = format!("expected version {MAJOR}.x, found {version}");
        Err(cursor.fail(start, Code::UnsupportedVersion, rule::VERSION_MAJOR, message))
    }

    /// Checks what comes before the members: format and kind, version, required features.
    pub(crate) fn check_head(&self, kind: &str) -> Result<()> {
        self.check_format(kind, rule::COMMON_FORMAT)?;
        self.check_version()?;
        let root = Cursor::new(self.text);
        let mut cursor = root.required(0, "features", self.member("features"))?;
        Features::parse(&mut cursor)?
            .check_known()
            .map_err(|error| error.at_pointer("/features/required"))
    }
}

impl Common {
    /// Writes a common member's value; `name` must be one of them.
    pub(crate) fn encode_member(&self, name: &str, kind: &str, json: &mut Encoder) {
        json.member(name);
        match name {
            "attempt" => json.display(&self.attempt),
            "block_bytes" => json.uint(self.block_bytes),
            "features" => self.features.encode(json),
            "format" => json.string(FORMAT),
            "kind" => json.string(kind),
            "parent" => match &self.parent {
                Some(digest) => json.display(digest),
                None => json.null(),
            },
            "run" => json.string(&self.run),
            "step" => json.uint(self.step),
            "topology" => encode_coordinate(json, &self.topology.0),
            "version" => json.display(&self.version),
            _ => json.uint(u64::from(self.writers)),
        }
    }
}

/// Reads `[[axis, index], …]`.
///
/// # Errors
/// [`Code::BadMember`] for another form, [`Code::BadName`] for an axis name.
pub(crate) fn parse_coordinate(cursor: &mut Cursor<'_>) -> Result<Coordinate> {
    let mut items = cursor.begin_array()?;
    let mut coordinate = Vec::new();
    while cursor.next_item(&mut items)? {
        coordinate.push(parse_axis(cursor)?);
    }
    Ok(coordinate)
}

/// Writes `[[axis, index], …]`.
pub fn encode_coordinate(json: &mut Encoder, coordinate: &[(String, u64)]) {
    json.begin_array();
    for (axis, index) in coordinate {
        json.begin_array();
        json.string(axis);
        json.uint(*index);
        json.end_array();
    }
    json.end_array();
}

fn parse_axis(cursor: &mut Cursor<'_>) -> Result<(String, u64)> {
    const FORM: &str = "[axis, integer]";
    let mut items = cursor.begin_array()?;
    cursor.want_item(&mut items, FORM)?;
    let axis = read_name(cursor, "axis name")?;
    cursor.want_item(&mut items, FORM)?;
    let number = cursor.uint()?;
    cursor.end_array(&mut items, FORM)?;
    Ok((axis, number))
}

/// Reads a name, checked.
pub(crate) fn read_name(cursor: &mut Cursor<'_>, what: &str) -> Result<String> {
    let start = cursor.offset();
    let name = cursor.string()?;
    match check_name(&name, what) {
        Ok(()) => Ok(name.into_owned()),
        Err(error) => Err(error.at_pointer(crate::json::pointer_at(cursor.text(), start))),
    }
}

/// Reads a string of a fixed spelling.
pub(crate) fn spelled<T>(
    cursor: &mut Cursor<'_>,
    wanted: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    let start = cursor.offset();
    let text = cursor.string()?;
    parse(&text).ok_or_else(|| cursor.bad_spelling(start, wanted, &text))
}

/// Reads 64 hex digits.
pub(crate) fn read_digest(cursor: &mut Cursor<'_>) -> Result<Digest> {
    spelled(cursor, "64 hex digits", Digest::from_hex)
}

/// Reads an integer from 0 to `largest`.
pub(crate) fn read_limited(cursor: &mut Cursor<'_>, largest: u64, what: &str) -> Result<u64> {
    let start = cursor.offset();
    let value = cursor.uint()?;
    if value <= largest {
        return Ok(value);
    }
    let message = format!("expected {what} of at most {largest}, found {value}");
    Err(cursor.fail(start, Code::Limit, rule::LIMIT_VALUE, message))
}

/// Reads an integer that is to be found in a list of fewer than 2^32; one that cannot be there is
/// read as the largest.
#[inline]
pub(crate) fn read_position(cursor: &mut Cursor<'_>) -> Result<u32> {
    Ok(u32::try_from(cursor.uint()?).unwrap_or(u32::MAX))
}

/// Checks the length of a list against a limit; `start` is where the list, or its last item, is.
pub(crate) fn check_limit(
    cursor: &Cursor<'_>,
    start: usize,
    length: usize,
    limit: u64,
    what: &str,
) -> Result<()> {
    if u64::try_from(length).is_ok_and(|length| length <= limit) {
        return Ok(());
    }
    let message = format!("expected at most {limit} {what}, found {length}");
    Err(cursor.fail(start, Code::Limit, rule::LIMIT_VALUE, message))
}

/// Reads the value of `block_bytes`.
pub(crate) fn read_block_bytes(cursor: &mut Cursor<'_>) -> Result<u64> {
    let start = cursor.offset();
    let bytes = cursor.uint()?;
    let range = limits::BLOCK_BYTES_MIN..=limits::BLOCK_BYTES_MAX;
    if bytes.is_power_of_two() && range.contains(&bytes) {
        return Ok(bytes);
    }
    let message = format!(
        "expected a power of two from {} to {}, found {bytes}",
        limits::BLOCK_BYTES_MIN,
        limits::BLOCK_BYTES_MAX
    );
    Err(cursor.fail(start, Code::BadMember, rule::COMMON_BLOCK_BYTES, message))
}

fn read_writers(cursor: &mut Cursor<'_>) -> Result<u32> {
    let start = cursor.offset();
    let writers = read_limited(cursor, limits::WRITERS, "writers")?;
    match u32::try_from(writers) {
        Ok(writers) if writers > 0 => Ok(writers),
        _ => Err(cursor.bad_spelling(start, "at least one writer", "0")),
    }
}

/// A decimal integer below 10000 without leading zeros.
fn small_decimal(text: &str) -> Option<u32> {
    let plain = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}
