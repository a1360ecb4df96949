//! Resuming in the middle of data: what comes next, on whatever ranks, is what would have come.
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

use proptest::prelude::*;
use trees::{SplitMix, cursor, item, lanes, mixture, permuted, saved, shuffle, walk};
use waystation_format::records::cursor::{
    Cursor, EndsWhen, EpochEnd, Item, LaneEnd, Leftover, Node, Order, Pack, Partition, Piece,
    SeedRule, ShareRule, Tail,
};
use waystation_format::{Code, Topology};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Packed, Rank, Walk, after, check_canary};

const G: u64 = 12;

/// A cursor of each kind of node, at its beginning.
fn kinds() -> Vec<Cursor> {
    let randperm = |seed| Order::TorchRandpermCpu { seed, seed_rule: SeedRule::SeedPlusEpoch };
    let grain = Order::GrainIndexShuffle { seed: 5, seed_rule: SeedRule::SeedPlusEpoch, rounds: 4 };
    let leaf = permuted(100, randperm(3), EpochEnd::Wrap);
    let read = lanes(4, &[7, 0, 30, 1, 12, 9], Order::Identity, LaneEnd::Wrap);
    vec![
        cursor(leaf.clone()),
        cursor(permuted(97, grain.clone(), EpochEnd::Pad { unit: 12 })),
        cursor(permuted(97, randperm(9), EpochEnd::DropLast { unit: 12 })),
        cursor(read.clone()),
        cursor(mixture(vec![leaf.clone(), read.clone()], &[3, 2], EndsWhen::All)),
        cursor(shuffle(read, 10, grain, true)),
        cursor(shuffle(
            mixture(vec![leaf.clone(), leaf], &[1, 1], EndsWhen::First),
            16,
            randperm(1),
            false,
        )),
    ]
}

/// The next `count` global batches, put together from what the ranks take by round robin.
fn batches(cursor: &Cursor, count: usize, world: u64) -> Vec<Vec<Item>> {
    let mut walk = walk(cursor);
    let one = |_| {
        let batch = walk.batch(G).unwrap();
        let shares: Vec<Vec<Item>> = (0..world)
            .map(|rank| batch.share(ShareRule::RoundRobin, Rank { rank, world }).unwrap())
            .collect();
        let together: Vec<Item> = (0..batch.items().len())
            .map(|at| shares[at % world as usize][at / world as usize].clone())
            .collect();
        assert_eq!(together, batch.items());
        together
    };
    (0..count).map(one).collect()
}

#[test]
fn the_next_batches_on_the_same_ranks() {
    for start in kinds() {
        let whole = batches(&start, 20, 4);
        for done in [0, 1, 7, 16] {
            let resumed =
                saved(&after(&start, done * G, 40, &NoTensors, Budget::of_validator()).unwrap());
            assert!(check_canary(&resumed, &NoTensors, Budget::of_validator()).unwrap());
            let done = done as usize;
            assert_eq!(batches(&resumed, 3, 4), whole[done..done + 3]);
        }
    }
}

#[test]
fn the_same_batches_on_half_twice_and_an_odd_number_of_ranks() {
    for start in kinds() {
        let whole = batches(&start, 12, 4);
        let resumed = saved(&after(&start, 9 * G, 8, &NoTensors, Budget::of_validator()).unwrap());
        for world in [2, 8, 5, 1, 12] {
            assert_eq!(batches(&resumed, 3, world), whole[9..12]);
        }
        // What cannot be cut evenly is refused, not rounded.
        let batch = walk(&resumed).batch(G).unwrap();
        for world in [1, 2, 3, 4, 6, 12] {
            let shares = (0..world)
                .map(|rank| batch.share(ShareRule::Contiguous, Rank { rank, world }).unwrap());
            assert_eq!(shares.flatten().collect::<Vec<_>>(), batch.items());
        }
        for world in [5, 8, 24] {
            let rank = Rank { rank: 0, world };
            let error = batch.share(ShareRule::Contiguous, rank).unwrap_err();
            assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some("cursor.share")));
        }
    }
}

