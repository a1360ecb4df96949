//! Chapter 12.2: regions of tensors, put together from whatever chunks they meet. Those of flat
//! companions are in `companions`.

use serde_json::{Value, json};
use waystation_format::Code;

use super::damage::{MODEL, flip, spot};
use super::{Cases, bases};
use crate::bend::Bend;
use crate::build::{self, identity};
use crate::case::Effect;
use crate::recipe::Recipe;

/// The largest integer of metadata, 2^53 − 1.
const MOST: i64 = (1 << 53) - 1;

/// Slug, base, position of the tensor in the recipe, start, extent, what is special.
pub(super) type Slice<'a> = (&'a str, &'a str, usize, &'a [u64], &'a [u64], &'a str);

pub(super) fn add(cases: &mut Cases) {
    for slice in WHOLE_BYTES.iter().chain(SUB_BYTE).chain(SHAPES).chain(NAMED) {
        answered(cases, slice, &["read.region", "read.packed"]);
    }
    aliases(cases);
    empty(cases);
    outside(cases);
    unknown(cases);
    damaged(cases);
}

/// In `grid`: 0 `w` in quarters of 2 by 3, 1 `big` with a block of 4096 bytes and one of 904.
const WHOLE_BYTES: &[Slice<'_>] = &[
    ("whole", "grid", 0, &[0, 0], &[4, 6], "All of a tensor of four chunks."),
    ("first-element", "grid", 0, &[0, 0], &[1, 1], "The first element."),
    ("last-element", "grid", 0, &[3, 5], &[1, 1], "The last element, in the last chunk."),
    ("first-row", "grid", 0, &[0, 0], &[1, 6], "A row of two chunks."),
    ("last-row", "grid", 0, &[3, 0], &[1, 6], "The last row."),
    ("last-column", "grid", 0, &[0, 5], &[4, 1], "The last column, an element of each row."),
    ("one-chunk", "grid", 0, &[2, 3], &[2, 3], "Exactly one chunk."),
    ("within-chunk", "grid", 0, &[2, 1], &[1, 2], "A part of one chunk that touches its edge."),
    ("corner", "grid", 0, &[1, 2], &[2, 2], "One element of each of four chunks."),
    ("inside", "grid", 0, &[1, 1], &[2, 4], "All but the rim."),
    ("moment-row", "grid", 3, &[1, 2], &[2, 3], "State of an optimizer, across its chunks."),
    ("first-block", "grid", 1, &[0], &[4096], "Exactly one block of a chunk."),
    ("second-block", "grid", 1, &[4096], &[904], "The last block of a chunk, which is short."),
    ("across-blocks", "grid", 1, &[4090], &[12], "Bytes of two blocks."),
    ("last-byte", "grid", 1, &[4999], &[1], "The last byte of a chunk of two blocks."),
    ("end-of-shard", "edges", 0, &[4000], &[96], "The last bytes of a shard without a pad."),
    ("block-end", "edges", 2, &[4095], &[2], "The last byte of a block and a block of one byte."),
    ("three-blocks", "edges", 3, &[4095], &[4099], "A block with bytes of those around it."),
    (
        "across-axes",
        "pieces",
        0,
        &[0, 1, 0, 1, 0, 1, 0, 1],
        &[2, 1, 2, 1, 2, 1, 2, 1],
        "A region of a tensor that is split along eight axes.",
    ),
    (
        "pinwheel-row",
        "pieces",
        1,
        &[1, 0],
        &[1, 3],
        "A row of three chunks, none of which is a row.",
    ),
    ("pinwheel-square", "pieces", 1, &[1, 1], &[2, 2], "A square of three chunks."),
    (
        "row-strips",
        "pieces",
        2,
        &[1, 1],
        &[4, 2],
        "Columns across chunks that are rows of two writers.",
    ),
    (
        "column-strips",
        "pieces",
        3,
        &[5, 0],
        &[1, 4],
        "A row across chunks that are columns of two writers.",
    ),
    ("shards", "shards", 2, &[1, 0], &[3, 2], "Rows of two writers and several shards."),
    ("bits", "bits", 3, &[1], &[3], "NaN payloads and a negative zero."),
];

