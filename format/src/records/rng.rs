//! Random streams: an engine's state, what samplers keep beside it and its canary (17.1).
//!
//! It knows the form, with the widths that the registry gives. It must not know engines: whether a
//! state is legal and gives these outputs is for `waystation-state`.

use super::number::Integer;
use super::read::Reader;
use super::write;
use crate::common::Coordinate;
use crate::digest::Digest;
use crate::identity::Identity;
use crate::json::Value;
use crate::value_tree::hex;
use crate::{Code, Error, Result, RngAlgorithm, RngCache, limits, rule};

const READER: Reader = Reader::new(rule::RNG_FORM);
/// Digits of a cache or output of an algorithm that is not registered.
const MOST_DIGITS: usize = 128;
/// Outputs that a canary has at least.
const LEAST_OUTPUTS: usize = 4;

/// The `value` of a record of kind `rng`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The engine, from the registry or another.
    pub algorithm: String,
    /// What samplers keep beside the engine, ascending by kind. One that is not filled is not here.
    pub caches: Vec<Cache>,
    /// Where the stream was forked from, the last time.
    pub fork: Option<Fork>,
    /// The canary: the next raw outputs in hex, most significant digit first.
    pub next_raw: Vec<String>,
    /// What to do when an axis has another size.
    pub on_reshape: OnReshape,
    /// Whose it was; informative.
    pub origin: Option<Origin>,
    /// What it is for; informative.
    pub purpose: Option<String>,
    /// How it was seeded; informative.
    pub seed_rule: Option<SeedRule>,
    /// The canonical state.
    pub state: State,
}

/// What a sampler keeps beside the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The value in hex, most significant digit first.
    pub bits: String,
    /// Which, from the registry or another.
    pub kind: String,
}

/// Where a stream was forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The place that it was forked for; empty when that was everywhere.
    pub coordinate: Coordinate,
    /// The digest of the manifest of the checkpoint that it was forked from.
    pub manifest: Digest,
    /// That checkpoint's step.
    pub step: u64,
}

/// What a loader does with a stream when an axis that it varies over has another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnReshape {
    /// It refuses.
    Require,
    /// It forks a stream for every place, also for those that had one.
    Fork,
    /// It seeds anew, by the trainer's own rule.
    Reinit,
}

/// Whose stream it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The form in which the framework gave it.
    pub form: Option<String>,
    /// The framework.
    pub framework: String,
    /// The seed that it says it began with.
    pub initial_seed: Option<Integer>,
    /// The framework's version.
    pub version: Option<String>,
}

/// How a stream was seeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedRule {
    /// The seed of all.
    pub root: Integer,
    /// How this one's follows from it.
    pub rule: String,
}

/// Where a canonical state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In the record: at most `inline-bytes` bytes.
    Inline(Vec<u8>),
    /// In a tensor of role `blob`.
    Tensor(Box<Identity>),
}

impl OnReshape {
    /// As it stands in a record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Require => "require",
            Self::Fork => "fork",
            Self::Reinit => "reinit",
        }
    }

    /// The one that is spelled so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Require, Self::Fork, Self::Reinit].into_iter().find(|one| one.as_str() == word)
    }
}

