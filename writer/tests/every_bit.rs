//! Whatever happens to the bytes of a checkpoint is found, and no read gives anything but what was
//! written: every flipped bit, every truncation, every missing file, every mixture of two
//! checkpoints, and damage at random.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

mod damage;
mod support;

use std::collections::BTreeMap;

use damage::disk::{Disk, How, Outcome};
use damage::expect::{self, Expected, Finding};
use damage::places::{Place, Places};
use damage::small::Small;
use damage::tally::Tally;
use damage::{Golden, sweep};
use waystation_format::{Code, Error, names};

/// Looks at a damaged disk: something must be found, reads must give what was written or nothing,
/// and opening must answer what the validator says first.
fn look(disk: &Disk, golden: &Golden, case: &str, tally: &mut Tally) -> (Vec<Error>, Outcome) {
    look_at(disk, golden, How::Whole, case, tally)
}

fn look_at(
    disk: &Disk,
    golden: &Golden,
    how: How,
    case: &str,
    tally: &mut Tally,
) -> (Vec<Error>, Outcome) {
    let found = disk.verify();
    if found.is_empty() {
        tally.fail(format!("{case}: nothing was found"));
    }
    let outcome = disk.read(golden, how).unwrap_or_else(|wrong| {
        tally.fail(format!("{case}: read {wrong}"));
        Outcome::default()
    });
    if let Err(why) = expect::check_open(&found, &outcome) {
        tally.fail(format!("{case}: {why}"));
    }
    (found, outcome)
}

#[test]
fn every_flipped_bit_is_found() {
    let golden = Golden::save(1);
    let files: Vec<(&String, &Vec<u8>)> = golden.small.files.iter().collect();
    let bytes: Vec<(usize, usize)> = (0..files.len())
        .flat_map(|file| (0..files[file].1.len()).map(move |byte| (file, byte)))
        .collect();
    let tally = sweep("flipped bits", &golden, bytes.len() * 8, |disk, case, tally| {
        let (file, byte) = bytes[case / 8];
        let (name, good) = files[file];
        let bit = (case % 8) as u32;
        let mut bad = good.clone();
        bad[byte] ^= 1 << bit;
        disk.put(name, bad);
        let at = format!("{name}, byte {byte}, bit {bit}");
        // Of each byte one bit, a different one for neighbours, is met by streams.
        let how = if (byte + case) % 8 == 0 { How::Streamed } else { How::Whole };
        let (found, outcome) = look_at(disk, &golden, how, &at, tally);
        disk.put(name, good.clone());

        let byte = byte as u64;
        if let Err(why) = expect::of_flip(&golden, name, byte, bit).check(&found) {
            tally.fail(format!("{at}: {why}"));
        }
        let unreadable = expect::unreadable(&golden, name, byte, bit);
        if outcome.failed != unreadable {
            tally.fail(format!("{at}: expected {unreadable:?}, found {:?}", outcome.failed));
        }
        tally.count(Places::label(name, golden.places.place(name, byte)), &found);
    });
    tally.check();
    assert_eq!(tally.cases(), bytes.len() as u64 * 8);
}

#[test]
fn every_truncation_and_extension_is_found() {
    let golden = Golden::save(1);
    let mut cases: Vec<(&str, usize, Option<u8>)> = Vec::new();
    for (name, good) in &golden.small.files {
        cases.extend((0..good.len()).map(|length| (&**name, length, None)));
        cases.extend([0, b'\n', b' '].map(|more| (&**name, good.len(), Some(more))));
    }
    let tally = sweep("truncated and extended", &golden, cases.len(), |disk, case, tally| {
        let (name, length, more) = cases[case];
        let good = &golden.small.files[name];
        let mut bad = good[..length].to_vec();
        bad.extend(more);
        let at = format!("{name}, {} of {} bytes", bad.len(), good.len());
        disk.put(name, bad);
        let (found, _) = look(disk, &golden, &at, tally);
        disk.put(name, good.clone());
        if let Err(why) = expect::of_length(&golden, name).check(&found) {
            tally.fail(format!("{at}: {why}"));
        }
        tally.count(golden.places.file_label(name), &found);
    });
    tally.check();
}

#[test]
fn every_missing_file_is_found() {
    let golden = Golden::save(1);
    let names: Vec<&String> = golden.small.files.keys().collect();
    let tally = sweep("missing, or no files", &golden, names.len() * 2, |disk, case, tally| {
        let name = names[case / 2];
        let is_commit = name == names::COMMIT;
        let code = match (case % 2, is_commit) {
            (0, true) => Code::NotCommitted,
            (0, false) => Code::FileMissing,
            _ => Code::NotRegular,
        };
        match case % 2 {
            0 => disk.remove(name),
            _ => disk.put_other(name),
        }
        let (found, _) = look(disk, &golden, name, tally);
        if case % 2 == 1 {
            disk.remove(name);
        }
        disk.put(name, golden.small.files[name].clone());
        if let Err(why) = Expected::one(Finding::new(code, name)).check(&found) {
            tally.fail(format!("{name}: {why}"));
        }
        tally.count(golden.places.file_label(name), &found);
    });
    tally.check();
}