/// In `nibbles`: 0 `u4` split before column 2, 1 `u1` at 7, 2 `f6` at row 2, 3 `i2` along the last axis, 4 `i4` at 4.
const SUB_BYTE: &[Slice<'_>] = &[
    (
        "u4-whole",
        "nibbles",
        0,
        &[0, 0],
        &[3, 5],
        "All of a tensor of four bits, whose rows begin within bytes.",
    ),
    (
        "u4-columns",
        "nibbles",
        0,
        &[0, 1],
        &[3, 3],
        "Columns of two chunks, none of which begins at a byte.",
    ),
    ("u4-element", "nibbles", 0, &[2, 3], &[1, 1], "One element of four bits."),
    ("u1-across", "nibbles", 1, &[5], &[9], "Single bits of two chunks, more than a byte of them."),
    (
        "u1-byte",
        "nibbles",
        1,
        &[7],
        &[8],
        "Eight bits that are a byte of the second chunk, and no byte of the tensor.",
    ),
    ("u1-end", "nibbles", 1, &[16], &[3], "The last three bits."),
    ("f6-rows", "nibbles", 2, &[1, 1], &[3, 2], "Elements of six bits, which lie across bytes."),
    ("f6-four", "nibbles", 2, &[1, 0], &[2, 3], "Six elements of six bits of two chunks."),
    ("i2-middle", "nibbles", 3, &[1, 0, 0], &[1, 3, 2], "Elements of two bits along three axes."),
    ("i4-odd", "nibbles", 4, &[3], &[3], "An odd number of elements from an odd place."),
    ("u1-five", "dtypes", 26, &[1], &[3], "Bits from the middle of a byte."),
    ("c128", "dtypes", 28, &[4], &[1], "One element of sixteen bytes."),
];

/// In `shapes`: 0 a scalar, 1 a bit, 2 one element, 4 of sixteen axes, from 5 on without elements.
const SHAPES: &[Slice<'_>] = &[
    ("scalar", "shapes", 0, &[], &[], "A tensor without axes."),
    ("scalar-bit", "shapes", 1, &[], &[], "A bit without axes."),
    (
        "sixteen-axes",
        "shapes",
        4,
        &[0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2],
        &[1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3],
        "A region of sixteen axes.",
    ),
    ("nothing-whole", "shapes", 6, &[0, 0, 0], &[2, 0, 3], "All of a tensor without elements."),
    ("nothing-part", "shapes", 6, &[1, 0, 1], &[1, 0, 2], "A part of a tensor without elements."),
    (
        "nothing-vast",
        "shapes",
        7,
        &[0, 0],
        &[0, (1 << 53) - 1],
        "A tensor whose one axis has 2^53 − 1 indices, and the other none.",
    ),
];

/// Tensors that only their whole identity names.
const NAMED: &[Slice<'_>] = &[
    (
        "name-climbing",
        "names",
        6,
        &[0],
        &[1],
        "A tensor whose name looks like a path out of the directory.",
    ),
    ("name-of-key", "names", 16, &[0], &[1], "A tensor whose name is the text of another's key."),
    (
        "name-composed",
        "names",
        20,
        &[0],
        &[1],
        "A letter in one code point, beside a tensor with two.",
    ),
    (
        "name-decomposed",
        "names",
        21,
        &[0],
        &[1],
        "A letter in two code points, beside a tensor with one.",
    ),
    ("scope", "scopes", 4, &[0], &[3], "A tensor of one coordinate among others of its name."),
    ("scope-none", "scopes", 0, &[1], &[2], "A tensor of no coordinate among others of its name."),
    ("component", "scopes", 9, &[0], &[2], "A tensor of another component and coordinate."),
];

pub(super) fn answered(cases: &mut Cases, slice: &Slice<'_>, rules: &[&str]) {
    let (slug, base, tensor, start, extent, special) = *slice;
    let recipe = bases::named(base).expect("a base");
    cases
        .case(&format!("reshard/{slug}"), rules, special)
        .effect(Effect::SilentCorruption)
        .request(request(&recipe, tensor, start, extent))
        .answers(base, build::slice(&recipe, tensor, start, extent));
}

