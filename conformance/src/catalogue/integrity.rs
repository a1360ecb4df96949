//! Chapter 10: that every byte is covered. Damage to data, tables and files.

use serde_json::json;
use waystation_format::Code;

use super::chunks::{CRC, OFFSET};
use super::damage::{DATA, MODEL, STATE, bytes, flip, of, put, spot, stated};
use super::group::Group;
use super::{Cases, base_files, layouts};
use crate::bend::{Bend, set};
use crate::build::{crc, projection};
use crate::case::Effect;
use crate::recipe::{Data, hex};

pub(super) fn add(cases: &mut Cases) {
    flips(cases);
    stated_wrong(cases);
    exchanged(cases);
    tables(cases);
    unused_bits(cases);
    files(cases);
}

/// A bit of a chunk, for a reader and a validator alike.
fn flips(cases: &mut Cases) {
    let (moment, moment_bytes) = spot("small", 1, 0);
    let (count, _) = spot("small", 0, 0);
    let (w, w_bytes) = spot("small", 3, 0);
    let (big, big_bytes) = spot("grid", 1, 0);
    let (nibble, _) = spot("nibbles", 0, 0);
    let listed = [
        ("flip-first-byte", "small", "The first bit of a chunk is inverted.", MODEL, w, 0),
        ("flip-middle", "small", "A bit in the middle of a chunk is inverted.", MODEL, w + 50, 5),
        (
            "flip-last-byte",
            "small",
            "The last bit of a chunk is inverted.",
            MODEL,
            w + w_bytes - 1,
            7,
        ),
        (
            "flip-scalar",
            "small",
            "A bit of a tensor without axes is inverted.",
            MODEL,
            count + 7,
            6,
        ),
        (
            "flip-moment",
            "small",
            "A bit of state of an optimizer is inverted.",
            STATE,
            moment + moment_bytes / 2,
            4,
        ),
        (
            "flip-first-block",
            "grid",
            "A bit of the first of two blocks is inverted.",
            MODEL,
            big,
            0,
        ),
        (
            "flip-block-end",
            "grid",
            "The last bit of the first of two blocks is inverted.",
            MODEL,
            big + 4095,
            7,
        ),
        (
            "flip-last-block",
            "grid",
            "A bit of the last block, which is short, is inverted.",
            MODEL,
            big + big_bytes - 1,
            0,
        ),
        (
            "flip-nibble",
            "nibbles",
            "A bit of an element of fewer than eight is inverted.",
            MODEL,
            nibble,
            2,
        ),
    ];
    for (slug, base, fault, file, offset, bit) in listed {
        let bend = flip(file, offset, bit);
        Group::new(cases, "core", base, Effect::SilentCorruption).bad(
            slug,
            &["integrity.chunk", "integrity.all"],
            fault,
            &bend,
            Code::CrcMismatch,
        );
        Group::new(cases, "extended", base, Effect::SilentCorruption).bad(
            slug,
            &["integrity.all", "verify.all"],
            fault,
            &bend,
            Code::CrcMismatch,
        );
    }
}

/// The data is as it was, and what is said of it is not.
fn stated_wrong(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "grid", Effect::SilentCorruption).alone();
    let rules = ["integrity.chunk"];
    for (slug, fault, value) in [
        ("crc-zero", "The CRC stated for a chunk is zero.", "00000000"),
        ("crc-ones", "The CRC stated for a chunk is all ones.", "ffffffff"),
    ] {
        let bend = Bend::new("another CRC").chunk(3, 2, move |chunk| chunk[CRC] = value.into());
        group.bad(slug, &rules, fault, &bend, Code::CrcMismatch);
    }
    let (offset, length) = spot("grid", 3, 2);
    let raw = bytes("grid", MODEL, offset, length);
    let mut short = raw.clone();
    short.pop();
    let sum = crc(&short);
    group.bad(
        "crc-of-less",
        &rules,
        "The CRC stated for a chunk leaves out its last byte.",
        &Bend::new("another CRC").chunk(3, 2, move |chunk| chunk[CRC] = sum.clone().into()),
        Code::CrcMismatch,
    );
    let inverted = format!("{:08x}", !crc32c::crc32c(&raw));
    group.bad(
        "crc-inverted",
        &rules,
        "The CRC stated for a chunk lacks the last exclusive-or.",
        &Bend::new("another CRC").chunk(3, 2, move |chunk| chunk[CRC] = inverted.clone().into()),
        Code::CrcMismatch,
    );
    for (slug, fault, by) in [
        ("offset-late", "The offset stated for a chunk is a byte late.", 1_u64),
        ("offset-early", "The offset stated for a chunk is a byte early.", u64::MAX),
    ] {
        let bend = Bend::new("another offset").chunk(3, 2, move |chunk| {
            let offset = chunk[OFFSET].as_u64().expect("an offset");
            chunk[OFFSET] = offset.wrapping_add(by).into();
        });
        group.bad(slug, &rules, fault, &bend, Code::CrcMismatch);
    }
    group.bad(
        "offset-in-header",
        &rules,
        "The offset stated for a chunk is 0, where the header is.",
        &Bend::new("another offset").chunk(3, 2, |chunk| chunk[OFFSET] = 0.into()),
        Code::CrcMismatch,
    );
}

