//! What an adapter says to a request, and the ways in which it can say nothing. Knows the protocol's
//! lines; what answer is right is not its business.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::strict::Strict;

/// An answer as the protocol has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The operation's answer.
    Ok(Map<String, Value>),
    /// The implementation refused.
    Refused(Refusal),
    /// The implementation does not do this.
    Skip {
        /// Why, in words.
        reason: String,
        /// The feature of the format that it lacks.
        feature: Option<String>,
    },
}

/// The `error` of an answer, or one of the findings of `validate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// A code of the registry, or another word.
    pub code: String,
    /// The whole object, for people.
    pub whole: Value,
}

/// The code of an exception that an implementation did not mean to raise (protocol: Answers). Were it a refusal like others,
/// a reader that falls over its own feet would pass at level 1.
pub const INTERNAL: &str = "internal";

/// Why there is no answer. Every one of these fails a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Crash {
    /// The output ended; how the process did, where that is known.
    Ended(String),
    /// Nothing came in time.
    Silent(Duration),
    /// A line that is no answer, and why not.
    Garbage(String),
    /// An error of code [`INTERNAL`]: the implementation fell, and its adapter caught it.
    Internal(String),
    /// A line longer than this many bytes.
    LongLine(usize),
    /// A well-formed answer to another request.
    WrongId(Value),
    /// A line that nothing had asked for.
    Unasked(String),
    /// The process ended by itself after its last answer, before it was asked again; how.
    Left(String),
    /// The process ended by itself with its answer, so that nobody knows what it took; how.
    Gone(String),
    /// The run was stopped meanwhile: nothing is known.
    Stopped,
    /// More memory than allowed: what it took and what it might have.
    Memory {
        /// Peak above what the process had after `hello`, in bytes.
        took: u64,
        /// The most it might take, in bytes.
        allowed: u64,
    },
    /// More processor time than this.
    Processor(Duration),
}

impl Crash {
    /// Whether the fault may be that of the case before, when a process that was asked before did this.
    #[must_use]
    pub(super) fn may_be_late(&self) -> bool {
        match self {
            Self::Ended(_) | Self::Garbage(_) | Self::LongLine(_) | Self::WrongId(_) => true,
            Self::Silent(_)
            | Self::Internal(_)
            | Self::Unasked(_)
            | Self::Left(_)
            | Self::Gone(_)
            | Self::Stopped
            | Self::Memory { .. }
            | Self::Processor(_) => false,
        }
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(how) => write!(f, "its output ended: {how}"),
            Self::Silent(time) => {
                write!(f, "no answer within {} s (is each line flushed?)", time.as_secs_f64())
            }
            Self::Garbage(why) => write!(f, "a line that is no answer: {why}"),
            Self::Internal(whole) => write!(f, "an error that it did not mean: {whole}"),
            Self::LongLine(most) => write!(f, "a line of more than {most} bytes"),
            Self::WrongId(id) => write!(f, "an answer to another request, id {id}"),
            Self::Unasked(line) => write!(f, "a line that nothing asked for: {line}"),
            Self::Left(how) => write!(f, "the end of its process, though its input goes on: {how}"),
            Self::Gone(how) => write!(f, "the end of its process with its answer: {how}"),
            Self::Stopped => write!(f, "no answer before the run was stopped"),
            Self::Memory { took, allowed } => write!(
                f,
                "{took} bytes of memory above what it had after hello, where {allowed} are allowed"
            ),
            Self::Processor(time) => {
                write!(f, "more than {} s of processor time", time.as_secs_f64())
            }
        }
    }
}

