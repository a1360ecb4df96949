//! Seeds: what fuzzing begins from, packed from the conformance suite's bases and cases. Knows the form of each target's inputs.

use std::collections::BTreeMap;

use serde_json::Value;
use waystation_conformance::build::{canonical, sha256};
use waystation_conformance::case::Case;
use waystation_conformance::catalogue::cases;
use waystation_conformance::files::Files;
use waystation_format::RngAlgorithm;
use waystation_state::rng::native::{Form, Native};
use waystation_state::rng::{Engine, StreamState};

use crate::{differential, gen_archive, goldens};

/// Longer files teach a fuzzer nothing that shorter ones do not.
const MOST_BYTES: usize = 32 << 10;

/// Seeds of one target by name.
pub type Seeds = BTreeMap<String, Vec<u8>>;

/// The suite as seeds are made of it; it takes seconds to build.
#[derive(Debug)]
pub struct Suite {
    cases: Vec<Case>,
}

impl Suite {
    /// All bases and cases.
    #[must_use]
    pub fn build() -> Self {
        Self { cases: cases() }
    }

    /// The seeds of the target of that name: none for one that makes its own structure of any bytes.
    #[must_use]
    pub fn seeds(&self, target: &str) -> Seeds {
        let mut seeds = Packed::default();
        match target {
            "manifest" => {
                self.files(&mut seeds, |name| matches!(name, "manifest.json" | "waystation.commit"))
            }
            "part" => self.files(&mut seeds, |name| name.starts_with("part-")),
            "shard_header" => self.files(&mut seeds, |name| name.ends_with(".safetensors")),
            "page" => self.pages(&mut seeds),
            "state" => {
                self.records(&mut seeds);
                states(&mut seeds);
            }
            "open" | "sources" => self.directories(&mut seeds),
            "differential" => {
                self.directories(&mut seeds);
                structured(&mut seeds, &[differential::RECIPE]);
            }
            _ => structured(&mut seeds, &[]),
        }
        seeds.0
    }

    /// Everything that is given, bases first.
    fn given(&self) -> Vec<&Files> {
        let mut all: Vec<&Files> = (0..goldens::NAMES.len()).filter_map(goldens::files).collect();
        all.extend(self.cases.iter().map(|case| &case.given));
        all
    }

    fn files(&self, seeds: &mut Packed, wanted: fn(&str) -> bool) {
        for (path, bytes) in self.given().into_iter().flatten() {
            if wanted(file_name(path)) {
                seeds.add(bytes.clone());
            }
        }
    }

    /// Each page with the manifest beside it.
    fn pages(&self, seeds: &mut Packed) {
        for files in self.given() {
            for (path, bytes) in files {
                let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
                let beside = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                if (name.starts_with("tensors-") || name.starts_with("records-"))
                    && let Some(manifest) = files.get(&format!("{beside}manifest.json"))
                {
                    seeds.add([manifest.as_slice(), b"\n", bytes].concat());
                }
            }
        }
    }

    fn records(&self, seeds: &mut Packed) {
        for (path, bytes) in self.given().into_iter().flatten() {
            if !file_name(path).starts_with("records-") || bytes.len() > MOST_BYTES * 4 {
                continue;
            }
            let Ok(page) = serde_json::from_slice::<Value>(bytes) else { continue };
            let records = page["records"].as_array().map(Vec::as_slice).unwrap_or_default();
            for record in records {
                if let Some(kind) = record["kind"].as_str() {
                    seeds.add(format!("{kind}\n{}", canonical(&record["value"])).into_bytes());
                }
            }
        }
    }

    fn directories(&self, seeds: &mut Packed) {
        for (number, files) in
            (0..goldens::NAMES.len()).filter_map(|n| Some((n, goldens::files(n)?)))
        {
            seeds.add(gen_archive::encode(Some(number), files));
        }
        for case in &self.cases {
            let base = case.expect.made.base.as_deref();
            let number = base.and_then(|base| goldens::NAMES.iter().position(|name| *name == base));
            seeds.add(gen_archive::encode(number, &case.given));
        }
    }
}

/// A state of every engine, and each in every form that holds it; walks of any bytes.
fn states(seeds: &mut Packed) {
    for &algorithm in RngAlgorithm::ALL {
        let Ok(mut engine) = Engine::seeded(algorithm, 0x0123_4567_89ab_cdef) else { continue };
        engine.draw(8);
        let state = engine.encode().expect("whole blocks were drawn");
        seeds.add([format!("rng {algorithm}\n").as_bytes(), &state].concat());
        let stream = StreamState::new(algorithm, state).expect("a state of its own");
        for &form in Form::ALL {
            let (Ok(native), Ok(unsaid)) = (form.write(&stream), form.unsaid(&stream)) else {
                continue;
            };
            let bytes = match native {
                Native::Bytes(bytes) => bytes,
                Native::Tree(tree) => {
                    tree.to_value().encode().expect("a tree of its own").into_bytes()
                }
            };
            let named = unsaid
                .algorithm
                .map(|a| a.to_string())
                .or(unsaid.implementation)
                .unwrap_or_default();
            let flag =
                unsaid.partitionable.map_or("", |flag| if flag { " true" } else { " false" });
            seeds.add([format!("native {form} {named}{flag}\n").as_bytes(), &bytes].concat());
        }
    }
    for number in 0..64_u32 {
        let mut bytes = b"walk\n".to_vec();
        bytes.extend(noise(number, 96));
        seeds.add(bytes);
    }
}

/// Bytes that look like nothing: their structure is made by what reads them.
fn structured(seeds: &mut Packed, head: &[u8]) {
    for number in 0..128_u32 {
        seeds.add([head, &noise(number, 64 + 8 * number as usize)].concat());
    }
}

fn noise(number: u32, length: usize) -> Vec<u8> {
    let digests =
        (0_u32..).map(|more| waystation_format::Digest::of(format!("{number}/{more}").as_bytes()));
    digests.flat_map(|digest| *digest.as_bytes()).take(length).collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[derive(Default)]
struct Packed(Seeds);

impl Packed {
    fn add(&mut self, bytes: Vec<u8>) {
        if bytes.len() <= MOST_BYTES {
            self.0.insert(sha256(&bytes)[..16].to_owned(), bytes);
        }
    }
}