/// Each file replaced by the one that stands for the same in another checkpoint.
#[test]
fn a_file_of_another_checkpoint_is_found() {
    let (golden, other) = (Golden::save(1), Small::save(2));
    let names: Vec<&String> = golden.small.files.keys().collect();
    let tally = sweep("of another checkpoint", &golden, names.len(), |disk, case, tally| {
        let (name, good) = (names[case], &golden.small.files[names[case]]);
        let counterpart = match names::parse_part(name) {
            Some((writer, _)) => other.part_of(writer),
            None => name,
        };
        let bad = &other.files[counterpart];
        if bad == good {
            assert!(good.is_empty(), "{name} must differ");
            return;
        }
        disk.put(name, bad.clone());
        let (found, _) = look(disk, &golden, name, tally);
        disk.put(name, good.clone());
        let first = match golden.places.place(name, 0) {
            Place::Header => {
                // Every chunk differs, the header does not.
                let chunks = golden.places.chunks.iter().filter(|chunk| chunk.file == *name);
                let found = found.iter().filter(|e| e.code() == Code::CrcMismatch).count();
                if found != chunks.count() {
                    tally.fail(format!("{name}: {found} chunks differ"));
                }
                let table = golden.places.chunks.iter().any(|c| c.file == *name && c.table);
                if table { Code::CrcTableMismatch } else { Code::CrcMismatch }
            }
            _ if bad.len() != good.len() => Code::LengthMismatch,
            _ => Code::DigestMismatch,
        };
        let file = if name == names::COMMIT { names::MANIFEST } else { name };
        if !found.iter().any(|e| e.code() == first && e.location().file.as_deref() == Some(file)) {
            tally.fail(format!("{name}: expected {first:?}, found {found:?}"));
        }
        tally.count(golden.places.file_label(name), &found);
    });
    tally.check();
}

/// Every way of taking each file from one of two checkpoints, but for taking all from one.
#[test]
fn no_mixture_of_two_checkpoints_is_one() {
    let (golden, other) = (Golden::save(1), Golden::save(2));
    // What stands for the same in both; a part has another name in each.
    let pairs: Vec<(&String, &str)> = golden
        .small
        .files
        .keys()
        .map(|name| match names::parse_part(name) {
            Some((writer, _)) => (name, other.small.part_of(writer)),
            None => (name, &**name),
        })
        .collect();
    // An empty attachment is the same file in both.
    let pairs: Vec<(&String, &str)> =
        pairs.into_iter().filter(|(name, _)| !golden.small.files[*name].is_empty()).collect();
    let all = (1 << pairs.len()) - 1;
    let root = |name: &&str| *name == names::COMMIT || *name == names::MANIFEST;
    let tally = sweep("mixtures", &golden, all + 1, |disk, case, tally| {
        let foreign = |at: usize| case >> at & 1 == 1;
        for (own, name) in pairs.iter().enumerate().filter(|(at, _)| foreign(*at)).map(|(_, p)| p) {
            disk.remove(own);
            disk.put(name, other.small.files[*name].clone());
        }
        let roots = (0..pairs.len()).filter(|at| root(&pairs[*at].1) && foreign(*at)).count();
        let meant = if roots == 2 { &other } else { &golden };
        let label = match roots {
            0 => "root of the first",
            1 => "root of both",
            _ => "root of the second",
        };
        if case == 0 || case == all {
            let found = disk.verify();
            let read = disk.read(meant, How::Whole).map(|outcome| outcome.failed);
            if !found.is_empty() || read != Ok(BTreeMap::new()) {
                tally.fail(format!("unmixed: {found:?}, {read:?}"));
            }
        } else {
            let (found, _) = look(disk, meant, &format!("mixture {case:b}"), tally);
            tally.count(label.to_owned(), &found);
        }
        for (own, name) in pairs.iter().enumerate().filter(|(at, _)| foreign(*at)).map(|(_, p)| p) {
            disk.remove(name);
            disk.put(own, golden.small.files[*own].clone());
        }
    });
    tally.check();
}