impl Answer {
    /// The answer in `line` to the request `id`.
    ///
    /// # Errors
    /// [`Crash::Garbage`] and [`Crash::WrongId`].
    pub fn parse(line: &[u8], id: u64) -> Result<Self, Crash> {
        let garbage = |why: String| Crash::Garbage(format!("{why}: {}", excerpt(line)));
        let Strict(value) = serde_json::from_slice(line)
            .map_err(|e| garbage(format!("expected JSON, found {e}")))?;
        let Value::Object(mut object) = value else {
            return Err(garbage("expected an object".to_owned()));
        };
        let answered = object.remove("id").unwrap_or(Value::Null);
        if answered != id {
            return Err(Crash::WrongId(answered));
        }
        let three = ["ok", "error", "skip"].map(|name| object.remove(name));
        match three {
            [Some(Value::Object(ok)), None, None] => Ok(Self::Ok(ok)),
            [None, Some(error), None] => Refusal::of(error).map(Self::Refused).map_err(garbage),
            [None, None, Some(skip)] => {
                let text = |name| skip.get(name).and_then(Value::as_str).map(str::to_owned);
                let reason = text("reason")
                    .ok_or_else(|| garbage("expected skip with a reason".to_owned()))?;
                Ok(Self::Skip { reason, feature: text("feature") })
            }
            [Some(_), None, None] => Err(garbage("expected ok to be an object".to_owned())),
            _ => Err(garbage("expected exactly one of ok, error and skip".to_owned())),
        }
    }

    /// In one line, for people.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Ok(ok) => format!("ok {}", shortened(&Value::Object(ok.clone()))),
            Self::Refused(refusal) => format!("error {}", shortened(&refusal.whole)),
            Self::Skip { reason, feature } => match feature {
                Some(feature) => format!("skip for want of {feature}: {reason}"),
                None => format!("skip: {reason}"),
            },
        }
    }
}

impl Refusal {
    /// # Errors
    /// What it lacks, in words.
    pub fn of(whole: Value) -> Result<Self, String> {
        let code = whole.get("code").and_then(Value::as_str);
        let code = code.ok_or("expected an object with a code that is a string")?.to_owned();
        Ok(Self { code, whole })
    }
}

/// Bytes of an excerpt for people.
const EXCERPT: usize = 400;

/// The begin of `bytes` as text.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(bytes.get(..EXCERPT).unwrap_or(bytes)).into_owned();
    if bytes.len() > EXCERPT { format!("{head}… ({} bytes)", bytes.len()) } else { head }
}

/// A value in so few characters that a line holds it.
#[must_use]
pub fn shortened(value: &Value) -> String {
    excerpt(value.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_of_three() {
        let ok = Answer::parse(br#"{"id":7,"ok":{"a":1},"more":2}"#, 7).unwrap();
        assert!(matches!(ok, Answer::Ok(ref ok) if ok.len() == 1));
        let refused = Answer::parse(br#"{"error":{"code":"io"},"id":7}"#, 7).unwrap();
        assert!(matches!(refused, Answer::Refused(ref r) if r.code == "io"));
        assert!(matches!(
            Answer::parse(br#"{"id":7,"skip":{"reason":""}}"#, 7),
            Ok(Answer::Skip { .. })
        ));
        for garbage in [
            "",
            "[]",
            "nan",
            r#"{"id":7}"#,
            r#"{"id":7,"ok":1}"#,
            r#"{"id":7,"ok":{},"error":{"code":"x"}}"#,
            r#"{"id":7,"error":{}}"#,
            r#"{"id":7,"error":{"code":1}}"#,
            r#"{"id":7,"skip":{}}"#,
            // Which of two is meant nobody knows.
            r#"{"id":7,"ok":{},"ok":{}}"#,
            r#"{"id":7,"id":7,"ok":{}}"#,
            r#"{"id":7,"ok":{"a":[{"b":1,"b":1}]}}"#,
            r#"{"id":7,"ok":{}} {"id":8,"ok":{}}"#,
            "\u{feff}{\"id\":7,\"ok\":{}}",
        ] {
            let found = Answer::parse(garbage.as_bytes(), 7);
            assert!(matches!(found, Err(Crash::Garbage(_))), "{garbage}: {found:?}");
        }
        for other in [r#"{"id":6,"ok":{}}"#, r#"{"id":"7","ok":{}}"#, r#"{"ok":{}}"#] {
            assert!(
                matches!(Answer::parse(other.as_bytes(), 7), Err(Crash::WrongId(_))),
                "{other}"
            );
        }
    }
}
