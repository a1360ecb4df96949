//! Orders and cursors beside what the loaders of PyTorch and Grain really give.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod trees;

use serde_json::Value;
use trees::{cursor, permuted, shuffle, walk};
use waystation_format::Digest;
use waystation_format::records::cursor::{
    Cursor, EpochEnd, Node, Order as Form, SeedRule, ShareRule,
};
use waystation_state::Budget;
use waystation_state::cursor::Rank;
use waystation_state::order::Order;

/// From the real libraries; kept where every implementation finds them.
fn vectors(kind: &str) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(include_str!("../../conformance/vectors/orders.json")).unwrap();
    all[kind].as_array().unwrap().clone()
}

fn number(vector: &Value, name: &str) -> u64 {
    let number = &vector[name];
    let wide = || number["int"].as_str().and_then(|digits| digits.parse().ok());
    number.as_u64().or_else(wide).unwrap_or_else(|| panic!("{name} of {vector}"))
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect()
}

fn check(vector: &Value, ordinals: &[u64]) {
    let first = numbers(&vector["first"]);
    assert_eq!(ordinals[..first.len()], first, "{vector}");
    let bytes: Vec<u8> = ordinals.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect();
    assert_eq!(Digest::of(&bytes).to_string(), vector["sha256"].as_str().unwrap(), "{vector}");
}

fn given(order: &Order, epoch: u64, count: u64) -> Vec<u64> {
    order.ordinals(epoch, 0..count, Budget::of_validator()).map(Result::unwrap).collect()
}

fn walked(cursor: &Cursor, count: u64) -> Vec<u64> {
    walk(cursor).take(count as usize).map(|item| item.unwrap().integers()[0]).collect()
}

#[test]
fn torch_randperm() {
    let mut compared = 0;
    for vector in vectors("torch.randperm-cpu") {
        let n = number(&vector, "n");
        // The large form takes a gigabyte and its time: a test of its own.
        if n < 214_748_364 {
            let (seed, count) = (number(&vector, "seed"), number(&vector, "count"));
            let order = Order::randperm(n, seed, SeedRule::Seed);
            check(&vector, &given(&order, 9, count));
            // The seed is the sum, by whatever epoch.
            let order = Order::randperm(n, seed.wrapping_sub(3), SeedRule::SeedPlusEpoch);
            check(&vector, &given(&order, 3, count));
            compared += 1;
        }
    }
    assert!(compared > 40);
}

#[test]
fn grain_index_shuffle() {
    let mut compared = 0;
    for vector in vectors("grain.index_shuffle") {
        let seed = number(&vector, "seed") as u32;
        let (n, rounds) = (number(&vector, "n"), number(&vector, "rounds"));
        let before = seed.wrapping_sub(3);
        let order = Order::index_shuffle(n, before, SeedRule::SeedPlusEpoch, rounds).unwrap();
        check(&vector, &given(&order, 3, number(&vector, "count")));
        let order = Order::index_shuffle(n, seed, SeedRule::Seed, rounds).unwrap();
        check(&vector, &given(&order, 9, number(&vector, "count")));
        for at in vector["at"].as_array().into_iter().flatten() {
            let [place, ordinal] = numbers(at)[..] else { panic!("{at}") };
            let found = order.ordinals(0, place..place + 1, Budget::of_validator()).next().unwrap();
            assert_eq!(found.unwrap(), ordinal, "{vector}");
        }
        compared += 1;
    }
    assert!(compared > 100);
}

/// Epochs, padding and shares as `DistributedSampler` makes them.
#[test]
fn torch_distributed_sampler() {
    let mut compared = 0;
    for vector in vectors("torch.utils.data.DistributedSampler") {
        let (seed, count) = (number(&vector, "seed"), number(&vector, "count"));
        let order = Form::TorchRandpermCpu { seed, seed_rule: SeedRule::SeedPlusEpoch };
        let unit = number(&vector["epoch_end"], "unit");
        let end = match vector["epoch_end"]["rule"].as_str().unwrap() {
            "pad" => EpochEnd::Pad { unit },
            _ => EpochEnd::DropLast { unit },
        };
        let mut root = permuted(number(&vector, "n"), order, end);
        let Node::PermutedIndex(leaf) = &mut root else { panic!("a leaf") };
        leaf.epoch = number(&vector, "epoch");
        if end.items(leaf.n) == Some(0) {
            continue;
        }
        let start = cursor(root);
        check(&vector, &walked(&start, count));
        let batch = walk(&start).batch(count).unwrap();
        let shares = vector["shares"].as_array().unwrap();
        for (rank, share) in (0..).zip(shares) {
            let rank = Rank { rank, world: shares.len() as u64 };
            let took = batch.share(ShareRule::RoundRobin, rank).unwrap();
            let took: Vec<u64> = took.iter().map(|item| item.integers()[0]).collect();
            let expected = numbers(share);
            assert_eq!(took[..expected.len()], expected, "{vector}");
        }
        compared += 1;
    }
    assert!(compared > 30);
}

#[test]
fn grain_shuffled_epochs() {
    let all = vectors("grain.MapDataset.shuffle");
    assert!(all.len() > 10);
    for vector in all {
        let seed_rule = match vector["seed_rule"].as_str().unwrap() {
            "seed" => SeedRule::Seed,
            _ => SeedRule::SeedPlusEpoch,
        };
        let (seed, rounds) = (number(&vector, "seed") as u32, number(&vector, "rounds"));
        let order = Form::GrainIndexShuffle { seed, seed_rule, rounds };
        let mut root = permuted(number(&vector, "n"), order, EpochEnd::Wrap);
        let Node::PermutedIndex(leaf) = &mut root else { panic!("a leaf") };
        leaf.epoch = number(&vector, "epoch");
        check(&vector, &walked(&cursor(root), number(&vector, "count")));
    }
}

#[test]
fn grain_windows() {
    let all = vectors("grain.window_shuffle");
    assert!(all.iter().any(|vector| vector["direction"] == "backward"));
    for vector in all {
        let (seed, rounds) = (number(&vector, "seed") as u32, number(&vector, "rounds"));
        let order = Form::GrainIndexShuffle { seed, seed_rule: SeedRule::SeedPlusEpoch, rounds };
        let child = permuted(number(&vector, "n"), Form::Identity, EpochEnd::Stop);
        let reverse = vector["direction"] == "backward";
        let root = shuffle(child, number(&vector, "window"), order, reverse);
        check(&vector, &walked(&cursor(root), number(&vector, "count")));
    }
}
