//! Streams of real frameworks: their states, the numbers that they went on with, their own forms;
//! and what a fork seeds.
//!
//! `vectors/rng.json` is made by `conformance/vectors/make_rng.py`, with the frameworks in the
//! versions that it names. A state of a Mersenne Twister is given by how it was come by, and its
//! digest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test says where it fails by panicking"
)]

use serde_json::Value;
use waystation_format::value_tree::Tree;
use waystation_format::{Code, Digest, RngAlgorithm};
use waystation_state::rng::native::{
    jax, mlx, numpy, python, rust, torch_cpu, torch_cuda, torch_key, torch_mps,
};
use waystation_state::rng::{
    Cache, Engine, Mt19937, StreamState, canary, check_canary, fork_seed, spell,
};

type Write = fn(&StreamState) -> waystation_format::Result<Vec<u8>>;
type Read<Form> = fn(&Form) -> waystation_format::Result<StreamState>;

struct Vector(Value);

impl Vector {
    fn text(&self, member: &str) -> Option<&str> {
        self.0.get(member)?.as_str()
    }

    fn id(&self) -> &str {
        self.text("id").unwrap()
    }

    fn algorithm(&self) -> RngAlgorithm {
        RngAlgorithm::from_id(self.text("algorithm").unwrap()).unwrap()
    }

    fn state(&self) -> Vec<u8> {
        if let Some(state) = self.text("state") {
            return unhex(state);
        }
        let make = &self.0["make"];
        let word = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let mut engine = match &make["init_by_array"] {
            Value::Array(words) => {
                Mt19937::init_by_array(&words.iter().map(word).collect::<Vec<_>>())
            }
            _ => Mt19937::init_genrand(word(&make["init_genrand"])),
        };
        for _ in 0..make["drawn"].as_u64().unwrap() {
            engine.next_u32();
        }
        let state = engine.encode();
        assert_eq!(digest(&state), self.text("state_sha256").unwrap(), "{}", self.id());
        state
    }

    fn next_raw(&self) -> Vec<String> {
        let all = self.0["next_raw"].as_array().unwrap();
        all.iter().map(|output| output.as_str().unwrap().to_owned()).collect()
    }

    /// What the framework's own form must be read as.
    fn neutral(&self) -> StreamState {
        let caches = self.0.get("caches").and_then(Value::as_array).cloned().unwrap_or_default();
        let cache = |cache: &Value| Cache {
            kind: cache["kind"].as_str().unwrap().to_owned(),
            bits: u64::from_str_radix(cache["bits"].as_str().unwrap(), 16).unwrap(),
        };
        let seed = self.0.get("initial_seed").map(integer);
        let mut stream = StreamState::new(self.algorithm(), self.state()).unwrap();
        stream.caches = caches.iter().map(cache).collect();
        stream.initial_seed = seed;
        stream
    }

    fn native(&self) -> Option<Tree> {
        self.0.get("native").map(|value| tree(&value.to_string()))
    }
}

fn file() -> Value {
    serde_json::from_str(include_str!("vectors/rng.json")).unwrap()
}

fn vectors_of(member: &str) -> Vec<Vector> {
    file()[member].as_array().unwrap().iter().cloned().map(Vector).collect()
}

fn vectors() -> Vec<Vector> {
    let vectors = vectors_of("vectors");
    assert_eq!(vectors.len(), 47);
    vectors
}

/// An integer, which is a text where a number of JSON cannot hold it.
fn integer(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| value["int"].as_str().unwrap().parse().unwrap())
}

fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn tree(text: &str) -> Tree {
    Tree::parse(&waystation_format::json::Value::parse(text).unwrap()).unwrap()
}

fn encoded(tree: &Tree) -> String {
    tree.to_value().encode().unwrap()
}

/// The integers of a list, which `tree` is.
fn ints<I: TryFrom<u128>>(tree: &Tree) -> Vec<I> {
    let Tree::List(items) = tree else { panic!("{tree:?}") };
    let int = |item: &Tree| {
        let value = match item {
            Tree::Int(value) => u128::try_from(*value).unwrap(),
            Tree::BigInt(digits) => digits.parse().unwrap(),
            other => panic!("{other:?}"),
        };
        I::try_from(value).ok().unwrap()
    };
    items.iter().map(int).collect()
}

#[test]
fn every_algorithm_has_a_vector_and_a_fork() {
    let (vectors, forks) = (vectors(), vectors_of("forks"));
    for algorithm in RngAlgorithm::ALL {
        let here = |all: &[Vector]| all.iter().any(|vector| vector.algorithm() == *algorithm);
        assert!(here(&vectors) && here(&forks), "{algorithm}");
    }
    assert_eq!(forks.len(), RngAlgorithm::ALL.len());
}

