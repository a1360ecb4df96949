//! Chapter 6: that a shard is laid out as its part says, begins with its header, and has zeros
//! between chunks. A reader needs none of this, and is asked what it makes of it where it could be
//! led astray.

use serde_json::json;
use waystation_format::Code;

use super::chunks::{CRC, INDEX, OFFSET, SHARD};
use super::damage::{DATA, MODEL, STATE, bytes, flip, header, of, put, shift, spot, stated, table};
use super::group::Group;
use super::{Cases, bases};
use crate::bend::{Bend, insert, set};
use crate::build::{crc, projection};
use crate::case::Effect;

/// The shard of base `grid`: `small` lies at 10240, the table at 10496, 12288 is the end.
const SMALL_AT: usize = 10_240;
const TABLE_AT: usize = 10_496;
const END: usize = 12_288;

pub(super) fn add(cases: &mut Cases) {
    layout(cases);
    tables(cases);
    shared(cases);
    large(cases);
    headers(cases);
    keys(cases);
    misleading(cases);
    pads(cases);
}

/// `small` elsewhere, in the metadata and in the file.
fn moved(to: usize) -> Bend {
    let bend = Bend::new("a chunk elsewhere").chunk(2, 0, move |chunk| chunk[OFFSET] = to.into());
    shift(bend, MODEL, SMALL_AT, 3, to)
}

fn layout(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "grid", Effect::Ambiguity);
    let mut bad = |slug: &str, fault: &str, bend: Bend| {
        group.bad(slug, &["shard.layout"], fault, &bend, Code::LayoutMismatch);
    };
    bad("layout-unaligned", "A chunk begins a byte late.", moved(SMALL_AT + 1));
    bad("layout-half-aligned", "A chunk begins at a multiple of 128.", moved(SMALL_AT + 128));
    bad("layout-without-pad", "A chunk begins where the one before it ends.", moved(5120 + 5000));
    bad("layout-late", "A chunk begins later than it need.", moved(TABLE_AT + 256));
    let longer = stated(Bend::new("a longer shard"), "bytes", &json!(END + 4096))
        .files(|files| of(files, MODEL).resize(END + 4096, 0));
    bad("layout-longer", "A shard has a page of zeros after its last pad.", longer);
    let shorter = stated(Bend::new("a shorter shard"), "bytes", &json!(TABLE_AT + 8))
        .files(|files| of(files, MODEL).truncate(TABLE_AT + 8));
    bad(
        "layout-without-last-pad",
        "A shard ends with its table, in the middle of a page.",
        shorter,
    );
    group.bad(
        "shard-without-chunks",
        &["shard.chunks"],
        "A part has a shard that holds nothing but a header.",
        &Bend::new("a shard more")
            .part(
                0,
                insert("/shards/1", json!({"bytes": 4096, "class": "model", "crc_table": null})),
            )
            .chunks(0, |chunks| {
                for chunk in chunks {
                    chunk[SHARD] = 2.into();
                }
            })
            .manifest(insert(
                "/parts/0/shards/1",
                json!({"bytes": 4096, "class": "model", "crc_table": null}),
            ))
            .files(|files| {
                let state = files.remove(STATE).expect("a shard");
                files.insert(STATE.replace("-00001.", "-00002."), state);
                let text = r#"{"__metadata__":{"format":"pt","waystation":"1.0"}}"#;
                let mut empty = 4088_u64.to_le_bytes().to_vec();
                empty.extend_from_slice(format!("{text:<4088}").as_bytes());
                files.insert(MODEL.replace("-00000.", "-00001."), empty);
            }),
        Code::LayoutMismatch,
    );
}

