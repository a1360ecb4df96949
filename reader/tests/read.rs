//! Reads of any region of any tensor, compared with a model that goes element by element.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests: a failure is a panic"
)]

mod support;

use proptest::prelude::*;
use support::{Made, Making, data_of, slice_of};
use waystation_format::{Code, Digest, Dtype, Identity, Region, Role, Tensor};
use waystation_reader::{Checkpoint, OpenOptions, Want};

/// Cuts a box at random into boxes, by halving along random axes.
fn partition(whole: &Region, cuts: &[(usize, u64)]) -> Vec<Region> {
    let mut boxes = vec![whole.clone()];
    for &(axis, at) in cuts {
        let pick = at as usize % boxes.len();
        let region = boxes[pick].clone();
        if region.extent.is_empty() {
            continue;
        }
        let axis = axis % region.extent.len();
        if region.extent[axis] < 2 {
            continue;
        }
        let head = 1 + at % (region.extent[axis] - 1);
        let (mut low, mut high) = (region.clone(), region.clone());
        low.extent[axis] = head;
        high.at[axis] += head;
        high.extent[axis] -= head;
        boxes[pick] = low;
        boxes.push(high);
    }
    boxes
}

fn region_in(shape: &[u64], seed: &[u64]) -> Region {
    let mut region = Region::whole(shape);
    for (axis, &size) in shape.iter().enumerate() {
        let (a, b) = (seed[axis] % (size + 1), seed[axis + 8] % (size + 1));
        region.at[axis] = a.min(b);
        region.extent[axis] = a.max(b) - a.min(b);
    }
    region
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]

    #[test]
    fn any_region_of_any_tensor(
        axes in prop::collection::vec(1u64..24, 0..4),
        dtype in dtypes(),
        cuts in prop::collection::vec((0usize..4, any::<u64>()), 0..9),
        seeds in prop::collection::vec(prop::collection::vec(any::<u64>(), 16), 1..5),
        writers in 1u32..4,
        threads in 1usize..4,
        verify in any::<bool>(),
        piece in prop::sample::select(vec![1u64, 7, 300, 4096, 5000, 1 << 20]),
    ) {
        let tensor = Tensor::new(Identity::param("w"), dtype, &axes);
        let data = data_of(&tensor);
        let boxes = partition(&Region::whole(&axes), &cuts);
        let boxes = boxes.into_iter().enumerate().map(|(i, b)| (i as u32 % writers, b)).collect();
        let mut making = Making::new(writers).tensor(Made { tensor: tensor.clone(), data: data.clone(), boxes });
        making.chunks_per_shard = 3;
        let options = OpenOptions::new().threads(threads).verify_reads(verify);
        let checkpoint = Checkpoint::open_store(making.store(), options).unwrap();
        let found = checkpoint.tensor(&Identity::param("w")).unwrap();
        prop_assert_eq!(found.bytes().unwrap(), data.len() as u64);
        prop_assert_eq!(&found.read().unwrap(), &data);
        prop_assert_eq!(found.sha256().unwrap(), Digest::of(&data));

        let mut streamed = Vec::new();
        found.stream(piece, &mut |bytes| {
            streamed.extend_from_slice(bytes);
            Ok(())
        }).unwrap();
        prop_assert_eq!(&streamed, &data);

        let regions: Vec<Region> = seeds.iter().map(|seed| region_in(&axes, seed)).collect();
        for region in &regions {
            let expected = slice_of(&tensor, &data, region);
            // What was in the buffer before must not show.
            let mut out = vec![0xa5; expected.len()];
            found.read_into(region, &mut out).unwrap();
            prop_assert_eq!(&out, &expected, "{}", region);
        }

        // The same by hand, and all at once.
        let wants: Vec<Want> =
            regions.iter().map(|r| Want::region(Identity::param("w"), r.clone())).collect();
        let plan = checkpoint.plan(&wants).unwrap();
        let mut outs: Vec<Vec<u8>> =
            (0..wants.len()).map(|w| vec![0xa5; plan.out_bytes(w).unwrap() as usize]).collect();
        for (at, read) in plan.reads().iter().enumerate() {
            let mut bytes = vec![0; read.bytes as usize];
            checkpoint.store().open(&read.file).unwrap().read_at(&mut bytes, read.offset).unwrap();
            if at + 1 == plan.reads().len() {
                prop_assert!(plan.finish().is_err());
            }
            let out = read.want.map_or(&mut [][..], |want| &mut outs[want][..]);
            plan.feed(at, &bytes, out).unwrap();
            if let (Some(want), Some(lands)) = (read.want, &read.lands) {
                let landed = &outs[want][lands.start as usize..lands.end as usize];
                prop_assert_eq!(landed, &bytes[..]);
            }
        }
        plan.finish().unwrap();
        let at_once = checkpoint.read(&wants).unwrap();
        for ((region, out), at_once) in regions.iter().zip(&outs).zip(&at_once) {
            let expected = slice_of(&tensor, &data, region);
            prop_assert_eq!(out, &expected);
            prop_assert_eq!(at_once, &expected);
        }
    }

    #[test]
    fn any_region_of_a_flat_companion(
        rows in 1u64..20,
        columns in 1u64..20,
        block in 1u64..12,
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::U8, Dtype::U4, Dtype::F6E2M3]),
        pieces in 1u64..4,
        begin in 0u64..20,
        end in 0u64..20,
    ) {
        let mut identity = Identity::param("w");
        identity.role = Role::Quant;
        identity.slot = "scale".to_owned();
        let mut tensor = Tensor::new(identity.clone(), dtype, &[rows, columns]);
        tensor.block = Some(block);
        let data = data_of(&tensor);
        let strip = |a: u64, b: u64| Region {
            at: [a, 0].as_slice().into(),
            extent: [b - a, columns].as_slice().into(),
        };
        let pieces = pieces.min(rows);
        let cuts: Vec<u64> = (0..=pieces).map(|i| rows * i / pieces).collect();
        let boxes: Vec<(u32, Region)> =
            cuts.windows(2).map(|w| (0, strip(w[0], w[1]))).collect();
        let on_block = |row: u64| row == rows || (row * columns).is_multiple_of(block);
        let starts = |row: u64| (row * columns).is_multiple_of(block);
        let (begin, end) = (begin.min(end).min(rows), begin.max(end).min(rows));
        let good = begin == end || starts(begin) && on_block(end)
            && cuts.windows(2).all(|w| w[1] <= begin || w[0] >= end || starts(w[0]) && on_block(w[1]));

        let making = Making::new(1).tensor(Made { tensor: tensor.clone(), data: data.clone(), boxes });
        let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::new()).unwrap();
        let found = checkpoint.tensor(&identity).unwrap();
        let region = strip(begin, end);
        match found.read_region(&region) {
            Ok(read) => {
                prop_assert!(good);
                prop_assert_eq!(read, slice_of(&tensor, &data, &region));
            }
            Err(e) => {
                prop_assert!(!good, "{e}");
                prop_assert_eq!(e.code(), Code::BlockBoundary);
                prop_assert!(e.location().tensor.is_some());
            }
        }
        // Chunks can be read as they are, whatever their boxes.
        for (at, chunk) in found.entry().chunks.iter().enumerate() {
            let mut streamed = Vec::new();
            found.stream_chunk(at, 64, &mut |bytes| {
                streamed.extend_from_slice(bytes);
                Ok(())
            }).unwrap();
            prop_assert_eq!(streamed, slice_of(&tensor, &data, &chunk.region));
        }
    }
}

