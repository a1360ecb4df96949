//! Records: what a training job's state holds beside tensors, under a kind, a name and a place.
//!
//! It knows a record's frame, its key, its order and its grid. What stands in `value` is carried
//! as canonical JSON; what it says is the business of [`records`].

use crate::common::{Coordinate, Topology, encode_coordinate, parse_coordinate, read_name};
use crate::identity::check_name;
use crate::json::{Cursor, Encoder, Form, Kind, Value, pointer_at};
use crate::records::{self, Typed};
use crate::registry::record_kinds;
use crate::{Code, Error, Result, rule};

/// What identifies a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// What it says, such as `rng`.
    pub kind: String,
    /// Which of its kind it is.
    pub name: String,
    /// Where in the topology it holds; empty when everywhere.
    pub coordinate: Coordinate,
}

impl RecordKey {
    /// The record key: canonical JSON `[kind, name, coordinate]`.
    #[must_use]
    pub fn key(&self) -> String {
        let mut json = Encoder::new();
        json.begin_array();
        json.string(&self.kind);
        json.string(&self.name);
        encode_coordinate(&mut json, &self.coordinate);
        json.end_array();
        json.into_string()
    }
}

/// A record and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What identifies it.
    pub key: RecordKey,
    /// The whole record object, canonical JSON.
    pub json: Box<str>,
}

impl Record {
    /// A record of these members. That the coordinate, and the axes that a cursor names, lie in the
    /// topology is checked when a part is made of it.
    ///
    /// # Errors
    ///
    /// [`Code::BadName`] for a kind or name; [`Code::BadMember`] when `value` is not an object or
    /// not of the form of a registered kind, [`Code::BadPosition`] for a cursor at a place that its
    /// sequence does not have; with the pointer from the top of the record.
    pub fn new(kind: &str, name: &str, coordinate: Coordinate, value: &Value) -> Result<Self> {
        check_name(kind, "record kind")?;
        check_name(name, "record name")?;
        // Bounds the depth, before anything walks the tree.
        let encoded = value.encode()?;
        if value.as_object().is_none() {
            let message = "expected an object as the value of a record";
            let error = Error::rule(Code::BadMember, rule::RECORD_VALUE, message);
            return Err(error.at_pointer("/value"));
        }
        records::check(kind, name, &coordinate, value, None)?;
        let key = RecordKey { kind: kind.to_owned(), name: name.to_owned(), coordinate };
        let mut json = Encoder::new();
        json.begin_object();
        if !key.coordinate.is_empty() {
            json.member("coordinate");
            encode_coordinate(&mut json, &key.coordinate);
        }
        json.member("kind");
        json.string(kind);
        json.member("name");
        json.string(name);
        json.member("value");
        json.raw(&encoded);
        json.end_object();
        Ok(Self { key, json: json.into_string().into_boxed_str() })
    }

    /// A record that says `typed`, of the kind that follows from that.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) for what the types leave open; [`Code::BadArgument`] for
    /// [`Typed::Unknown`].
    pub fn of(name: &str, coordinate: Coordinate, typed: &Typed) -> Result<Self> {
        let value = typed.to_value()?;
        Self::new(typed.kind().unwrap_or_default(), name, coordinate, &value)
    }