fn tables(cases: &mut Cases) {
    let rules = ["shard.layout"];
    let raw = bytes("grid", MODEL, TABLE_AT, 8);
    let mut group = Group::new(cases, "extended", "grid", Effect::Overread);
    let late = stated(Bend::new("a table elsewhere"), "crc_table", &table(&raw, TABLE_AT + 256));
    group.bad(
        "layout-table-late",
        &rules,
        "A table begins later than it need.",
        &shift(late, MODEL, TABLE_AT, 8, TABLE_AT + 256),
        Code::LayoutMismatch,
    );
    let mut surplus = raw.clone();
    surplus.extend([0; 4]);
    group.bad(
        "layout-table-surplus",
        &rules,
        "A table has a CRC more than there are blocks.",
        &stated(Bend::new("a longer table"), "crc_table", &table(&surplus, TABLE_AT)),
        Code::LayoutMismatch,
    );
    let mut late_index = vec![0; 4];
    late_index.extend(&raw);
    let bend = stated(Bend::new("a longer table"), "crc_table", &table(&late_index, TABLE_AT))
        .chunk(1, 0, |chunk| chunk[INDEX] = 1.into());
    group.bad(
        "layout-table-index",
        &rules,
        "The blocks of the only chunk that has any begin at the second CRC of the table.",
        &put(bend, MODEL, TABLE_AT, &late_index),
        Code::LayoutMismatch,
    );
    let mut small = Group::new(cases, "extended", "small", Effect::Overread);
    small.bad(
        "layout-table-needless",
        &rules,
        "A shard has a table, and no chunk of more than a block.",
        &stated(Bend::new("a table"), "crc_table", &table(&[0; 4], 4608)),
        Code::LayoutMismatch,
    );
    // `above` lies before `more`, and has two blocks to its four.
    let file = MODEL.replace("-00000.safetensors", "-00001.safetensors");
    let at = 25_344;
    let raw = bytes("edges", &file, at, 24);
    let swapped = [&raw[8..], &raw[..8]].concat();
    let value = table(&swapped, at);
    let bend = Bend::new("a table in another order")
        .part(0, set("/shards/1/crc_table", value.clone()))
        .manifest(set("/parts/0/shards/1/crc_table", value))
        .chunk(0, 0, |chunk| chunk[INDEX] = 4.into())
        .chunk(4, 0, |chunk| chunk[INDEX] = 0.into());
    Group::new(cases, "extended", "edges", Effect::Ambiguity).bad(
        "layout-table-order",
        &rules,
        "A table has the blocks of the second chunk before those of the first, and each chunk says where.",
        &put(bend, &file, at, &swapped),
        Code::LayoutMismatch,
    );
}

/// Bytes that two chunks, or a chunk and the header, would share.
fn shared(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "small", Effect::Exhaustion);
    for (slug, fault, offset) in [
        (
            "layout-shared",
            "A chunk lies within a chunk of another tensor, and its CRC is right.",
            DATA,
        ),
        ("layout-in-header", "A chunk lies in the header, and its CRC is right.", 0),
        (
            "layout-across-header",
            "A chunk begins in the header and ends after it, and its CRC is right.",
            DATA - 4,
        ),
    ] {
        let sum = crc(&bytes("small", MODEL, offset, 8));
        let bend = Bend::new("a chunk elsewhere").chunk(0, 0, move |chunk| {
            chunk[OFFSET] = offset.into();
            chunk[CRC] = sum.clone().into();
        });
        group.bad(slug, &["shard.layout"], fault, &bend, Code::LayoutMismatch);
    }
}

