//! What the densest texts take: lists of the shortest elements, a mebibyte of each, decoded as a reader does.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    reason = "sizes of texts"
)]

use waystation_format::manifest::PageRef;
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::{Digest, Part};
use waystation_fuzz::{goldens, memory};

/// Bytes of a text.
const BYTES: usize = 1 << 20;

fn repeated(element: &str) -> String {
    let count = BYTES / (element.len() + 1);
    vec![element; count].join(",")
}

fn record(value: &str) -> (String, String) {
    let record = format!(r#"{{"kind":"value","name":"x","value":{value}}}"#);
    let text = format!(
        r#"{{"format":"waystation","kind":"records","page":0,"records":[{record}],"version":"1.0"}}"#
    );
    (text, r#"["value","x",[]]"#.to_owned())
}

fn of_records(what: &str, (text, first): (String, String)) -> (String, f64) {
    let mut manifest = goldens::manifest();
    manifest.records =
        vec![PageRef { bytes: text.len() as u64, first, sha256: Digest::of(text.as_bytes()) }];
    let (parsed, peak) = memory::peak(|| RecordPage::parse(text.as_bytes(), &manifest, 0));
    parsed.unwrap();
    (what.to_owned(), peak as f64 / text.len() as f64)
}

fn of_tensors(what: &str, entry: &dyn Fn(usize) -> String) -> (String, f64) {
    let count = BYTES / entry(0).len();
    let entries: Vec<String> = (0..count).map(entry).collect();
    let text = format!(
        r#"{{"entries":[{}],"format":"waystation","kind":"tensors","page":0,"version":"1.0"}}"#,
        entries.join(",")
    );
    let mut manifest = goldens::manifest();
    let first = r#"["main","param","0000000","","",[]]"#.to_owned();
    manifest.tensors =
        vec![PageRef { bytes: text.len() as u64, first, sha256: Digest::of(text.as_bytes()) }];
    let (parsed, peak) = memory::peak(|| TensorPage::parse(text.as_bytes(), &manifest, 0));
    parsed.unwrap();
    (what.to_owned(), peak as f64 / text.len() as f64)
}

fn of_part(what: &str, from: &str, to: &str) -> (String, f64) {
    let files = goldens::files(1).unwrap();
    let part = files.iter().find(|(name, _)| name.starts_with("part-")).unwrap().1;
    let text = String::from_utf8(part.clone()).unwrap().replacen(from, to, 1);
    let (parsed, peak) = memory::peak(|| Part::parse(text.clone().into_bytes()));
    parsed.unwrap();
    (what.to_owned(), peak as f64 / text.len() as f64)
}

#[test]
fn the_densest_texts() {
    let names: Vec<String> = (0..BYTES / 8).map(|n| format!("\"{n:05x}\"")).collect();
    let omitted = format!(
        r#""omitted":[{{"component":"main","names":[{}],"reason":"base"}}]"#,
        names.join(",")
    );
    let pairs: Vec<String> = (0..BYTES / 16).map(|n| format!("[\"{n:05x}\",1]")).collect();
    let found = [
        of_records("a list of integers", record(&format!(r#"{{"list":[{}]}}"#, repeated("1")))),
        of_records(
            "a list of empty lists",
            record(&format!(r#"{{"list":[{}]}}"#, repeated(r#"{"list":[]}"#))),
        ),
        of_records("a map", record(&format!(r#"{{"map":[{}]}}"#, pairs.join(",")))),
        of_tensors("tensors without elements", &|n| {
            format!(r#"{{"chunks":[],"dtype":"U8","name":"{n:07}","role":"param","shape":[0]}}"#)
        }),
        of_part("names that are left out", r#""omitted":[]"#, &omitted),
    ];
    for (what, factor) in &found {
        println!("{factor:>6.1} bytes for each of {what}");
    }
    for (what, factor) in found {
        assert!(
            factor < memory::DECODING.factor as f64,
            "{what}: {factor:.1} bytes for each of the text"
        );
    }
}
