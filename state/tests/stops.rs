//! Computations are stopped wherever they are: within one item that costs much, and between many.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    dead_code,
    unreachable_pub,
    reason = "a test says where it fails by panicking"
)]

mod trees;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use waystation_format::Code;
use waystation_format::records::cursor::{Cursor, EndsWhen, EpochEnd, LaneEnd, Order as Form};
use waystation_format::records::cursor::{Node, SeedRule};
use waystation_state::cursor::{NoTensors, Walk};
use waystation_state::order::Order;
use waystation_state::{Budget, Stop};

use trees::{cursor, lanes, mixture, permuted, shuffle};

/// A stop that is requested when it is asked for the `times`-th time.
fn stop_at(times: u32) -> (Stop, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    (Stop::asking(move || count.fetch_add(1, Ordering::Relaxed) + 1 >= times), asked)
}

fn walk(cursor: &Cursor, stop: Stop) -> Walk {
    Walk::new(cursor, &NoTensors, Budget::unlimited().until(stop)).unwrap()
}

/// As many elements take seconds to be put in their places and minutes to be drawn.
#[test]
fn one_place_of_a_long_order_is_stopped() {
    for (n, place) in [(200_000_000, 190_000_000), (200_000_000, 1_000_000), (1 << 32, 0)] {
        for times in [1, 2, 10] {
            let (stop, asked) = stop_at(times);
            let order = Order::randperm(n, 42, SeedRule::Seed);
            let mut ordinals = order.ordinals(0, place..place + 2, Budget::unlimited().until(stop));
            for _ in 0..2 {
                let error = ordinals.next().unwrap().unwrap_err();
                assert_eq!(error.code(), Code::Interrupted);
            }
            assert_eq!(asked.load(Ordering::Relaxed), times, "{n}");
        }
    }
}

#[test]
fn places_of_every_order_are_stopped() {
    let orders = [
        Order::identity(1 << 40),
        Order::explicit((0..1 << 20).collect()),
        Order::randperm(1 << 20, 3, SeedRule::Seed),
        Order::index_shuffle(1 << 30, 3, SeedRule::Seed, 4).unwrap(),
    ];
    for order in orders {
        let (stop, _) = stop_at(3);
        let ordinals = order.ordinals(0, 0..order.n(), Budget::unlimited().until(stop));
        let given = ordinals.take_while(Result::is_ok).count();
        assert!((1 << 15..1 << 19).contains(&given), "{given}");
    }
}

#[test]
fn walks_over_every_kind_are_stopped() {
    let order = || Form::TorchRandpermCpu { seed: 8, seed_rule: SeedRule::Seed };
    let leaf = || permuted(50, Form::Identity, EpochEnd::Wrap);
    let kinds: [Node; 4] = [
        leaf(),
        mixture(vec![leaf(), leaf()], &[1, 2], EndsWhen::All),
        lanes(2, &[3, 4, 5], Form::Identity, LaneEnd::Wrap),
        shuffle(leaf(), 1 << 12, order(), false),
    ];
    for (kind, root) in kinds.into_iter().enumerate() {
        let cursor = cursor(root);
        let (stop, _) = stop_at(4);
        let error = walk(&cursor, stop).batch(1 << 40).unwrap_err();
        assert_eq!(error.code(), Code::Interrupted, "{kind}");
        // However many a leaf is, skipping them is one step.
        if kind > 0 {
            let (stop, _) = stop_at(4);
            let error = walk(&cursor, stop).skip_items(1 << 40).unwrap_err();
            assert_eq!(error.code(), Code::Interrupted, "{kind}");
        }
    }
}

#[test]
fn a_walk_takes_a_new_stop() {
    let cursor = cursor(permuted(50, Form::Identity, EpochEnd::Wrap));
    let (first, asked) = stop_at(u32::MAX);
    let mut walk = walk(&cursor, first);
    let (second, _) = stop_at(1);
    walk.stop_by(second);
    assert_eq!(walk.batch(1 << 40).unwrap_err().code(), Code::Interrupted);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
