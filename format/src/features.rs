//! The features that a file names: those that a reader may ignore and those that it must know.
//!
//! It knows their form and which are known to this version, not what any of them means.

use crate::json::{Cursor, Encoder};
use crate::registry::features::is_known;
use crate::{Code, Error, Result, rule};

/// Longest name of a feature, in bytes.
const NAME_BYTES: usize = 64;

/// Names of features; each stands once in both lists together, the lists are ascending by byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A reader that does not know one of these ignores it.
    pub optional: Vec<String>,
    /// A reader that does not know one of these rejects the checkpoint.
    pub required: Vec<String>,
}

impl Features {
    /// Whether either list has it.
    #[must_use]
    pub fn contains(&self, feature: &str) -> bool {
        // A hostile file has a million of them, and asks for each.
        let has = |list: &[String]| list.binary_search_by(|name| (**name).cmp(feature)).is_ok();
        has(&self.optional) || has(&self.required)
    }

    /// # Errors
    /// [`Code::UnsupportedFeature`] for the first required feature that this version does not know.
    pub fn check_known(&self) -> Result<()> {
        match self.required.iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(Error::rule(
                Code::UnsupportedFeature,
                rule::FEATURE_REQUIRED,
                format!("expected only known features, found required feature {name:?}"),
            )),
        }
    }

    /// Reads the value of `features`.
    pub(crate) fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.offset();
        let mut object = cursor.begin(&[("optional", true), ("required", true)])?;
        let (mut optional, mut required) = (None, None);
        while let Some(name) = cursor.next_of(&mut object)? {
            let names = parse_names(cursor)?;
            *(if name == "optional" { &mut optional } else { &mut required }) = Some(names);
        }
        let features = Self {
            optional: cursor.required(start, "optional", optional)?,
            required: cursor.required(start, "required", required)?,
        };
        match features.optional.iter().find(|name| features.required.binary_search(name).is_ok()) {
            None => Ok(features),
            Some(name) => Err(cursor.fail(
                start,
                Code::BadMember,
                rule::FEATURE_FORM,
                format!("expected each feature once, found {name:?} both optional and required"),
            )),
        }
    }

    pub(crate) fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("optional");
        json.strings(&self.optional);
        json.member("required");
        json.strings(&self.required);
        json.end_object();
    }
}

/// Whether `name` has the form of a feature's name.
pub(crate) fn is_feature_name(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'/');
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

fn parse_names(cursor: &mut Cursor<'_>) -> Result<Vec<String>> {
    let mut items = cursor.begin_array()?;
    let mut names: Vec<String> = Vec::new();
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        let name = cursor.string()?;
        let found = if !is_feature_name(&name) {
            "expected 1 to 64 of a-z 0-9 - . /"
        } else if names.last().is_some_and(|last| **last >= *name) {
            "expected names in ascending order, each once"
        } else {
            names.push(name.into_owned());
            continue;
        };
        let message = format!("{found}, found {name:?}");
        return Err(cursor.fail(start, Code::BadMember, rule::FEATURE_FORM, message));
    }
    Ok(names)
}
