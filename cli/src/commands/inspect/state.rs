//! `inspect --state`: what the records say, for people, and how well they can be resumed.
//!
//! It knows words. Which grade a record has is the reader's business.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waystation_format::record::{Record, RecordKey};
use waystation_format::records::cursor::Item;
use waystation_format::records::rng::OnReshape;
use waystation_format::records::{Stream, Typed};
use waystation_format::value_tree::hex;
use waystation_format::{Code, Digest, Error, Grade, Result};
use waystation_reader::restore::{
    Appraisal, Graded, Place, RestoreOptions, Restored, RestoredCursor, RestoredStream,
};
use waystation_reader::{Checkpoint, Stop};

use super::{share, summary};
use crate::args::Inspect;
use crate::{output, place_arg};

/// What was asked about the records.
pub(super) struct Asked {
    place: Option<Place>,
    share: bool,
    options: RestoreOptions,
    stop: Stop,
}

/// The grades, what a place gets when one was asked about, and why it does not get it.
struct Answer {
    grades: Vec<Graded>,
    place: Option<(Place, Restored)>,
    /// The items of each cursor's next batch that are the place's, as far as they were asked for.
    shares: Vec<Option<Vec<Item>>>,
    refused: Option<Error>,
    /// What the command line can do about it.
    ways: Vec<String>,
}

impl Asked {
    /// # Errors
    /// `bad-argument` for a place, source or grade of another form.
    pub(super) fn of(args: &Inspect, stop: &Stop) -> Result<Self> {
        let place = match (&args.topology, &args.place) {
            (Some(topology), Some(place)) => Some(place_arg::place(topology, place)?),
            _ => None,
        };
        let mut options = RestoreOptions::default();
        let demand = Grade::from_id(&args.demand).ok_or_else(|| {
            let all: Vec<&str> = Grade::ALL.iter().map(|grade| grade.as_str()).collect();
            let message = format!("--demand {:?}: expected one of {}", args.demand, all.join(", "));
            Error::new(Code::BadArgument, message)
        })?;
        (options.streams, options.cursors) = (demand, demand);
        options.leave_out = args.leave_out.iter().cloned().collect();
        for text in &args.source {
            let (cursor, records, sha256) = place_arg::source(text)?;
            options = options.with_source(&cursor, records, sha256);
        }
        options.budget = options.budget.until(stop.clone());
        Ok(Self { place, share: args.share, options, stop: stop.clone() })
    }

    fn answer(&self, checkpoint: &Checkpoint) -> Result<Answer> {
        let Some(place) = &self.place else {
            let grades = checkpoint.grades_until(&self.stop)?;
            let (shares, ways) = (Vec::new(), Vec::new());
            return Ok(Answer { grades, place: None, shares, refused: None, ways });
        };
        let Appraisal { restored, mut refused, .. } = checkpoint.appraise(place, &self.options)?;
        let ways = match refused {
            Some(_) => self.ways(&restored, &uncaptured(checkpoint)?),
            None => Vec::new(),
        };
        let mut shares = Vec::new();
        for cursor in &restored.cursors {
            match self.share(checkpoint, cursor, place) {
                Ok(share) => shares.push(share),
                Err(error) => {
                    let error = error.in_record(key_for(cursor, &restored, place).key());
                    if error.code() != Code::NotExact {
                        return Err(error);
                    }
                    refused.get_or_insert(error);
                    shares.push(None);
                }
            }
        }
        let grades = restored.report.clone();
        Ok(Answer { grades, place: Some((place.clone(), restored)), shares, refused, ways })
    }

    fn share(
        &self,
        checkpoint: &Checkpoint,
        cursor: &RestoredCursor,
        place: &Place,
    ) -> Result<Option<Vec<Item>>> {
        let Some(value) = cursor.cursor.as_ref().filter(|_| self.share) else { return Ok(None) };
        share::items(checkpoint, value, place, self.options.budget.clone())
    }