/// Bytes that were written, but not there.
fn exchanged(cases: &mut Cases) {
    let (first, length) = spot("grid", 3, 0);
    let (second, _) = spot("grid", 3, 1);
    let (big, _) = spot("grid", 1, 0);
    let mut group = Group::new(cases, "core", "grid", Effect::SilentCorruption);
    let exchange = Bend::new("chunks exchanged").files(move |files| {
        let bytes = of(files, MODEL);
        for byte in 0..length {
            bytes.swap(first + byte, second + byte);
        }
    });
    for (slug, fault, bend) in [
        ("chunks-exchanged", "Two chunks of a tensor stand in each other's place.", exchange),
        (
            "chunk-zeros",
            "There are zeros in place of a chunk, as after a page that never reached the disk.",
            put(Bend::new("zeros"), MODEL, first, &vec![0; length]),
        ),
        (
            "chunk-tail-zeros",
            "There are zeros in place of the second block of a chunk.",
            put(Bend::new("zeros"), MODEL, big + 4096, &[0; 5000 - 4096]),
        ),
    ] {
        let rules = ["integrity.chunk", "intro.never-fill"];
        group.bad(slug, &rules, fault, &bend, Code::CrcMismatch);
    }
    cases
        .case(
            "core/shard-zeros",
            &["integrity.chunk", "integrity.table", "intro.never-fill"],
            "There are zeros in place of all data of a shard, of the length that it should have.",
        )
        .effect(Effect::SilentCorruption)
        .latitude("integrity.table: a reader that uses the table checks it first.")
        .rejects_alone(
            "grid",
            &put(Bend::new("zeros"), MODEL, DATA, &vec![0; 8192]),
            &[Code::CrcMismatch, Code::CrcTableMismatch],
        );
}

/// The table of base `grid` lies at 10496, for the two blocks of `big`.
fn tables(cases: &mut Cases) {
    let at = 10_496;
    let answer = projection(&layouts::named("grid").expect("a layout"));
    let wrong = || {
        stated(
            Bend::new("another CRC of the table"),
            "crc_table",
            &json!({"count": 2, "crc32c": "00000000", "offset": at}),
        )
    };
    for (slug, fault, bend) in [
        ("table-flip", "A bit of a table is inverted.", flip(MODEL, at + 5, 1)),
        ("table-zeros", "A table is all zeros.", put(Bend::new("zeros"), MODEL, at, &[0; 8])),
        ("table-crc-wrong", "The CRC stated for a table is another.", wrong()),
    ] {
        let rules = ["integrity.table"];
        Group::new(cases, "extended", "grid", Effect::SilentCorruption).alone().bad(
            slug,
            &rules,
            fault,
            &bend,
            Code::CrcTableMismatch,
        );
        cases
            .case(&format!("core/{slug}"), &rules, fault)
            .effect(Effect::LostCheckpoint)
            .latitude("integrity.table binds readers that use the table; one that checks whole chunks needs none.")
            .either("grid", &bend, answer.clone(), &[Code::CrcTableMismatch]);
    }
    let lies = || Bend::new("another CRC of a block").tables(|crcs| crcs[1] ^= 1);
    let fault = "A table with a right CRC of its own has a wrong one for a block.";
    Group::new(cases, "extended", "grid", Effect::LostCheckpoint).alone().bad(
        "table-block-wrong",
        &["integrity.blocks"],
        fault,
        &lies(),
        Code::CrcTableMismatch,
    );
    cases
        .case("core/table-block-wrong", &["integrity.chunk", "integrity.blocks"], fault)
        .effect(Effect::LostCheckpoint)
        .latitude("integrity.chunk: a reader checks the whole chunk or its blocks.")
        .either("grid", &lies(), answer, &[Code::CrcMismatch, Code::CrcTableMismatch]);
    let (big, length) = spot("grid", 1, 0);
    let mut raw = bytes("grid", MODEL, big, length);
    raw[4500] ^= 4;
    let second = crc32c::crc32c(&raw[4096..]);
    let bend = || {
        let byte = [raw[4500]];
        let bend = Bend::new("a block and its CRC").tables(move |crcs| crcs[1] = second);
        put(bend, MODEL, big + 4500, &byte)
    };
    let fault =
        "A block is another, and the table has its CRC; that of the whole chunk is as it was.";
    Group::new(cases, "extended", "grid", Effect::SilentCorruption).alone().bad(
        "block-and-table",
        &["integrity.all"],
        fault,
        &bend(),
        Code::CrcMismatch,
    );
    let mut changed = layouts::named("grid").expect("a layout");
    changed.tensors[1].data = Data::Hex(hex(&raw));
    cases
        .case("core/block-and-table", &["integrity.chunk"], fault)
        .effect(Effect::SilentCorruption)
        .latitude("integrity.chunk: a reader checks the whole chunk or its blocks.")
        .either("grid", &bend(), projection(&changed), &[Code::CrcMismatch]);
}