/// Chunks from 64 KiB on begin at pages. Too large for git, which keeps their digest.
fn large(cases: &mut Cases) {
    let mut recipe = bases::empty();
    recipe.writers[0].records.push(bases::progress());
    for (number, (name, length)) in
        [("a", 1), ("below", 65_535), ("large", 65_536), ("more", 65_537), ("z", 1)]
            .into_iter()
            .enumerate()
    {
        let entry = json!({"dtype": "U8", "name": name, "role": "param", "shape": [length]});
        bases::add(&mut recipe, entry, 800 + number as u64);
        bases::whole(&mut recipe, 0, number);
    }
    for profile in ["core", "extended"] {
        cases
            .case(
                &format!("{profile}/large-chunks"),
                &["shard.layout", "chunk.table-index"],
                "Chunks of 65535, 65536 and 65537 bytes between small ones; the latter two begin at pages.",
            )
            .effect(Effect::LostCheckpoint)
            .accepts_recipe(&recipe);
    }
    recipe.block_bytes = 65_536;
    recipe.tensors.truncate(3);
    recipe.tensors.remove(1);
    recipe.writers[0].boxes = vec![(0, vec![0], vec![1]), (1, vec![0], vec![65_536])];
    let bend = Bend::new("a chunk elsewhere").chunk(1, 0, |chunk| chunk[OFFSET] = 4352.into());
    cases
        .case(
            "extended/layout-large-unaligned",
            &["shard.layout"],
            "A chunk of 65536 bytes begins at a multiple of 256, and not at a page.",
        )
        .effect(Effect::Ambiguity)
        .rejects_recipe(&recipe, &shift_over(bend), &[Code::LayoutMismatch]);
}

/// Moves the large chunk, over bytes that are its own.
fn shift_over(bend: Bend) -> Bend {
    bend.files(|files| {
        let bytes = of(files, MODEL);
        bytes.copy_within(8192..8192 + 65_536, 4352);
        bytes[4352 + 65_536..].fill(0);
    })
}

