//! Requests of `state` and what is answered to them.

use serde_json::{Map, Value, json};

/// A request in the making.
#[derive(Clone, Debug)]
pub(super) struct Ask(Map<String, Value>);

/// Grades only.
pub(super) fn no_topology() -> Ask {
    Ask(Map::from_iter([("topology".to_owned(), Value::Null)]))
}

/// A place: axis, size and index of each axis.
pub(super) fn place(axes: &[(&str, u64, u64)]) -> Ask {
    let topology: Vec<Value> = axes.iter().map(|(axis, size, _)| json!([axis, size])).collect();
    let coordinate: Vec<Value> = axes.iter().map(|(axis, _, index)| json!([axis, index])).collect();
    no_topology().with("topology", topology.into()).with("coordinate", coordinate.into())
}

/// The only place of the topology of `bare`.
pub(super) fn here() -> Ask {
    place(&[("dp", 1, 0)])
}

impl Ask {
    fn with(mut self, member: &str, value: Value) -> Self {
        self.0.insert(member.to_owned(), value);
        self
    }

    /// Puts up with a grade.
    pub(super) fn demand(self, grade: &str) -> Self {
        self.with("demand", grade.into())
    }

    /// Does without streams or cursors.
    pub(super) fn without(self, names: &[&str]) -> Self {
        self.with("leave_out", names.into())
    }

    /// Has a source for a cursor.
    pub(super) fn source(self, cursor: &str, records: u64, sha256: &str) -> Self {
        self.more("sources", json!([cursor, records, sha256]))
    }

    /// Has a fingerprint for an opaque cursor.
    pub(super) fn fingerprint(self, cursor: &str, tree: Value) -> Self {
        self.more("fingerprints", json!([cursor, tree]))
    }

    /// Wants its items of the next batch.
    pub(super) fn share(self) -> Self {
        self.with("share", true.into())
    }

    fn more(mut self, member: &str, value: Value) -> Self {
        let list = self.0.entry(member).or_insert_with(|| json!([]));
        list.as_array_mut().expect("a list that is made here").push(value);
        self
    }

    /// The members of the request.
    pub(super) fn request(self) -> Value {
        self.0.into()
    }
}

/// An answer.
pub(super) fn said(rng: &[Value], cursors: &[Value], uncaptured: &[Value]) -> Value {
    json!({"rng": rng, "cursors": cursors, "uncaptured": uncaptured})
}