    /// What there is to say on the command line instead, where something is refused.
    fn ways(&self, restored: &Restored, uncaptured: &[String]) -> Vec<String> {
        let sources: Vec<String> = restored.cursors.iter().flat_map(wanted).collect();
        let left_out = |name: &String| self.options.leave_out.contains(name);
        let (mut worst, mut required, mut names) = (None, false, BTreeSet::new());
        for stream in restored.streams.iter().filter(|stream| !left_out(&stream.name)) {
            let requires = stream.record.on_reshape == OnReshape::Require && stream.state.is_none();
            if stream.grade > self.options.streams || requires {
                worst = worst.max(Some(stream.grade));
                required |= requires;
                names.insert(&stream.name);
            }
        }
        for cursor in restored.cursors.iter().filter(|cursor| !left_out(&cursor.name)) {
            if cursor.grade > self.options.cursors && cursor.wanted.is_empty() {
                worst = worst.max(Some(cursor.grade));
                names.insert(&cursor.name);
            }
        }
        let demanded = |name: &&String| self.options.streams < Grade::None && !left_out(name);
        for name in uncaptured.iter().filter(demanded) {
            worst = Some(Grade::None);
            names.insert(name);
        }
        let mut ways = Vec::new();
        if !sources.is_empty() {
            ways.push(format!("{} offers the data", sources.join(" ")));
        }
        if let Some(worst) = worst.filter(|_| !required) {
            ways.push(format!("--demand {worst} takes that grade"));
        }
        let names: Vec<String> = names.into_iter().map(|name| leave_out(name)).collect();
        if !names.is_empty() {
            ways.push(format!("{} does without", names.join(" ")));
        }
        ways
    }
}

/// Prints records, grades and what a place gets; whether it is refused.
pub(super) fn as_text(checkpoint: &Checkpoint, asked: &Asked) -> Result<bool> {
    if checkpoint.manifest().records.is_empty() {
        output::line("state       no records: tensors can be loaded, training not resumed")?;
    }
    for record in checkpoint.records() {
        let record = record?;
        output::line(&format!("record      {}  {}", name(&record.key), summary::of(&record)?))?;
        sources(&record)?.iter().try_for_each(|source| output::line(source))?;
    }
    let answer = asked.answer(checkpoint)?;
    let cursors = answer.place.as_ref().map_or(&[][..], |(_, restored)| &restored.cursors);
    for Graded { key, grade, reason } in &answer.grades {
        let want = |cursor: &&RestoredCursor| key.kind == "cursor" && cursor.name == key.name;
        let wanted = cursors.iter().find(want).map(wanted).unwrap_or_default();
        let reason = match reason {
            _ if !wanted.is_empty() => {
                format!("  (its source was not offered: {})", wanted.join(" "))
            }
            Some(reason) => format!("  ({reason})"),
            None => String::new(),
        };
        output::line(&format!("resume      {} {}  {grade}{reason}", key.kind, key.name))?;
    }
    if let Some((place, restored)) = &answer.place {
        for stream in &restored.streams {
            if let Some(record) = stream.to_record()? {
                let (what, fork) =
                    (summary::of_stream(&record), summary::of_fork(record.fork.as_ref()));
                output::line(&format!("stream      {}  {what}{fork}", stream.name))?;
            }
        }
        for (cursor, share) in restored.cursors.iter().zip(&answer.shares) {
            let words = cursor.cursor.as_ref().and_then(|value| share::in_words(value, place));
            if let Some(words) = &words {
                output::line(&format!("cursor      {}  {words}", cursor.name))?;
            }
            if let Some(items) = share {
                let items: Vec<String> = items.iter().map(share::item_text).collect();
                output::line(&format!("share       {}  {}", cursor.name, items.join(" ")))?;
            } else if asked.share && cursor.cursor.is_some() && words.is_none() {
                output::line(&format!("share       {}  no partition is recorded", cursor.name))?;
            }
        }
    }
    Ok(answer.tell_refused())
}