fn request(recipe: &Recipe, tensor: usize, start: &[u64], extent: &[u64]) -> Value {
    let entry = Value::Object(recipe.tensors[tensor].entry.clone());
    json!({"tensor": identity(&entry), "start": start, "extent": extent})
}

fn aliases(cases: &mut Cases) {
    type Alias<'a> = (&'a str, &'a str, Value, usize, &'a [u64], &'a [u64], &'a str);
    let listed: [Alias<'_>; 4] = [
        (
            "alias-whole",
            "small",
            json!(["main", "param", "head", "", "", []]),
            0,
            &[0, 0],
            &[4, 6],
            "All elements of what an alias names.",
        ),
        (
            "alias-region",
            "two",
            json!(["main", "param", "head", "", "", []]),
            0,
            &[1, 2],
            &[2, 2],
            "A region of what an alias names, of two writers.",
        ),
        (
            "alias-scope",
            "scopes",
            json!(["main", "buffer", "again", "", "", [["dp", 1]]]),
            4,
            &[1],
            &[1],
            "An alias has the coordinate of what it names.",
        ),
        (
            "alias-component",
            "scopes",
            json!(["draft", "buffer", "seen", "", "", [["dp", 1], ["tp", 0]]]),
            9,
            &[0],
            &[2],
            "An alias of a tensor of another component.",
        ),
    ];
    for (slug, base, alias, tensor, start, extent, special) in listed {
        let recipe = bases::named(base).expect("a base");
        cases
            .case(&format!("reshard/{slug}"), &["read.alias", "alias.target"], special)
            .effect(Effect::SilentCorruption)
            .request(json!({"tensor": alias, "start": start, "extent": extent}))
            .answers(base, build::slice(&recipe, tensor, start, extent));
    }
}

/// Regions without elements have no bytes, wherever they lie within the shape.
fn empty(cases: &mut Cases) {
    let listed: &[Slice<'_>] = &[
        ("empty-at-start", "grid", 0, &[0, 0], &[0, 0], "No rows and no columns."),
        ("empty-rows", "grid", 0, &[2, 0], &[0, 6], "No rows of all columns, between two chunks."),
        ("empty-columns", "grid", 0, &[0, 3], &[4, 0], "No columns of all rows."),
        (
            "empty-at-end",
            "grid",
            0,
            &[4, 6],
            &[0, 0],
            "Nothing, where the shape ends along each axis.",
        ),
        ("empty-of-bits", "nibbles", 1, &[19], &[0], "No bits, where the tensor ends."),
        (
            "empty-of-companion",
            "flat",
            0,
            &[0, 1],
            &[6, 0],
            "No columns of a flat companion, which begin within a block.",
        ),
        (
            "empty-of-refused",
            "flat",
            4,
            &[0, 0],
            &[0, 4],
            "No rows of a flat companion that cannot be read whole.",
        ),
    ];
    for slice in listed {
        answered(cases, slice, &["read.region"]);
    }
}

