//! Chapter 17: streams of every registered algorithm as frameworks hold them, and what cannot be one.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{here, said};
use super::held::{bent, blob, blob_identity, files, recipe, record};
use super::vectors::{self, Stream};
use crate::bend::Bend;
use crate::case::Effect;
use crate::recipe::{Data, Recipe, hex, unhex};

pub(super) fn add(cases: &mut Cases) {
    restored(cases);
    seldom(cases);
    canaries(cases);
    states(cases);
    tensors(cases);
}

/// The value of a record of the stream.
pub(super) fn value(stream: &Stream, on_reshape: &str) -> Value {
    json!({"algorithm": stream.algorithm, "caches": stream.caches, "next_raw": stream.next_raw,
        "on_reshape": on_reshape, "state": stream.state})
}

/// What is said of a stream that is restored as it was.
pub(super) fn exact(name: &str, stream: &Stream) -> Value {
    json!({"algorithm": stream.algorithm, "grade": "exact", "name": name,
        "next_raw": stream.next_raw, "state": stream.state})
}

/// The record that most cases change.
fn dropout(stream: &Stream) -> Value {
    record("rng", "dropout", value(stream, "require"))
}

/// Slug, id of the vector, what is special: every algorithm at least once, the first of each being
/// the one that is damaged below.
const STREAMS: [(&str, &str, &str); 27] = [
    ("mt19937", "torch-cpu/1234-both-caches", "PyTorch's on the CPU, with both cached normals"),
    ("mt19937-python", "python/42-gauss", "Python's, with a cached normal"),
    ("mt19937-python-long", "python/2pow64+5-mid", "Python's, seeded with three words and twisted"),
    ("mt19937-numpy", "numpy-legacy/42-3-normals", "NumPy's RandomState, with a cached normal"),
    ("pcg64-xsl-rr", "numpy/PCG64/7-mid-half", "NumPy's PCG64, with half an output kept"),
    ("pcg64-dxsm", "numpy/PCG64DXSM/7-mid-half", "NumPy's PCG64DXSM, with half an output kept"),
    ("pcg32-xsh-rr", "rust/pcg32", "PCG with 32 bits of output"),
    ("philox4x64", "numpy/Philox/7-mid-half", "NumPy's Philox in the middle of its buffer"),
    ("philox4x64-carry", "numpy/Philox/carry", "NumPy's Philox whose counter carries into word 3"),
    ("philox-torch-cuda", "torch-cuda/2a-4", "PyTorch's on CUDA after one block"),
    (
        "philox-torch-cuda-high",
        "torch-cuda/ffffffffffffffff-8000010000000000",
        "PyTorch's on CUDA with a seed and an offset that fill 64 bits",
    ),
    ("philox-torch-key", "torch-key/2a-0", "PyTorch's stateless key"),
    (
        "philox-torch-key-wraps",
        "torch-key/1-ffffffffffffffff",
        "PyTorch's stateless key at its last block, after which comes the first",
    ),
    (
        "philox-torch-mps",
        "torch-mps/8000000000000009-ffffffff",
        "PyTorch's on MPS, whose block carries into the upper word",
    ),
    ("sfc64", "numpy/SFC64/7-mid-half", "NumPy's SFC64, with half an output kept"),
    ("sfc64-wraps", "numpy/SFC64/counter-wraps", "NumPy's SFC64 whose counter wraps"),
    ("threefry-partitionable", "jax/partitionable/7-split-fold", "JAX's key, seven outputs of it"),
    ("threefry-split", "jax/split/42-5", "JAX's key of the older kind, five outputs of it"),
    ("threefry-split-even", "jax/split/42-4", "JAX's key of the older kind, four outputs of it"),
    ("threefry-split-nine", "jax/split/42-9", "JAX's key of the older kind, nine outputs of it"),
    ("threefry-split-mlx", "mlx/42-drawn", "MLX's key"),
    ("jax-rbg", "jax-rbg/42", "JAX's rbg key, which has no canary"),
    ("jax-unsafe-rbg", "jax-unsafe-rbg/42", "JAX's unsafe_rbg key, which has no canary"),
    ("chacha8", "rust/chacha8/rand", "ChaCha8Rng far into stream 7"),
    ("chacha12", "rust/chacha12/rand", "ChaCha12Rng far into stream 7"),
    ("chacha20", "rust/chacha20/rand", "ChaCha20Rng far into stream 7"),
    ("xoshiro256pp", "rust/xoshiro256++", "Xoshiro256PlusPlus"),
];