    /// Reads the record at the cursor and checks all that holds for it alone.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`], [`Code::BadName`], [`Code::BadIdentity`] for a coordinate outside the
    /// topology, and [`Code::BadPosition`] for a cursor; with the pointer.
    pub(crate) fn read(cursor: &mut Cursor<'_>, topology: &Topology) -> Result<Self> {
        const FORM: &Form =
            &[("coordinate", false), ("kind", true), ("name", true), ("value", true)];
        let start = cursor.offset();
        let (mut coordinate, mut coordinate_at) = (Coordinate::new(), start);
        let (mut kind, mut name, mut value_at) = (None, None, None);
        let mut members = cursor.begin(FORM)?;
        while let Some(member) = cursor.next_of(&mut members)? {
            let at = cursor.offset();
            match member {
                "coordinate" => {
                    coordinate_at = at;
                    coordinate = parse_coordinate(cursor)?;
                    if coordinate.is_empty() {
                        let message = "expected an empty coordinate to be left out";
                        let rule = rule::RECORD_COORDINATE;
                        return Err(cursor.fail(at, Code::BadMember, rule, message));
                    }
                }
                "kind" => kind = Some(read_name(cursor, "record kind")?),
                "name" => name = Some(read_name(cursor, "record name")?),
                _ => {
                    read_value(cursor)?;
                    value_at = Some(at);
                }
            }
        }
        let kind = cursor.required(start, "kind", kind)?;
        let name = cursor.required(start, "name", name)?;
        let value_at = cursor.required(start, "value", value_at)?;
        topology
            .check_coordinate(&coordinate, rule::RECORD_COORDINATE)
            .map_err(|error| error.at_pointer(pointer_at(cursor.text(), coordinate_at)))?;
        if record_kinds::is_known(&kind) {
            let value = Value::read(&mut Cursor::at(cursor.text(), value_at))?;
            records::check(&kind, &name, &coordinate, &value, Some(topology))
                .map_err(|error| error.under_pointer(&pointer_at(cursor.text(), start)))?;
        }
        let key = RecordKey { kind, name, coordinate };
        Ok(Self { key, json: cursor.since(start).into() })
    }

    /// What the record says.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value), and as [`Typed::parse`].
    pub fn typed(&self) -> Result<Typed> {
        Typed::parse(&self.key.kind, &self.value()?, None).map_err(|error| error.in_member("value"))
    }

    /// The record's `value`.
    ///
    /// # Errors
    ///
    /// [`Code::NotCanonical`] when [`json`](Self::json) was changed by hand to something else.
    pub fn value(&self) -> Result<Value> {
        let mut cursor = Cursor::new(&self.json);
        let mut members = cursor.begin_object()?;
        while let Some(member) = cursor.next_member(&mut members)? {
            if &*member == "value" {
                return Value::read(&mut cursor);
            }
            cursor.skip()?;
        }
        Err(Error::rule(
            Code::BadMember,
            rule::JSON_UNKNOWN_MEMBER,
            "expected the member \"value\"",
        ))
    }
}

/// Steps over a value.
fn read_value(cursor: &mut Cursor<'_>) -> Result<()> {
    let start = cursor.offset();
    if cursor.peek() != Some(Kind::Object) {
        let message = "expected an object as the value of a record";
        return Err(cursor.fail(start, Code::BadMember, rule::RECORD_VALUE, message));
    }
    cursor.skip()
}

/// Checks the grid of records given in strictly ascending order of their keys, one at a time.
///
/// Records of one kind and name are neighbours in that order and differ in their coordinates, so
/// counting them is enough: as many different places as the grid has are all of them.
#[derive(Debug)]
pub struct Grid<'a> {
    topology: &'a Topology,
    group: Option<Group>,
}

#[derive(Debug)]
struct Group {
    first: RecordKey,
    /// Places along the axes of `first`; `None` when more than can be counted.
    places: Option<u64>,
    seen: u64,
}

impl<'a> Grid<'a> {
    /// No record yet.
    #[must_use]
    pub fn new(topology: &'a Topology) -> Self {
        Self { topology, group: None }
    }

    /// Takes the next record's key.
    ///
    /// # Errors
    ///
    /// [`Code::RecordGrid`] when the record varies over other axes than the first of its kind and
    /// name, or a place before it has no record.
    pub fn push(&mut self, key: &RecordKey) -> Result<()> {
        if let Some(group) = &mut self.group
            && group.first.kind == key.kind
            && group.first.name == key.name
        {
            if !axes(&group.first).eq(axes(key)) {
                let expected: Vec<&str> = axes(&group.first).collect();
                let found: Vec<&str> = axes(key).collect();
                let message = format!(
                    "expected the axes {expected:?} as in {}, found {found:?} in {}",
                    group.first.key(),
                    key.key()
                );
                return Err(Error::rule(Code::RecordGrid, rule::RECORD_GRID, message));
            }
            group.seen = group.seen.saturating_add(1);
            return Ok(());
        }
        self.close()?;
        let places =
            axes(key).try_fold(1_u64, |places, axis| places.checked_mul(self.topology.size(axis)?));
        self.group = Some(Group { first: key.clone(), places, seen: 1 });
        Ok(())
    }