fn outside(cases: &mut Cases) {
    type Outside<'a> = (&'a str, &'a str, usize, Value, Value, &'a str);
    let listed: [Outside<'_>; 16] = [
        (
            "rank-short",
            "grid",
            0,
            json!([0]),
            json!([4]),
            "A region of one axis of a tensor of two.",
        ),
        (
            "rank-long",
            "grid",
            0,
            json!([0, 0, 0]),
            json!([4, 6, 1]),
            "A region of three axes of a tensor of two.",
        ),
        ("rank-none", "grid", 0, json!([]), json!([]), "A region without axes of a tensor of two."),
        (
            "ranks-differ",
            "grid",
            0,
            json!([0, 0]),
            json!([4]),
            "Start and extent are of two ranks.",
        ),
        (
            "scalar-axis",
            "shapes",
            0,
            json!([0]),
            json!([1]),
            "A region of one axis of a tensor without.",
        ),
        (
            "row-beyond",
            "grid",
            0,
            json!([3, 0]),
            json!([2, 6]),
            "A region reaches a row beyond the shape.",
        ),
        (
            "column-beyond",
            "grid",
            0,
            json!([0, 0]),
            json!([1, 7]),
            "A region reaches a column beyond the shape, where the next row begins in memory.",
        ),
        (
            "start-at-end",
            "grid",
            0,
            json!([4, 0]),
            json!([1, 6]),
            "A region begins where the shape ends.",
        ),
        (
            "empty-beyond",
            "grid",
            0,
            json!([5, 0]),
            json!([0, 6]),
            "A region without rows begins beyond the shape.",
        ),
        (
            "empty-too-wide",
            "grid",
            0,
            json!([0, 0]),
            json!([0, 7]),
            "A region without rows is wider than the shape.",
        ),
        ("start-most", "grid", 0, json!([MOST, 0]), json!([1, 6]), "A region begins at 2^53 − 1."),
        ("extent-most", "grid", 0, json!([1, 0]), json!([MOST, 6]), "A region has 2^53 − 1 rows."),
        (
            "both-most",
            "grid",
            0,
            json!([MOST, MOST]),
            json!([MOST, MOST]),
            "A region begins at 2^53 − 1 and has as many rows.",
        ),
        (
            "wraps-32",
            "grid",
            0,
            json!([4_294_967_296_i64, 0]),
            json!([1, 6]),
            "A region begins at 2^32, which is 0 in 32 bits.",
        ),
        (
            "of-nothing",
            "shapes",
            6,
            json!([0, 0, 0]),
            json!([2, 1, 3]),
            "A region has an element of a tensor that has none.",
        ),
        (
            "of-companion",
            "flat",
            1,
            json!([8]),
            json!([4]),
            "A region of a flat companion goes on to the end of the last block, which is short.",
        ),
    ];
    for (slug, base, tensor, start, extent, fault) in listed {
        refused(cases, base, tensor, start, extent, slug, fault, Code::BadRegion);
    }
    for (slug, start, extent, fault) in [
        (
            "start-negative",
            json!([-1, 0]),
            json!([1, 6]),
            "A region begins a row before the shape.",
        ),
        (
            "start-negative-within",
            json!([0, -1]),
            json!([4, 2]),
            "A region begins before the shape and ends within it.",
        ),
        (
            "extent-negative",
            json!([2, 0]),
            json!([-1, 6]),
            "A region has a negative number of rows.",
        ),
    ] {
        let tensor = json!(["main", "param", "w", "", "", []]);
        cases
            .case(&format!("reshard/region-{slug}"), &["read.region"], fault)
            .effect(Effect::Overread)
            .latitude("A negative number is no region, and where numbers have no sign no argument.")
            .request(json!({"tensor": tensor, "start": start, "extent": extent}))
            .rejects_alone("grid", &Bend::new("none"), &[Code::BadRegion, Code::BadArgument]);
    }
}

#[expect(clippy::too_many_arguments, reason = "a row of a table of cases")]
pub(super) fn refused(
    cases: &mut Cases,
    base: &str,
    tensor: usize,
    start: Value,
    extent: Value,
    slug: &str,
    fault: &str,
    code: Code,
) {
    let rule = if code == Code::BadRegion { "read.region" } else { "companion.region" };
    let recipe = bases::named(base).expect("a base");
    let mut request = request(&recipe, tensor, &[], &[]);
    request["start"] = start;
    request["extent"] = extent;
    cases
        .case(&format!("reshard/region-{slug}"), &[rule], fault)
        .effect(Effect::Overread)
        .request(request)
        .rejects_alone(base, &Bend::new("none"), &[code]);
}

