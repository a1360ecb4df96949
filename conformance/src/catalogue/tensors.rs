//! Chapter 5.1: what an entry says of a tensor. Of a tensor without elements, so that nothing else
//! is wrong with it. Its chunks are in `chunks`.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use super::identity::entry;
use crate::bend::{Bend, remove, set};
use crate::case::Effect;

/// The largest integer of metadata, 2^53 − 1.
const MOST: u64 = (1 << 53) - 1;

pub(super) fn add(cases: &mut Cases) {
    members(cases);
    dtypes(cases);
    ranks(cases);
    valid(cases);
    axes(cases);
    sizes(cases);
    native(cases);
    blobs(cases);
    blocks(cases);
}

/// The same value in part and page, with everything else as it was.
fn stated(member: &'static str, value: Value) -> Bend {
    Bend::new("another member").both(move || set(&format!("/entries/0/{member}"), value.clone()))
}

fn members(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity).alone();
    for member in ["dtype", "role", "shape"] {
        group.bad(
            &format!("tensor-without-{member}"),
            &["json.unknown-member"],
            &format!("A tensor lacks `{member}`."),
            &Bend::new("a member less").both(move || remove(&format!("/entries/0/{member}"))),
            Code::BadMember,
        );
    }
    group.bad(
        "tensor-without-name",
        &["json.unknown-member"],
        "A tensor has no name.",
        &Bend::new("a member less").both(|| remove("/entries/0/name")),
        Code::BadMember,
    );
    group.bad(
        "tensor-without-chunks",
        &["json.unknown-member"],
        "A tensor without elements lacks `chunks`: the list is empty, and stands.",
        &Bend::new("a member less").both(|| remove("/entries/0/chunks")),
        Code::BadMember,
    );
    group.bad(
        "tensor-with-strides",
        &["json.unknown-member"],
        "A tensor has strides, which no version knows.",
        &stated("strides", json!([3, 1])),
        Code::BadMember,
    );
    for (slug, fault, member, value) in [
        ("shape-null", "A shape is null.", "shape", json!(null)),
        ("shape-negative", "A shape has a negative number.", "shape", json!([0, -3])),
        ("shape-strings", "A shape has strings.", "shape", json!(["0", "3"])),
        (
            "shape-bool",
            "A shape has true, which some languages take for 1.",
            "shape",
            json!([0, true]),
        ),
        ("shape-number", "A shape is a number.", "shape", json!(0)),
        ("chunks-null", "`chunks` is null.", "chunks", json!(null)),
        ("chunks-object", "`chunks` is an object.", "chunks", json!({})),
        ("chunk-null", "A chunk is null.", "chunks", json!([null])),
        ("chunk-object", "A chunk is an object.", "chunks", json!([{"at": [0, 0]}])),
        ("dtype-number", "A dtype is a number.", "dtype", json!(32)),
        ("axes-string", "`axes` has strings.", "axes", json!(["0", "1"])),
        ("valid-null", "A number of `valid` is null.", "valid", json!([0, null])),
    ] {
        let rules: &[&str] = &["json.types"];
        group.bad(&format!("type-{slug}"), rules, fault, &stated(member, value), Code::BadMember);
    }
}

fn dtypes(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::SilentCorruption).alone();
    for (slug, fault, dtype) in [
        ("unknown", "A dtype is not in the registry.", "F31"),
        ("lower-case", "A dtype is written small.", "f32"),
        ("numpy", "A dtype is NumPy's name of it.", "float32"),
        ("byte-order", "A dtype says a byte order.", ">f4"),
        ("packed", "A dtype is PyTorch's name of two elements in a byte.", "float4_e2m1fn_x2"),
        ("empty", "A dtype is the empty string.", ""),
        ("space", "A dtype ends in a space.", "F32 "),
        ("safetensors-only", "A dtype is one of safetensors and none of the registry.", "F4"),
    ] {
        let bend = entry(json!({"dtype": dtype}));
        group.bad(
            &format!("dtype-{slug}"),
            &["tensor.dtype"],
            fault,
            &bend,
            Code::UnsupportedDtype,
        );
    }
}

fn ranks(cases: &mut Cases) {
    let rules = ["tensor.rank"];
    let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion).alone();
    let mut ones = vec![1; 16];
    ones[3] = 0;
    group.good(
        "rank-16",
        &rules,
        "A tensor has sixteen axes.",
        &entry(json!({"shape": ones.clone()})),
    );
    ones.push(1);
    let mut bad = |slug: &str, fault: &str, members: Value| {
        group.bad(slug, &rules, fault, &entry(members), Code::BadShape);
    };
    bad("rank-17", "A tensor has seventeen axes.", json!({"shape": ones}));
    bad("valid-short", "`valid` has an axis less than the shape.", json!({"valid": [0]}));
    bad("valid-long", "`valid` has an axis more than the shape.", json!({"valid": [0, 3, 1]}));
    let slot =
        |axes: Value| json!({"axes": axes, "role": "optimizer", "slot": "adam.m", "owner": "adam"});
    bad("axes-short", "`axes` has an element less than the shape.", slot(json!([0])));
    bad("axes-long", "`axes` has an element more than the shape.", slot(json!([0, 1, 2])));
}