#[test]
fn lanes_go_to_ranks_that_divide_them() {
    let shards = [5; 12];
    let start = cursor(lanes(4, &shards, Order::Identity, LaneEnd::Wrap));
    let resumed = after(&start, 2 * G, 8, &NoTensors, Budget::of_validator()).unwrap();
    let batch = walk(&resumed).batch(G).unwrap();
    for world in [1, 2, 4] {
        let mut all: Vec<Item> = Vec::new();
        for rank in 0..world {
            let share = batch.share(ShareRule::ByLane, Rank { rank, world }).unwrap();
            // Shard s stands in lane s mod 4, and has 5 records.
            let lane = |item: &Item| item.integers()[0] / 5 % 4;
            assert!(share.iter().all(|item| lane(item) % world == rank));
            all.extend(share);
        }
        all.sort();
        let mut items = batch.items().to_vec();
        items.sort();
        assert_eq!(all, items);
    }
    let rank = Rank { rank: 0, world: 3 };
    let error = batch.share(ShareRule::ByLane, rank).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some("cursor.share")));
    let other = walk(&kinds()[0]).batch(G).unwrap();
    let error = other.share(ShareRule::ByLane, Rank { rank: 0, world: 1 }).unwrap_err();
    assert_eq!(error.code(), Code::NotExact);
    let error = batch.share(ShareRule::RoundRobin, Rank { rank: 3, world: 3 }).unwrap_err();
    assert_eq!(error.code(), Code::BadArgument);
}

#[test]
fn across_the_end_of_an_epoch() {
    let order = Order::TorchRandpermCpu { seed: 3, seed_rule: SeedRule::SeedPlusEpoch };
    for (end, items) in [
        (EpochEnd::Wrap, 100),
        (EpochEnd::Pad { unit: 8 }, 104),
        (EpochEnd::Pad { unit: 250 }, 250),
        (EpochEnd::DropLast { unit: 8 }, 96),
    ] {
        let start = cursor(permuted(100, order.clone(), end));
        let whole: Vec<Item> = walk(&start).take(600).map(Result::unwrap).collect();
        // Each epoch is a permutation, cut or gone through again.
        let mut first: Vec<u64> = whole[..100.min(items)].iter().map(|i| i.integers()[0]).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 100.min(items));
        if items > 100 {
            assert_eq!(whole[100], whole[0]);
        }
        assert_ne!(whole[items], whole[0]);
        for consumed in [items - 7, items - 1, items, items + 1, 2 * items, 2 * items + 5] {
            let resumed =
                after(&start, consumed as u64, 20, &NoTensors, Budget::of_validator()).unwrap();
            let resumed = saved(&resumed);
            assert_eq!(resumed.consumed, Some(consumed as u64));
            let next: Vec<Item> = walk(&resumed).take(24).map(Result::unwrap).collect();
            assert_eq!(next, whole[consumed..consumed + 24]);
        }
    }
    let start = cursor(permuted(100, order, EpochEnd::Stop));
    assert_eq!(walk(&start).count(), 100);
    let last = after(&start, 96, 20, &NoTensors, Budget::of_validator()).unwrap();
    assert_eq!(last.next.as_ref().unwrap().count, 4);
    assert_eq!(walk(&last).batch(G).unwrap().items().len(), 4);
    let error = after(&start, 101, 0, &NoTensors, Budget::of_validator()).unwrap_err();
    assert_eq!(error.code(), Code::BadArgument);
    let ended = after(&start, 100, 20, &NoTensors, Budget::of_validator()).unwrap();
    assert!(check_canary(&saved(&ended), &NoTensors, Budget::of_validator()).unwrap());
}

#[test]
fn saving_again_at_once_changes_nothing() {
    for start in kinds() {
        for consumed in [0, 1, 16, 59, 60, 97, 100, 108, 333] {
            let first = after(&start, consumed, 30, &NoTensors, Budget::of_validator()).unwrap();
            let again = walk(&saved(&first)).cursor(30).unwrap();
            assert_eq!(again, first);
            let third = after(&saved(&again), 0, 30, &NoTensors, Budget::of_validator()).unwrap();
            assert_eq!(third.to_value().encode().unwrap(), first.to_value().encode().unwrap());
        }
    }
}

