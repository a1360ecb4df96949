//! What a place gets of a checkpoint's records, as JSON.
//!
//! It knows the members of the question and the answer. Grades and refusals are
//! `waystation-reader`'s, the values of records those of `waystation-format`.

use std::collections::BTreeMap;

use waystation_format::json::{Encoder, Value};
use waystation_format::records::Stream;
use waystation_format::records::rng::State;
use waystation_format::value_tree::Tree;
use waystation_format::{Code, Coordinate, Digest, Error, Grade, Result, Topology};
use waystation_reader::progress::within;
use waystation_reader::restore::{
    Graded, Place, RestoreOptions, Restored, RestoredCursor, RestoredStream,
};
use waystation_reader::{Checkpoint, Progress};
use waystation_state::Budget;

use crate::json;

/// Answers what the place gets. Nothing is refused here: `refused` says what would be.
///
/// # Errors
/// As `Checkpoint::appraise`; `interrupted`; `bad-argument` for a place or options of another form.
pub(crate) fn answer(
    checkpoint: &Checkpoint,
    topology: Topology,
    coordinate: Coordinate,
    options: &str,
    progress: &dyn Progress,
) -> Result<String> {
    let place = Place::new(topology, coordinate)?;
    let mut options = self::options(options)?;
    options.budget = within(options.budget, progress);
    let appraisal = checkpoint.appraise(&place, &options)?;
    let restored = &appraisal.restored;
    let mut json = Encoder::new();
    json.begin_object();
    json.member("progress");
    match &restored.progress {
        Some(progress) => progress.to_value().write(&mut json)?,
        None => json.null(),
    }
    named(&mut json, "optimizers", &restored.optimizers, |one| one.to_value())?;
    named(&mut json, "averages", &restored.averages, |one| one.to_value())?;
    named(&mut json, "schedules", &restored.schedules, |one| one.to_value())?;
    named(&mut json, "scalers", &restored.scalers, |one| one.to_value())?;
    named(&mut json, "values", &restored.values, Tree::to_value)?;
    let say = Say { restored, place: &place };
    list(&mut json, "streams", &restored.streams, |json, one| say.stream(json, one))?;
    list(&mut json, "cursors", &restored.cursors, |json, one| say.cursor(json, one))?;
    json.member("report");
    report(&mut json, &restored.report);
    json.member("refused");
    match &appraisal.refused {
        Some(refused) => error(&mut json, refused),
        None => json.null(),
    }
    json.end_object();
    Ok(json.into_string())
}

/// The grades of records: `[{"kind","name","coordinate","grade","reason"}]`.
pub(crate) fn report(json: &mut Encoder, report: &[Graded]) {
    json.begin_array();
    for Graded { key, grade, reason } in report {
        json.begin_object();
        text(json, "kind", &key.kind);
        text(json, "name", &key.name);
        json.member("coordinate");
        pairs(json, &key.coordinate);
        text(json, "grade", grade.as_str());
        optional_text(json, "reason", reason.as_deref());
        json.end_object();
    }
    json.end_array();
}

/// What an answer is made of.
struct Say<'a> {
    restored: &'a Restored,
    place: &'a Place,
}

impl Say<'_> {
    fn stream(&self, json: &mut Encoder, stream: &RestoredStream) -> Result<()> {
        // A state that stands in a tensor was read, so that the value is all that there is to know.
        let value = stream.to_record()?.map(|record| match &stream.state {
            Some(known) => Stream { state: State::Inline(known.state.clone()), ..record },
            None => record,
        });
        self.frame(json, "rng", &stream.name, stream.grade);
        json.member("value");
        match value {
            Some(record) => record.to_value().write(json)?,
            None => json.null(),
        }
        json.member("forked");
        json.bool(stream.fork.is_some());
        json.end_object();
        Ok(())
    }

    fn cursor(&self, json: &mut Encoder, cursor: &RestoredCursor) -> Result<()> {
        self.frame(json, "cursor", &cursor.name, cursor.grade);
        json.member("cursor");
        match &cursor.cursor {
            Some(cursor) => cursor.to_value().write(json)?,
            None => json.null(),
        }
        json.member("rank");
        match cursor.rank {
            Some(of) => json.uints(&[of.rank, of.world]),
            None => json.null(),
        }
        json.member("wanted");
        json.begin_array();
        for (records, sha256) in &cursor.wanted {
            json.begin_array();
            json.uint(*records);
            json.display(sha256);
            json.end_array();
        }
        json.end_array();
        json.end_object();
        Ok(())
    }

    /// What streams and cursors have in common. The object stays open.
    fn frame(&self, json: &mut Encoder, kind: &str, name: &str, grade: Grade) {
        let mut graded = self.restored.report.iter();
        let graded = graded.find(|graded| graded.key.kind == kind && graded.key.name == name);
        json.begin_object();
        text(json, "name", name);
        text(json, "grade", grade.as_str());
        optional_text(json, "reason", graded.and_then(|graded| graded.reason.as_deref()));
        json.member("coordinate");
        let coordinate = graded.map(|graded| self.place.along(&graded.key.coordinate));
        pairs(json, &coordinate.unwrap_or_default());
    }
}

