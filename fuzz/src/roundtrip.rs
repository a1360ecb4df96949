//! `roundtrip`: a recipe is written and read. What was saved is there, twice written it is the same bytes, and the suite's own
//! builder, which shares no code with the writer, derives the same root from its parts.

use std::sync::Arc;

use arbitrary::Unstructured;
use serde_json::Value;
use waystation_conformance::adapter::save_recipe;
use waystation_conformance::bend::straight;
use waystation_conformance::build;
use waystation_conformance::files::Files;
use waystation_conformance::recipe::Recipe;
use waystation_format::names;
use waystation_store::{MemoryFs, Store};

use crate::{gen_recipe, mutate, reader};

/// Of the first writer; others count on.
const INCARNATION: u64 = 0x5f0c_0000_0000_00e1;

/// Writes a recipe and reads it.
///
/// # Panics
/// If it is refused, or anything of it differs.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(recipe) = gen_recipe::recipe(&mut u) else { return };
    // A writer is given whole tensors: of a companion that cannot be read whole there is none.
    let whole = build::projection(&recipe);
    if whole["tensors"]
        .as_array()
        .is_none_or(|tensors| tensors.iter().any(|tensor| !tensor["refused"].is_null()))
    {
        return;
    }
    let (store, written) = write(&recipe);
    let (_, again) = write(&recipe);
    assert!(written.keys().eq(again.keys()), "written twice, other files");
    assert!(written == again, "written twice, other bytes");

    let ours = reader::answers(&store);
    assert!(ours.findings.is_empty(), "a checkpoint that was just written: {:?}", ours.findings);
    let ours = ours.read.unwrap_or_else(|e| panic!("a checkpoint that was just written: {e}"));
    let built = reader::answers(&mutate::stored(&straight(&recipe)));
    assert!(built.findings.is_empty(), "built from a recipe: {:?}", built.findings);
    let built = built.read.unwrap_or_else(|e| panic!("built from a recipe: {e}"));
    assert_eq!(ours, built, "the writer and the builder say two things");
    common(&store, &recipe);
    for (number, whole) in recipe.tensors.iter().enumerate() {
        let entry = Value::Object(whole.entry.clone());
        let read = &ours.tensors[&build::key(&entry)];
        let shape = gen_recipe::numbers(&entry["shape"]);
        if let Some((bytes, digest)) = read.bytes
            && !entry.as_object().is_some_and(|entry| entry.contains_key("block"))
        {
            let bits = build::element_bits(&entry["dtype"]);
            let expected = whole.data.bytes(shape.iter().product::<u64>() as usize * bits);
            assert_eq!(
                (bytes, digest.to_string()),
                (expected.len() as u64, build::sha256(&expected)),
                "tensor {number}"
            );
        }
    }
    derived(&recipe, &written);
}

/// What a save says of itself as a whole.
fn common(store: &Arc<dyn Store>, recipe: &Recipe) {
    let checkpoint = reader::open(store).expect("a moment ago it was opened");
    let common = &checkpoint.manifest().common;
    assert_eq!(common.parent.map(|parent| parent.to_string()), recipe.parent);
    assert_eq!(common.attempt.to_string(), recipe.attempt);
    assert_eq!(common.block_bytes, recipe.block_bytes);
    assert_eq!(common.topology.0, recipe.topology);
    assert_eq!(common.writers as usize, recipe.writers.len());
    assert_eq!((&common.run, common.step), (&recipe.run, recipe.step));
}

/// Writes a recipe as our writer does, with incarnations that are always the same.
///
/// # Panics
/// If it cannot be written.
#[must_use]
pub fn write(recipe: &Recipe) -> (Arc<dyn Store>, Files) {
    let fs = MemoryFs::new();
    let store = fs.store();
    let asked = serde_json::to_value(gen_recipe::writable(recipe)).expect("a recipe is JSON");
    save_recipe(&store, &asked, Some(INCARNATION))
        .unwrap_or_else(|e| panic!("a sound recipe is refused: {e}"));
    let names = store.list().expect("memory can be listed").into_iter().map(|listed| listed.name);
    let files = names.map(|name| (name.clone(), fs.bytes(&name).expect("a file"))).collect();
    (store, files)
}

/// The suite's builder makes the same pages and manifest of the writer's parts.
fn derived(recipe: &Recipe, written: &Files) {
    let parts: Vec<Value> = written
        .iter()
        .filter(|(name, _)| names::parse_part(name).is_some())
        .map(|(_, bytes)| serde_json::from_slice(bytes).expect("a part is JSON"))
        .collect();
    let mut draft = build::parts(recipe, &|_, _| ());
    let root = build::root(recipe, &parts);
    draft.parts = parts;
    draft.data.clear();
    let sealed = build::seal(&draft, &root, &|_, bytes| bytes);
    for (name, bytes) in &sealed.files {
        assert!(written.get(name) == Some(bytes), "{name} is not what the builder derives");
    }
}