impl Answer {
    /// Says on standard error why nothing is handed out, and what can be done.
    fn tell_refused(&self) -> bool {
        let Some(error) = &self.refused else { return false };
        output::note(&format!("waystation: {error}"));
        if !self.ways.is_empty() {
            output::note(&format!("waystation: {}", self.ways.join("; ")));
        }
        true
    }
}

/// The members `records`, `resume` and, for a place, `streams`, `cursors` and `refused`; and whether
/// it is refused.
pub(super) fn as_members(
    checkpoint: &Checkpoint,
    asked: &Asked,
) -> Result<(Vec<(&'static str, Value)>, bool)> {
    let mut records = Vec::new();
    for record in checkpoint.records() {
        records.push(serde_json::from_str::<Value>(&record?.json).unwrap_or_default());
    }
    let answer = asked.answer(checkpoint)?;
    let grades: Vec<Value> = answer
        .grades
        .iter()
        .map(|graded| {
            json!({
                "kind": graded.key.kind, "name": graded.key.name, "grade": graded.grade.as_str(),
                "reason": graded.reason,
            })
        })
        .collect();
    let mut members = vec![("records", records.into()), ("resume", grades.into())];
    if let Some((_, restored)) = &answer.place {
        let streams: Result<Vec<Value>> = restored.streams.iter().map(stream_json).collect();
        let mut cursors = Vec::new();
        for (cursor, share) in restored.cursors.iter().zip(&answer.shares) {
            let mut object = cursor_json(cursor)?;
            if let Some(map) = object.as_object_mut().filter(|_| asked.share) {
                let items = |items: &Vec<Item>| items.iter().map(share::item_json).collect();
                map.insert("share".into(), share.as_ref().map_or(Value::Null, items));
            }
            cursors.push(object);
        }
        members.push(("streams", streams?.into()));
        members.push(("cursors", cursors.into()));
        let refused = answer.refused.as_ref().map_or(Value::Null, output::error_json);
        members.push(("refused", refused));
    }
    Ok((members, answer.tell_refused()))
}

fn stream_json(stream: &RestoredStream) -> Result<Value> {
    let record = stream.to_record()?;
    let as_recorded = |record: &Stream, name: &str| -> Result<Value> {
        let value = serde_json::from_str::<Value>(&record.to_value().encode()?).unwrap_or_default();
        Ok(value.get(name).cloned().unwrap_or_default())
    };
    let (caches, fork) = match &record {
        Some(record) => (as_recorded(record, "caches")?, as_recorded(record, "fork")?),
        None => (json!([]), Value::Null),
    };
    let state = stream.state.as_ref().map(|state| hex(&state.state));
    Ok(json!({
        "name": stream.name, "grade": stream.grade.as_str(), "algorithm": stream.record.algorithm,
        "state": state, "next_raw": stream.next_raw, "caches": caches, "fork": fork,
    }))
}

fn cursor_json(cursor: &RestoredCursor) -> Result<Value> {
    let value = match &cursor.cursor {
        Some(cursor) => serde_json::from_str(&cursor.to_value().encode()?).unwrap_or_default(),
        None => Value::Null,
    };
    Ok(json!({
        "name": cursor.name, "grade": cursor.grade.as_str(), "cursor": value,
        "rank": cursor.rank.map(|of| of.rank), "ranks": cursor.rank.map(|of| of.world),
    }))
}

/// The sources of a cursor's record, each once, a line each, as they are given on the command line.
fn sources(record: &Record) -> Result<Vec<String>> {
    let Typed::Cursor(cursor) = record.typed()? else { return Ok(Vec::new()) };
    let sources = cursor.root.sources();
    let distinct: BTreeSet<(u64, Digest)> =
        sources.iter().map(|source| (source.records, source.sha256)).collect();
    let line = |(records, sha256)| {
        format!("source      {}", place_arg::source_text(&record.key.name, records, sha256))
    };
    Ok(distinct.into_iter().map(line).collect())
}

/// What the command line lacks for a cursor.
fn wanted(cursor: &RestoredCursor) -> Vec<String> {
    let flag = |(records, sha256): &(u64, Digest)| {
        format!("--source {}", place_arg::source_text(&cursor.name, *records, *sha256))
    };
    cursor.wanted.iter().map(flag).collect()
}

/// The names of streams and cursors that were not captured.
fn uncaptured(checkpoint: &Checkpoint) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for record in checkpoint.records() {
        let record = record?;
        if record.key.kind == "uncaptured"
            && let Typed::Uncaptured(what) = record.typed()?
            && ["rng", "cursor"].contains(&what.kind.as_str())
        {
            names.push(record.key.name);
        }
    }
    Ok(names)
}

