//! Seeds: what fuzzing begins from, packed from the conformance suite's bases and cases. Knows the form of each target's inputs.

use std::collections::BTreeMap;

use arbitrary::Unstructured;
use serde_json::{Value, json};
use waystation_conformance::bend::straight;
use waystation_conformance::build::{canonical, sha256};
use waystation_conformance::case::Case;
use waystation_conformance::catalogue::cases;
use waystation_conformance::files::Files;
use waystation_conformance::recipe::{Data, Whole, Writer};
use waystation_format::{Dtype, RngAlgorithm};
use waystation_state::rng::native::{Form, Native};
use waystation_state::rng::{Engine, StreamState};

use crate::shard_header::foreign_name;
use crate::{differential, gen_archive, gen_recipe, goldens};

/// Longer files teach a fuzzer nothing that shorter ones do not.
const MOST_BYTES: usize = 32 << 10;
/// The longest checkpoint of a recipe: the options of no target cut it.
const MADE_BYTES: usize = 16 << 10;

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
            "shard_header" => {
                self.files(&mut seeds, |name| name.ends_with(".safetensors"));
                foreign(&mut seeds);
            }
            "page" => self.pages(&mut seeds),
            "state" => {
                self.records(&mut seeds);
                states(&mut seeds);
            }
            "open" | "sources" => {
                self.directories(&mut seeds);
                made(&mut seeds);
            }
            "differential" => {
                self.directories(&mut seeds);
                made(&mut seeds);
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

/// Files of other tools: what stands in a checkpoint, `import` does not take.
fn foreign(seeds: &mut Packed) {
    for &dtype in Dtype::ALL {
        let name = foreign_name(dtype);
        let mut header = serde_json::Map::new();
        let mut end = 0;
        for (key, shape) in [("a", &[8][..]), ("b", &[0, 3]), ("c", &[4, 64])] {
            let begin = end;
            end += shape.iter().product::<u64>() * u64::from(dtype.bits()) / 8;
            let tensor = json!({"dtype": name, "shape": shape, "data_offsets": [begin, end]});
            header.insert(key.to_owned(), tensor);
        }
        let text = Value::Object(header).to_string();
        let length = text.len() as u64;
        let data = noise(0, end as usize);
        seeds.add([&length.to_le_bytes()[..], text.as_bytes(), &data].concat());
    }
}

/// Checkpoints of recipes that are no base: of noise, and one whose elements are no run of bytes though its chunks are neighbours.
fn made(seeds: &mut Packed) {
    let mut neighbours = goldens::recipe(1);
    let entry = json!({"dtype": "U4", "name": "w", "role": "param", "shape": [1022]});
    let entry = entry.as_object().cloned().unwrap_or_default();
    neighbours.tensors = vec![Whole { entry, data: Data::Seed(1) }];
    neighbours.writers = vec![Writer::default()];
    neighbours.writers[0].boxes = vec![(0, vec![0], vec![511]), (0, vec![511], vec![511])];
    let noises = (0..64_u32).map(|number| noise(number, 400));
    let recipes =
        noises.filter_map(|bytes| gen_recipe::recipe(&mut Unstructured::new(&bytes)).ok());
    for recipe in recipes.chain([neighbours]) {
        let packed = gen_archive::encode(None, &straight(&recipe));
        if packed.len() <= MADE_BYTES {
            seeds.add(packed);
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
    for number in 0..1024_u32 {
        seeds.add([head, &noise(number, 64 + 8 * (number as usize % 128))].concat());
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
