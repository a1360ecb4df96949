//! `reshard`: one content in two layouts. Regions are the same of both, pieces that are scattered and gathered are the whole, and a
//! checkpoint that is written again says the same.

use std::sync::Arc;

use arbitrary::Unstructured;
use serde_json::Value;
use waystation_conformance::bend::straight;
use waystation_conformance::build;
use waystation_conformance::recipe::Recipe;
use waystation_format::entry::Chunk;
use waystation_format::{Attempt, Code, Digest, Entry, Identity, Region, Result, Tensor, pack};
use waystation_reader::reshard::share;
use waystation_reader::{Checkpoint, NoProgress, Want};
use waystation_store::MemoryFs;
use waystation_writer::{ReshardOptions, reshard};

use crate::{gen_layout, gen_recipe, mutate, part, reader};

/// Lays one content out twice and compares.
///
/// # Panics
/// If anything differs.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = two_layouts(&mut u);
}

fn two_layouts(u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let recipe = gen_recipe::recipe(u)?;
    let other = gen_recipe::laid_out_anew(u, &recipe)?;
    let (one, two) = (open(&recipe), open(&other));
    let expected = reader::everything(&one).expect("a sound recipe");
    assert_eq!(
        reader::everything(&two).expect("a sound recipe"),
        expected,
        "another layout says something else"
    );

    for (number, whole) in recipe.tensors.iter().enumerate() {
        if whole.entry.contains_key("block") {
            continue;
        }
        let shape = gen_recipe::numbers(&whole.entry["shape"]);
        let identity = Identity::parse_key(&build::key(&Value::Object(whole.entry.clone())))
            .expect("of a recipe");
        let regions =
            (0..3).map(|_| gen_layout::region(u, &shape)).collect::<arbitrary::Result<Vec<_>>>()?;
        for (start, extent) in &regions {
            let slice = build::slice(&recipe, number, start, extent);
            for checkpoint in [&one, &two] {
                let (tensor, region) = (
                    checkpoint.tensor(&identity).expect("it is there"),
                    Region::new(start, extent),
                );
                // Whatever was in the memory before: bits of no element are zero afterwards.
                let bytes = tensor.region_bytes(&region).expect("a region of the tensor");
                let mut read = vec![0xa5; bytes as usize];
                tensor
                    .read_into(&region, &mut read)
                    .unwrap_or_else(|e| panic!("{start:?} {extent:?} of {shape:?}: {e}"));
                assert_eq!(
                    build::sha256(&read),
                    slice["sha256"],
                    "{start:?} {extent:?} of {shape:?}"
                );
            }
        }
        together(&two, &identity, &regions);
    }
    [&one, &two].into_iter().for_each(|checkpoint| all_at_once(checkpoint, &expected));
    shared_out(&one, u)?;
    gather(&one, u.int_in_range(1..=5)?);
    again(&one, &expected, u.int_in_range(1..=4)?, *u.choose(&[None, Some(4096), Some(16384)])?);
    Ok(())
}

fn open(recipe: &Recipe) -> Checkpoint {
    reader::open(&mutate::stored(&straight(recipe)))
        .unwrap_or_else(|e| panic!("a sound recipe is refused: {e}"))
}

/// Regions that are planned together are what each is alone.
fn together(checkpoint: &Checkpoint, identity: &Identity, regions: &[gen_layout::Box]) {
    let regions: Vec<Region> =
        regions.iter().map(|(start, extent)| Region::new(start, extent)).collect();
    let wants: Vec<Want> = regions
        .iter()
        .map(|region| Want { tensor: identity.clone(), region: Some(region.clone()) })
        .collect();
    let read = checkpoint.read(&wants).expect("regions of the tensor");
    let tensor = checkpoint.tensor(identity).expect("it is there");
    for (region, bytes) in regions.iter().zip(read) {
        assert_eq!(
            tensor.read_region(region).expect("a moment ago"),
            bytes,
            "{region} read with others"
        );
    }
}

/// All tensors in one plan are what each is alone.
fn all_at_once(checkpoint: &Checkpoint, expected: &reader::Content) {
    let whole = expected.tensors.iter().filter(|(_, tensor)| tensor.bytes.is_some());
    let (keys, wants): (Vec<&String>, Vec<Want>) = whole
        .map(|(key, _)| {
            (key, Want { tensor: Identity::parse_key(key).expect("a key"), region: None })
        })
        .unzip();
    let read = checkpoint.read(&wants).expect("a sound recipe");
    for (key, bytes) in keys.into_iter().zip(read) {
        let found = Some((bytes.len() as u64, Digest::of(&bytes)));
        assert_eq!(found, expected.tensors[key].bytes, "{key} read with others");
    }
}

