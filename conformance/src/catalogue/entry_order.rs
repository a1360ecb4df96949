//! Chapter 12.1: which of two breaches of an entry is answered for. The only cases with two faults.

use serde_json::json;
use waystation_format::Code;

use super::Cases;
use super::chunks::{AT, CRC, EXTENT, OFFSET};
use super::group::Group;
use crate::bend::{Bend, change, remove, set};
use crate::case::Effect;

/// The quarters of `w` in base `grid`, its last entry.
const W: usize = 3;

pub(super) fn add(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "grid", Effect::Ambiguity).alone();
    let mut bad = |slug: &str, rule: &str, fault: &str, bend: Bend, code: Code| {
        group.bad(&format!("entry-order-{slug}"), &["open.order", rule], fault, &bend, code);
    };
    bad(
        "members",
        "tensor.dtype",
        "A dtype is unknown and the role after it too: members are checked as they stand.",
        Bend::new("two members")
            .both(|| set("/entries/3/dtype", json!("F31")))
            .both(|| set("/entries/3/role", json!("gradient"))),
        Code::UnsupportedDtype,
    );
    bad(
        "missing-member",
        "json.unknown-member",
        "`dtype` is missing, and the name after its place is empty.",
        Bend::new("a member less and another")
            .both(|| remove("/entries/3/dtype"))
            .both(|| set("/entries/3/name", json!(""))),
        Code::BadMember,
    );
    bad(
        "chunk-form",
        "json.types",
        "The CRC of a chunk is no CRC and the dtype unknown: `chunks` stands before `dtype`.",
        Bend::new("a chunk and a member").both(|| set("/entries/3/dtype", json!("F31"))).chunk(
            W,
            0,
            |chunk| chunk[CRC] = json!("none"),
        ),
        Code::BadMember,
    );
    bad(
        "members-before-chunks",
        "tensor.valid",
        "A chunk leaves the shape and `valid` is above it: rules about members come before those about chunks.",
        Bend::new("a chunk and a member").both(|| set("/entries/3/valid", json!([4, 7]))).chunk(
            W,
            0,
            |chunk| chunk[EXTENT] = json!([5, 3]),
        ),
        Code::BadShape,
    );
    bad(
        "key-before-chunks",
        "page.order",
        "An entry stands twice, the second time with a chunk that leaves the shape.",
        Bend::new("an entry twice").both(|| {
            change("/entries", |entries| {
                let entries = entries.as_array_mut().expect("a list");
                let mut again = entries[W].clone();
                for member in again["chunks"][0].as_array_mut().expect("a chunk") {
                    if member.is_array() {
                        *member = json!([9, 9]);
                    }
                }
                entries.push(again);
            })
        }),
        Code::BadOrder,
    );
    bad(
        "chunks-before-their-order",
        "chunk.bounds",
        "The last chunk leaves the shape, and the first two are swapped: each chunk is looked at before their order.",
        Bend::new("three chunks").chunks(W, |chunks| {
            chunks.swap(0, 1);
            chunks[3][EXTENT] = json!([3, 3]);
        }),
        Code::BadChunk,
    );
    bad(
        "order-before-apart",
        "chunk.order",
        "Two chunks are swapped and share bytes.",
        Bend::new("two chunks").chunks(W, |chunks| {
            chunks.swap(0, 1);
            chunks[0][OFFSET] = chunks[1][OFFSET].clone();
        }),
        Code::BadOrder,
    );
    bad(
        "apart-before-cover",
        "chunk.apart",
        "One chunk stands twice, in one place: its bytes are shared before its elements are.",
        Bend::new("a chunk twice").chunks(W, |chunks| chunks.push(chunks[3].clone())),
        Code::BadChunk,
    );
    bad(
        "gap-before-overlap",
        "cover.gap",
        "Two chunks share elements, and all have fewer than the shape.",
        Bend::new("two chunks").chunks(W, |chunks| {
            chunks[1][AT] = json!([0, 2]);
            chunks.pop();
        }),
        Code::CoverGap,
    );
    bad(
        "entries",
        "cover.gap",
        "A tensor has a gap, and the entry after it an unknown dtype.",
        Bend::new("two entries")
            .both(|| set("/entries/3/dtype", json!("F31")))
            .chunks(2, Vec::clear),
        Code::CoverGap,
    );
    bad(
        "alias-target-last",
        "cover.gap",
        "An alias names nothing, and a tensor on the same page has a gap: what an alias names is looked up when it is read.",
        Bend::new("an alias and chunks")
            .recipe(|recipe| {
                recipe.writers[0].aliases.push(json!({"name": "a", "role": "param",
                    "of": ["main", "param", "nowhere", "", "", []]}));
            })
            .chunks(W + 1, |chunks| _ = chunks.pop()),
        Code::CoverGap,
    );
}
