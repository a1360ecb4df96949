//! What a canary is compared with at the borders: at an end, past what metadata may count, and in
//! trees that the specification does not compute.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod trees;

use std::sync::Arc;

use trees::{cursor, lanes, permuted, shuffle, walk};
use waystation_format::records::cursor::{
    Cursor, EpochEnd, LaneEnd, Leftover, Node, Numbers, Order, Pack, Tail,
};
use waystation_format::{Code, Digest, Identity, Result, Role, limits, rule};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Tensors, check_canary, check_canary_within};

/// The same numbers for every tensor.
struct These(&'static [u64]);

impl Tensors for These {
    fn expect(&self, _: &Identity, _: u64) -> Result<()> {
        Ok(())
    }

    fn numbers(&self, _: &Identity, _: u64) -> Result<Arc<[u64]>> {
        Ok(Arc::from(self.0))
    }
}

#[test]
fn a_canary_of_nothing_has_the_digest_of_nothing() {
    let mut ended = cursor(permuted(3, Order::Identity, EpochEnd::Stop));
    let Node::PermutedIndex(leaf) = &mut ended.root else { panic!() };
    leaf.position = 3;
    ended.consumed = Some(3);
    let mut ended = Cursor { next: Some(walk(&ended).canary(4).unwrap()), ..ended };
    assert!(check_canary(&ended, &NoTensors, Budget::of_validator()).unwrap());
    ended.next.as_mut().unwrap().sha256 = Digest::of(b"something");
    let error = check_canary(&ended, &NoTensors, Budget::of_validator()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::CanaryMismatch, Some(rule::CURSOR_CANARY)));
    assert_eq!(error.location().pointer.as_deref(), Some("/next/sha256"));
}

/// The last window that a record can number is followed by another; only to save there is refused.
#[test]
fn items_come_also_past_what_a_record_can_count() {
    let child = permuted(10, Order::Identity, EpochEnd::Wrap);
    let mut last = cursor(shuffle(child, 2, Order::Identity, false));
    let Node::WindowShuffle(window) = &mut last.root else { panic!() };
    window.index = limits::MAX_INTEGER;
    let last = Cursor { next: Some(walk(&last).canary(4).unwrap()), ..last };
    assert!(check_canary(&last, &NoTensors, Budget::of_validator()).unwrap());
    let mut walked = walk(&last);
    assert_eq!(walked.skip_items(2).unwrap(), 2);
    walked.cursor(4).unwrap();
    assert_eq!(walked.skip_items(1).unwrap(), 1);
    let error = walked.cursor(4).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some(rule::LIMIT_VALUE)));
}

/// A tensor that is not there is known to be wrong before it would cost too much.
#[test]
fn a_tensor_is_looked_for_before_room_is_made_for_it() {
    let blob = Identity { role: Role::Blob, ..Identity::param("ordinals") };
    let order = Order::Explicit(Numbers::Tensor(Box::new(blob)));
    let root = cursor(permuted(1 << 40, order, EpochEnd::Wrap));
    let canary = walk(&cursor(permuted(4, Order::Identity, EpochEnd::Wrap))).canary(4).unwrap();
    let large = Cursor { next: Some(canary), ..root };
    let refused = |tensors: &dyn Tensors| {
        let error = check_canary(&large, tensors, Budget::of_validator()).unwrap_err();
        (error.code(), error.rule_id().unwrap())
    };
    assert_eq!(refused(&NoTensors), (Code::Dangling, rule::ORDER_TENSOR));
    assert_eq!(refused(&These(&[])), (Code::Limit, rule::CURSOR_CANARY_STEPS));
}

/// Many cursors may name one tensor.
#[test]
fn reading_the_numbers_of_a_tensor_takes_steps() {
    let blob = Identity { role: Role::Blob, ..Identity::param("ordinals") };
    let list = cursor(permuted(17, Order::Explicit(Numbers::List(vec![0; 17])), EpochEnd::Wrap));
    let next = Some(walk(&list).canary(4).unwrap());
    let order = Order::Explicit(Numbers::Tensor(Box::new(blob)));
    let named = Cursor { next, ..cursor(permuted(17, order, EpochEnd::Wrap)) };
    let steps = |cursor: &Cursor| {
        let mut budget = Budget::new(1000, 1 << 20);
        assert!(check_canary_within(cursor, &These(&[0; 17]), &mut budget).unwrap());
        1000 - budget.steps()
    };
    let list = Cursor { next: named.next.clone(), ..list };
    assert_eq!(steps(&named), steps(&list) + 3);
}

#[test]
fn tensors_are_held_to_what_a_carried_cursor_says_of_them() {
    let blob = Identity { role: Role::Blob, ..Identity::param("shards") };
    let Node::ShardedLanes(mut leaf) = lanes(2, &[2, 1], Order::Identity, LaneEnd::Wrap) else {
        panic!()
    };
    leaf.shards = Numbers::Tensor(Box::new(blob));
    let pack = |child: Node| Cursor {
        next: None,
        ..cursor(Node::Pack(Pack {
            child: Box::new(child),
            leftover: Leftover::ConcatThenSplit(None),
            length: 8,
            tail: Tail::Drop,
            tokenizer: None,
        }))
    };
    let carried = pack(Node::ShardedLanes(leaf.clone()));
    let check = |cursor: &Cursor, tensors: &dyn Tensors| {
        check_canary(cursor, tensors, Budget::of_validator()).map_err(|error| {
            (error.rule_id().unwrap(), error.location().pointer.clone().unwrap_or_default())
        })
    };
    let place = "/child/source/shards".to_owned();
    assert_eq!(check(&carried, &These(&[2, 1])), Ok(false));
    assert_eq!(check(&carried, &These(&[2, 2])), Err((rule::CURSOR_LANE_RECORD, place.clone())));
    assert_eq!(check(&carried, &NoTensors), Err((rule::ORDER_TENSOR, place.clone())));
    // A lane stands behind its shard, as the order says; without an order nobody knows which it is.
    let lane = Err((rule::CURSOR_LANE_RECORD, "/child/lanes/1/1".to_owned()));
    leaf.lanes[1].1 = 1;
    assert_eq!(check(&pack(Node::ShardedLanes(leaf.clone())), &These(&[2, 1])), lane);
    leaf.order = Order::Other { algorithm: "vendor/x".to_owned(), members: Default::default() };
    let other = pack(Node::ShardedLanes(leaf));
    assert_eq!(check(&other, &These(&[2, 1])), Ok(false));
    assert_eq!(check(&other, &These(&[2, 2])), Err((rule::CURSOR_LANE_RECORD, place)));
}