#[test]
fn reading_ahead_does_not_count() {
    for start in kinds() {
        let mut saved = Vec::new();
        for ahead in [0, 8] {
            let (mut reading, mut committed) = (walk(&start), walk(&start));
            let mut queue = std::collections::VecDeque::new();
            let mut seen = Vec::new();
            for step in 0..11 {
                while queue.len() <= ahead {
                    queue.push_back(reading.batch(G).unwrap());
                }
                seen.extend(queue.pop_front().unwrap().items().to_vec());
                assert_eq!(committed.skip_items(G).unwrap(), G);
                if step == 6 {
                    saved.push(committed.cursor(24).unwrap());
                }
            }
            let resumed: Vec<Item> =
                walk(saved.last().unwrap()).take(48).map(Result::unwrap).collect();
            assert_eq!(resumed, seen[7 * 12..]);
        }
        assert_eq!(saved[0], saved[1]);
    }
}

/// Goes through `start` to its end, killed ten times: what came, in order.
fn with_kills(start: &Cursor, total: u64, seed: u64) -> Vec<Item> {
    let mut random = SplitMix(seed);
    let mut kills: Vec<u64> = (0..10).map(|_| random.below(total)).collect();
    kills.sort_unstable();
    let (mut at, mut now, mut seen) = (0, start.clone(), Vec::new());
    for kill in kills {
        // Trained beyond what is saved, and lost.
        let mut trained = walk(&now);
        seen.extend(trained.by_ref().take((kill - at) as usize).map(Result::unwrap));
        let cursor = trained.cursor(16).unwrap();
        drop(trained.take(random.below(20) as usize).map(Result::unwrap).collect::<Vec<_>>());
        check_canary(&cursor, &NoTensors, Budget::of_validator()).unwrap();
        (now, at) = (saved(&cursor), kill);
    }
    seen.extend(walk(&now).map(Result::unwrap));
    seen
}

#[test]
fn mixtures_lose_and_repeat_nothing() {
    let order = |seed| Order::TorchRandpermCpu { seed, seed_rule: SeedRule::Seed };
    let tree = |end| {
        let one = permuted(500, order(1), EpochEnd::Stop);
        let two = lanes(3, &[40, 0, 1, 80, 9], order(2), LaneEnd::Stop);
        let three = shuffle(permuted(77, Order::Identity, EpochEnd::Stop), 20, order(3), true);
        mixture(vec![one, two, three], &[5, 3, 2], end)
    };
    for seed in 0..8 {
        let start = cursor(tree(EndsWhen::All));
        let seen = with_kills(&start, 500 + 130 + 77, seed);
        let mut items = seen.clone();
        items.sort();
        let all: Vec<Item> = [(0, 500), (1, 130), (2, 77)]
            .into_iter()
            .flat_map(|(child, records)| (0..records).map(move |r| item(&[child, r])))
            .collect();
        assert_eq!(items, all);
        assert_eq!(seen, walk(&start).map(Result::unwrap).collect::<Vec<_>>());
    }
    // Shares are kept as closely as whole items allow, until the first child ends.
    let seen = with_kills(&cursor(tree(EndsWhen::First)), 300, 1);
    let count = |child| seen.iter().filter(|item| item.integers()[0] == child).count();
    let (zero, one, two) = (count(0), count(1), count(2));
    assert!(one == 130 || two == 77);
    let total = (zero + one + two) as f64;
    for (found, share) in [(zero, 0.5), (one, 0.3), (two, 0.2)] {
        assert!((found as f64 - share * total).abs() < 2.0, "{found} of {total}");
    }
}

/// Tokens of a record: some have none, some more than three sequences.
fn tokens(item: &Item) -> u64 {
    let last = *item.integers().last().unwrap();
    match last % 11 {
        0 => 0,
        1 => 70,
        2 => 1,
        other => other * 3,
    }
}