fn headers(cases: &mut Cases) {
    let rules = ["shard.header"];
    let mut group = Group::new(cases, "extended", "small", Effect::Deception);
    let mut bad = |slug: &str, fault: &str, bend: Bend| {
        group.bad(&format!("header-{slug}"), &rules, fault, &bend, Code::HeaderMismatch);
    };
    bad("length-bit", "A bit of the header's length is inverted.", flip(MODEL, 1, 0));
    bad(
        "length-big-endian",
        "The header's length is big-endian.",
        put(Bend::new("bytes turned around"), MODEL, 0, &[0, 0, 0, 0, 0, 0, 0x0f, 0xf8]),
    );
    bad("bit", "A bit of the header is inverted.", flip(MODEL, 100, 3));
    bad(
        "tab",
        "The last of the spaces after the header is a tab.",
        put(Bend::new("a tab"), MODEL, DATA - 1, b"\t"),
    );
    bad(
        "nul",
        "The last of the spaces after the header is NUL.",
        put(Bend::new("a NUL"), MODEL, DATA - 1, b"\0"),
    );
    bad("space", "A space stands in the header.", header(MODEL, r#","w":"#, r#", "w":"#));
    bad("dtype", "The header gives another dtype.", header(MODEL, "F32", "I32"));
    bad("shape", "The header gives the shape turned.", header(MODEL, "[4,6]", "[6,4]"));
    bad("offsets", "The header gives another end.", header(MODEL, "[0,96]", "[0,88]"));
    bad("name", "The header gives another name.", header(MODEL, r#""count""#, r#""amount""#));
    bad(
        "format",
        "The header says that the tensors are of another framework.",
        header(MODEL, "pt", "np"),
    );
    bad("version", "The header says a later minor version.", header(MODEL, r#""1.0""#, r#""1.1""#));
    bad(
        "metadata",
        "The header has metadata of its own.",
        header(MODEL, r#"{"format""#, r#"{"author":"x","format""#),
    );
    bad(
        "without-metadata",
        "The header has no metadata.",
        header(MODEL, r#""__metadata__":{"format":"pt","waystation":"1.0"},"#, ""),
    );
    bad("pad-name", "A pad has another number.", header(MODEL, "__pad__.0", "__pad__.2"));
    bad(
        "sorted",
        "The members of the header are sorted by name, and not by place.",
        header(
            MODEL,
            r#""w":{"data_offsets":[0,96],"dtype":"F32","shape":[4,6]},"__pad__.0":{"data_offsets":[96,256],"dtype":"U8","shape":[160]}"#,
            r#""__pad__.0":{"data_offsets":[96,256],"dtype":"U8","shape":[160]},"w":{"data_offsets":[0,96],"dtype":"F32","shape":[4,6]}"#,
        ),
    );
}

fn keys(cases: &mut Cases) {
    let rules = ["shard.key", "shard.header"];
    Group::new(cases, "extended", "small", Effect::Deception).bad(
        "key-of-a-piece",
        &rules,
        "A whole parameter stands in the header under the key of a piece.",
        &header(MODEL, r#""w":"#, r#""__ws__:[[\"main\",\"param\",\"w\",\"\",\"\",[]],[0,0]]":"#),
        Code::HeaderMismatch,
    );
    Group::new(cases, "extended", "grid", Effect::Deception).bad(
        "key-of-a-whole",
        &rules,
        "A quarter of a parameter stands in the header under the parameter's name, as if it were the whole.",
        &header(MODEL, r#""__ws__:[[\"main\",\"param\",\"w\",\"\",\"\",[]],[0,0]]":"#, r#""w":"#),
        Code::HeaderMismatch,
    );
    Group::new(cases, "extended", "names", Effect::Deception).bad(
        "key-of-metadata",
        &rules,
        "A tensor named `__crc__` stands in the header under its name.",
        &header(
            MODEL,
            r#""__ws__:[[\"main\",\"param\",\"__crc__\",\"\",\"\",[]],[0]]":"#,
            r#""__crc__":"#,
        ),
        Code::HeaderMismatch,
    );
}

/// Headers that say something else than the metadata: a reader takes nothing from them, but may see it.
fn misleading(cases: &mut Cases) {
    let answer = projection(&bases::small());
    for (slug, fault, bend) in [
        (
            "header-swapped",
            "The header says that each of two tensors lies where the other does.",
            header(MODEL, r#""w":{"data_offsets":[0,96]"#, r#""w":{"data_offsets":[160,256]"#),
        ),
        (
            "header-of-another-shape",
            "The header gives a tensor another dtype and shape, of as many bytes.",
            header(MODEL, r#""F32","shape":[4,6]"#, r#""F64","shape":[3,4]"#),
        ),
        (
            "header-length-vast",
            "The header states a length of 2^63 − 1.",
            put(Bend::new("another length"), MODEL, 0, &(u64::MAX >> 1).to_le_bytes()),
        ),
        (
            "header-zeros",
            "There are zeros in place of the header.",
            put(Bend::new("zeros"), MODEL, 0, &[0; DATA]),
        ),
    ] {
        cases
            .case(&format!("core/{slug}"), &["shard.no-parse", "shard.header"], fault)
            .effect(Effect::SilentCorruption)
            .latitude("shard.header is of depth V: a reader needs no header, and one that looks at it all the same may refuse.")
            .either("small", &bend, answer.clone(), &[Code::HeaderMismatch]);
    }
}

fn pads(cases: &mut Cases) {
    let rules = ["shard.pads"];
    let (_, length) = spot("small", 3, 0);
    let mut group = Group::new(cases, "extended", "small", Effect::Deception);
    for (slug, fault, offset) in [
        ("pad-first-byte", "The first byte after a chunk is not zero.", DATA + length),
        ("pad-before-chunk", "The last byte before a chunk is not zero.", DATA + 255),
        ("pad-last-byte", "The last byte of a shard is not zero.", 8191),
    ] {
        group.bad(slug, &rules, fault, &flip(MODEL, offset, 7), Code::NonzeroPad);
    }
    let mut group = Group::new(cases, "extended", "grid", Effect::Deception);
    group.bad(
        "pad-after-table",
        &rules,
        "The first byte after a table is not zero.",
        &flip(MODEL, TABLE_AT + 8, 0),
        Code::NonzeroPad,
    );
    cases
        .case("core/pad-last-byte", &rules, "The last byte of a shard is not zero.")
        .effect(Effect::LostCheckpoint)
        .latitude("shard.pads is of depth V: a reader need not look at pads.")
        .either("small", &flip(MODEL, 8191, 7), projection(&bases::small()), &[Code::NonzeroPad]);
}
