//! Schedules of hyper-parameters: position, unit and the values in force (16.4).
//!
//! It knows the form and the parameters of the schedules that the specification computes. It must
//! not know their formulas.

use std::collections::HashSet;

use super::number::Float;
use super::read::Reader;
use super::write;
use crate::json::Value;
use crate::value_tree::{MapKey, Tree};
use crate::{Error, Result, ScheduleAlgorithm, limits, rule};

const READER: Reader = Reader::new(rule::SCHEDULE_FORM);

/// The `value` of a record of kind `schedule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The schedule, from the registry or another.
    pub algorithm: String,
    /// The values that the next optimizer step uses: one for each group that the schedule drives.
    pub last_value: Vec<Tree>,
    /// What the schedule was made of.
    pub parameters: Tree,
    /// What the position counts.
    pub unit: Unit,
    /// How far it is, in that unit.
    pub position: u64,
}

/// What the position of a schedule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Completed optimizer steps.
    OptimizerSteps,
    /// Samples of completed optimizer steps.
    Samples,
    /// Tokens of completed optimizer steps.
    Tokens,
    /// Completed epochs.
    Epochs,
}

/// A schedule whose values the specification computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Which.
    pub algorithm: ScheduleAlgorithm,
    /// Where the warm-up ends; 0 where the algorithm has none.
    pub warmup: u64,
    /// Where the floor is reached; 0 where the algorithm has none.
    pub total: u64,
    /// One for each value.
    pub lines: Vec<Line>,
}

/// One of the values that a computed schedule drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The value at the top.
    pub base: Float,
    /// The value at the end, where the algorithm has one.
    pub floor: Option<Float>,
    /// The value recorded.
    pub last_value: Float,
}

impl Unit {
    /// As it stands in a record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OptimizerSteps => "optimizer_steps",
            Self::Samples => "samples",
            Self::Tokens => "tokens",
            Self::Epochs => "epochs",
        }
    }

    /// The one that is spelled so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::OptimizerSteps, Self::Samples, Self::Tokens, Self::Epochs]
            .into_iter()
            .find(|unit| unit.as_str() == word)
    }
}

impl Schedule {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let algorithm = members.required("algorithm", |value| READER.name(value, "algorithm"))?;
        let last_value = members
            .required("last_value", |value| READER.list(value, |_, item| Tree::parse(item)))?;
        let parameters = members.required("parameters", Tree::parse)?;
        let (unit, position) = members.required("position", position)?;
        members.end()?;
        let schedule = Self { algorithm, last_value, parameters, unit, position };
        schedule.computed()?;
        Ok(schedule)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let position = write::object([
            ("unit", Some(write::text(self.unit.as_str()))),
            ("value", Some(write::count(self.position))),
        ]);
        write::object([
            ("algorithm", Some(write::text(self.algorithm.as_str()))),
            ("last_value", Some(write::list(&self.last_value, Tree::to_value))),
            ("parameters", Some(self.parameters.to_value())),
            ("position", Some(position)),
        ])
    }

    /// The numbers of a schedule whose values the specification computes; `None` for any other.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) where such a schedule has other parameters, or
    /// values that are no floats: not after [`parse`](Self::parse).
    pub fn computed(&self) -> Result<Option<Computed>> {
        let Some(algorithm) = ScheduleAlgorithm::from_id(&self.algorithm) else { return Ok(None) };
        let floats = self.last_value.iter().enumerate().map(|(index, tree)| {
            let bad = || {
                let bad = READER.bad("expected a float, found another value");
                bad.in_item(index).in_member("last_value")
            };
            Float::of(tree).ok_or_else(bad)
        });
        let last_values = floats.collect::<Result<Vec<Float>>>()?;
        let parameters = Parameters::read(algorithm, &self.parameters, last_values.len())
            .map_err(|error| error.in_member("parameters"))?;
        let lines = last_values.into_iter().enumerate().map(|(index, last_value)| Line {
            base: parameters.base.at(index).unwrap_or(last_value),
            floor: parameters.floor.as_ref().and_then(|floor| floor.at(index)),
            last_value,
        });
        let lines = lines.collect();
        Ok(Some(Computed { algorithm, warmup: parameters.warmup, total: parameters.total, lines }))
    }
}