fn packed(cursor: &Cursor) -> Packed {
    Packed::new(cursor, &NoTensors, Budget::of_validator()).unwrap()
}

#[test]
fn packing_loses_and_repeats_nothing() {
    let order = Order::TorchRandpermCpu { seed: 8, seed_rule: SeedRule::Seed };
    for (tail, seed) in [(Tail::Keep, 1), (Tail::Drop, 2), (Tail::Keep, 3), (Tail::Drop, 4)] {
        let child = mixture(
            vec![
                permuted(200, order.clone(), EpochEnd::Stop),
                lanes(2, &[30, 40], Order::Identity, LaneEnd::Stop),
            ],
            &[2, 1],
            EndsWhen::All,
        );
        let mut start = cursor_of_pack(child, tail);
        let mut lengths = |item: &Item| Ok(tokens(item));
        start = packed(&start).cursor(10, &mut lengths).unwrap();
        let total: u64 = walk(&cursor(pack_child(&start))).map(|i| tokens(&i.unwrap())).sum();
        let sequences = if tail == Tail::Keep { total.div_ceil(20) } else { total / 20 };

        let mut random = SplitMix(seed);
        let (mut now, mut seen, mut kills): (Cursor, Vec<Vec<Piece>>, _) =
            (start.clone(), vec![], 0);
        loop {
            let mut training = packed(&now);
            training.check_canary(now.next.as_ref().unwrap(), &mut lengths).unwrap();
            let mut stop = if kills < 10 { random.below(sequences / 11) } else { u64::MAX };
            let mut full = None;
            let ended = loop {
                if stop == 0 {
                    break false;
                }
                stop -= 1;
                match training.next_sequence(&mut lengths).unwrap() {
                    Some(pieces) => {
                        seen.push(pieces);
                        full = Some(training.cursor(10, &mut lengths).unwrap());
                    }
                    None => break true,
                }
            };
            let cursor = training.cursor(10, &mut lengths).unwrap();
            assert_eq!(cursor.consumed, Some(seen.len() as u64));
            if ended {
                assert_eq!(cursor.next.as_ref().unwrap().count, 0);
                // Tokens that are dropped at the end are not read first.
                assert!(tail == Tail::Keep || Some(&cursor) == full.as_ref());
                assert_eq!(packed(&saved(&cursor)).next_sequence(&mut lengths).unwrap(), None);
                break;
            }
            // Save, load, save.
            assert_eq!(packed(&saved(&cursor)).cursor(10, &mut lengths).unwrap(), cursor);
            (now, kills) = (saved(&cursor), kills + 1);
        }
        assert_eq!(kills, 10);
        assert_eq!(seen.len() as u64, sequences);
        let mut expected: Vec<(Item, u64)> = walk(&cursor(pack_child(&start)))
            .map(Result::unwrap)
            .flat_map(|item| (0..tokens(&item)).map(move |token| (item.clone(), token)))
            .collect();
        if tail == Tail::Drop {
            expected.truncate((total / 20 * 20) as usize);
        }
        let given: Vec<(Item, u64)> = seen
            .iter()
            .flatten()
            .flat_map(|p| (p.offset..p.offset + p.count).map(|token| (p.item.clone(), token)))
            .collect();
        assert_eq!(given, expected);
        let long = |pieces: &Vec<Piece>| pieces.iter().map(|p| p.count).sum::<u64>() == 20;
        assert!(seen[..seen.len() - 1].iter().all(long));
    }
}

fn cursor_of_pack(child: Node, tail: Tail) -> Cursor {
    let leftover = Leftover::ConcatThenSplit(None);
    cursor(Node::Pack(Pack { child: Box::new(child), leftover, length: 20, tail, tokenizer: None }))
}

fn pack_child(cursor: &Cursor) -> Node {
    let Node::Pack(pack) = &cursor.root else { panic!("a pack") };
    (*pack.child).clone()
}

