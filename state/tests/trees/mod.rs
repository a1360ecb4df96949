//! Trees of cursors for tests, and a model of them that only knows lists.

use proptest::prelude::*;
use waystation_format::Digest;
use waystation_format::json::Value;
use waystation_format::records::cursor::{
    Cursor, Deficit, EndsWhen, EpochEnd, Item, LaneEnd, Mixture, Node, Numbers, Order,
    PermutedIndex, SeedRule, Selection, ShardedLanes, Source, WindowShuffle,
};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Walk};
use waystation_state::order;

pub fn cursor(root: Node) -> Cursor {
    let bare = Cursor { augment: None, consumed: Some(0), next: None, partition: None, root };
    match Walk::new(&bare, &NoTensors, Budget::of_validator()) {
        Ok(walk) => walk.cursor(4).unwrap_or(bare),
        Err(_) => bare,
    }
}

pub fn walk(cursor: &Cursor) -> Walk {
    Walk::new(cursor, &NoTensors, Budget::unlimited()).unwrap()
}

/// Written into a record and read again.
pub fn saved(cursor: &Cursor) -> Cursor {
    let text = cursor.to_value().encode().unwrap();
    Cursor::parse(&Value::parse(&text).unwrap(), None).unwrap()
}

pub fn item(integers: &[u64]) -> Item {
    Item::of(integers)
}

fn source(records: u64) -> Source {
    Source { name: None, records, sha256: Digest::of(b"data") }
}

pub fn permuted(n: u64, order: Order, epoch_end: EpochEnd) -> Node {
    let source = source(n);
    Node::PermutedIndex(PermutedIndex { epoch: 0, epoch_end, n, order, position: 0, source })
}

/// At the beginning of epoch 0.
pub fn lanes(count: u64, shards: &[u64], order: Order, epoch_end: LaneEnd) -> Node {
    let n = shards.len() as u64;
    let places = all(&order, n, 0);
    let lane = |lane| {
        let mut place = lane;
        while place < n && shards[places[place as usize] as usize] == 0 {
            place += count;
        }
        (place, 0)
    };
    Node::ShardedLanes(ShardedLanes {
        epoch: 0,
        epoch_end,
        lanes: (0..count).map(lane).collect(),
        next_lane: 0,
        n,
        order,
        source: source(shards.iter().sum()),
        shards: Numbers::List(shards.to_vec()),
    })
}

pub fn mixture(children: Vec<Node>, weights: &[u64], end: EndsWhen) -> Node {
    let taken = vec![0; weights.len()];
    let selection = Selection::Deficit(Deficit { end, taken, weights: weights.to_vec() });
    Node::Mixture(Mixture { children, selection })
}

pub fn shuffle(child: Node, window: u64, order: Order, reverse: bool) -> Node {
    let anchor = Box::new(child);
    Node::WindowShuffle(WindowShuffle { anchor, index: 0, order, replay: 0, reverse, window })
}

/// Random numbers for places to be killed at.
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// All ordinals of an epoch.
fn all(order: &Order, n: u64, epoch: u64) -> Vec<u64> {
    let order = order::Order::of(order, n, None).unwrap();
    order.ordinals(epoch, 0..n, Budget::unlimited()).map(Result::unwrap).collect()
}

/// The first `count` items of a node that stands at its beginning.
pub fn naive(node: &Node, count: usize) -> Vec<Item> {
    match node {
        Node::PermutedIndex(leaf) => naive_permuted(leaf, count),
        Node::ShardedLanes(leaf) => naive_lanes(leaf, count),
        Node::Mixture(mixture) => naive_mixture(mixture, count),
        Node::WindowShuffle(shuffle) => naive_shuffle(shuffle, count),
        _ => panic!("a computed node"),
    }
}

fn naive_permuted(leaf: &PermutedIndex, count: usize) -> Vec<Item> {
    let n = leaf.n as usize;
    let items = match leaf.epoch_end {
        EpochEnd::DropLast { unit } => n / unit as usize * unit as usize,
        EpochEnd::Pad { unit } => n.div_ceil(unit as usize) * unit as usize,
        EpochEnd::Wrap | EpochEnd::Stop => n,
    };
    let epochs = if leaf.epoch_end == EpochEnd::Stop { 1 } else { count.div_ceil(items) };
    (0..epochs)
        .flat_map(|epoch| {
            let ordinals = all(&leaf.order, leaf.n, epoch as u64);
            (0..items).map(move |p| Item::leaf(ordinals[p % n]))
        })
        .take(count)
        .collect()
}

fn naive_lanes(leaf: &ShardedLanes, count: usize) -> Vec<Item> {
    let Numbers::List(shards) = &leaf.shards else { panic!("a list") };
    let lanes = leaf.lanes.len();
    let mut items = Vec::new();
    for epoch in 0.. {
        // Each lane's records of the epoch, the next one last.
        let mut queues = vec![Vec::new(); lanes];
        for (place, shard) in all(&leaf.order, leaf.n, epoch).into_iter().enumerate() {
            let before: u64 = shards[..shard as usize].iter().sum();
            queues[place % lanes].extend(before..before + shards[shard as usize]);
        }
        queues.iter_mut().for_each(|queue| queue.reverse());
        let begun = items.len();
        let mut turn = 0;
        while queues.iter().any(|queue| !queue.is_empty()) {
            while queues[turn].is_empty() {
                turn = (turn + 1) % lanes;
            }
            items.push(Item::leaf(queues[turn].pop().unwrap()));
            turn = (turn + 1) % lanes;
        }
        if leaf.epoch_end == LaneEnd::Stop || items.len() == begun || items.len() >= count {
            break;
        }
    }
    items.truncate(count);
    items
}

