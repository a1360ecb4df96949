//! What a loader makes of streams and cursors, for one place of a topology or by grade alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waystation_format::record::RecordKey;
use waystation_format::records::Typed;
use waystation_format::records::cursor::Item;
use waystation_format::value_tree::{Tree, hex};
use waystation_format::{Coordinate, Digest, Grade, Result, Topology};
use waystation_reader::Checkpoint;
use waystation_reader::restore::{Place, RestoreOptions, Restored, RestoredCursor, RestoredStream};
use waystation_state::Budget;
use waystation_state::cursor::Rank;

use super::read::open;
use super::request::exact;
use super::{Request, bad_argument};

pub(super) fn answer(request: &Request) -> Result<Value> {
    let path = request.path("path")?;
    let place = place(request)?;
    let options = options(request)?;
    let share = match request.member("share") {
        Value::Null => false,
        Value::Bool(share) => *share,
        _ => return Err(bad_argument("expected true or false as \"share\"")),
    };
    let checkpoint = open(&path)?;
    match place {
        Some(place) => restored(&checkpoint, &place, &options, share),
        None => graded(&checkpoint),
    }
}

// What is asked.

fn place(request: &Request) -> Result<Option<Place>> {
    let coordinate = request.pairs("coordinate")?.unwrap_or_default();
    let Some(topology) = request.pairs("topology")? else { return Ok(None) };
    let topology = Topology(topology.into_iter().collect());
    let axes: BTreeMap<&str, u64> =
        topology.0.iter().map(|(axis, size)| (axis.as_str(), *size)).collect();
    if axes.len() != topology.0.len() || axes.values().any(|size| *size == 0) {
        return Err(bad_argument("expected a topology of distinct axes, none of size 0"));
    }
    Place::new(topology, coordinate).map(Some)
}

fn options(request: &Request) -> Result<RestoreOptions> {
    let mut options = RestoreOptions::default();
    // Of a case nothing is known: what a validator spends is enough.
    options.budget = Budget::of_validator();
    if !request.member("demand").is_null() {
        let demand = request.member("demand").as_str().and_then(Grade::from_id);
        let demand = demand.ok_or_else(|| bad_argument("expected a grade as \"demand\""))?;
        (options.streams, options.cursors) = (demand, demand);
    }
    for name in request.list("leave_out")? {
        let name = name.as_str().ok_or_else(|| bad_argument("expected names as \"leave_out\""))?;
        options.leave_out.insert(name.to_owned());
    }
    for source in request.list("sources")? {
        let source = source.as_array().map(Vec::as_slice);
        let parsed = match source {
            Some([cursor, records, sha256]) => cursor
                .as_str()
                .zip(records.as_u64())
                .zip(sha256.as_str().and_then(Digest::from_hex)),
            _ => None,
        };
        let Some(((cursor, records), sha256)) = parsed else {
            return Err(bad_argument("expected [cursor, records, sha256] in \"sources\""));
        };
        options = options.with_source(cursor, records, sha256);
    }
    for fingerprint in request.list("fingerprints")? {
        let (cursor, tree) = match fingerprint.as_array().map(Vec::as_slice) {
            Some([Value::String(cursor), tree]) => (cursor, Tree::parse(&exact(tree)?)?),
            _ => return Err(bad_argument("expected [cursor, tree] in \"fingerprints\"")),
        };
        options = options.with_fingerprint(cursor, tree);
    }
    Ok(options)
}

// What a place gets.

