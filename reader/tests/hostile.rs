//! Numbers and bytes that a hostile writer may state, with every digest right: answers, no crashes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests: a failure is a panic"
)]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use support::{Files, name_of, reseal, small, store_of};
use waystation_format::manifest::PageRef;
use waystation_format::{Code, Digest, Dtype, Identity, Manifest, Part, names};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};
use waystation_store::{Counting, Store};

/// Replaces the `nth` number of a text, or flips a bit where that is asked for.
fn change(text: &[u8], nth: usize, number: Option<&str>) -> Vec<u8> {
    let mut changed = text.to_vec();
    let Some(number) = number else {
        let at = nth % text.len();
        changed[at] ^= 1 << (nth % 7);
        return changed;
    };
    let mut runs = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.is_ascii_digit();
        let before = at.checked_sub(1).map_or(b' ', |at| text[at]);
        match start {
            None if digit && b"[,:".contains(&before) => start = Some(at),
            Some(begin) if !digit => {
                if b",]}".contains(byte) {
                    runs.push(begin..at);
                }
                start = None;
            }
            _ => {}
        }
    }
    let run = runs[nth % runs.len()].clone();
    changed.splice(run, number.bytes());
    changed
}

fn number() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("0"),
        Some("1"),
        Some("7"),
        Some("4095"),
        Some("4096"),
        Some("4352"),
        Some("65536"),
        Some("4294967295"),
        Some("4294967296"),
        Some("4503599627370496"),
        Some("9007199254740991"),
    ])
}

/// Reads all that can be read; every answer is fine.
fn exercise(files: &Files) -> Vec<Code> {
    let store = store_of(files);
    let mut codes = Vec::new();
    // Whatever a number says, what is taken in memory stays in proportion to the files.
    let options = OpenOptions::new().memory_budget(Some(8 << 20));
    match Checkpoint::open_store(store.clone(), options) {
        Ok(checkpoint) => {
            for entry in checkpoint.entries() {
                let read = entry.and_then(|entry| {
                    let tensor = checkpoint.tensor_of(&entry)?;
                    for chunk in 0..tensor.entry().chunks.len() {
                        tensor.stream_chunk(chunk, 4096, &mut |_| Ok(()))?;
                    }
                    tensor.sha256()?;
                    tensor.read()
                });
                codes.extend(read.err().map(|e| e.code()));
            }
            for record in checkpoint.records() {
                codes.extend(record.err().map(|e| e.code()));
            }
            let paths: Vec<String> = checkpoint.attachments().map(|a| a.path.to_owned()).collect();
            for path in paths {
                let read = checkpoint.read_attachment(&path, &mut std::io::sink());
                codes.extend(read.err().map(|e| e.code()));
            }
        }
        Err(e) => codes.push(e.code()),
    }
    let report = verify(&store, &VerifyOptions { threads: 1, ..VerifyOptions::default() }).unwrap();
    codes.extend(report.findings.iter().map(|e| e.code()));
    codes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_change_of_a_page(nth in any::<usize>(), number in number()) {
        let mut files = small().files();
        let page = name_of(&files, "tensors-");
        let changed = change(&files[&page], nth, number);
        let same = changed == files[&page];
        files.insert(page, changed);
        reseal(&mut files, |_| {});
        prop_assert_eq!(exercise(&files).is_empty(), same);
    }

    #[test]
    fn any_change_of_a_part(nth in any::<usize>(), number in number(), writer in 0u32..2) {
        let mut files = small().files();
        let manifest = Manifest::parse(&files[names::MANIFEST]).unwrap();
        let old = names::part(writer, &manifest.parts[writer as usize].sha256);
        let raw = files.remove(&old).unwrap();
        let changed = change(&raw, nth, number);
        // Who wrote a part is stated in it alone: another producer is another valid part.
        let producer = |raw: &[u8]| Part::parse(raw.to_vec()).ok().map(|part| part.producer);
        let renamed = producer(&changed).is_some_and(|now| Some(now) != producer(&raw));
        let same = changed == raw || renamed;
        reseal(&mut files, |manifest| {
            let part = &mut manifest.parts[writer as usize];
            (part.bytes, part.sha256) = (changed.len() as u64, Digest::of(&changed));
        });
        files.insert(names::part(writer, &Digest::of(&changed)), changed);
        prop_assert_eq!(exercise(&files).is_empty(), same);
    }

    #[test]
    fn any_change_of_a_manifest(nth in any::<usize>(), number in number()) {
        let mut files = small().files();
        let changed = change(&files[names::MANIFEST], nth, number);
        let same = changed == files[names::MANIFEST];
        support::commit(&mut files, changed);
        prop_assert_eq!(exercise(&files).is_empty(), same);
    }
}

#[test]
fn two_tensors_may_not_claim_the_same_bytes() {
    let mut files = small().files();
    let page = name_of(&files, "tensors-");
    let text = String::from_utf8(files[&page].clone()).unwrap();
    let at = text.find("[0,0,").unwrap();
    let end = at + text[at..].find(",[").unwrap();
    let other = text[end..].find("[0,0,").map(|next| end + next).unwrap();
    let other_end = other + text[other..].find(",[").unwrap();
    let changed = format!("{}{}{}", &text[..other], &text[at..end], &text[other_end..]);
    files.insert(page, changed.into_bytes());
    reseal(&mut files, |_| {});
    assert!(!exercise(&files).is_empty());
}

/// However many aliases name a page, and whether it is good or not.
#[test]
fn a_page_is_read_a_few_times_at_most() {
    for broken in [false, true] {
        let mut making = support::Making::new(1).whole(Identity::param("z"), Dtype::F32, &[4], 0);
        for n in 0..40 {
            making = making.alias(&format!("a{n:02}"), Identity::param("z"));
        }
        let mut files = making.files();
        let text = String::from_utf8(files[&names::tensors_page(0)].clone()).unwrap();
        let (aliases, tensor) = text.split_once(r#",{"chunks""#).unwrap();
        let tail = &tensor[tensor.find(r#"],"format""#).unwrap()..];
        let mut second =
            format!(r#"{{"entries":[{{"chunks"{tensor}"#).replace(r#""page":0"#, r#""page":1"#);
        if broken {
            second = second.replace(r#""F32""#, r#""F33""#);
        }
        files.insert(names::tensors_page(0), format!("{aliases}{tail}").into_bytes());
        files.insert(names::tensors_page(1), second.into_bytes());
        let first = Identity::param("z").key();
        let page = PageRef { bytes: 0, first, sha256: Digest::of(&[]) };
        reseal(&mut files, |manifest| manifest.tensors.push(page));
        // Once more, with the second page's length and digest.
        reseal(&mut files, |_| {});
        let store = Counting::new(store_of(&files));
        let counted: Arc<dyn Store> = Arc::new(store.clone());
        let report = verify(&counted, &VerifyOptions::default()).unwrap();
        let codes: Vec<Code> = report.findings.iter().map(|e| e.code()).collect();
        let cut = [Code::DeriveMismatch, Code::DeriveMismatch];
        let expected =
            if broken { [&[Code::UnsupportedDtype], &cut[..]].concat() } else { cut.to_vec() };
        assert_eq!(codes, expected, "{:?}", report.findings);
        let reads = store.reads();
        let second = names::tensors_page(1);
        assert!(reads.iter().filter(|read| read.name == second).count() <= 4);
    }
}