/// An error with all its members, those that are not there as null.
fn error(json: &mut Encoder, error: &Error) {
    let place = error.location();
    json.begin_object();
    text(json, "code", error.code().as_str());
    text(json, "class", error.class().as_str());
    text(json, "message", error.message());
    text(json, "remedy", error.code().remedy());
    optional_text(json, "rule", error.rule_id());
    optional_text(json, "file", place.file.as_deref());
    json.member("offset");
    match place.offset {
        Some(offset) => json.uint(offset),
        None => json.null(),
    }
    optional_text(json, "pointer", place.pointer.as_deref());
    optional_text(json, "record", place.record.as_deref());
    optional_text(json, "tensor", place.tensor.as_deref());
    json.end_object();
}

/// What the caller demands and brings along:
/// `{"streams":grade,"cursors":grade,"leave_out":[name],"sources":[[cursor,records,sha256]],"fingerprints":{cursor:tree},
/// "budget_steps":int,"budget_bytes":int}`, all of which may be left out.
fn options(text: &str) -> Result<RestoreOptions> {
    let mut options = RestoreOptions::default();
    let Value::Object(members) = json::value(text)? else {
        return Err(bad("an object", text));
    };
    let (mut steps, mut bytes) = (options.budget.steps(), options.budget.bytes());
    for (name, value) in members {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("streams", Value::Str(id)) => options.streams = grade(&id)?,
            ("cursors", Value::Str(id)) => options.cursors = grade(&id)?,
            ("leave_out", Value::List(names)) => {
                for name in names {
                    let Value::Str(name) = name else {
                        return Err(bad("names in leave_out", text));
                    };
                    options.leave_out.insert(name);
                }
            }
            ("sources", Value::List(sources)) => {
                for source in &sources {
                    let (name, records, sha256) = self::source(source)
                        .ok_or_else(|| bad("sources [cursor, records, sha256]", text))?;
                    options = options.with_source(name, records, sha256);
                }
            }
            ("fingerprints", Value::Object(fingerprints)) => {
                for (name, value) in fingerprints {
                    options = options.with_fingerprint(&name, Tree::parse(&value)?);
                }
            }
            ("budget_steps", Value::Int(count)) => {
                steps = u64::try_from(count).map_err(|_| bad("a budget from 0", text))?;
            }
            ("budget_bytes", Value::Int(count)) => {
                bytes = u64::try_from(count).map_err(|_| bad("a budget from 0", text))?;
            }
            (name, _) => return Err(bad(&format!("no {name:?} of this form"), text)),
        }
    }
    options.budget = Budget::new(steps, bytes);
    Ok(options)
}

fn source(value: &Value) -> Option<(&str, u64, Digest)> {
    let Value::List(items) = value else { return None };
    let [Value::Str(name), Value::Int(records), Value::Str(sha256)] = items.as_slice() else {
        return None;
    };
    Some((name, u64::try_from(*records).ok()?, Digest::from_hex(sha256)?))
}

fn grade(id: &str) -> Result<Grade> {
    Grade::from_id(id).ok_or_else(|| {
        let all: Vec<&str> = Grade::ALL.iter().map(|grade| grade.as_str()).collect();
        let message = format!("expected one of the grades {}, found {id:?}", all.join(", "));
        Error::new(Code::BadArgument, message)
    })
}

#[cold]
fn bad(expected: &str, found: &str) -> Error {
    Error::new(
        Code::BadArgument,
        format!("expected {expected} in options of a restore, found {found}"),
    )
}

/// A member that is an object of values by name.
fn named<T>(
    json: &mut Encoder,
    name: &str,
    values: &BTreeMap<String, T>,
    value: impl Fn(&T) -> Value,
) -> Result<()> {
    json.member(name);
    json.begin_object();
    for (name, one) in values {
        json.member(name);
        value(one).write(json)?;
    }
    json.end_object();
    Ok(())
}

fn list<T>(
    json: &mut Encoder,
    name: &str,
    items: &[T],
    mut write: impl FnMut(&mut Encoder, &T) -> Result<()>,
) -> Result<()> {
    json.member(name);
    json.begin_array();
    items.iter().try_for_each(|item| write(json, item))?;
    json.end_array();
    Ok(())
}

fn pairs(json: &mut Encoder, coordinate: &Coordinate) {
    json.begin_array();
    for (axis, index) in coordinate {
        json.begin_array();
        json.string(axis);
        json.uint(*index);
        json.end_array();
    }
    json.end_array();
}

fn text(json: &mut Encoder, name: &str, text: &str) {
    json.member(name);
    json.string(text);
}

fn optional_text(json: &mut Encoder, name: &str, text: Option<&str>) {
    json.member(name);
    match text {
        Some(text) => json.string(text),
        None => json.null(),
    }
}