/// What is wrong with a cursor is said by code, rule and place.
#[test]
fn what_is_wrong_is_refused() {
    let order = Order::TorchRandpermCpu { seed: 8, seed_rule: SeedRule::Seed };
    let check = |cursor: &Cursor| {
        let error = check_canary(cursor, &NoTensors, Budget::of_validator()).unwrap_err();
        let pointer = error.location().pointer.clone().unwrap_or_default();
        (error.code(), error.rule_id().unwrap_or_default(), pointer)
    };
    let answer = |code, rule, pointer: &str| (code, rule, pointer.to_owned());

    // A canary of other items, and fewer or more of them.
    let good = after(&kinds()[5], 13, 30, &NoTensors, Budget::of_validator()).unwrap();
    check_canary(&good, &NoTensors, Budget::of_validator()).unwrap();
    let wrong = Code::CanaryMismatch;
    let mut bad = good.clone();
    bad.next.as_mut().unwrap().first[2] = Item::leaf(59);
    assert_eq!(check(&bad), answer(wrong, "cursor.canary", "/next/first/2"));
    let mut bad = good.clone();
    bad.next.as_mut().unwrap().count = 29;
    assert_eq!(check(&bad), answer(wrong, "cursor.canary", "/next/sha256"));
    let mut bad = good;
    let next = bad.next.as_mut().unwrap();
    (next.count, next.first) = (0, Vec::new());
    assert_eq!(check(&bad), answer(wrong, "cursor.canary", "/next/count"));
    let start = cursor(permuted(100, order.clone(), EpochEnd::Stop));
    let mut bad = after(&start, 90, 30, &NoTensors, Budget::of_validator()).unwrap();
    assert_eq!(bad.next.as_ref().unwrap().count, 10);
    bad.next.as_mut().unwrap().count = 11;
    assert_eq!(check(&bad), answer(wrong, "cursor.canary", "/next/count"));

    // One item further, one epoch further, another seed, one more record.
    let good = after(&kinds()[0], 250, 30, &NoTensors, Budget::of_validator()).unwrap();
    for change in 0..4 {
        let mut bad = good.clone();
        let Node::PermutedIndex(leaf) = &mut bad.root else { panic!("a leaf") };
        match change {
            0 => leaf.position += 1,
            1 => leaf.epoch += 1,
            2 => leaf.order = order.clone(),
            _ => (leaf.n, leaf.source.records) = (101, 101),
        }
        assert_eq!(check(&bad).0, wrong);
    }

    // Places that there are not.
    let past = Code::BadPosition;
    let mut bad = cursor(permuted(100, order.clone(), EpochEnd::Stop));
    let Node::PermutedIndex(leaf) = &mut bad.root else { panic!("a leaf") };
    leaf.position = 101;
    assert_eq!(check(&bad), answer(past, "cursor.position", "/position"));
    let mut bad = cursor(mixture(
        vec![
            permuted(9, Order::Identity, EpochEnd::Stop),
            lanes(2, &[3, 0, 5], Order::Identity, LaneEnd::Stop),
        ],
        &[1, 1],
        EndsWhen::All,
    ));
    for (lane, record, pointer) in
        [(0, 3, "/children/1/lanes/0/1"), (1, 0, "/children/1/lanes/1/1")]
    {
        let mut bad = bad.clone();
        let Node::Mixture(mixed) = &mut bad.root else { panic!("a mixture") };
        let Node::ShardedLanes(leaf) = &mut mixed.children[1] else { panic!("lanes") };
        leaf.lanes[lane] = (lane as u64, record);
        assert_eq!(check(&bad), answer(past, "cursor.lane-record", pointer));
    }
    let Node::Mixture(mixed) = &mut bad.root else { panic!("a mixture") };
    let Node::ShardedLanes(leaf) = &mut mixed.children[1] else { panic!("lanes") };
    leaf.source.records = 9;
    assert_eq!(check(&bad), answer(past, "cursor.lane-record", "/children/1/source/shards"));
    let child = permuted(25, Order::Identity, EpochEnd::Stop);
    let mut bad = cursor(shuffle(child, 10, order, false));
    let Node::WindowShuffle(window) = &mut bad.root else { panic!("a shuffle") };
    window.replay = 11;
    assert_eq!(check(&bad), answer(past, "cursor.replay", "/replay"));
    let Node::WindowShuffle(window) = &mut bad.root else { panic!("a shuffle") };
    let Node::PermutedIndex(leaf) = &mut *window.anchor else { panic!("a leaf") };
    (leaf.position, window.replay) = (20, 6);
    assert_eq!(check(&bad), answer(past, "cursor.replay", "/replay"));
    let Node::WindowShuffle(window) = &mut bad.root else { panic!("a shuffle") };
    window.replay = 5;
    let ended = walk(&bad).cursor(3).unwrap();
    assert_eq!(ended.next.as_ref().unwrap().count, 0);
    assert!(check_canary(&ended, &NoTensors, Budget::of_validator()).unwrap());

    // Nothing is compared where nothing is computed.
    let pack = cursor_of_pack(kinds()[0].root.clone(), Tail::Keep);
    assert!(!check_canary(&pack, &NoTensors, Budget::of_validator()).unwrap());
    assert_eq!(
        Walk::new(&pack, &NoTensors, Budget::of_validator()).unwrap_err().code(),
        Code::NotExact
    );
}