#[test]
fn two_files_that_changed_places_are_found() {
    let golden = Golden::save(1);
    let files: Vec<(&String, &Vec<u8>)> = golden.small.files.iter().collect();
    let mut pairs = Vec::new();
    for first in 0..files.len() {
        for second in first + 1..files.len() {
            pairs.push((files[first], files[second]));
        }
    }
    assert!(pairs.iter().filter(|(a, b)| a.1.len() == b.1.len()).count() >= 3);
    let tally = sweep("changed places", &golden, pairs.len(), |disk, case, tally| {
        let (first, second) = pairs[case];
        disk.put(first.0, second.1.clone());
        disk.put(second.0, first.1.clone());
        let at = format!("{} and {}", first.0, second.0);
        let (found, _) = look(disk, &golden, &at, tally);
        disk.put(first.0, first.1.clone());
        disk.put(second.0, second.1.clone());
        let root = [names::MANIFEST, names::COMMIT];
        let both = [first.0, second.0]
            .iter()
            .all(|name| found.iter().any(|e| e.location().file.as_deref() == Some(name)));
        if !both && !root.contains(&&**first.0) && !root.contains(&&**second.0) {
            tally.fail(format!("{at}: {found:?}"));
        }
        let alike =
            if first.1.len() == second.1.len() { "of one length" } else { "of two lengths" };
        tally.count(alike.to_owned(), &found);
    });
    tally.check();
}

/// Small numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// Damages a file in one of many ways. Gives what was done.
fn damage(dice: &mut Dice, file: &mut Vec<u8>, foreign: &[u8]) -> &'static str {
    let length = file.len();
    if length == 0 {
        file.push(dice.below(256) as u8);
        return "bytes put in";
    }
    let at = dice.below(length);
    let longest = 2 << dice.below(12);
    let count = (1 + dice.below(longest)).min(length - at);
    match dice.below(9) {
        0 => {
            file[at..at + count].fill_with(|| dice.below(256) as u8);
            "bytes at random"
        }
        1 => {
            file[at..at + count].fill(0);
            "bytes of zero"
        }
        2 => {
            file[at..at + count].fill(0xff);
            "bytes of ones"
        }
        3 => {
            let from = dice.below(length - count + 1);
            file.copy_within(from..from + count, at);
            "bytes from elsewhere in it"
        }
        4 => {
            let count = count.min(foreign.len());
            let from = dice.below(foreign.len() - count + 1);
            file[at..at + count].copy_from_slice(&foreign[from..from + count]);
            "bytes of another file"
        }
        5 => {
            file[at..at + count].rotate_left(1 + dice.below(16) % count);
            "bytes shifted"
        }
        6 => {
            for _ in 0..2 + dice.below(7) {
                let at = dice.below(length);
                file[at] ^= 1 << dice.below(8);
            }
            "some bits"
        }
        7 => {
            file.drain(at..at + count);
            "bytes taken out"
        }
        _ => {
            let more: Vec<u8> = (0..count).map(|_| dice.below(256) as u8).collect();
            file.splice(at..at, more);
            "bytes put in"
        }
    }
}

#[test]
fn damage_at_random_is_found() {
    const CASES: usize = 20_000;
    let golden = Golden::save(1);
    let files: Vec<(&String, &Vec<u8>)> = golden.small.files.iter().collect();
    let tally = sweep("at random", &golden, CASES, |disk, case, tally| {
        let mut dice = Dice((case as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..8 {
            dice.below(2);
        }
        let mut bad: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        let mut label = "several files";
        let count = if dice.below(4) == 0 { 2 + dice.below(3) } else { 1 };
        while bad.len() < count {
            let (name, good) = files[dice.below(files.len())];
            let mut bytes = good.clone();
            let foreign = files[dice.below(files.len())].1;
            let what = damage(&mut dice, &mut bytes, foreign);
            if bytes != *good {
                bad.insert(name, bytes);
                label = if count == 1 { what } else { label };
            }
        }
        for (name, bytes) in &bad {
            disk.put(name, bytes.clone());
        }
        let at = format!("case {case}: {label} in {:?}", bad.keys());
        let (found, _) = look(disk, &golden, &at, tally);
        for name in bad.keys() {
            disk.put(name, golden.small.files[*name].clone());
        }
        // What can still be seen is told of every damaged file.
        let root = bad.contains_key(names::MANIFEST) || bad.contains_key(names::COMMIT);
        for (name, bytes) in bad.iter().filter(|_| !root) {
            let named = found.iter().any(|e| e.location().file.as_deref() == Some(name));
            let same_length = bytes.len() == golden.small.files[*name].len();
            let blind = names::parse_shard(name).is_some_and(|shard| {
                same_length && bad.contains_key(golden.small.part_of(shard.writer))
            });
            if !named && !blind {
                tally.fail(format!("{at}: nothing of {name} in {found:?}"));
            }
        }
        tally.count(label.to_owned(), &found);
    });
    tally.check();
}