fn naive_mixture(mixture: &Mixture, count: usize) -> Vec<Item> {
    let Selection::Deficit(Deficit { end, weights, .. }) = &mixture.selection else {
        panic!("a deficit")
    };
    let children: Vec<Vec<Item>> =
        mixture.children.iter().map(|child| naive(child, count + 1)).collect();
    let mut taken = vec![0; children.len()];
    let mut items = Vec::new();
    while items.len() < count {
        let alive: Vec<usize> =
            (0..children.len()).filter(|i| taken[*i] < children[*i].len()).collect();
        if alive.is_empty() || (*end == EndsWhen::First && alive.len() < children.len()) {
            break;
        }
        let total: i128 = alive.iter().map(|i| taken[*i] as i128).sum();
        let weight: i128 = alive.iter().map(|i| i128::from(weights[*i])).sum();
        let behind = |i: usize| i128::from(weights[i]) * (total + 1) - taken[i] as i128 * weight;
        // The last of the greatest in this order is the first of them.
        let next = *alive.iter().rev().max_by_key(|i| behind(**i)).unwrap();
        let mut integers = vec![next as u64];
        integers.extend_from_slice(children[next][taken[next]].integers());
        items.push(Item::of(&integers));
        taken[next] += 1;
    }
    items
}

fn naive_shuffle(shuffle: &WindowShuffle, count: usize) -> Vec<Item> {
    let window = shuffle.window as usize;
    let child = naive(&shuffle.anchor, count.div_ceil(window) * window);
    let mut items = Vec::new();
    for (index, chunk) in child.chunks(window).enumerate() {
        let mut places = all(&shuffle.order, chunk.len() as u64, index as u64);
        if shuffle.reverse {
            places.reverse();
        }
        items.extend(places.into_iter().map(|place| chunk[place as usize].clone()));
    }
    items.truncate(count);
    items
}

fn order() -> impl Strategy<Value = Order> {
    let rule = prop_oneof![Just(SeedRule::Seed), Just(SeedRule::SeedPlusEpoch)];
    prop_oneof![
        4 => Just(Order::Identity),
        8 => (any::<u64>(), rule.clone())
            .prop_map(|(seed, seed_rule)| Order::TorchRandpermCpu { seed, seed_rule }),
        // An element of few costs up to 2^16 steps.
        1 => (any::<u32>(), rule).prop_map(|(seed, seed_rule)| Order::GrainIndexShuffle {
            seed,
            seed_rule,
            rounds: 4
        }),
    ]
}

/// A computed tree at its beginning.
pub fn node() -> impl Strategy<Value = Node> {
    let end = prop_oneof![
        Just(EpochEnd::Wrap),
        Just(EpochEnd::Stop),
        (1..30_u64).prop_map(|unit| EpochEnd::Pad { unit }),
        (1..30_u64).prop_map(|unit| EpochEnd::DropLast { unit }),
    ];
    let leaf = (1..40_u64, order(), end, any::<bool>()).prop_map(|(n, order, end, listed)| {
        let end = if end.items(n) == Some(0) { EpochEnd::Wrap } else { end };
        let order = if listed {
            // Some ordinals twice, some not at all.
            Order::Explicit(Numbers::List((0..n).map(|i| i * i % n).collect()))
        } else {
            order
        };
        permuted(n, order, end)
    });
    let shards = prop::collection::vec(prop_oneof![Just(0), 0..9_u64], 1..9);
    let read = (1..6_u64, shards, order(), any::<bool>(), any::<bool>()).prop_map(
        |(count, mut shards, order, stop, listed)| {
            let n = shards.len() as u64;
            shards[0] += 1;
            let order = if listed {
                Order::Explicit(Numbers::List((0..n).map(|i| (i + 1) % n / 2).collect()))
            } else {
                order
            };
            lanes(count, &shards, order, if stop { LaneEnd::Stop } else { LaneEnd::Wrap })
        },
    );
    let leaf = prop_oneof![leaf, read];
    leaf.prop_recursive(3, 10, 4, |inner| {
        let weighted = (inner.clone(), prop_oneof![1..6_u64, Just((1 << 32) - 1)]);
        let mixed =
            (prop::collection::vec(weighted, 1..5), any::<bool>()).prop_map(|(children, first)| {
                let weights: Vec<u64> = children.iter().map(|(_, weight)| *weight).collect();
                let children = children.into_iter().map(|(child, _)| child).collect();
                mixture(children, &weights, if first { EndsWhen::First } else { EndsWhen::All })
            });
        let shuffled = (inner, 1..30_u64, order(), any::<bool>())
            .prop_map(|(child, window, order, reverse)| shuffle(child, window, order, reverse));
        prop_oneof![mixed, shuffled]
    })
}
