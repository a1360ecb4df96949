//! The plan of a job as text: what one process sends to the others, whatever program they are of.
//!
//! It knows the text's members (spec 11.1). What their values may be is known where plans are checked.

use waystation_format::common::Topology;
use waystation_format::json::{Cursor, Encoder, Form, check_canonical};
use waystation_format::value_tree::hex;
use waystation_format::{Code, Digest, Result, common, limits, rule};

use crate::SessionPlan;

const MEMBERS: &Form = &[
    ("block_bytes", true),
    ("nonce", true),
    ("parent", true),
    ("run", true),
    ("timeline", true),
    ("topology", true),
    ("writers", true),
];

impl SessionPlan {
    /// The text for the other processes of the job.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = Encoder::new();
        json.begin_object();
        json.member("block_bytes");
        json.uint(self.block_bytes);
        json.member("nonce");
        json.string(&hex(&self.nonce));
        json.member("parent");
        match &self.parent {
            Some(parent) => json.display(parent),
            None => json.null(),
        }
        json.member("run");
        json.string(&self.run);
        json.member("timeline");
        json.uint(self.timeline.into());
        json.member("topology");
        common::encode_coordinate(&mut json, &self.topology.0);
        json.member("writers");
        json.uint(self.writers.into());
        json.end_object();
        json.into_string()
    }

    /// The plan of a text that another process sent.
    ///
    /// # Errors
    ///
    /// `not-canonical` for what is no canonical text of one object, `bad-member` under `session.plan`
    /// and others for one of other members; and as [`check`](Self::check).
    pub fn from_json(text: &str) -> Result<Self> {
        let mut cursor = Cursor::new(check_canonical(text.as_bytes())?);
        let mut object = cursor.begin(MEMBERS)?;
        let mut plan = Self {
            run: String::new(),
            timeline: 0,
            nonce: [0; 16],
            writers: 0,
            topology: Topology::default(),
            parent: None,
            block_bytes: 0,
        };
        while let Some(name) = cursor.next_of(&mut object)? {
            match name {
                "block_bytes" => plan.block_bytes = cursor.uint()?,
                "nonce" => plan.nonce = nonce(&mut cursor)?,
                "parent" if cursor.null() => {}
                "parent" => {
                    let (start, text) = (cursor.offset(), cursor.string()?);
                    let parent = Digest::from_hex(&text)
                        .ok_or_else(|| cursor.bad_spelling(start, "64 hex digits", &text))?;
                    plan.parent = Some(parent);
                }
                "run" => plan.run = cursor.string()?.into_owned(),
                "timeline" => plan.timeline = timeline(&mut cursor)?,
                "topology" => plan.topology = Topology::read(&mut cursor)?,
                _ => plan.writers = writers(&mut cursor)?,
            }
        }
        plan.check()?;
        Ok(plan)
    }
}

fn timeline(cursor: &mut Cursor<'_>) -> Result<u32> {
    let (start, found) = (cursor.offset(), cursor.uint()?);
    u32::try_from(found).ok().filter(|timeline| *timeline > 0).ok_or_else(|| {
        let message = format!("expected a timeline from 1 to {}, found {found}", u32::MAX);
        cursor.fail(start, Code::BadMember, rule::SESSION_PLAN, message)
    })
}

fn writers(cursor: &mut Cursor<'_>) -> Result<u32> {
    let (start, found) = (cursor.offset(), cursor.uint()?);
    match u32::try_from(found).ok().filter(|_| found <= limits::WRITERS) {
        Some(0) => Err(cursor.bad_spelling(start, "at least one writer", "0")),
        Some(writers) => Ok(writers),
        None => {
            let message = format!("expected at most {} writers, found {found}", limits::WRITERS);
            Err(cursor.fail(start, Code::Limit, rule::LIMIT_VALUE, message))
        }
    }
}

fn nonce(cursor: &mut Cursor<'_>) -> Result<[u8; 16]> {
    let (start, text) = (cursor.offset(), cursor.string()?);
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; 16];
    if !lower || pairs.len() != bytes.len() || !rest.is_empty() {
        let message = format!("expected 32 lower-case hex digits, found {text:?}");
        return Err(cursor.fail(start, Code::BadMember, rule::SESSION_PLAN, message));
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (digit(*high) << 4) | digit(*low);
    }
    Ok(bytes)
}

/// The value of a lower-case hex digit.
const fn digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit.wrapping_sub(b'0'),
        _ => digit.wrapping_sub(b'a').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of spec 11.1.
    const TEXT: &str = r#"{"block_bytes":1048576,"nonce":"000102030405060708090a0b0c0d0e0f","parent":null,"run":"demo","timeline":3,"topology":[["dp",4]],"writers":4}"#;

    #[test]
    fn a_plan_is_its_text() {
        let mut plan = SessionPlan::from_json(TEXT).unwrap();
        assert_eq!(plan.nonce, core::array::from_fn(|index| u8::try_from(index).unwrap()));
        assert_eq!((plan.timeline, plan.writers, plan.parent), (3, 4, None));
        assert_eq!(plan.to_json(), TEXT);
        plan.parent = Some(Digest::of(b"parent"));
        assert_eq!(SessionPlan::from_json(&plan.to_json()).unwrap(), plan);
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let refused = |from: &str, to: &str| {
            assert!(TEXT.contains(from), "{from}");
            let error = SessionPlan::from_json(&TEXT.replacen(from, to, 1)).unwrap_err();
            (error.code(), error.location().pointer.clone().unwrap_or_default())
        };
        let member = |pointer: &str| (Code::BadMember, pointer.to_owned());
        assert_eq!(refused("00010203", "0001020"), member("/nonce"));
        assert_eq!(refused("0a0b", "0A0B"), member("/nonce"));
        assert_eq!(refused("null", "\"ab\""), member("/parent"));
        assert_eq!(refused(":3,", ":0,"), member("/timeline"));
        assert_eq!(refused(":3,", ":4294967296,"), member("/timeline"));
        assert_eq!(refused("\"writers\":4", "\"writers\":0"), member("/writers"));
        assert_eq!(refused("\"writers\":4", "\"writers\":99999999").0, Code::Limit);
        assert_eq!(refused("1048576", "1048577").0, Code::BadMember);
        assert_eq!(refused("[\"dp\",4]", "[\"dp\"]").0, Code::BadMember);
        assert_eq!(refused("[\"dp\",4]", "[\"dp\",0]").0, Code::BadMember);
        assert_eq!(refused("\"demo\"", "\"\"").0, Code::BadName);
        assert_eq!(refused(",\"writers\":4", "").0, Code::BadMember);
        assert_eq!(refused("\"writers\"", "\"writes\"").0, Code::BadMember);
        assert_eq!(refused(",\"nonce\"", ", \"nonce\"").0, Code::NotCanonical);
        for text in ["", "null", "[]", "[[[["] {
            assert_eq!(SessionPlan::from_json(text).unwrap_err().code(), Code::NotCanonical);
        }
    }
}
