//! Chapter 5.4: the boxes of a tensor hold each element once. Every shape and every list of boxes is
//! stated over the bytes of another tensor, with right CRCs: who does not find the boxes wanting reads them.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use super::layouts::PINWHEEL;
use crate::bend::{Bend, set};
use crate::case::Effect;

/// Where boxes begin, and their extents.
type Boxes<'a> = &'a [(&'a [u64], &'a [u64])];

pub(super) fn add(cases: &mut Cases) {
    gaps(cases);
    overlaps(cases);
    turned(cases);
    writers(cases);
}

/// Base `grid` with other boxes of its entry 2, which is `U8`. Their bytes lie one after another
/// in those of entry 1, so that they are apart.
fn boxes(shape: &[u64], boxes: Boxes<'_>) -> Bend {
    let shape = json!(shape);
    let mut offset = 5120;
    let mut listed: Vec<Value> = Vec::new();
    for (at, extent) in boxes {
        listed.push(json!([0, offset, at, extent, "00000000"]));
        offset += extent.iter().product::<u64>();
    }
    Bend::new("another shape and other boxes")
        .both(move || set("/entries/2/shape", shape.clone()))
        .chunks(2, move |chunks| chunks.clone_from(&listed))
        .crcs_that_fit()
}

fn gaps(cases: &mut Cases) {
    let rules = ["cover.gap", "intro.never-fill"];
    let mut group = Group::new(cases, "core", "grid", Effect::SilentCorruption).alone();
    let listed: [(&str, &str, &[u64], Boxes<'_>); 8] = [
        ("all", "A tensor of three elements has no chunks.", &[3], &[]),
        ("first", "The first element is in no chunk.", &[3], &[(&[1], &[2])]),
        ("last", "The last element is in no chunk.", &[3], &[(&[0], &[2])]),
        (
            "quarter",
            "One of four quarters is in no chunk.",
            &[4, 4],
            &[(&[0, 0], &[2, 2]), (&[0, 2], &[2, 2]), (&[2, 0], &[2, 2])],
        ),
        (
            "hole",
            "Four boxes run around a hole.",
            &[3, 3],
            &[(&[0, 0], &[1, 2]), (&[0, 2], &[2, 1]), (&[1, 0], &[2, 1]), (&[2, 1], &[1, 2])],
        ),
        ("scalar", "A tensor without axes has no chunk, and is one element.", &[], &[]),
        (
            "vast",
            "A tensor of 2^52 elements has a chunk of one; nobody has memory for the others.",
            &[1 << 52],
            &[(&[0], &[1])],
        ),
        (
            "vast-square",
            "A tensor of 2^26 by 2^26 elements has a chunk of a row's beginning.",
            &[1 << 26, 1 << 26],
            &[(&[0, 0], &[1, 64])],
        ),
    ];
    for (slug, fault, shape, listed) in listed {
        let bend = boxes(shape, listed);
        group.bad(&format!("cover-gap-{slug}"), &rules, fault, &bend, Code::CoverGap);
    }
}

fn overlaps(cases: &mut Cases) {
    let rules = ["cover.exact"];
    let mut group = Group::new(cases, "core", "grid", Effect::SilentCorruption).alone();
    let listed: [(&str, &str, &[u64], Boxes<'_>); 13] = [
        ("whole-twice", "Two chunks hold the whole tensor.", &[3], &[(&[0], &[3]), (&[0], &[3])]),
        ("scalar-twice", "Two chunks hold the one element.", &[], &[(&[], &[]), (&[], &[])]),
        (
            "by-one",
            "Two chunks share an element, and fill the tensor.",
            &[5],
            &[(&[0], &[3]), (&[2], &[3])],
        ),
        (
            "and-gap",
            "Two chunks share an element and leave another out, so that the numbers agree.",
            &[4],
            &[(&[0], &[2]), (&[1], &[2])],
        ),
        (
            "equal-at",
            "Two chunks begin at one place, and their numbers agree with the shape.",
            &[4],
            &[(&[0], &[1]), (&[0], &[3])],
        ),
        (
            "row-twice",
            "One row stands twice and one not at all; the box around all is the shape.",
            &[3, 3],
            &[(&[0, 0], &[1, 3]), (&[0, 0], &[1, 3]), (&[2, 0], &[1, 3])],
        ),
        (
            "column-twice",
            "One column stands twice and one not at all.",
            &[3, 3],
            &[(&[0, 0], &[3, 1]), (&[0, 2], &[3, 1]), (&[0, 2], &[3, 1])],
        ),
        (
            "same-sum",
            "Single elements stand twice and others not at all; the sum of their places is right.",
            &[6],
            &[(&[0], &[1]), (&[1], &[1]), (&[1], &[1]), (&[4], &[1]), (&[4], &[1]), (&[5], &[1])],
        ),
        (
            "cancelling",
            "Beside the whole stand two boxes that are one: a hash that cancels what it meets twice sees nothing.",
            &[4, 4],
            &[(&[0, 0], &[4, 4]), (&[1, 1], &[2, 2]), (&[1, 1], &[2, 2])],
        ),
        (
            "corners",
            "Two quarters share a corner, and the opposite corner is in none.",
            &[4, 4],
            &[(&[0, 0], &[2, 2]), (&[0, 2], &[2, 2]), (&[1, 1], &[2, 2]), (&[2, 0], &[2, 2])],
        ),
        (
            "octant",
            "Seven octants of a cube are in their places, and one in that of another.",
            &[2, 2, 2],
            &[
                (&[0, 0, 0], &[1, 1, 1]),
                (&[0, 0, 1], &[1, 1, 1]),
                (&[0, 1, 0], &[1, 1, 1]),
                (&[0, 1, 1], &[1, 1, 1]),
                (&[1, 0, 0], &[1, 1, 1]),
                (&[1, 0, 1], &[1, 1, 1]),
                (&[1, 1, 0], &[1, 1, 1]),
                (&[1, 1, 0], &[1, 1, 1]),
            ],
        ),
        (
            "strips-shifted",
            "Strips of columns are shifted by one, the first is as wide as before.",
            &[2, 6],
            &[(&[0, 0], &[2, 2]), (&[0, 1], &[2, 2]), (&[0, 3], &[2, 3])],
        ),
        (
            "vast",
            "A tensor of 2^11 by 2 elements has a chunk of its left half twice.",
            &[2048, 2],
            &[(&[0, 0], &[2048, 1]), (&[0, 0], &[2048, 1])],
        ),
    ];
    for (slug, fault, shape, listed) in listed {
        let bend = boxes(shape, listed);
        group.bad(&format!("cover-overlap-{slug}"), &rules, fault, &bend, Code::CoverOverlap);
    }
}

/// A pinwheel whose one arm is turned: each box still touches its neighbours.
fn turned(cases: &mut Cases) {
    let mut wheel = PINWHEEL.map(|(at, extent)| (at.to_vec(), extent.to_vec()));
    wheel[0].1 = vec![2, 1];
    let listed: Vec<(&[u64], &[u64])> =
        wheel.iter().map(|(at, extent)| (at.as_slice(), extent.as_slice())).collect();
    Group::new(cases, "core", "grid", Effect::SilentCorruption).alone().bad(
        "cover-overlap-pinwheel",
        &["cover.exact"],
        "One arm of a pinwheel is turned, so that it covers another's end and leaves out its own.",
        &boxes(&[3, 3], &listed),
        Code::CoverOverlap,
    );
}

/// Boxes of two writers: of tensor 0 of `two` by columns, of 1 by rows.
fn writers(cases: &mut Cases) {
    let moved = |writer: usize, number: usize, at: Vec<u64>, extent: Vec<u64>| {
        Bend::new("another box").recipe(move |recipe| {
            let boxes = &mut recipe.writers[writer].boxes;
            let found = boxes.iter_mut().find(|(tensor, _, _)| *tensor == number);
            let given = found.expect("a box of the tensor");
            given.1.clone_from(&at);
            given.2.clone_from(&extent);
        })
    };
    let listed = [
        (
            "cover-replicas",
            "cover.exact",
            "Two writers have both written all of a tensor that they hold alike.",
            moved(0, 0, vec![0, 0], vec![4, 6]).recipe(|recipe| {
                recipe.writers[1].boxes[1] = (0, vec![0, 0], vec![4, 6]);
            }),
            Code::CoverOverlap,
        ),
        (
            "cover-writers-overlap",
            "cover.exact",
            "Two writers have both written one row.",
            moved(1, 1, vec![2, 0], vec![3, 3]),
            Code::CoverOverlap,
        ),
        (
            "cover-writers-gap",
            "cover.gap",
            "Between the rows of two writers one is missing.",
            moved(0, 1, vec![0, 0], vec![2, 3]),
            Code::CoverGap,
        ),
        (
            "cover-writer-shifted",
            "cover.exact",
            "A writer of as many columns as it should have begins one too early.",
            moved(1, 0, vec![0, 2], vec![4, 3]),
            Code::CoverOverlap,
        ),
    ];
    let mut group = Group::new(cases, "core", "two", Effect::SilentCorruption).alone();
    for (slug, rule, fault, bend, code) in listed {
        group.bad(slug, &[rule], fault, &bend, code);
    }
}