    /// Checks the last group.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<()> {
        self.close()
    }

    fn close(&mut self) -> Result<()> {
        match self.group.take() {
            Some(group) if group.places != Some(group.seen) => {
                let places = group.places.map_or_else(|| "over 2^64".to_owned(), |n| n.to_string());
                let axes: Vec<&str> = axes(&group.first).collect();
                let message = format!(
                    "expected a record at each of {places} places along {axes:?}, found {} of kind {:?} and name {:?}",
                    group.seen, group.first.kind, group.first.name
                );
                Err(Error::rule(Code::RecordGrid, rule::RECORD_GRID, message))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that records of one kind and name vary over the same axes and are there for every place
/// along them. Keys must come in strictly ascending order, coordinates within the topology.
///
/// # Errors
///
/// [`Code::RecordGrid`].
pub fn check_grid<'k>(
    keys: impl IntoIterator<Item = &'k RecordKey>,
    topology: &Topology,
) -> Result<()> {
    let mut grid = Grid::new(topology);
    for key in keys {
        grid.push(key)?;
    }
    grid.finish()
}

fn axes(key: &RecordKey) -> impl Iterator<Item = &str> {
    key.coordinate.iter().map(|(axis, _)| axis.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        Topology(vec![("dp".to_owned(), 2), ("tp".to_owned(), 3)])
    }

    fn at(places: &[(&str, u64)]) -> Coordinate {
        places.iter().map(|(axis, index)| ((*axis).to_owned(), *index)).collect()
    }

    fn read(text: &str) -> Result<Record> {
        Record::read(&mut Cursor::new(text), &topology())
    }

    #[test]
    fn a_record_round_trips_with_its_key() {
        let value = Value::parse(r#"{"a":[15]}"#).unwrap();
        let record = Record::new("x/rng", "dropout", at(&[("tp", 2)]), &value).unwrap();
        assert_eq!(
            &*record.json,
            r#"{"coordinate":[["tp",2]],"kind":"x/rng","name":"dropout","value":{"a":[15]}}"#
        );
        assert_eq!(record.key.key(), r#"["x/rng","dropout",[["tp",2]]]"#);
        assert_eq!(read(&record.json).unwrap(), record);
        assert_eq!(record.value().unwrap(), value);

        let everywhere = Record::new("x", "main", Coordinate::new(), &value).unwrap();
        assert_eq!(&*everywhere.json, r#"{"kind":"x","name":"main","value":{"a":[15]}}"#);
        assert_eq!(everywhere.key.key(), r#"["x","main",[]]"#);
        assert_eq!(read(&everywhere.json).unwrap(), everywhere);
    }

    #[test]
    fn each_rule_of_a_record_has_its_answer() {
        for (text, code, rule, pointer) in [
            ("[]", Code::BadMember, "json.types", ""),
            (r#"{"kind":"k","name":"n"}"#, Code::BadMember, "json.unknown-member", ""),
            (r#"{"kind":"k","value":{}}"#, Code::BadMember, "json.unknown-member", ""),
            (
                r#"{"extra":1,"kind":"k","name":"n","value":{}}"#,
                Code::BadMember,
                "json.unknown-member",
                "/extra",
            ),
            (
                r#"{"coordinate":[],"kind":"k","name":"n","value":{}}"#,
                Code::BadMember,
                "record.coordinate",
                "/coordinate",
            ),
            (r#"{"kind":"","name":"n","value":{}}"#, Code::BadName, "identity.name", "/kind"),
            (
                "{\"kind\":\"k\",\"name\":\"n\u{202e}\",\"value\":{}}",
                Code::BadName,
                "identity.name",
                "/name",
            ),
            (r#"{"kind":"k","name":"n","value":[]}"#, Code::BadMember, "record.value", "/value"),
            (
                r#"{"coordinate":[["pp",0]],"kind":"k","name":"n","value":{}}"#,
                Code::BadIdentity,
                "record.coordinate",
                "/coordinate",
            ),
            (
                r#"{"coordinate":[["dp",2]],"kind":"k","name":"n","value":{}}"#,
                Code::BadIdentity,
                "record.coordinate",
                "/coordinate",
            ),
            (
                r#"{"coordinate":[["tp",0],["dp",0]],"kind":"k","name":"n","value":{}}"#,
                Code::BadIdentity,
                "record.coordinate",
                "/coordinate",
            ),
            (
                r#"{"coordinate":[["dp",0],["dp",1]],"kind":"k","name":"n","value":{}}"#,
                Code::BadIdentity,
                "record.coordinate",
                "/coordinate",
            ),
            (
                r#"{"kind":"value","name":"n","value":{"list":[[]]}}"#,
                Code::BadMember,
                "value.form",
                "/value/list/0",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.code(), error.rule_id()), (code, Some(rule)), "{text}");
            assert_eq!(error.location().pointer.as_deref(), Some(pointer), "{text}");
        }
        let list = Value::List(Vec::new());
        assert_eq!(Record::new("k", "n", Vec::new(), &list).unwrap_err().code(), Code::BadMember);
        assert_eq!(Record::new("k", "", Vec::new(), &list).unwrap_err().code(), Code::BadName);
        let other = Value::parse(r#"{"a":1}"#).unwrap();
        assert_eq!(
            Record::new("value", "n", Vec::new(), &other).unwrap_err().code(),
            Code::BadMember
        );
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_carried() {
        let text = r#"{"kind":"vendor/thing","name":"n","value":{"list":[[]]}}"#;
        assert_eq!(&*read(text).unwrap().json, text);
    }

    fn grid(coordinates: &[&[(&str, u64)]]) -> Option<(Code, Option<&'static str>)> {
        let mut keys: Vec<RecordKey> = coordinates
            .iter()
            .map(|c| RecordKey { kind: "rng".to_owned(), name: "a".to_owned(), coordinate: at(c) })
            .collect();
        // Others before and after, which must not be counted in.
        for (kind, name) in [("rng", "A"), ("rng", "a\"")] {
            let (kind, name) = (kind.to_owned(), name.to_owned());
            keys.push(RecordKey { kind, name, coordinate: Vec::new() });
        }
        keys.sort_by_key(RecordKey::key);
        check_grid(&keys, &topology()).err().map(|error| (error.code(), error.rule_id()))
    }

    #[test]
    fn a_grid_is_whole_or_refused() {
        let broken = Some((Code::RecordGrid, Some("record.grid")));
        assert_eq!(grid(&[&[]]), None);
        assert_eq!(grid(&[&[("dp", 0)], &[("dp", 1)]]), None);
        assert_eq!(grid(&[&[("dp", 1)]]), broken);
        assert_eq!(grid(&[&[("tp", 0)], &[("tp", 2)]]), broken);
        assert_eq!(grid(&[&[("dp", 0)], &[("dp", 1)], &[]]), broken);
        assert_eq!(grid(&[&[("dp", 0)], &[("tp", 0)], &[("tp", 1)], &[("tp", 2)]]), broken);
        let whole: Vec<[(&str, u64); 2]> = (0..6).map(|i| [("dp", i / 3), ("tp", i % 3)]).collect();
        let whole: Vec<&[(&str, u64)]> = whole.iter().map(<[_; 2]>::as_slice).collect();
        assert_eq!(grid(&whole), None);
        assert_eq!(grid(&whole[..5]), broken);
        assert_eq!(grid(&whole[1..]), broken);
    }
}