/// One of each algorithm.
fn each() -> impl Iterator<Item = (&'static str, Stream)> {
    let mut seen = Vec::new();
    STREAMS.into_iter().filter_map(move |(slug, id, _)| {
        let stream = vectors::stream(id);
        if seen.contains(&stream.algorithm) {
            return None;
        }
        seen.push(stream.algorithm.clone());
        Some((slug, stream))
    })
}

fn restored(cases: &mut Cases) {
    for (slug, id, what) in STREAMS {
        let stream = vectors::stream(id);
        let answer = said(&[exact("dropout", &stream)], &[], &[]);
        cases
            .case(
                &format!("resume/rng-{slug}"),
                &["rng.canary", "rng.state", "restore.grade"],
                &format!("A stream: {what}."),
            )
            .over("bare")
            .effect(Effect::LostCheckpoint)
            .request(here().request())
            .answers_files(files(&[dropout(&stream)]), answer);
    }
}

/// States that are legal and look wrong.
fn seldom(cases: &mut Cases) {
    let mut state = vec![0_u8; 2500];
    state[3] = 0x80;
    state[2496..].copy_from_slice(&624_u32.to_le_bytes());
    // One twist makes 40000000 and zeros of it; tempered, that is 44081102.
    let twister = Stream {
        algorithm: "mt19937".into(),
        state: hex(&state),
        next_raw: json!(["44081102", "00000000", "00000000", "00000000"]),
        caches: json!([]),
    };
    cases
        .case(
            "resume/rng-mt19937-one-bit",
            &["rng.state"],
            "A Mersenne Twister of which only the highest bit of the first word is set, as init_by_array leaves it at least.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .request(here().request())
        .answers_files(
            files(&[dropout(&twister)]),
            said(&[exact("dropout", &twister)], &[], &[]),
        );
    let zeros = Stream {
        algorithm: "sfc64".into(),
        state: "00".repeat(32),
        // a + b + counter: 0, then a = b = c = 0 and the counter rises; then as 17.2 says.
        next_raw: sfc64_of_zeros(),
        caches: json!([]),
    };
    cases
        .case(
            "resume/rng-sfc64-zeros",
            &["rng.state"],
            "An SFC64 all of whose words are 0, which is a state like any other.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .request(here().request())
        .answers_files(files(&[dropout(&zeros)]), said(&[exact("dropout", &zeros)], &[], &[]));
}

fn sfc64_of_zeros() -> Value {
    let [mut a, mut b, mut c, mut counter] = [0_u64; 4];
    let outputs = [(); 4].map(|()| {
        let t = a.wrapping_add(b).wrapping_add(counter);
        counter += 1;
        a = b ^ b >> 11;
        b = c.wrapping_add(c << 3);
        c = c.rotate_left(24).wrapping_add(t);
        format!("{t:016x}")
    });
    json!(outputs)
}

fn canaries(cases: &mut Cases) {
    for (slug, stream) in each().filter(|(_, stream)| stream.next_raw != json!([])) {
        let last = stream.next_raw.as_array().map_or(0, |outputs| outputs.len() - 1);
        let output = other_digit(stream.next_raw[last].as_str().unwrap_or_default());
        refused(
            cases,
            (&format!("canary-{slug}"), &["rng.canary", "restore.canary"]),
            &format!("The last output of the canary of a {} is off by one bit.", stream.algorithm),
            (&stream, &format!("/next_raw/{last}"), output.into()),
            Code::CanaryMismatch,
        );
    }
    let stream = vectors::stream("numpy/PCG64DXSM/42");
    let outputs = stream.next_raw.as_array().cloned().unwrap_or_default();
    refused(
        cases,
        ("canary-first", &["rng.canary", "restore.canary"]),
        "The first output of the canary is off by one bit, all others are right.",
        (&stream, "/next_raw/0", other_digit("ab1c50338e63481d").into()),
        Code::CanaryMismatch,
    );
    refused(
        cases,
        ("canary-one-behind", &["rng.canary", "restore.canary"]),
        "The state is that of one draw before: what was drawn last would be drawn again.",
        (&stream, "/next_raw", json!(outputs[1..])),
        Code::CanaryMismatch,
    );
    refused(
        cases,
        ("canary-byte-order", &["rng.canary", "restore.canary"]),
        "The digits of the first output stand with the least significant byte first.",
        (&stream, "/next_raw/0", "1d48638e33501cab".into()),
        Code::CanaryMismatch,
    );
    let split = vectors::stream("jax/split/42-5");
    let four = vectors::stream("jax/split/42-4");
    refused(
        cases,
        ("canary-split-prefix", &["rng.canary"]),
        "The canary of a jax-split key is the first four of five outputs, which are not the four outputs of the key.",
        (&four, "/next_raw", json!(split.next_raw.as_array().map(|outputs| &outputs[..4]))),
        Code::CanaryMismatch,
    );
    let other = vectors::stream("jax/partitionable/42-5");
    refused(
        cases,
        ("canary-jax-variants", &["rng.canary"]),
        "A jax-split key has the outputs that the flag jax_threefry_partitionable gives.",
        (&split, "/next_raw", other.next_raw),
        Code::CanaryMismatch,
    );
}

fn states(cases: &mut Cases) {
    for (slug, stream) in each() {
        let short = &stream.state[..stream.state.len() - 2];
        refused(
            cases,
            (&format!("state-short-{slug}"), &["rng.state"]),
            &format!("The state of a {} lacks its last byte.", stream.algorithm),
            (&stream, "/state", short.into()),
            Code::BadRngState,
        );
        let long = format!("{}00", stream.state);
        if slug.starts_with("mt") || slug.starts_with("jax") {
            refused(
                cases,
                (&format!("state-long-{slug}"), &["rng.state"]),
                &format!("The state of a {} has a byte too many.", stream.algorithm),
                (&stream, "/state", long.into()),
                Code::BadRngState,
            );
        }
    }
    type Damage = fn(&mut Vec<u8>);
    let illegal: [(&str, &str, &str, Damage); 11] = [
        ("mt19937-pos", "torch-cpu/42", "pos is 625", |s| s[2496] = 0x71),
        ("mt19937-zeros", "torch-cpu/42", "every word is 0", |s| s[..2496].fill(0)),
        ("mt19937-low-bits", "torch-cpu/42", "only bits that a twist drops are set", |s| {
            s[..2496].fill(0);
            s[3] = 0x7f;
        }),
        ("pcg64-even", "numpy/PCG64/42", "inc is even", |s| s[16] &= 0xfe),
        ("pcg64-dxsm-even", "numpy/PCG64DXSM/42", "inc is even", |s| s[16] &= 0xfe),
        ("pcg32-even", "rust/pcg32", "inc is even", |s| s[8] &= 0xfe),
        ("philox-buffer", "numpy/Philox/42", "buffer_pos is 5", |s| s[80] = 5),
        ("philox-zero", "numpy/Philox/42", "zero is not 0", |s| s[84] = 1),
        ("cuda-offset", "torch-cuda/2a-4", "offset is 6, within a block", |s| s[8] = 6),
        ("chacha-word", "rust/chacha20/rand", "word_pos is beyond 2^68", |s| s[48] = 0x10),
        ("xoshiro-zeros", "rust/xoshiro256++", "all words are 0", |s| s.fill(0)),
    ];
    for (slug, id, what, damage) in illegal {
        let stream = vectors::stream(id);
        let mut state = unhex(&stream.state);
        damage(&mut state);
        refused(
            cases,
            (&format!("illegal-{slug}"), &["rng.state"]),
            &format!("A state that a {} cannot be in: {what}.", stream.algorithm),
            (&stream, "/state", hex(&state).into()),
            Code::BadRngState,
        );
    }
}

/// A state that stands in a tensor.
fn tensors(cases: &mut Cases) {
    let stream = vectors::stream("python/42");
    let held = |members: Value| -> (Recipe, Value) {
        let mut said = value(&stream, "require");
        said["state"] = json!({"tensor": blob_identity("rng/dropout")});
        let said = record("rng", "dropout", said);
        let mut recipe = recipe(std::slice::from_ref(&said));
        blob(&mut recipe, "rng/dropout", &unhex(&stream.state), &members);
        (recipe, said)
    };
    let (good, said_record) = held(json!({}));
    cases
        .case("resume/rng-tensor", &["rng.tensor"], "The state stands in a tensor.")
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .request(here().request())
        .answers_files(crate::bend::straight(&good), said(&[exact("dropout", &stream)], &[], &[]));
    let entries = [
        ("dtype", "is of dtype U64", json!({"dtype": "U64"})),
        ("valid", "has a padded shape", json!({"valid": [2499]})),
        ("role", "is of role extension", json!({"role": "extension", "slot": "vendor/state"})),
    ];
    for (slug, what, members) in entries {
        let (mut recipe, record) = held(members.clone());
        if members.get("dtype").is_some() {
            recipe.tensors[1].data = Data::Seed(12);
        }
        if members.get("role").is_some() {
            let identity = json!(["main", "extension", "rng/dropout", "vendor/state", "", []]);
            recipe.writers[0].records.retain(|found| found["kind"] != "rng");
            let mut record = record;
            record["value"]["state"]["tensor"] = identity;
            recipe.writers[0].records.push(record);
        }
        cases
            .case(
                &format!("resume/rng-tensor-{slug}"),
                &["rng.tensor"],
                &format!("The tensor of a state {what}."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(here().request())
            .rejects_recipe(&recipe, &Bend::new("another tensor"), &[Code::Dangling]);
    }
    cases
        .case("resume/rng-tensor-missing", &["rng.tensor"], "The tensor of a state is not there.")
        .over("bare")
        .effect(Effect::WrongResume)
        .request(here().request())
        .rejects_recipe(
            &good,
            &bent(&good, &said_record, "/value/state/tensor/2", &json!("rng/other")),
            &[Code::Dangling],
        );
    let (mut short, _) = held(json!({"shape": [2499]}));
    short.tensors[1].data = Data::Hex(stream.state[..4998].to_owned());
    cases
        .case("resume/rng-tensor-short", &["rng.state"], "The tensor of a state lacks a byte.")
        .over("bare")
        .effect(Effect::WrongResume)
        .request(here().request())
        .rejects_recipe(&short, &Bend::new("a byte less"), &[Code::BadRngState]);
    cases
        .case(
            "resume/rng-tensor-damaged",
            &["integrity.chunk", "restore.canary"],
            "A bit of the tensor of a state is flipped: its CRC-32C says so before any canary.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(here().request())
        .rejects_recipe(
            &good,
            &Bend::new("a bit in the data").files(|files| {
                let shard = files.iter_mut().find(|(name, _)| name.ends_with(".safetensors"));
                let (_, bytes) = shard.expect("the shard of the tensor");
                bytes[4096 + 77] ^= 1;
            }),
            &[Code::CrcMismatch],
        );
}

/// A case of `resume`: the stream with something else in one place of its value.
fn refused(
    cases: &mut Cases,
    (slug, rules): (&str, &[&str]),
    fault: &str,
    (stream, pointer, instead): (&Stream, &str, Value),
    code: Code,
) {
    let record = dropout(stream);
    let recipe = recipe(std::slice::from_ref(&record));
    let bend = bent(&recipe, &record, &format!("/value{pointer}"), &instead);
    cases
        .case(&format!("resume/rng-{slug}"), rules, fault)
        .over("bare")
        .effect(Effect::WrongResume)
        .request(here().request())
        .rejects_recipe(&recipe, &bend, &[code]);
}

/// The same but for the lowest bit.
fn other_digit(output: &str) -> String {
    let (rest, last) = output.split_at(output.len() - 1);
    let digit = u8::from_str_radix(last, 16).unwrap_or_default() ^ 1;
    format!("{rest}{digit:x}")
}