fn valid(cases: &mut Cases) {
    let rules = ["tensor.valid"];
    let mut group = Group::new(cases, "core", "bare", Effect::SilentCorruption).alone();
    for (slug, fault, members) in [
        ("valid-above", "`valid` is above the shape.", json!({"valid": [0, 4]})),
        (
            "valid-above-and-below",
            "`valid` is above the shape along one axis and below it along another.",
            json!({"shape": [0, 3, 2], "valid": [0, 4, 1]}),
        ),
        ("valid-equal", "`valid` is the shape.", json!({"valid": [0, 3]})),
        (
            "valid-without-axes",
            "A tensor without axes has `valid`.",
            // Without a chunk: the rule about members comes before that of cover.
            json!({"shape": [], "valid": []}),
        ),
    ] {
        let bend = match slug {
            "valid-without-axes" => {
                stated("valid", json!([])).both(|| set("/entries/0/shape", json!([])))
            }
            _ => entry(members),
        };
        group.bad(slug, &rules, fault, &bend, Code::BadShape);
    }
    group.good(
        "valid-zero",
        &rules,
        "Nothing of a padded shape means anything.",
        &entry(json!({"valid": [0, 0]})),
    );
}

fn axes(cases: &mut Cases) {
    let rules = ["tensor.axes"];
    let slot = |axes: Value| {
        let shape = json!(vec![0; axes.as_array().map_or(0, Vec::len)]);
        entry(
            json!({"axes": axes, "role": "optimizer", "slot": "adam.m", "owner": "adam", "shape": shape}),
        )
    };
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume).alone();
    for (slug, fault, bend) in [
        (
            "axes-of-param",
            "A param says which axes of a parameter it follows.",
            entry(json!({"axes": [0, 1]})),
        ),
        ("axes-all-null", "`axes` has nothing but null.", slot(json!([null, null]))),
        (
            "axes-twice",
            "One axis of the parameter stands for two of the slot.",
            slot(json!([1, 1])),
        ),
        ("axes-16", "An axis number is 16, one more than a tensor can have.", slot(json!([16, 0]))),
        (
            "axes-without-axes",
            "A slot without axes has `axes`.",
            slot(json!([0]))
                .both(|| set("/entries/0/axes", json!([])))
                .both(|| set("/entries/0/shape", json!([]))),
        ),
    ] {
        group.bad(slug, &rules, fault, &bend, Code::BadIdentity);
    }
    let extension = json!({"axes": [null, 3], "role": "extension", "slot": "vendor/x"});
    group.good(
        "axes-of-extension",
        &rules,
        "An extension with a slot has `axes`.",
        &entry(extension),
    );
}

fn sizes(cases: &mut Cases) {
    let rules = ["tensor.size", "limit.arithmetic"];
    let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion).alone();
    for (slug, fault, members) in [
        (
            "size-above-bits",
            "A zero hides one bit too many.",
            json!({"dtype": "U1", "shape": [0, MOST, 9]}),
        ),
        (
            "size-above-bytes",
            "A zero hides eight bits too many.",
            json!({"dtype": "U16", "shape": [0, 1_u64 << 52]}),
        ),
        (
            "size-wraps-to-zero",
            "A zero hides numbers whose product is 2^64, which is 0 in 64 bits.",
            json!({"dtype": "U8", "shape": [1_u64 << 32, 1_u64 << 32, 0]}),
        ),
        (
            "size-wraps-to-little",
            "A zero hides numbers whose product is 2^64 + 2^12 in 64 bits.",
            json!({"dtype": "U8", "shape": [0, 4096, (1_u64 << 52) + 1]}),
        ),
        (
            "size-wraps-in-bits",
            "A zero hides elements that can be counted and whose bits cannot.",
            json!({"dtype": "C128", "shape": [0, MOST]}),
        ),
    ] {
        group.bad(slug, &rules, fault, &entry(members), Code::Limit);
    }
    for (slug, fault, shape) in [
        (
            "size-wraps-without-zero",
            "The product of a shape is 2^64, so that a count in 64 bits finds no elements, and no chunk missing.",
            json!([1_u64 << 32, 1_u64 << 32]),
        ),
        (
            "size-wraps-by-signs",
            "The product of a shape is 2^63, which is negative in 64 bits with a sign.",
            json!([1_u64 << 31, 1_u64 << 32]),
        ),
        (
            "size-of-port",
            "A shape whose bytes wrap to 16 in 64 bits; a port of another format accepted it.",
            json!([4_194_305, 4_194_305, 211_106_198_978_564_u64]),
        ),
    ] {
        // Stated without boxes: nobody has the bytes.
        group.bad(slug, &rules, fault, &stated("shape", shape), Code::Limit);
    }
    for (slug, special, dtype, shape) in [
        ("size-most-bytes", "A zero hides as many bytes as can be.", "U8", json!([0, MOST])),
        ("size-most-bits", "A zero hides as many bits as can be.", "U1", json!([MOST, 0, 8])),
    ] {
        group.good(slug, &rules, special, &entry(json!({"dtype": dtype, "shape": shape})));
    }
}