#[test]
fn long_tensors_are_read_by_many_threads() {
    // Longer than a read, a slab and a step, by rows, by columns and from the middle.
    let shape = [1500, 1200];
    let making = Making::new(3)
        .whole(Identity::param("whole"), Dtype::F32, &shape, 0)
        .cut(Identity::param("rows"), Dtype::F32, &shape, 0, 3)
        .cut(Identity::param("columns"), Dtype::F32, &shape, 1, 5)
        .cut(Identity::param("nibbles"), Dtype::U4, &[1501, 3201], 1, 3)
        // Longer than what is checked at once, which does not end where an element does.
        .cut(Identity::param("sixes"), Dtype::F6E2M3, &[1401, 2003], 1, 2);
    let store = making.store();
    for threads in [1, 4] {
        let options = OpenOptions::new().threads(threads);
        let checkpoint = Checkpoint::open_store(store.clone(), options).unwrap();
        for made in &making.tensors {
            let found = checkpoint.tensor(&made.tensor.identity).unwrap();
            assert!(found.read().unwrap() == made.data);
            assert_eq!(found.sha256().unwrap(), Digest::of(&made.data));
            let shape = &made.tensor.shape;
            let region = Region {
                at: [377, 11].as_slice().into(),
                extent: [900, shape[1] - 13].as_slice().into(),
            };
            let expected = slice_of(&made.tensor, &made.data, &region);
            assert!(
                found.read_region(&region).unwrap() == expected,
                "{}",
                made.tensor.identity.name
            );
        }
    }
}

