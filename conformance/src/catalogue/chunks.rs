//! Chapter 5.3: boxes of a tensor and where their bytes are. Bent in part and page alike, over data
//! that stays as it was. Whether boxes fill a shape is in `cover`.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::bases::add as tensor;
use super::group::Group;
use super::layouts::guillotine;
use crate::bend::{Bend, set};
use crate::case::Effect;

/// Entries of base `grid`.
const MOMENT: usize = 0;
const BIG: usize = 1;
const SMALL: usize = 2;
const W: usize = 3;

/// Members of a chunk as it stands in a part.
pub(super) const SHARD: usize = 0;
pub(super) const OFFSET: usize = 1;
pub(super) const AT: usize = 2;
pub(super) const EXTENT: usize = 3;
pub(super) const CRC: usize = 4;
pub(super) const INDEX: usize = 5;

/// The largest integer of metadata, 2^53 − 1.
const MOST: u64 = (1 << 53) - 1;

pub(super) fn add(cases: &mut Cases) {
    forms(cases);
    ranks(cases);
    bounds(cases);
    numbers(cases);
    offsets(cases);
    order(cases);
    apart(cases);
    table_index(cases);
    split(cases);
}

/// A member of a chunk of `grid` with another value.
fn stated(entry: usize, number: usize, member: usize, value: Value) -> Bend {
    Bend::new("another member of a chunk")
        .chunk(entry, number, move |chunk| chunk[member] = value.clone())
}

fn forms(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "grid", Effect::Ambiguity).alone();
    for (slug, fault, member, value) in [
        ("crc-null", "The CRC of a chunk is null.", CRC, json!(null)),
        ("at-negative", "A chunk begins before its tensor.", AT, json!([-1, 0])),
        ("at-null", "A chunk does not say where it begins.", AT, json!(null)),
        ("extent-negative", "A chunk has a negative extent.", EXTENT, json!([2, -3])),
        ("extent-bool", "An extent is true.", EXTENT, json!([2, true])),
        ("offset-negative", "An offset is negative.", OFFSET, json!(-4096)),
        ("offset-string", "An offset is a string.", OFFSET, json!("4096")),
        ("shard-negative", "The number of a shard is negative.", SHARD, json!(-1)),
    ] {
        group.bad(
            &format!("type-chunk-{slug}"),
            &["json.types"],
            fault,
            &stated(W, 0, member, value),
            Code::BadMember,
        );
    }
    // The right CRC, as one who reads numbers in any form would take it.
    type Written = (&'static str, &'static str, fn(&str) -> Value);
    let listed: [Written; 5] = [
        ("upper-case", "has upper-case digits", |crc| crc.to_uppercase().into()),
        ("seven-digits", "has seven digits", |crc| crc[1..].into()),
        ("nine-digits", "has nine digits", |crc| format!("0{crc}").into()),
        ("prefix", "has a prefix", |crc| format!("0x{crc}").into()),
        ("number", "is a number", |crc| u32::from_str_radix(crc, 16).expect("a CRC").into()),
    ];
    for (slug, fault, act) in listed {
        let bend = Bend::new("another member of a chunk").chunk(W, 0, move |chunk| {
            let new = act(chunk[CRC].as_str().expect("a CRC"));
            assert_ne!(chunk[CRC], new, "the CRC has no letter");
            chunk[CRC] = new;
        });
        group.bad(
            &format!("type-chunk-crc-{slug}"),
            &["json.types"],
            &format!("The CRC of a chunk {fault}."),
            &bend,
            Code::BadMember,
        );
    }
    for (slug, fault, bend) in [
        (
            "chunk-without-crc",
            "A chunk has no CRC.",
            Bend::new("an element less").chunk(W, 0, |chunk| _ = chunk.pop()),
        ),
        (
            "chunk-with-more",
            "A chunk has an element after the table index.",
            Bend::new("an element more").chunk(BIG, 0, |chunk| chunk.push(0.into())),
        ),
    ] {
        group.bad(slug, &["json.types", "json.unknown-member"], fault, &bend, Code::BadMember);
    }
    group.bad(
        "chunk-index-null",
        &["json.types"],
        "The table index of a chunk is null.",
        &stated(BIG, 0, INDEX, json!(null)),
        Code::BadMember,
    );
}