/// Tensors with more rows, so many that they are cut: the pieces cover each, and tensors that belong together are cut alike.
fn shared_out(checkpoint: &Checkpoint, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let (writers, rows) = (u.int_in_range(1..=9)?, u.int_in_range(1..=60_000)?);
    let entries: Vec<Arc<Entry>> =
        checkpoint.entries().collect::<Result<_>>().expect("a sound recipe");
    let mut tensors = Vec::new();
    for entry in &entries {
        let Entry::Tensor(tensor) = &**entry else { continue };
        let mut grown = Tensor::new(tensor.identity.clone(), tensor.dtype, &tensor.shape);
        grown.block = tensor.block;
        if let Some(first) = grown.shape.first_mut() {
            *first *= rows;
        }
        tensors.push(grown);
    }
    let hands = share(&tensors.iter().collect::<Vec<_>>(), writers).expect("far from any limit");
    assert_eq!(hands.len(), writers as usize);
    for (writer, piece) in (0..).zip(&hands).flat_map(|(n, hand)| hand.iter().map(move |p| (n, p)))
    {
        let tensor = &mut tensors[piece.tensor];
        assert_eq!(piece.bytes, tensor.chunk_bytes(&piece.region).expect("counted"));
        tensor.chunks.push(Chunk {
            writer,
            shard: 0,
            offset: 0,
            region: piece.region.clone(),
            crc32c: 0,
            table_index: None,
        });
    }
    for tensor in &tensors {
        part::disjoint(tensor);
        let Some(block) = tensor.block else { continue };
        let elements = tensor.elements().expect("counted");
        for chunk in &tensor.chunks {
            let mut runs = chunk.region.runs(&tensor.shape).expect("a box of the shape");
            let (begin, count) = runs.next().expect("a box has elements");
            assert!(runs.next().is_none(), "{}: {} is no run", tensor.identity.key(), chunk.region);
            let end = begin + count;
            let fits = |at: u64| at.is_multiple_of(block) || at == elements;
            assert!(fits(begin) && fits(end), "{}: cut within a block", tensor.identity.key());
        }
    }
    Ok(())
}

/// Pieces that are shared out among writers are the whole when they are put together.
fn gather(checkpoint: &Checkpoint, writers: u32) {
    let entries: Vec<Arc<Entry>> =
        checkpoint.entries().collect::<Result<_>>().expect("a sound recipe");
    let tensors: Vec<&Tensor> = entries
        .iter()
        .filter_map(|entry| match &**entry {
            Entry::Tensor(tensor) if tensor.block.is_none() => Some(tensor),
            _ => None,
        })
        .collect();
    let shared = share(&tensors, writers).expect("sizes of a recipe");
    assert_eq!(shared.len(), writers as usize);
    for (number, tensor) in tensors.iter().enumerate() {
        let reference = checkpoint.tensor(&tensor.identity).expect("it is there");
        let expected = reference.read().expect("a sound recipe");
        let mut whole = vec![0; expected.len()];
        let all = Region::whole(&tensor.shape);
        for piece in shared.iter().flatten().filter(|piece| piece.tensor == number) {
            let bytes = reference.read_region(&piece.region).expect("a piece of it");
            assert_eq!(bytes.len() as u64, piece.bytes);
            pack::copy_region(
                tensor.dtype.bits(),
                &bytes,
                &piece.region,
                &mut whole,
                &all,
                &piece.region,
            )
            .expect("a piece lies in the whole");
        }
        assert!(whole == expected, "{}: gathered, it is something else", tensor.identity.key());
    }
}

/// Written again for other writers, it says the same.
fn again(
    checkpoint: &Checkpoint,
    expected: &reader::Content,
    writers: u32,
    block_bytes: Option<u64>,
) {
    let to = MemoryFs::new().store();
    let mut options = ReshardOptions::new(writers);
    options.block_bytes = block_bytes;
    options.attempt = Attempt::parse("0000000700000000");
    options.session.threads = 1;
    match reshard(checkpoint, &to, &options, &NoProgress) {
        Ok(_) => {}
        // Nothing follows the last timeline.
        Err(e) if e.code() == Code::Limit => return,
        Err(e) => panic!("a sound checkpoint cannot be written again: {e}"),
    }
    let answers = reader::answers(&to);
    assert!(answers.findings.is_empty(), "written again: {:?}", answers.findings);
    assert_eq!(
        &answers.read.expect("it was verified"),
        expected,
        "written again, it says something else"
    );
}