#[test]
fn forks_are_seeded_by_the_rule() {
    let fork = &file()["fork"];
    let coordinate = fork["coordinate"].as_array().unwrap().iter();
    let coordinate = coordinate
        .map(|place| (place[0].as_str().unwrap().to_owned(), place[1].as_u64().unwrap()))
        .collect();
    let (run, stream) = (fork["run"].as_str().unwrap(), fork["stream"].as_str().unwrap());
    let seed = fork_seed(run, integer(&fork["step"]), stream, &coordinate);
    assert_eq!(seed, integer(&fork["seed"]));
    for vector in vectors_of("forks") {
        let (algorithm, next_raw) = (vector.algorithm(), vector.next_raw());
        let mut engine = Engine::seeded(algorithm, seed).unwrap();
        let state = engine.encode().unwrap();
        match vector.text("state") {
            Some(expected) => assert_eq!(state, unhex(expected), "{algorithm}"),
            None => {
                let expected = vector.text("state_sha256").unwrap();
                assert_eq!(digest(&state), expected, "{algorithm}");
            }
        }
        check_canary(algorithm, &state, &next_raw).unwrap();
        let drawn = engine.draw(next_raw.len());
        let drawn: Vec<_> = drawn.into_iter().map(|output| spell(algorithm, output)).collect();
        assert_eq!(drawn, next_raw, "{algorithm}");
    }
}

#[test]
fn states_give_the_outputs_of_the_frameworks() {
    for vector in vectors() {
        let (id, algorithm, state) = (vector.id(), vector.algorithm(), vector.state());
        let next_raw = vector.next_raw();
        check_canary(algorithm, &state, &next_raw).unwrap();
        assert_eq!(canary(algorithm, &state, next_raw.len()).unwrap(), next_raw, "{id}");
        for wrong in 0..next_raw.len() {
            let mut other = next_raw.clone();
            let last = other[wrong].pop().unwrap();
            other[wrong].push(if last == '0' { '1' } else { '0' });
            let error = check_canary(algorithm, &state, &other).unwrap_err();
            assert_eq!(error.code(), Code::CanaryMismatch);
            assert!(error.message().contains(&format!("output {wrong} ")), "{error}");
        }
    }
}

#[test]
fn states_are_written_as_they_were_read() {
    for vector in vectors() {
        let state = vector.state();
        let engine = Engine::decode(vector.algorithm(), &state).unwrap();
        assert_eq!(engine.encode().unwrap(), state, "{}", vector.id());
    }
}

#[test]
fn states_after_draws_are_those_of_the_frameworks() {
    for vector in vectors() {
        for (count, member) in [(5, "after_sha256"), (1000, "after_1000_sha256")] {
            let Some(expected) = vector.text(member) else { continue };
            let mut engine = Engine::decode(vector.algorithm(), &vector.state()).unwrap();
            engine.draw(count);
            assert_eq!(digest(&engine.encode().unwrap()), expected, "{} {count}", vector.id());
        }
    }
}

#[test]
fn forms_of_frameworks_are_read_and_written() {
    for vector in vectors() {
        let (id, neutral) = (vector.id(), vector.neutral());
        let form = vector.text("form").unwrap();
        if form.starts_with("torch-c") || form == "torch-mps" {
            let (to, from): (Write, Read<[u8]>) = match form {
                "torch-cpu" => (torch_cpu::to_bytes, torch_cpu::from_bytes),
                "torch-cuda" => (torch_cuda::to_bytes, torch_cuda::from_bytes),
                _ => (torch_mps::to_bytes, torch_mps::from_bytes),
            };
            let bytes = to(&neutral).unwrap();
            match vector.text("native_hex") {
                Some(hex) => assert_eq!(bytes, unhex(hex), "{id}"),
                None => assert_eq!(digest(&bytes), vector.text("native_sha256").unwrap(), "{id}"),
            }
            assert_eq!(from(&bytes).unwrap(), neutral, "{id}");
            continue;
        }
        let native = vector.native();
        match form {
            "torch-key" => {
                let key = torch_key::to_words(&neutral).unwrap();
                assert_eq!(key.to_vec(), ints::<u64>(&native.unwrap()), "{id}");
                assert_eq!(torch_key::from_words(key).unwrap(), neutral, "{id}");
            }
            "mlx" => {
                let key = mlx::to_words(&neutral).unwrap();
                assert_eq!(key.to_vec(), ints::<u32>(&native.unwrap()), "{id}");
                assert_eq!(mlx::from_words(key).unwrap(), neutral, "{id}");
            }
            "jax" => {
                let (data, implementation) = jax::to_key_data(&neutral).unwrap();
                assert_eq!(data, ints::<u32>(&native.unwrap()), "{id}");
                assert_eq!(jax::from_key_data(&data, implementation).unwrap(), neutral, "{id}");
            }
            _ => {
                let algorithm = vector.algorithm();
                let (written, read) = match form {
                    "numpy" => (numpy::to_tree(&neutral), numpy::from_tree as Read<Tree>),
                    "numpy-legacy" => {
                        (numpy::to_legacy_tree(&neutral), numpy::from_legacy_tree as _)
                    }
                    "python" => (python::to_tree(&neutral), python::from_tree as _),
                    "rust" => {
                        let tree = rust::to_tree(&neutral).unwrap();
                        assert_eq!(Some(&tree), native.as_ref(), "{id}");
                        assert_eq!(rust::from_tree(algorithm, &tree).unwrap(), neutral, "{id}");
                        continue;
                    }
                    other => panic!("{other}"),
                };
                let written = written.unwrap();
                match native {
                    Some(native) => assert_eq!(written, native, "{id}"),
                    None => {
                        let expected = vector.text("native_sha256").unwrap();
                        assert_eq!(digest(encoded(&written).as_bytes()), expected, "{id}");
                    }
                }
                assert_eq!(read(&written).unwrap(), neutral, "{id}");
            }
        }
    }
}
