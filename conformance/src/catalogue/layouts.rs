//! Recipes of tensors in every dtype, shape, split and name that the format allows. What is special
//! of each is in the table, which is also the list of the cases that read and validate them.

use serde_json::json;
use waystation_format::Dtype;

use super::bases::{adam, add, empty, progress, whole};
use crate::recipe::{Data, Recipe, Writer};

/// Name, rules that it keeps though it comes near, what is special, the recipe.
type Layout = (&'static str, &'static [&'static str], &'static str, fn() -> Recipe);

/// All of them.
pub const LAYOUTS: &[Layout] = &[
    (
        "dtypes",
        &["tensor.dtype", "tensor.packing", "tensor.unused-bits", "read.packed"],
        "Five elements of every dtype, those of fewer than eight bits with unused bits after them.",
        dtypes,
    ),
    (
        "nibbles",
        &["tensor.packing", "read.packed", "tensor.unused-bits"],
        "Two writers split tensors of one, two, four and six bits where no byte ends; each chunk starts afresh.",
        nibbles,
    ),
    (
        "shapes",
        &["chunk.nonempty", "chunk.rank", "tensor.rank", "tensor.size", "cover.exact"],
        "Tensors without axes, with sixteen, with no elements, and with as many as can be counted but for a zero.",
        shapes,
    ),
    (
        "pieces",
        &["cover.exact", "cover.gap", "chunk.split", "chunk.order", "chunk.bounds", "chunk.apart"],
        "Two writers split tensors along eight axes, into a pinwheel, into strips by turns, and into chunks without a pad between.",
        pieces,
    ),
    (
        "names",
        &["identity.name", "identity.order", "shard.key"],
        "Names with quotes, slashes, dots, emoji, two spellings of one letter, and of 1024 bytes.",
        names,
    ),
    (
        "scopes",
        &[
            "identity.scope",
            "identity.one-name",
            "identity.left-out",
            "alias.form",
            "alias.role",
            "alias.elements",
        ],
        "One name for tensors of several coordinates and components, and aliases of them.",
        scopes,
    ),
    (
        "roles",
        &["identity.role", "identity.slot", "identity.owner", "identity.unknown-slot"],
        "A tensor of every role, with slots that the registry lists and others, and with what else an entry may say.",
        roles,
    ),
    (
        "bits",
        &["intro.bytes", "integrity.chunk"],
        "NaN payloads, negative zeros, subnormals and bool bytes other than 0 and 1.",
        bits,
    ),
    (
        "flat",
        &["companion.region", "companion.role", "shard.header"],
        "Flat companions whose boxes are runs of whole blocks, and two whose boxes are not.",
        flat,
    ),
    (
        "shards",
        &["dir.computed-names", "shard.class", "chunk.shard", "shard.order"],
        "A writer with three shards of a class and two of the other, one that wrote nothing, and one that wrote backwards.",
        shards,
    ),
    (
        "edges",
        &["chunk.table-index", "chunk.shard", "integrity.table"],
        "Chunks of B − 1, B and B + 1 bytes, two tables, and a chunk that ends where its shard does.",
        edges,
    ),
    (
        "grid",
        &["cover.exact", "chunk.order", "chunk.table-index"],
        "A parameter in quarters, its moment in halves, and a chunk of two blocks.",
        grid,
    ),
];

/// The recipe of that name.
#[must_use]
pub fn named(name: &str) -> Option<Recipe> {
    LAYOUTS.iter().find(|layout| layout.0 == name).map(|layout| layout.3())
}

/// Adds a box of a tensor by number.
pub(super) fn place(recipe: &mut Recipe, writer: usize, tensor: usize, at: &[u64], extent: &[u64]) {
    recipe.writers[writer].boxes.push((tensor, at.to_vec(), extent.to_vec()));
}

/// Adds a parameter, without a box.
pub(super) fn param(recipe: &mut Recipe, name: &str, dtype: &str, shape: &[u64]) -> usize {
    let seed = 100 + recipe.tensors.len() as u64;
    add(recipe, json!({"dtype": dtype, "name": name, "role": "param", "shape": shape}), seed)
}

fn whole_param(recipe: &mut Recipe, name: &str, dtype: &str, shape: &[u64]) -> usize {
    let number = param(recipe, name, dtype, shape);
    whole(recipe, 0, number);
    number
}

fn begun(writers: usize) -> Recipe {
    let mut recipe = empty();
    recipe.writers.resize(writers, Writer::default());
    recipe.writers[0].records.push(progress());
    recipe
}

fn dtypes() -> Recipe {
    let mut recipe = begun(1);
    for dtype in Dtype::ALL {
        whole_param(&mut recipe, &dtype.as_str().to_lowercase(), dtype.as_str(), &[5]);
    }
    recipe
}

/// `u4` by columns, `u1` and `i4` by runs, `f6` by rows, `i2` along the last of three axes.
fn nibbles() -> Recipe {
    let mut recipe = begun(2);
    let split: [(&str, &str, &[u64], usize, u64); 5] = [
        ("u4", "U4", &[3, 5], 1, 2),
        ("u1", "U1", &[19], 0, 7),
        ("f6", "F6_E2M3", &[5, 3], 0, 2),
        ("i2", "I2", &[3, 3, 3], 2, 1),
        ("i4", "I4", &[9], 0, 4),
    ];
    for (name, dtype, shape, axis, at) in split {
        let tensor = param(&mut recipe, name, dtype, shape);
        let (mut low, mut first, mut rest) = (vec![0; shape.len()], shape.to_vec(), shape.to_vec());
        first[axis] = at;
        place(&mut recipe, 0, tensor, &low, &first);
        low[axis] = at;
        rest[axis] -= at;
        place(&mut recipe, 1, tensor, &low, &rest);
    }
    recipe
}

fn shapes() -> Recipe {
    let mut recipe = begun(1);
    whole_param(&mut recipe, "scalar", "F32", &[]);
    whole_param(&mut recipe, "bit", "U1", &[]);
    whole_param(&mut recipe, "one", "BF16", &[1]);
    whole_param(&mut recipe, "line", "I16", &[7]);
    whole_param(&mut recipe, "deep", "U8", &[1, 2, 1, 1, 3, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 5]);
    whole_param(&mut recipe, "none", "F64", &[0]);
    whole_param(&mut recipe, "none.middle", "F64", &[2, 0, 3]);
    whole_param(&mut recipe, "none.bytes", "U8", &[0, (1 << 53) - 1]);
    whole_param(&mut recipe, "none.bits", "U1", &[8, (1 << 53) - 1, 0]);
    recipe
}

fn pieces() -> Recipe {
    let mut recipe = begun(2);
    let split = param(&mut recipe, "split", "U8", &[2; 8]);
    guillotine(&mut recipe, split, 8);
    let pinwheel = param(&mut recipe, "pinwheel", "F32", &[3, 3]);
    for (number, (at, extent)) in PINWHEEL.iter().enumerate() {
        place(&mut recipe, number % 2, pinwheel, at, extent);
    }
    let rows = param(&mut recipe, "rows", "I16", &[6, 4]);
    for row in 0..6 {
        place(&mut recipe, row as usize % 2, rows, &[row, 0], &[1, 4]);
    }
    let columns = param(&mut recipe, "columns", "I16", &[6, 4]);
    for column in 0..4 {
        place(&mut recipe, column as usize % 2, columns, &[0, column], &[6, 1]);
    }
    let touching = param(&mut recipe, "touching", "U8", &[512]);
    place(&mut recipe, 0, touching, &[0], &[256]);
    place(&mut recipe, 0, touching, &[256], &[256]);
    recipe
}

/// Five boxes of a square of three, of which no line through the square cuts none.
pub(super) const PINWHEEL: [([u64; 2], [u64; 2]); 5] =
    [([0, 0], [1, 2]), ([0, 2], [2, 1]), ([1, 0], [2, 1]), ([1, 1], [1, 1]), ([2, 1], [1, 2])];

/// Halves a tensor whose axes are all 2 along `axes` of them, the rest of it each time.
pub(super) fn guillotine(recipe: &mut Recipe, tensor: usize, axes: usize) {
    let mut at = vec![0; axes];
    let mut extent = vec![2; axes];
    for axis in 0..axes {
        extent[axis] = 1;
        place(recipe, axis % 2, tensor, &at, &extent);
        at[axis] = 1;
    }
    place(recipe, 1, tensor, &at, &extent);
}

fn names() -> Recipe {
    let mut recipe = begun(1);
    let long = "長".repeat(341);
    let listed = [
        "a",
        // Sorts before `a`, since the quote that ends a name in the key is above it.
        "a!",
        // Sorts after `aZ` though a quote is below Z: in the key a backslash stands before it.
        "a\"b",
        "aZ",
        "a\\b",
        "a/b",
        "../../etc/passwd",
        ".",
        "..",
        " ",
        " a ",
        "__metadata__",
        "__pad__.0",
        "__crc__",
        "__ws__:x",
        "model.layers.0.weight",
        "[\"main\",\"param\",\"a\",\"\",\"\",[]]",
        "{}",
        "null",
        "A",
        // One letter in two spellings, which are two names.
        "\u{e9}",
        "e\u{301}",
        // One letter that has another code point of its own, which normalises to this.
        "\u{c5}",
        "\u{1f98a}",
        // A character above U+FFFF comes after one below it in UTF-8, and before it in UTF-16.
        "\u{ffee}",
        // Neighbours of the characters that a name must not have.
        "\u{a0}\u{61b}\u{61d}\u{200d}\u{2010}\u{2027}\u{202f}\u{2065}\u{206a}\u{feff}\u{10ffff}",
        "a\u{200b}",
        "%s%n$(id)`id`;",
        "-rf",
        "CON",
    ];
    for name in listed {
        whole_param(&mut recipe, name, "U8", &[1]);
    }
    whole_param(&mut recipe, &format!("{long}x"), "U8", &[1]);
    recipe
}

/// Tensors and aliases of one name along axes and in two components.
fn scopes() -> Recipe {
    let mut recipe = begun(2);
    recipe.topology = vec![("dp".into(), 2), ("tp".into(), 3)];
    let listed = [
        json!([]),
        json!([["dp", 0]]),
        json!([["dp", 1]]),
        json!([["tp", 2]]),
        json!([["dp", 1], ["tp", 0]]),
    ];
    for (number, scope) in listed.iter().enumerate() {
        let mut entry = json!({"dtype": "U8", "name": "seen", "role": "buffer", "shape": [3]});
        if scope != &json!([]) {
            entry["scope"] = scope.clone();
        }
        let tensor = add(&mut recipe, entry.clone(), 200 + number as u64);
        whole(&mut recipe, number % 2, tensor);
        entry["component"] = "critic".into();
        entry["shape"] = json!([2]);
        let tensor = add(&mut recipe, entry, 210 + number as u64);
        whole(&mut recipe, number % 2, tensor);
    }
    recipe.writers[1].aliases.extend([
        json!({"name": "again", "of": ["main", "buffer", "seen", "", "", [["dp", 1]]], "role": "buffer"}),
        json!({"name": "again", "of": ["main", "buffer", "seen", "", "", []], "role": "buffer"}),
        json!({"component": "draft", "name": "seen", "role": "buffer",
            "of": ["critic", "buffer", "seen", "", "", [["dp", 1], ["tp", 0]]]}),
        json!({"name": "third", "native": [["torch", ["third", 0]]],
            "of": ["main", "buffer", "seen", "", "", []], "role": "buffer"}),
    ]);
    recipe
}

fn roles() -> Recipe {
    let mut recipe = begun(1);
    let path: Vec<_> = (0..64).map(|step| json!(format!("{step}"))).collect();
    let listed = [
        json!({"dtype": "BF16", "name": "w", "role": "param", "shape": [4, 3], "valid": [4, 2],
            "native": [["a", path], ["torch.dcp", ["model", "", 9_007_199_254_740_991_u64]]]}),
        json!({"dtype": "BF16", "name": "b", "role": "buffer", "shape": [4], "valid": [0]}),
        json!({"dtype": "F32", "name": "w", "role": "master", "shape": [4, 3]}),
        json!({"axes": [1, null], "dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer",
            "shape": [3, 2], "slot": "adam.m"}),
        json!({"axes": [15], "dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer",
            "shape": [2], "slot": "nobody/knows this"}),
        json!({"dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer", "shape": [],
            "slot": "unheard-of"}),
        json!({"dtype": "F32", "name": "w", "owner": "mean", "role": "ema", "shape": [4, 3]}),
        json!({"dtype": "F32", "name": "w", "role": "quant", "shape": [2], "slot": "scale"}),
        json!({"dtype": "F32", "name": "w", "role": "quant", "shape": [2], "slot": "adam.m:scale"}),
        json!({"dtype": "U8", "name": "w", "role": "extension", "shape": [1]}),
        json!({"dtype": "U8", "name": "w", "role": "extension", "shape": [2], "slot": "vendor/x"}),
        json!({"dtype": "U8", "name": "bytes", "role": "blob", "shape": [5]}),
        json!({"dtype": "U64", "name": "numbers", "role": "blob", "shape": [2]}),
        json!({"dtype": "U8", "name": "w", "role": "extension", "shape": [2], "slot": "plain"}),
    ];
    for (number, entry) in listed.into_iter().enumerate() {
        let tensor = add(&mut recipe, entry, 300 + number as u64);
        whole(&mut recipe, 0, tensor);
    }
    let mean = json!({"kind": "ema", "name": "mean", "value": {"updates": 3}});
    recipe.writers[0].records.extend([adam(), mean]);
    recipe
}

fn bits() -> Recipe {
    let mut recipe = begun(1);
    let listed = [
        ("bool", "BOOL", "00010280ff"),
        ("f16", "F16", "017c00fe01fe00800100ff7b"),
        ("bf16", "BF16", "817fc1ff00800100"),
        ("f32", "F32", "0100807fefbeadffefbe807f0000008001000000"),
        ("f64", "F64", "010000000000f07fefbeaddeefbeffff00000000000000800100000000000000"),
        ("e4m3", "F8_E4M3", "7fff8000"),
        ("e5m2", "F8_E5M2", "7c7dfeff80"),
        ("c64", "C64", "010080ff00000080"),
    ];
    for (name, dtype, hex) in listed {
        let width = Dtype::from_id(dtype).map_or(1, |dtype| u64::from(dtype.bits()) / 8);
        let tensor = whole_param(&mut recipe, name, dtype, &[hex.len() as u64 / 2 / width]);
        recipe.tensors[tensor].data = Data::Hex(hex.to_owned());
    }
    recipe
}

/// `rows`, `line`, `codes`, `short` and `wide` are runs of whole blocks; `columns` and `off` are not, and `halves` are no runs
/// though each begins and ends where a block does.
fn flat() -> Recipe {
    let mut recipe = begun(1);
    // Name, dtype, shape, block, boxes.
    type Companion = (
        &'static str,
        &'static str,
        &'static [u64],
        u64,
        &'static [(&'static [u64], &'static [u64])],
    );
    let listed: [Companion; 8] = [
        ("rows", "F32", &[6, 4], 4, &[(&[0, 0], &[2, 4]), (&[2, 0], &[4, 4])]),
        ("line", "F8_E4M3", &[10], 4, &[(&[0], &[4]), (&[4], &[6])]),
        ("codes", "U4", &[24], 4, &[(&[0], &[12]), (&[12], &[12])]),
        ("short", "BF16", &[7], 100, &[(&[0], &[7])]),
        ("columns", "F32", &[6, 4], 4, &[(&[0, 0], &[6, 2]), (&[0, 2], &[6, 2])]),
        ("off", "U8", &[10], 4, &[(&[0], &[6]), (&[6], &[4])]),
        ("halves", "F32", &[6, 8], 4, &[(&[0, 0], &[6, 4]), (&[0, 4], &[6, 4])]),
        ("wide", "F32", &[6, 8], 4, &[(&[0, 0], &[6, 8])]),
    ];
    for (number, (name, dtype, shape, block, boxes)) in listed.into_iter().enumerate() {
        let entry = json!({"block": block, "dtype": dtype, "name": name, "role": "quant",
            "shape": shape, "slot": "scale"});
        let tensor = add(&mut recipe, entry, 400 + number as u64);
        for (at, extent) in boxes {
            place(&mut recipe, 0, tensor, at, extent);
        }
    }
    recipe
}

fn shards() -> Recipe {
    let mut recipe = begun(3);
    for number in 0..3_u64 {
        let name = format!("p{number}");
        let tensor = param(&mut recipe, &name, "I32", &[4, 2]);
        place(&mut recipe, 0, tensor, &[0, 0], &[2, 2]);
        let entry = json!({"dtype": "F32", "name": name, "role": "master", "shape": [3]});
        let master = add(&mut recipe, entry, 500 + number);
        whole(&mut recipe, 0, master);
    }
    recipe.writers[0].cuts = vec![2, 4];
    for tensor in [4, 2, 0] {
        for row in [3, 2] {
            place(&mut recipe, 2, tensor, &[row, 0], &[1, 2]);
        }
    }
    recipe
}

fn edges() -> Recipe {
    let mut recipe = begun(1);
    for (name, length) in [("end", 4096), ("below", 4095), ("above", 4097), ("more", 12_289)] {
        whole_param(&mut recipe, name, "U8", &[length]);
    }
    whole_param(&mut recipe, "last", "U8", &[1]);
    recipe.writers[0].cuts = vec![1];
    recipe
}

/// By entry: 0 `w`'s moment in halves; 1 `big` of two blocks; 2 `small`; 3 `w` in quarters.
pub(super) fn grid() -> Recipe {
    let mut recipe = begun(1);
    let w = param(&mut recipe, "w", "F32", &[4, 6]);
    for at in [[0, 0], [0, 3], [2, 0], [2, 3]] {
        place(&mut recipe, 0, w, &at, &[2, 3]);
    }
    whole_param(&mut recipe, "big", "U8", &[5000]);
    whole_param(&mut recipe, "small", "U8", &[3]);
    let entry = json!({"axes": [0, 1], "dtype": "F32", "name": "w", "owner": "adam",
        "role": "optimizer", "shape": [4, 6], "slot": "adam.m"});
    let moment = add(&mut recipe, entry, 600);
    place(&mut recipe, 0, moment, &[0, 0], &[2, 6]);
    place(&mut recipe, 0, moment, &[2, 0], &[2, 6]);
    recipe.writers[0].records.push(adam());
    recipe
}