#[test]
fn elements_that_straddle_bytes_blocks_and_pieces() {
    // 6 bits: neither a block nor a piece ends where an element does.
    for dtype in [Dtype::F6E2M3, Dtype::U4, Dtype::U2, Dtype::U1] {
        let shape = [131, 409];
        let making = Making::new(2)
            .whole(Identity::param("whole"), dtype, &shape, 0)
            .cut(Identity::param("rows"), dtype, &shape, 0, 2)
            .cut(Identity::param("columns"), dtype, &shape, 1, 2);
        let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::new()).unwrap();
        for made in &making.tensors {
            let found = checkpoint.tensor(&made.tensor.identity).unwrap();
            let name = format!("{dtype} {}", made.tensor.identity.name);
            assert_eq!(found.read().unwrap(), made.data, "{name}");
            let mut pieces = Vec::new();
            let mut take = |bytes: &[u8]| {
                pieces.push(bytes.to_vec());
                Ok(())
            };
            found.stream(u64::MAX, &mut take).unwrap();
            assert_eq!(pieces, std::slice::from_ref(&made.data), "{name} without a bound");
            for piece in [7, 4096, 5001] {
                let mut streamed = Vec::new();
                let mut pieces = 0;
                found
                    .stream(piece, &mut |bytes| {
                        pieces += 1;
                        streamed.extend_from_slice(bytes);
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(streamed, made.data, "{name} in pieces of {piece}");
                assert!(pieces > 1);
            }
            let region =
                Region { at: [3, 7].as_slice().into(), extent: [125, 401].as_slice().into() };
            let expected = slice_of(&made.tensor, &made.data, &region);
            assert_eq!(found.read_region(&region).unwrap(), expected, "{name}");
        }
    }
}

#[test]
fn wrong_regions_and_buffers_are_refused() {
    let checkpoint = Checkpoint::open_store(support::small().store(), OpenOptions::new()).unwrap();
    let up = checkpoint.tensor(&Identity::param("up")).unwrap();
    for (at, extent) in [(&[0][..], &[1][..]), (&[90, 0], &[7, 64]), (&[u64::MAX, 0], &[1, 1])] {
        let region = Region { at: at.into(), extent: extent.into() };
        let e = up.read_region(&region).unwrap_err();
        assert_eq!(e.code(), Code::BadRegion);
        assert!(e.location().tensor.is_some());
    }
    let whole = Region::whole(&[96, 64]);
    assert_eq!(up.read_into(&whole, &mut [0; 5]).unwrap_err().code(), Code::BadArgument);
    let gone = checkpoint.tensor(&Identity::param("gone")).unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    assert_eq!(checkpoint.tensor(&Identity::buffer("up")).unwrap_err().code(), Code::NotFound);
}

#[test]
fn an_alias_reads_as_its_target() {
    let making = support::small();
    let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::new()).unwrap();
    let head = checkpoint.tensor(&Identity::param("head")).unwrap();
    assert_eq!(head.identity(), &Identity::param("embed"));
    assert_eq!(head.read().unwrap(), making.tensors[0].data);
}

#[test]
fn data_is_not_taken_before_its_table() {
    let making = Making::new(1).whole(Identity::param("w"), Dtype::F32, &[100, 100], 0);
    let checkpoint = Checkpoint::open_store(making.store(), OpenOptions::new()).unwrap();
    let plan = checkpoint.plan(&[Want::whole(Identity::param("w"))]).unwrap();
    assert_eq!(plan.reads().len(), 2);
    assert_eq!(plan.reads()[0].want, None);
    let mut out = vec![0; 40_000];
    let e = plan.feed(1, &making.tensors[0].data, &mut out).unwrap_err();
    assert_eq!(e.code(), Code::BadArgument);
    assert!(plan.finish().is_err());
}