fn restored(
    checkpoint: &Checkpoint,
    place: &Place,
    options: &RestoreOptions,
    share: bool,
) -> Result<Value> {
    let Restored { streams, cursors, .. } = checkpoint.restore(place, options)?;
    let mut lists = Lists::default();
    for RestoredStream { name, grade, state, next_raw, record, .. } in streams {
        lists.rng.push(said(
            &name,
            None,
            grade,
            json!({
                "algorithm": record.algorithm,
                "next_raw": if state.is_some() { next_raw } else { Vec::new() },
                "state": state.map(|state| hex(&state.state)),
            }),
        ));
    }
    for RestoredCursor { name, grade, cursor, .. } in cursors {
        let computed = cursor.as_ref().filter(|cursor| cursor.is_computed());
        let next = computed.and_then(|cursor| cursor.next.as_ref()).map(|next| items(&next.first));
        let mut more = Map::new();
        more.insert(
            "position".to_owned(),
            json!(cursor.as_ref().and_then(|cursor| cursor.consumed)),
        );
        more.insert("next".to_owned(), json!(next));
        if let Some((cursor, partition)) =
            computed.and_then(|cursor| Some((cursor, cursor.partition.as_ref()?)))
            && share
        {
            let rank = Rank::of(partition, place.topology(), place.coordinate())?;
            let batch = checkpoint.walk(cursor, options.budget.clone())?.batch(partition.batch)?;
            more.insert("share".to_owned(), json!(items(&batch.share(partition.rule, rank)?)));
        }
        lists.cursors.push(said(&name, None, grade, Value::Object(more)));
    }
    let mut seen = None;
    for record in checkpoint.records() {
        let record = record?;
        if let Typed::Uncaptured(what) = record.typed()?
            && seen.replace(record.key.name.clone()).as_ref() != Some(&record.key.name)
        {
            lists.uncaptured.push((
                record.key.name.clone(),
                Coordinate::new(),
                json!({ "kind": what.kind, "name": record.key.name }),
            ));
        }
    }
    Ok(lists.finish())
}

// Grades alone: those of one kind and name are one.

fn graded(checkpoint: &Checkpoint) -> Result<Value> {
    let grades: BTreeMap<(String, String), Grade> = checkpoint
        .grades()?
        .into_iter()
        .map(|graded| ((graded.key.kind, graded.key.name), graded.grade))
        .collect();
    let mut lists = Lists::default();
    for record in checkpoint.records() {
        let record = record?;
        let RecordKey { kind, name, coordinate } = &record.key;
        let grade = grades.get(&(kind.clone(), name.clone())).copied().unwrap_or(Grade::None);
        match record.typed()? {
            Typed::Rng(stream) => {
                lists.rng.push(said(
                    name,
                    Some(coordinate),
                    grade,
                    json!({ "algorithm": stream.algorithm }),
                ));
            }
            Typed::Cursor(_) => lists.cursors.push(said(name, Some(coordinate), grade, json!({}))),
            Typed::Uncaptured(what) => {
                let (name, coordinate, mut value) =
                    said(name, Some(coordinate), grade, json!({ "kind": what.kind }));
                if let Some(members) = value.as_object_mut() {
                    members.remove("grade");
                }
                lists.uncaptured.push((name, coordinate, value));
            }
            _ => {}
        }
    }
    Ok(lists.finish())
}

// How it is said.

/// Name, coordinate, and what is said of it.
type Said = (String, Coordinate, Value);

#[derive(Default)]
struct Lists {
    rng: Vec<Said>,
    cursors: Vec<Said>,
    uncaptured: Vec<Said>,
}

impl Lists {
    fn finish(self) -> Value {
        let ascending = |mut said: Vec<Said>| {
            said.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            said.into_iter().map(|(_, _, value)| value).collect::<Vec<Value>>()
        };
        json!({
            "rng": ascending(self.rng),
            "cursors": ascending(self.cursors),
            "uncaptured": ascending(self.uncaptured),
        })
    }
}

fn said(name: &str, coordinate: Option<&Coordinate>, grade: Grade, more: Value) -> Said {
    let coordinate = coordinate.cloned().unwrap_or_default();
    let mut value = more;
    if let Some(members) = value.as_object_mut() {
        members.insert("name".to_owned(), json!(name));
        members.insert("grade".to_owned(), json!(grade.to_string()));
        if !coordinate.is_empty() {
            members.insert("coordinate".to_owned(), json!(coordinate.to_vec()));
        }
    }
    (name.to_owned(), coordinate, value)
}

/// Items as a record has them: one integer bare, more as a list.
fn items(items: &[Item]) -> Vec<Value> {
    items
        .iter()
        .map(|item| match item.integers() {
            [one] => json!(one),
            more => json!(more),
        })
        .collect()
}