/// Identities that name nothing, or are none.
fn unknown(cases: &mut Cases) {
    for (slug, fault, tensor) in [
        ("name", "There is no tensor of that name.", json!(["main", "param", "v", "", "", []])),
        (
            "role",
            "There is no buffer of that name, only a param.",
            json!(["main", "buffer", "w", "", "", []]),
        ),
        (
            "owner",
            "There is such a slot, of another optimizer.",
            json!(["main", "optimizer", "w", "adam.m", "sgd", []]),
        ),
        (
            "component",
            "There is such a tensor in another component.",
            json!(["critic", "param", "w", "", "", []]),
        ),
        (
            "scope",
            "There is such a tensor of no coordinate.",
            json!(["main", "param", "w", "", "", [["dp", 0]]]),
        ),
        (
            "axis",
            "A scope has an axis that the topology lacks: no tensor can have it.",
            json!(["main", "param", "w", "", "", [["pp", 0]]]),
        ),
    ] {
        cases
            .case(&format!("reshard/unknown-{slug}"), &["open.find"], fault)
            .effect(Effect::SilentCorruption)
            .request(json!({"tensor": tensor, "start": [0, 0], "extent": [1, 1]}))
            .rejects_alone("grid", &Bend::new("none"), &[Code::NotFound]);
    }
    for (slug, rule, fault, tensor) in [
        (
            "slot-missing",
            "identity.slot",
            "The identity asked for is of an optimizer's tensor, without a slot.",
            json!(["main", "optimizer", "w", "", "adam", []]),
        ),
        (
            "owner-more",
            "identity.owner",
            "The identity asked for is of a parameter, with an owner.",
            json!(["main", "param", "w", "", "adam", []]),
        ),
        (
            "role-unknown",
            "identity.role",
            "The identity asked for has a role that nobody knows.",
            json!(["main", "weight", "w", "", "", []]),
        ),
    ] {
        cases
            .case(&format!("reshard/asked-{slug}"), &["open.find", rule], fault)
            .effect(Effect::Ambiguity)
            .request(json!({"tensor": tensor, "start": [0, 0], "extent": [1, 1]}))
            .rejects_alone("grid", &Bend::new("none"), &[Code::BadArgument]);
    }
    cases
        .case("reshard/unknown-normal-form", &["identity.name", "open.find"], "There is a name that this one normalises to.")
        .effect(Effect::SilentCorruption)
        .request(json!({"tensor": ["main", "param", "\u{212b}", "", "", []], "start": [0], "extent": [1]}))
        .rejects_alone("names", &Bend::new("none"), &[Code::NotFound]);
}

/// What is damaged matters to regions that meet it.
fn damaged(cases: &mut Cases) {
    let recipe = bases::named("grid").expect("a base");
    let (last, _) = spot("grid", 3, 3);
    let bend = || flip(MODEL, last, 0);
    let request = |tensor, start: &[u64], extent: &[u64]| request(&recipe, tensor, start, extent);
    cases
        .case("reshard/damage-elsewhere", &["read.subset"], "Another tensor's chunk is damaged.")
        .effect(Effect::LostCheckpoint)
        .request(request(2, &[0], &[3]))
        .accepts_as("grid", &bend(), build::slice(&recipe, 2, &[0], &[3]));
    cases
        .case(
            "reshard/damage-met",
            &["integrity.chunk"],
            "A region has one element of a chunk that is damaged in another.",
        )
        .effect(Effect::SilentCorruption)
        .request(request(0, &[3, 4], &[1, 1]))
        .rejects_alone("grid", &bend(), &[Code::CrcMismatch]);
    cases
        .case(
            "reshard/damage-in-block",
            &["integrity.chunk"],
            "A region lies in a block that is damaged at another place.",
        )
        .effect(Effect::SilentCorruption)
        .request(request(1, &[4200], &[4]))
        .rejects_alone("grid", &flip(MODEL, 5120 + 4800, 3), &[Code::CrcMismatch]);
    cases
        .case(
            "reshard/damage-in-another-block",
            &["integrity.chunk"],
            "A region lies in the one block of a chunk that is not damaged.",
        )
        .effect(Effect::LostCheckpoint)
        .latitude("integrity.chunk: a reader checks the whole chunk or the blocks that the region lies in.")
        .request(request(1, &[100], &[4]))
        .either(
            "grid",
            &flip(MODEL, 5120 + 4800, 3),
            build::slice(&recipe, 1, &[100], &[4]),
            &[Code::CrcMismatch],
        );
    cases
        .case(
            "reshard/damage-in-chunk-not-met",
            &["read.subset"],
            "Another chunk of the tensor is damaged, which the region does not meet.",
        )
        .effect(Effect::LostCheckpoint)
        .latitude("read.subset speaks of other tensors: whether a reader reads chunks of this one that the region does not meet is its own affair.")
        .request(request(0, &[0, 0], &[2, 3]))
        .either("grid", &bend(), build::slice(&recipe, 0, &[0, 0], &[2, 3]), &[Code::CrcMismatch]);
}