fn position(value: &Value) -> Result<(Unit, u64)> {
    const WORDS: &str = "optimizer_steps, samples, tokens or epochs";
    let mut members = READER.object(value)?;
    let unit = members.required("unit", |value| READER.word(value, WORDS, Unit::from_word))?;
    let value = members.required("value", |value| READER.count(value))?;
    members.end()?;
    Ok((unit, value))
}

/// One float for all values, or as many as there are values.
enum Floats {
    Same(Float),
    Each(Vec<Float>),
}

impl Floats {
    fn at(&self, index: usize) -> Option<Float> {
        match self {
            Self::Same(float) => Some(*float),
            Self::Each(floats) => floats.get(index).copied(),
        }
    }
}

/// The parameters of a computed schedule.
struct Parameters {
    base: Floats,
    floor: Option<Floats>,
    warmup: u64,
    total: u64,
}

impl Parameters {
    /// Pointers are those of the map's tree.
    fn read(algorithm: ScheduleAlgorithm, tree: &Tree, values: usize) -> Result<Self> {
        let wanted = algorithm.parameters();
        let Tree::Map(pairs) = tree else {
            return Err(READER.bad(format!("expected a map of {wanted:?}, found another value")));
        };
        let in_map = |error: Error| error.in_member("map");
        let (mut base, mut floor, mut warmup, mut total) = (None, None, None, None);
        let mut seen = HashSet::new();
        for (index, (key, value)) in pairs.iter().enumerate() {
            let found = match key {
                MapKey::Str(name) if wanted.contains(&name.as_str()) => name.as_str(),
                _ => {
                    let message = format!("expected the parameters {wanted:?}, found {key:?}");
                    return Err(in_map(READER.bad(message).in_item(0).in_item(index)));
                }
            };
            seen.insert(found);
            let at = |error: Error| in_map(error.in_item(1).in_item(index));
            match found {
                "base" => base = Some(floats(value, values).map_err(at)?),
                "floor" => floor = Some(floats(value, values).map_err(at)?),
                "warmup" => warmup = Some(count(value).map_err(at)?),
                _ => total = Some(count(value).map_err(at)?),
            }
        }
        if let Some(missing) = wanted.iter().find(|name| !seen.contains(*name)) {
            let message = format!("expected the parameters {wanted:?}, found no {missing:?}");
            return Err(in_map(READER.bad(message)));
        }
        if let (Some(warmup), Some(total)) = (warmup, total)
            && warmup > total
        {
            let message = format!("expected a warmup of at most {total} (total), found {warmup}");
            return Err(in_map(READER.bad(message)));
        }
        let base = base.ok_or_else(|| READER.bad("expected the parameter \"base\", found none"))?;
        Ok(Self { base, floor, warmup: warmup.unwrap_or(0), total: total.unwrap_or(0) })
    }
}

fn floats(tree: &Tree, values: usize) -> Result<Floats> {
    let wrong = |found: &str| {
        let message = format!("expected a float, or a list of {values} floats, found {found}");
        READER.bad(message)
    };
    match tree {
        Tree::List(items) => {
            let each = items.iter().enumerate().map(|(index, item)| {
                let bad = || wrong("another value in it").in_item(index).in_member("list");
                Float::of(item).ok_or_else(bad)
            });
            let each = each.collect::<Result<Vec<Float>>>()?;
            if each.len() == values {
                Ok(Floats::Each(each))
            } else {
                Err(wrong(&format!("one of {}", each.len())))
            }
        }
        _ => Float::of(tree).map(Floats::Same).ok_or_else(|| wrong("another value")),
    }
}

fn count(tree: &Tree) -> Result<u64> {
    match tree {
        Tree::Int(value) => {
            u64::try_from(*value).ok().filter(|count| *count <= limits::MAX_INTEGER)
        }
        _ => None,
    }
    .ok_or_else(|| READER.bad("expected a count, found another value"))
}