/// The key of the record that a cursor was restored from.
fn key_for(cursor: &RestoredCursor, restored: &Restored, place: &Place) -> RecordKey {
    let of_cursor =
        |graded: &&Graded| graded.key.kind == "cursor" && graded.key.name == cursor.name;
    let graded = restored.report.iter().find(of_cursor);
    let coordinate = graded.map(|graded| place.along(&graded.key.coordinate)).unwrap_or_default();
    RecordKey { kind: "cursor".to_owned(), name: cursor.name.clone(), coordinate }
}

fn leave_out(name: &str) -> String {
    format!("--leave-out {name}")
}

fn name(key: &RecordKey) -> String {
    let mut text = format!("{} {}", key.kind, key.name);
    if !key.coordinate.is_empty() {
        text.push_str(&format!(" {}", summary::axes(&key.coordinate)));
    }
    text
}

#[cfg(test)]
mod tests {
    use waystation_format::json::Value as Json;

    use super::*;

    fn stream(name: &str, grade: Grade, on_reshape: &str) -> RestoredStream {
        let text = format!(
            r#"{{"algorithm":"vendor/x","caches":[],"next_raw":[],"on_reshape":"{on_reshape}","state":"00"}}"#
        );
        RestoredStream {
            name: name.to_owned(),
            grade,
            state: None,
            next_raw: Vec::new(),
            fork: None,
            record: Stream::parse(&Json::parse(&text).unwrap()).unwrap(),
        }
    }

    #[test]
    fn every_way_to_go_on_is_one_that_helps() {
        let ways = |streams: &[RestoredStream], uncaptured: &[&str], demand, left_out: &[&str]| {
            let mut options = RestoreOptions::default();
            options.streams = demand;
            options.leave_out = left_out.iter().map(|name| (*name).to_owned()).collect();
            let restored = Restored { streams: streams.to_vec(), ..Restored::default() };
            let uncaptured: Vec<String> = uncaptured.iter().map(|&name| name.into()).collect();
            Asked { place: None, share: false, options, stop: Stop::new() }
                .ways(&restored, &uncaptured)
                .join("; ")
        };
        let forked = stream("a", Grade::Fork, "fork");
        let anew = stream("b", Grade::None, "reinit");
        let required = stream("c", Grade::None, "require");
        let (exact, none) = (Grade::Exact, Grade::None);
        for (streams, uncaptured, demand, left_out, says) in [
            (
                &[forked.clone()][..],
                &[][..],
                exact,
                &[][..],
                "--demand fork takes that grade; --leave-out a does without",
            ),
            (
                &[forked.clone(), anew.clone()],
                &[],
                exact,
                &[],
                "--demand none takes that grade; --leave-out a --leave-out b does without",
            ),
            (
                &[forked.clone(), anew],
                &[],
                exact,
                &["b"],
                "--demand fork takes that grade; --leave-out a does without",
            ),
            // Whoever requires does so whatever is demanded.
            (
                &[forked, required.clone()],
                &[],
                exact,
                &[],
                "--leave-out a --leave-out c does without",
            ),
            (&[required], &["w"], none, &[], "--leave-out c does without"),
            (&[], &["w"], exact, &[], "--demand none takes that grade; --leave-out w does without"),
        ] {
            assert_eq!(ways(streams, uncaptured, demand, left_out), says);
        }
    }
}
