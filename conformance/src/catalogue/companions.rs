//! Chapter 5.5: regions of flat companions, which are runs of whole blocks or refused.

use serde_json::json;
use waystation_format::Code;

use super::Cases;
use super::regions::{Slice, answered, refused};

pub(super) fn add(cases: &mut Cases) {
    for slice in COMPANIONS {
        answered(cases, slice, &["companion.region", "read.packed"]);
    }
    boundaries(cases);
}

/// In `flat`, blocks of four: 0 `rows` of four columns split at row 2, 1 `line` of ten at 4, 2 `codes` of 24 at 12,
/// each code four bits; 3 `short` of seven in one block; 7 `wide` of eight columns.
const COMPANIONS: &[Slice<'_>] = &[
    (
        "flat-whole",
        "flat",
        0,
        &[0, 0],
        &[6, 4],
        "All scales of a tensor, one for each of its rows.",
    ),
    ("flat-row", "flat", 0, &[3, 0], &[1, 4], "The scale of one row."),
    ("flat-across", "flat", 0, &[1, 0], &[2, 4], "The scales of two rows in two chunks."),
    ("flat-end", "flat", 1, &[4], &[6], "The last blocks, of which the last is short."),
    ("flat-last", "flat", 1, &[8], &[2], "The last block, which is short."),
    (
        "flat-codes",
        "flat",
        2,
        &[8],
        &[8],
        "Elements of four bits of two chunks, one for each block.",
    ),
    ("flat-codes-whole", "flat", 2, &[0], &[24], "Chunks that end within bytes, packed as one."),
    ("flat-one", "flat", 3, &[0], &[7], "A tensor that is less than a block."),
    ("flat-half-row", "flat", 7, &[2, 4], &[1, 4], "The block that is the second half of a row."),
    ("flat-wide", "flat", 7, &[1, 0], &[3, 8], "Rows of two blocks each."),
];

/// Regions of flat companions that begin, end, or meet a chunk that does, within a block.
fn boundaries(cases: &mut Cases) {
    type Boundary<'a> = (&'a str, usize, &'a [u64], &'a [u64], &'a str);
    let listed: [Boundary<'_>; 12] = [
        ("half-row", 0, &[0, 0], &[1, 2], "A region ends within a block."),
        ("half-rows", 0, &[0, 2], &[1, 2], "A region begins within a block."),
        ("column", 0, &[0, 0], &[6, 1], "A region is no run of the flattened shape."),
        ("line-start", 1, &[1], &[3], "A region begins at the second element of a block."),
        ("line-end", 1, &[4], &[5], "A region ends an element before the tensor does."),
        (
            "columns-whole",
            4,
            &[0, 0],
            &[6, 4],
            "A region of whole blocks meets chunks that are no runs.",
        ),
        (
            "columns-block",
            4,
            &[0, 0],
            &[1, 4],
            "A region of one block meets chunks that are no runs.",
        ),
        (
            "halves-whole",
            6,
            &[0, 0],
            &[6, 8],
            "A region of all blocks meets chunks that begin and end with blocks, and are no runs.",
        ),
        ("halves-block", 6, &[1, 4], &[1, 4], "A region of one block meets such a chunk."),
        (
            "half",
            7,
            &[0, 0],
            &[6, 4],
            "A region begins at the first element, has as many as six blocks, and is no run.",
        ),
        (
            "half-second",
            7,
            &[1, 4],
            &[2, 4],
            "A region begins and ends with a block, and leaves one out between.",
        ),
        (
            "chunk-off",
            5,
            &[0],
            &[4],
            "A region of one block meets a chunk that ends within another.",
        ),
    ];
    for (slug, tensor, start, extent, fault) in listed {
        let slug = format!("block-{slug}");
        let (start, extent) = (json!(start), json!(extent));
        refused(cases, "flat", tensor, start, extent, &slug, fault, Code::BlockBoundary);
    }
}