#[test]
fn a_hostile_tree_costs_no_more_than_the_budget() {
    let order = Order::TorchRandpermCpu { seed: 8, seed_rule: SeedRule::Seed };
    let spent = |root: Node| {
        let mut cursor = cursor(root);
        cursor.next = kinds()[0].next.clone();
        cursor.next.as_mut().unwrap().count = 65_536;
        let budget = Budget::new(10_000, 1 << 20);
        let error = check_canary(&cursor, &NoTensors, budget).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("cursor.canary-steps")));
    };
    let huge = permuted(1 << 52, order.clone(), EpochEnd::Wrap);
    spent(shuffle(huge.clone(), 1 << 52, order.clone(), true));
    spent(permuted(1 << 52, order.clone(), EpochEnd::Wrap));
    let Node::PermutedIndex(mut far) = permuted(1 << 27, order.clone(), EpochEnd::Wrap) else {
        panic!("a leaf")
    };
    far.position = 1 << 26;
    spent(Node::PermutedIndex(far));
    let many = vec![permuted(3, Order::Identity, EpochEnd::Wrap); 1024];
    let many = mixture(many, &[1; 1024], EndsWhen::All);
    let mut looked = walk_with(&cursor(many.clone()), Budget::new(10_000, 1 << 20));
    assert!(looked.by_ref().take_while(Result::is_ok).count() < 10);
    spent(many);
    // Windows of one item in windows of one item.
    let list = list_of(8_000);
    spent(shuffle(list.clone(), 1, order.clone(), false));
    let mut deep = list;
    for _ in 0..6 {
        deep = shuffle(deep, 1, order.clone(), false);
    }
    spent(deep.clone());
    // Each copies the places of all lanes, which is no item but work.
    let copying = Budget::new(20_000, 1 << 22);
    let mut copied = walk_with(&cursor(shuffle(list_of(8_000), 1, order.clone(), false)), copying);
    let count = copied.by_ref().take_while(Result::is_ok).count();
    assert!(count < 110, "{count}");
    assert_eq!(copied.next().unwrap().unwrap_err().rule_id(), Some("cursor.canary-steps"));
    for _ in 0..3 {
        deep = shuffle(deep, 1, order.clone(), false);
    }
    let error = Walk::new(&cursor(deep), &NoTensors, Budget::unlimited()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("cursor.form")));
    // Shards that are all empty by a list that names no other: nothing comes, not even in time.
    let mut none = lanes(1, &[0, 1], Order::Identity, LaneEnd::Wrap);
    let Node::ShardedLanes(leaf) = &mut none else { panic!("lanes") };
    leaf.order = Order::Explicit(waystation_format::records::cursor::Numbers::List(vec![0, 0]));
    leaf.lanes = vec![(2, 0)];
    assert_eq!(walk(&cursor(none)).count(), 0);
}

fn list_of(lanes: u64) -> Node {
    trees::lanes(lanes, &vec![1; lanes as usize], Order::Identity, LaneEnd::Wrap)
}