fn ranks(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "grid", Effect::Overread).alone();
    for (slug, fault, member, value) in [
        ("at-short", "A chunk's `at` has an axis less.", AT, json!([0])),
        ("at-long", "A chunk's `at` has an axis more.", AT, json!([0, 0, 0])),
        ("at-empty", "A chunk's `at` is empty.", AT, json!([])),
        ("extent-short", "A chunk's extent has an axis less.", EXTENT, json!([2])),
        ("extent-long", "A chunk's extent has an axis more.", EXTENT, json!([2, 3, 1])),
    ] {
        let bend = stated(W, 0, member, value);
        group.bad(&format!("chunk-{slug}"), &["chunk.rank"], fault, &bend, Code::BadChunk);
    }
    let mut scalars = Group::new(cases, "core", "small", Effect::Overread).alone();
    scalars.bad(
        "chunk-of-scalar-with-axis",
        &["chunk.rank"],
        "The chunk of a tensor without axes has one.",
        &Bend::new("an axis more").chunk(0, 0, |chunk| {
            chunk[AT] = json!([0]);
            chunk[EXTENT] = json!([1]);
        }),
        Code::BadChunk,
    );
    let mut group = Group::new(cases, "core", "grid", Effect::Ambiguity).alone();
    for (slug, fault, extent) in [
        ("chunk-empty", "A chunk has no rows.", json!([0, 3])),
        ("chunk-empty-twice", "A chunk has neither rows nor columns.", json!([0, 0])),
    ] {
        let bend = stated(W, 0, EXTENT, extent);
        group.bad(slug, &["chunk.nonempty"], fault, &bend, Code::BadChunk);
    }
    group.bad(
        "chunk-empty-beside",
        &["chunk.nonempty"],
        "Beside those that fill the tensor stands a chunk without elements.",
        &Bend::new("a chunk more").chunks(W, |chunks| {
            let mut empty = chunks[3].clone();
            empty[EXTENT] = json!([2, 0]);
            chunks.push(empty);
        }),
        Code::BadChunk,
    );
}