impl Stream {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`] for another form, with the pointer from the top of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        const WORDS: &str = "require, fork or reinit";
        let mut members = READER.object(value)?;
        let algorithm = members.required("algorithm", |value| READER.name(value, "algorithm"))?;
        let stream = Self {
            caches: members.required("caches", caches)?,
            fork: members.optional("fork", fork)?,
            next_raw: members.required("next_raw", next_raw)?,
            on_reshape: members
                .required("on_reshape", |value| READER.word(value, WORDS, OnReshape::from_word))?,
            origin: members.optional("origin", origin)?,
            purpose: members.optional("purpose", |value| READER.name(value, "purpose"))?,
            seed_rule: members.optional("seed_rule", seed_rule)?,
            state: members.required("state", state)?,
            algorithm,
        };
        members.end()?;
        stream.check_canary()?;
        Ok(stream)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let text = |text: &String| write::text(text.as_str());
        write::object([
            ("algorithm", Some(text(&self.algorithm))),
            ("caches", Some(write::list(&self.caches, Cache::to_value))),
            ("fork", self.fork.as_ref().map(Fork::to_value)),
            ("next_raw", Some(write::list(&self.next_raw, text))),
            ("on_reshape", Some(write::text(self.on_reshape.as_str()))),
            ("origin", self.origin.as_ref().map(Origin::to_value)),
            ("purpose", self.purpose.as_ref().map(text)),
            ("seed_rule", self.seed_rule.as_ref().map(SeedRule::to_value)),
            ("state", Some(self.state.to_value())),
        ])
    }

    /// The algorithm, if it is registered.
    #[must_use]
    pub fn known_algorithm(&self) -> Option<RngAlgorithm> {
        RngAlgorithm::from_id(&self.algorithm)
    }

    /// A canary stands where the specification can tell it, and only there.
    fn check_canary(&self) -> Result<()> {
        let Some(algorithm) = self.known_algorithm() else { return Ok(()) };
        let wide = digits(algorithm.width());
        let other = |digits: &String| algorithm.has_canary() && digits.len() != wide;
        if let Some((index, digits)) = self.next_raw.iter().enumerate().find(|(_, d)| other(d)) {
            let message = format!("expected {wide} hex digits, found {}", digits.len());
            return Err(READER.bad(message).in_item(index).in_member("next_raw"));
        }
        let found = self.next_raw.len();
        let wanted = match algorithm.has_canary() {
            true if found < LEAST_OUTPUTS => format!("at least {LEAST_OUTPUTS} outputs"),
            false if found > 0 => "no outputs".to_owned(),
            _ => return Ok(()),
        };
        let message = format!("expected {wanted} of {algorithm}, found {found}");
        let error = Error::rule(Code::BadMember, rule::RNG_CANARY_THERE, message);
        Err(error.in_member("next_raw"))
    }
}

impl Cache {
    fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let bits = members.required("bits", |value| {
            let bits = READER.hex(value, 0, MOST_DIGITS)?;
            if bits.len().is_multiple_of(2) {
                return Ok(bits.to_owned());
            }
            let found = bits.len();
            Err(READER.bad(format!("expected an even number of hex digits, found {found}")))
        })?;
        let kind = members.required("kind", |value| READER.name(value, "kind of cache"))?;
        members.end()?;
        let wanted = RngCache::from_id(&kind).map(|known| digits(known.bits()));
        match wanted {
            Some(wanted) if wanted != bits.len() => {
                let message = format!("expected {wanted} digits of {kind:?}, found {}", bits.len());
                Err(READER.bad(message).in_member("bits"))
            }
            _ => Ok(Self { bits, kind }),
        }
    }

    fn to_value(&self) -> Value {
        write::object([
            ("bits", Some(write::text(self.bits.as_str()))),
            ("kind", Some(write::text(self.kind.as_str()))),
        ])
    }
}

impl Fork {
    fn to_value(&self) -> Value {
        write::object([
            ("coordinate", Some(write::coordinate(&self.coordinate))),
            ("manifest", Some(write::text(self.manifest.to_string()))),
            ("step", Some(write::count(self.step))),
        ])
    }
}

impl Origin {
    fn to_value(&self) -> Value {
        let text = |text: &String| write::text(text.as_str());
        write::object([
            ("form", self.form.as_ref().map(text)),
            ("framework", Some(text(&self.framework))),
            ("initial_seed", self.initial_seed.as_ref().map(|seed| seed.to_tree().to_value())),
            ("version", self.version.as_ref().map(text)),
        ])
    }
}

impl SeedRule {
    fn to_value(&self) -> Value {
        write::object([
            ("root", Some(self.root.to_tree().to_value())),
            ("rule", Some(write::text(self.rule.as_str()))),
        ])
    }
}

impl State {
    fn to_value(&self) -> Value {
        match self {
            Self::Inline(bytes) => write::text(hex(bytes)),
            Self::Tensor(identity) => write::tensor(identity),
        }
    }
}

fn caches(value: &Value) -> Result<Vec<Cache>> {
    let mut before: Option<String> = None;
    READER.list(value, |_, item| {
        let cache = Cache::parse(item)?;
        if before.as_ref().is_some_and(|before| *before >= cache.kind) {
            let message = format!("expected each kind once, ascending, found {:?}", cache.kind);
            return Err(READER.bad(message).in_member("kind"));
        }
        before = Some(cache.kind.clone());
        Ok(cache)
    })
}

fn fork(value: &Value) -> Result<Fork> {
    let mut members = READER.object(value)?;
    let fork = Fork {
        coordinate: members.required("coordinate", |value| READER.coordinate(value))?,
        manifest: members.required("manifest", |value| READER.digest(value))?,
        step: members
            .required("step", |value| READER.count_limited(value, limits::STEP, "step"))?,
    };
    members.end()?;
    Ok(fork)
}

fn next_raw(value: &Value) -> Result<Vec<String>> {
    READER.list_limited(value, limits::CANARY_OUTPUTS, |_, item| {
        READER.hex(item, 1, MOST_DIGITS).map(str::to_owned)
    })
}

fn origin(value: &Value) -> Result<Origin> {
    let mut members = READER.object(value)?;
    let origin = Origin {
        form: members.optional("form", |value| READER.name(value, "form"))?,
        framework: members.required("framework", |value| READER.name(value, "framework"))?,
        initial_seed: members.optional("initial_seed", |value| READER.integer(value))?,
        version: members.optional("version", |value| READER.name(value, "version"))?,
    };
    members.end()?;
    Ok(origin)
}

fn seed_rule(value: &Value) -> Result<SeedRule> {
    let mut members = READER.object(value)?;
    let seed_rule = SeedRule {
        root: members.required("root", |value| READER.integer(value))?,
        rule: members.required("rule", |value| READER.name(value, "rule"))?,
    };
    members.end()?;
    Ok(seed_rule)
}

fn state(value: &Value) -> Result<State> {
    match value {
        Value::Str(_) => READER.bytes(value).map(State::Inline),
        Value::Object(_) => READER.tensor(value).map(|identity| State::Tensor(Box::new(identity))),
        _ => Err(READER.bad_type("hex digits or a tensor", value)),
    }
}

/// Hex digits of so many bits.
fn digits(bits: u32) -> usize {
    usize::try_from(bits.div_ceil(4)).unwrap_or(usize::MAX)
}
