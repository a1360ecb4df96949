//! Records of resume state as text, and what `verify` says of a checkpoint that has them.

use waystation_format::value_tree::hex;
use waystation_format::{Code, Coordinate, Digest, RngAlgorithm, Topology};
use waystation_reader::restore::Place;
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, verify};

use super::Making;

/// The canonical state of a stream on CUDA, and the outputs that come next of it.
pub fn cuda(seed: u64, offset: u64) -> (String, Vec<String>) {
    let state: Vec<u8> = [seed.to_le_bytes(), offset.to_le_bytes()].concat();
    let algorithm = RngAlgorithm::Philox4x32TorchCuda;
    let next = waystation_state::rng::canary(algorithm, &state, 4).unwrap();
    (hex(&state), next)
}

/// Such a stream as the value of a record.
pub fn rng(seed: u64, on_reshape: &str) -> String {
    let (state, next) = cuda(seed, 400);
    stream("philox4x32-10/torch-cuda", &format!("\"{state}\""), &next, on_reshape)
}

/// A stream as the value of a record; `state` is JSON.
pub fn stream(algorithm: &str, state: &str, next: &[String], on_reshape: &str) -> String {
    let next: Vec<String> = next.iter().map(|output| format!("\"{output}\"")).collect();
    format!(
        r#"{{"algorithm":"{algorithm}","caches":[],"next_raw":[{}],"on_reshape":"{on_reshape}","state":{state}}}"#,
        next.join(",")
    )
}

/// 12 records in their own order, 8 of this epoch consumed.
pub fn cursor(position: u64, first: &[u64]) -> String {
    let bytes: Vec<u8> = first.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect();
    let list: Vec<String> = first.iter().take(4).map(u64::to_string).collect();
    format!(
        r#"{{"consumed":100,"epoch":2,"epoch_end":{{"rule":"wrap"}},"kind":"permuted-index","next":{{"count":{},"first":[{}],"sha256":"{}"}},"order":{{"algorithm":"identity","n":12}},"position":{position},"source":{{"records":12,"sha256":"{}"}}}}"#,
        first.len(),
        list.join(","),
        Digest::of(&bytes),
        "ab".repeat(32),
    )
}

pub fn axes(axes: &[(&str, u64)]) -> Coordinate {
    axes.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect()
}

pub fn place(sizes: &[(&str, u64)], at: &[(&str, u64)]) -> Place {
    Place::new(Topology(axes(sizes)), axes(at)).unwrap()
}

pub fn open(making: &Making) -> Checkpoint {
    Checkpoint::open_store(making.store(), OpenOptions::default()).unwrap()
}

/// Code, rule and place of each finding.
pub fn findings(making: &Making) -> Vec<(Code, &'static str, String)> {
    let report = verify(&making.store(), &VerifyOptions::default()).unwrap();
    report
        .findings
        .iter()
        .map(|e| {
            let place = e.location();
            let at = place.pointer.clone().or_else(|| place.tensor.clone()).unwrap_or_default();
            (e.code(), e.rule_id().unwrap_or_default(), at)
        })
        .collect()
}