fn bounds(cases: &mut Cases) {
    let rules = ["chunk.bounds", "limit.arithmetic"];
    let mut group = Group::new(cases, "core", "grid", Effect::Overread).alone();
    for (slug, fault, at, extent) in [
        (
            "row-beyond",
            "The last chunk reaches a row beyond the shape.",
            json!([2, 3]),
            json!([3, 3]),
        ),
        (
            "column-beyond",
            "The last chunk reaches a column beyond the shape.",
            json!([2, 3]),
            json!([2, 4]),
        ),
        (
            "shifted",
            "The last chunk is shifted out of the shape by a row.",
            json!([3, 3]),
            json!([2, 3]),
        ),
        ("outside", "The last chunk begins where the shape ends.", json!([4, 3]), json!([2, 3])),
        (
            "at-wraps-32",
            "`at` is 2^32 + 2, which is 2 in 32 bits.",
            json!([4_294_967_298_u64, 3]),
            json!([2, 3]),
        ),
        (
            "extent-wraps-32",
            "An extent is 2^32 + 2, which is 2 in 32 bits.",
            json!([2, 3]),
            json!([4_294_967_298_u64, 3]),
        ),
        ("at-most", "`at` is as large as a number can be.", json!([MOST, 3]), json!([2, 3])),
        (
            "extent-most",
            "An extent is as large as a number can be.",
            json!([2, 3]),
            json!([MOST, 3]),
        ),
        (
            "both-most",
            "`at` and extents are as large as numbers can be.",
            json!([MOST, MOST]),
            json!([MOST, MOST]),
        ),
    ] {
        let bend = Bend::new("another box").chunk(W, 3, move |chunk| {
            chunk[AT] = at.clone();
            chunk[EXTENT] = extent.clone();
        });
        group.bad(&format!("chunk-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
    group.bad(
        "chunk-at-wraps-64",
        &["json.integers", "json.canonical"],
        "`at` is 2^64 − 2, so that `at` and extent are 0 in 64 bits.",
        &stated(W, 3, AT, json!([18_446_744_073_709_551_614_u64, 3])),
        Code::NotCanonical,
    );
    let mut none = Group::new(cases, "core", "bare", Effect::Overread).alone();
    none.bad(
        "chunk-of-nothing",
        &["chunk.bounds", "chunk.nonempty"],
        "A tensor without elements has a chunk of one.",
        &Bend::new("a chunk more").chunks(0, |chunks| {
            chunks.push(json!([0, 4096, [0, 0], [1, 3], "00000000"]));
        }),
        Code::BadChunk,
    );
}

/// Which shard it is.
fn numbers(cases: &mut Cases) {
    let rules = ["chunk.shard"];
    let mut group = Group::new(cases, "core", "grid", Effect::Overread).alone();
    for (slug, fault, number) in [
        ("shard-beyond", "A chunk lies in the shard after the last.", 2_u64),
        ("shard-beyond-limit", "A chunk lies in shard 65536, which no writer has.", 65_536),
        ("shard-wraps-32", "A chunk lies in shard 2^32, which is 0 in 32 bits.", 1 << 32),
        ("shard-most", "A chunk lies in shard 2^53 − 1.", MOST),
    ] {
        let bend = stated(W, 0, SHARD, number.into());
        group.bad(&format!("chunk-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
    for (slug, fault, number) in [
        ("writer-beyond", "A chunk is of the writer after the last.", 1_u64),
        ("writer-wraps-32", "A chunk is of writer 2^32, which is 0 in 32 bits.", 1 << 32),
        ("writer-most", "A chunk is of writer 2^53 − 1.", MOST),
    ] {
        let bend = Bend::new("another writer").page(
            "tensors",
            0,
            set("/entries/3/chunks/0/0", number.into()),
        );
        group.bad(&format!("chunk-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
    for (slug, fault, entry, number) in [
        ("param-in-state", "A chunk of a param lies in a shard of class state.", W, 1),
        ("moment-in-model", "A chunk of a moment lies in a shard of class model.", MOMENT, 0),
    ] {
        let bend = stated(entry, 0, SHARD, json!(number));
        group.bad(
            &format!("chunk-{slug}"),
            &["chunk.shard", "shard.class"],
            fault,
            &bend,
            Code::BadChunk,
        );
    }
    let mut bare = Group::new(cases, "core", "bare", Effect::Overread).alone();
    bare.bad(
        "chunk-without-shards",
        &rules,
        "A chunk lies in shard 0 of a writer that has none.",
        &Bend::new("a shape and a chunk")
            .both(|| set("/entries/0/shape", json!([1, 3])))
            .chunks(0, |chunks| chunks.push(json!([0, 4096, [0, 0], [1, 3], "00000000"]))),
        Code::BadChunk,
    );
}

/// Where in the shard. The model's shard of `grid` has 12288 bytes, a quarter of `w` 24.
fn offsets(cases: &mut Cases) {
    let rules = ["chunk.shard", "limit.arithmetic"];
    let mut group = Group::new(cases, "core", "grid", Effect::Overread).alone();
    for (slug, fault, offset) in [
        ("end-plus-one", "A chunk ends a byte beyond its shard.", 12_288 - 23_u64),
        ("begins-at-end", "A chunk begins where its shard ends.", 12_288),
        ("wraps-32", "An offset is 2^32 + 4096, which is 4096 in 32 bits.", (1 << 32) + 4096),
        ("most", "An offset is as large as a number can be.", MOST),
    ] {
        let bend = stated(W, 0, OFFSET, offset.into());
        group.bad(&format!("chunk-offset-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
}

fn order(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "grid", Effect::Ambiguity).alone();
    for (slug, fault, one, other) in [
        ("chunks-swapped-rows", "Chunks of a tensor are not in order of their rows.", 1, 2),
        ("chunks-swapped-columns", "Chunks of a tensor are not in order of their columns.", 0, 1),
    ] {
        let bend = Bend::new("two chunks swapped").chunks(W, move |chunks| chunks.swap(one, other));
        group.bad(slug, &["chunk.order"], fault, &bend, Code::BadOrder);
    }
    group.bad(
        "chunks-by-digits",
        &["chunk.order"],
        "Chunks are in order of the digits of `at`, 10 before 9, and not of the numbers.",
        &Bend::new("a shape and chunks")
            .both(|| set("/entries/2/shape", json!([11])))
            .chunks(SMALL, |chunks| {
                let one = |n: u64, at: u64, extent: u64| {
                    json!([0, 5120 + 16 * n, [at], [extent], "00000000"])
                };
                *chunks = vec![one(0, 0, 9), one(1, 10, 1), one(2, 9, 1)];
            })
            .crcs_that_fit(),
        Code::BadOrder,
    );
}

fn apart(cases: &mut Cases) {
    let rules = ["chunk.apart"];
    // The quarters of `w` begin 256 bytes apart and have 24 bytes each.
    let shift = |number: usize, by: i64| {
        Bend::new("another offset")
            .chunk(W, number, move |chunk| {
                let offset = chunk[OFFSET].as_i64().expect("an offset");
                chunk[OFFSET] = (offset + by).into();
            })
            .crcs_that_fit()
    };
    let mut group = Group::new(cases, "core", "grid", Effect::Exhaustion).alone();
    for (slug, fault, bend) in [
        ("one-place", "Two chunks of a tensor lie in one place.", shift(1, -256)),
        (
            "last-byte",
            "A chunk begins at the last byte of another of its tensor.",
            shift(1, -256 + 23),
        ),
        (
            "first-byte",
            "A chunk ends with the first byte of another of its tensor.",
            shift(0, 256 - 23),
        ),
        (
            "not-neighbours",
            "Two chunks of a tensor, not one after the other in the list, share bytes.",
            shift(3, -768 + 4),
        ),
    ] {
        group.bad(&format!("chunks-share-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
    group.bad(
        "chunks-share-within",
        &rules,
        "A chunk lies within the bytes of another of its tensor, and a third between the two.",
        &Bend::new("a shape and chunks")
            .both(|| set("/entries/2/shape", json!([302])))
            .chunks(SMALL, |chunks| {
                *chunks = vec![
                    json!([0, 5120, [0], [300], "00000000"]),
                    json!([0, 5130, [300], [1], "00000000"]),
                    json!([0, 5150, [301], [1], "00000000"]),
                ];
            })
            .crcs_that_fit(),
        Code::BadChunk,
    );
}

/// `big` has two blocks, and the table of its shard two CRCs.
fn table_index(cases: &mut Cases) {
    let rules = ["chunk.table-index"];
    let mut group = Group::new(cases, "core", "grid", Effect::Overread).alone();
    for (slug, fault, bend) in [
        (
            "absent",
            "A chunk of two blocks has no table index.",
            Bend::new("an element less").chunk(BIG, 0, |chunk| _ = chunk.pop()),
        ),
        (
            "surplus",
            "A chunk of less than a block has a table index.",
            Bend::new("an element more").chunk(SMALL, 0, |chunk| chunk.push(0.into())),
        ),
        (
            "one-beyond",
            "The last block of a chunk is one beyond the table.",
            stated(BIG, 0, INDEX, json!(1)),
        ),
        (
            "at-end",
            "The blocks of a chunk begin where the table ends.",
            stated(BIG, 0, INDEX, json!(2)),
        ),
        (
            "most",
            "A table index is as large as a number can be.",
            stated(BIG, 0, INDEX, json!(MOST)),
        ),
        (
            "wraps-in-bytes",
            "A table index is 2^30, which is offset 0 in 32 bits of bytes.",
            stated(BIG, 0, INDEX, json!(1_u64 << 30)),
        ),
    ] {
        group.bad(&format!("table-index-{slug}"), &rules, fault, &bend, Code::BadChunk);
    }
    let table = |value: Value| {
        let of_part = value.clone();
        Bend::new("another table")
            .part(0, set("/shards/0/crc_table", of_part))
            .manifest(set("/parts/0/shards/0/crc_table", value))
    };
    for (slug, fault, value) in [
        ("table-absent", "A shard with a chunk of two blocks has no table.", json!(null)),
        (
            "table-short",
            "A table has one CRC, and a chunk of its shard two blocks.",
            json!({"count": 1, "crc32c": "00000000", "offset": 11_520}),
        ),
    ] {
        group.bad(slug, &rules, fault, &table(value), Code::BadChunk);
    }
}

fn split(cases: &mut Cases) {
    cases
        .case(
            "core/split-nine-axes",
            &["chunk.split"],
            "A tensor is split along nine axes, in ten chunks that fill it.",
        )
        .effect(Effect::Exhaustion)
        .rejects_alone(
            "bare",
            &Bend::new("a tensor of nine axes").recipe(|recipe| {
                let entry =
                    json!({"dtype": "U8", "name": "split", "role": "param", "shape": vec![2; 9]});
                let number = tensor(recipe, entry, 700);
                recipe.writers.push(crate::recipe::Writer::default());
                guillotine(recipe, number, 9);
            }),
            &[Code::Limit],
        );
}
