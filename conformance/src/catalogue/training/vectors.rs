//! What real frameworks gave: streams and forks of `state/tests/vectors/rng.json`, orders of
//! `conformance/vectors/orders.json`. The README beside the latter says how they were made. Answers of
//! cases come from here, not from any reader.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::build::{sha256, twister, twister_of};
use crate::recipe::hex;

static STREAMS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../state/tests/vectors/rng.json"))
        .expect("vectors are JSON")
});

static ORDERS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../vectors/orders.json")).expect("vectors are JSON")
});

/// A stream as a framework held it, or as a fork begins.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) algorithm: String,
    /// Hex.
    pub(super) state: String,
    pub(super) next_raw: Value,
    pub(super) caches: Value,
}

/// A stream by its id.
pub(super) fn stream(id: &str) -> Stream {
    read(row(&STREAMS["vectors"], |row| row["id"] == id, id))
}

/// What a fork of the algorithm becomes at [`fork_place`].
pub(super) fn forked(algorithm: &str) -> Stream {
    read(row(&STREAMS["forks"], |row| row["algorithm"] == algorithm, algorithm))
}

/// Where the forks of the vectors were made: `run`, `step`, `stream`, `coordinate`, `seed`.
pub(super) fn fork_place() -> &'static Value {
    &STREAMS["fork"]
}

/// The ordinals that begin an order of a list of the vectors: the row that has these members.
pub(super) fn order(list: &str, members: &Value) -> Vec<u64> {
    let wanted = members.as_object().expect("members");
    let found = row(
        &ORDERS[list],
        |row| wanted.iter().all(|(name, value)| row[name] == *value),
        &members.to_string(),
    );
    let first = found["first"].as_array().expect("ordinals");
    first.iter().filter_map(Value::as_u64).collect()
}

fn row<'a>(list: &'a Value, is: impl Fn(&Value) -> bool, what: &str) -> &'a Value {
    let rows = list.as_array().expect("a list of vectors");
    rows.iter().find(|row| is(row)).unwrap_or_else(|| panic!("no vector {what}"))
}

fn read(row: &Value) -> Stream {
    let made = |row: &Value| -> Vec<u8> {
        let make = &row["make"];
        let drawn = make["drawn"].as_u64().unwrap_or(0) as usize;
        let words = match make.get("init_by_array") {
            Some(words) => words.as_array().expect("words").clone(),
            None => return twister(make["init_genrand"].as_u64().expect("a word") as u32, drawn),
        };
        let words: Vec<u32> = words.iter().filter_map(Value::as_u64).map(|w| w as u32).collect();
        twister_of(&words, drawn)
    };
    let algorithm = row["algorithm"].as_str().expect("an algorithm").to_owned();
    let state = match row["state"].as_str() {
        Some(state) => state.to_owned(),
        None => {
            let state = match row.get("make") {
                Some(_) => made(row),
                None => crate::build::forked(&algorithm, fork_seed()),
            };
            assert_eq!(row["state_sha256"], sha256(&state).as_str(), "a state of {algorithm}");
            hex(&state)
        }
    };
    let caches = row.get("caches").cloned().unwrap_or_else(|| json!([]));
    Stream { algorithm, state, next_raw: row["next_raw"].clone(), caches }
}

fn fork_seed() -> u64 {
    let place = fork_place();
    let text = |member: &str| place[member].as_str().expect("text");
    let step = place["step"].as_u64().expect("a step");
    crate::build::fork_seed(text("run"), step, text("stream"), &place["coordinate"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_of_the_suite_are_those_of_frameworks() {
        assert_eq!(fork_place()["seed"]["int"], fork_seed().to_string());
        for row in STREAMS["forks"].as_array().unwrap() {
            let algorithm = row["algorithm"].as_str().unwrap();
            let state = hex(&crate::build::forked(algorithm, fork_seed()));
            assert_eq!(forked(algorithm).state, state, "{algorithm}");
        }
    }

    #[test]
    fn twisters_stand_where_frameworks_left_them() {
        // Reading compares digests.
        for row in STREAMS["vectors"].as_array().unwrap() {
            _ = read(row);
        }
    }
}