fn walk_with(cursor: &Cursor, budget: Budget) -> Walk {
    Walk::new(cursor, &NoTensors, budget).unwrap()
}

/// One lane goes on where all others have ended: the others are not asked every time.
#[test]
fn ended_lanes_cost_nothing() {
    let mut shards = vec![1; 60_000];
    shards[0] = 100_000;
    let root = trees::lanes(60_000, &shards, Order::Identity, LaneEnd::Stop);
    let walk = walk_with(&cursor(root), Budget::new(2 * 160_000 + 60_010, 1 << 20));
    assert_eq!(walk.map(Result::unwrap).count(), 159_999);
}

#[test]
fn skipping_is_one_step() {
    let start = &kinds()[0];
    let far = after(start, 1 << 50, 4, &NoTensors, Budget::new(300, 1 << 20)).unwrap();
    let Node::PermutedIndex(leaf) = &far.root else { panic!("a leaf") };
    assert_eq!((leaf.epoch, leaf.position), ((1 << 50) / 100, (1 << 50) % 100));
    let error = after(&far, (1 << 53) - 1, 4, &NoTensors, Budget::of_validator()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("limit.value")));
}

#[test]
fn ranks_are_numbered_along_the_axes_of_the_partition() {
    let axes = |axes: &[&str]| Partition {
        axes: axes.iter().map(|axis| (*axis).to_owned()).collect(),
        batch: 12,
        rule: ShareRule::RoundRobin,
    };
    let at = |places: &[(&str, u64)]| -> Vec<(String, u64)> {
        places.iter().map(|(axis, at)| ((*axis).to_owned(), *at)).collect()
    };
    let topology = Topology(at(&[("pp", 2), ("dp", 3), ("tp", 4)]));
    let place = at(&[("pp", 1), ("dp", 2), ("tp", 3)]);
    let rank = |partition: &Partition| Rank::of(partition, &topology, &place);
    assert_eq!(rank(&axes(&["dp"])).unwrap(), Rank { rank: 2, world: 3 });
    assert_eq!(rank(&axes(&["tp", "pp"])).unwrap(), Rank { rank: 7, world: 8 });
    assert_eq!(rank(&axes(&["pp", "dp"])).unwrap(), Rank { rank: 5, world: 6 });
    assert_eq!(rank(&axes(&[])).unwrap(), Rank { rank: 0, world: 1 });
    let error = rank(&axes(&["cp"])).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some("cursor.share")));
    let short = Rank::of(&axes(&["dp"]), &topology, &at(&[("pp", 1)])).unwrap_err();
    assert_eq!(short.code(), Code::BadArgument);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any tree, any place to stop at, beside a model that only knows lists.
    #[test]
    fn a_walk_is_the_naive_sequence(root in trees::node(), a in 0..70_usize, b in 0..70_usize) {
        let start = cursor(root);
        let naive = trees::naive(&start.root, 160);
        let given: Vec<Item> = walk(&start).take(160).map(Result::unwrap).collect();
        prop_assert_eq!(&given, &naive);

        let (a, b) = (a.min(naive.len()), b.min(naive.len() - a.min(naive.len())));
        let once = after(&start, a as u64, 16, &NoTensors, Budget::of_validator()).unwrap();
        let resumed = saved(&once);
        prop_assert!(check_canary(&resumed, &NoTensors, Budget::of_validator()).unwrap());
        let twice = after(&resumed, b as u64, 16, &NoTensors, Budget::of_validator()).unwrap();
        prop_assert_eq!(&twice, &after(&start, (a + b) as u64, 16, &NoTensors, Budget::of_validator()).unwrap());
        // Item by item is the same as at once.
        let mut walked = walk(&start);
        prop_assert!(walked.by_ref().take(a + b).all(|item| item.is_ok()));
        prop_assert_eq!(&walked.cursor(16).unwrap(), &twice);
        let rest: Vec<Item> =
            walk(&saved(&twice)).take(160 - a - b).map(Result::unwrap).collect();
        prop_assert_eq!(&rest[..], &naive[a + b..]);
    }
}