fn native(cases: &mut Cases) {
    let rules = ["tensor.native"];
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity).alone();
    let long = |length: usize| json!([["torch", vec!["x"; length]]]);
    for (slug, fault, value) in [
        ("native-empty", "`native` is empty.", json!([])),
        ("native-path-empty", "A path has no elements.", json!([["torch", []]])),
        ("native-path-65", "A path has 65 elements.", long(65)),
        ("native-twice", "A framework stands twice.", json!([["jax", ["a"]], ["jax", ["b"]]])),
        (
            "native-unsorted",
            "Frameworks are not in order.",
            json!([["torch", ["a"]], ["jax", ["b"]]]),
        ),
    ] {
        group.bad(slug, &rules, fault, &entry(json!({"native": value})), Code::BadMember);
    }
    for (slug, fault, value) in [
        ("type-native-object", "`native` is an object.", json!({"torch": ["w"]})),
        ("type-native-text", "A path is a string.", json!([["torch", "model.w"]])),
        ("type-native-negative", "A path has a negative number.", json!([["torch", ["w", -1]]])),
        ("type-native-null", "A path has null.", json!([["torch", [null]]])),
    ] {
        group.bad(slug, &["json.types"], fault, &entry(json!({"native": value})), Code::BadMember);
    }
    group.good(
        "native-path-64",
        &rules,
        "A path has 64 elements, and a number beyond any index.",
        &entry(json!({"native": [["a", [MOST]], ["torch", vec!["x"; 64]]]})),
    );
}

fn blobs(cases: &mut Cases) {
    let rules = ["tensor.blob"];
    let blob =
        |dtype: &str, shape: Value| entry(json!({"role": "blob", "dtype": dtype, "shape": shape}));
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume).alone();
    for (slug, fault, dtype, shape) in [
        ("blob-floats", "A blob has dtype F32.", "F32", json!([0])),
        ("blob-signed", "A blob has dtype I64.", "I64", json!([0])),
        ("blob-two-axes", "A blob has two axes.", "U8", json!([0, 3])),
    ] {
        group.bad(slug, &rules, fault, &blob(dtype, shape), Code::BadIdentity);
    }
    let bend = stated("role", json!("blob"))
        .both(|| set("/entries/0/dtype", json!("U8")))
        .both(|| set("/entries/0/shape", json!([])))
        .manifest(set("/tensors/0/first", json!(["main", "blob", "none", "", "", []])));
    group.bad("blob-without-axes", &rules, "A blob has no axes.", &bend, Code::BadIdentity);
    group.good("blob-numbers", &rules, "A blob has dtype U64.", &blob("U64", json!([0])));
}

fn blocks(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::SilentCorruption).alone();
    for (slug, fault, members) in [
        ("block-of-param", "A param says how many elements a block has.", json!({"block": 4})),
        (
            "block-of-extension",
            "An extension says how many elements a block has.",
            json!({"block": 4, "role": "extension", "slot": "scale"}),
        ),
    ] {
        group.bad(slug, &["companion.role"], fault, &entry(members), Code::BadIdentity);
    }
    let quant = |block: Value| entry(json!({"block": block, "role": "quant", "slot": "scale"}));
    group.bad(
        "block-zero",
        &["json.types"],
        "A block has no elements: whoever divides by it must not.",
        &quant(json!(0)),
        Code::BadMember,
    );
    group.bad(
        "block-negative",
        &["json.types"],
        "A block has fewer than no elements.",
        &quant(json!(-4)),
        Code::BadMember,
    );
    group.good(
        "block-most",
        &["companion.role", "limit.arithmetic"],
        "A block has 2^53 − 1 elements, more than the tensor.",
        &quant(json!(MOST)),
    );
}