/// Bits after the last element, with a CRC that is right.
fn unused_bits(cases: &mut Cases) {
    // Five elements of each dtype.
    let recipe = layouts::named("dtypes").expect("a layout");
    let answer = projection(&recipe);
    for (dtype, bit) in [("u1", 5_u8), ("u4", 4), ("i2", 7), ("f6_e2m3", 6)] {
        let mut names: Vec<&str> =
            recipe.tensors.iter().filter_map(|t| t.entry["name"].as_str()).collect();
        names.sort_unstable();
        let entry = names.iter().position(|name| *name == dtype).expect("a dtype");
        let (offset, length) = spot("dtypes", entry, 0);
        let mut raw = bytes("dtypes", MODEL, offset, length);
        raw[length - 1] |= 1 << bit;
        let sum = crc(&raw);
        let bend = Bend::new("an unused bit")
            .chunk(entry, 0, move |chunk| chunk[CRC] = sum.clone().into());
        let bend = put(bend, MODEL, offset, &raw);
        let fault = format!("An unused bit after five elements of {dtype} is 1.");
        Group::new(cases, "extended", "dtypes", Effect::Ambiguity).bad(
            &format!("unused-bit-{}", dtype.replace('_', "-")),
            &["tensor.unused-bits"],
            &fault,
            &bend,
            Code::NonzeroPad,
        );
        cases
            .case(
                &format!("core/unused-bit-{}", dtype.replace('_', "-")),
                &["read.packed", "tensor.unused-bits"],
                &fault,
            )
            .effect(Effect::Ambiguity)
            .latitude("tensor.unused-bits is of depth V: a reader returns the bits as zero (read.packed), or refuses.")
            .either("dtypes", &bend, answer.clone(), &[Code::NonzeroPad]);
    }
}

/// A bit of each named file of base `small`.
fn files(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "small", Effect::SilentCorruption);
    for (name, content) in base_files("small") {
        let (what, code) = match name.split_once('-').map_or(name.as_str(), |(kind, _)| kind) {
            "waystation.commit" => ("commit", Code::DigestMismatch),
            "manifest.json" => ("manifest", Code::DigestMismatch),
            "tensors" => ("page", Code::DigestMismatch),
            "records" => ("record-page", Code::DigestMismatch),
            "part" => ("part", Code::DigestMismatch),
            "attachment" => ("attachment", Code::DigestMismatch),
            _ => continue,
        };
        let rule = match what {
            "commit" | "manifest" => "integrity.manifest",
            "part" => "integrity.part",
            "attachment" => "attachment.digest",
            _ => "page.digest",
        };
        let middle = content.len() / 2;
        // A digit of the commit file stays one.
        let (offset, bit) = if what == "commit" { (0, 0) } else { (middle, 0) };
        group.bad(
            &format!("flip-{what}"),
            &[rule, "verify.all"],
            &format!("A bit of the {} is inverted.", what.replace('-', " ")),
            &flip(&name, offset, bit),
            code,
        );
    }
    group.bad(
        "part-of-another",
        &["integrity.part"],
        "The manifest states another digest for a part, by whose first digits the file is named.",
        &Bend::new("another digest").part(0, set("/producer/version", "2".into())).files(|files| {
            let part = files.keys().find(|name| name.starts_with("part-")).cloned();
            let straight = base_files("small");
            let other = straight.iter().find(|(name, _)| name.starts_with("part-"));
            let (part, (_, bytes)) = (part.expect("a part"), other.expect("a part"));
            files.insert(part, bytes.clone());
        }),
        Code::DigestMismatch,
    );
}
