//! Cursors of every kind, each of the form that a record may hold.

use proptest::prelude::*;
use waystation_format::json::{Map, Value};
use waystation_format::records::cursor::{
    Augment, Canary, Cursor, Deficit, EndsWhen, EpochEnd, Item, LaneEnd, Leftover, Mixture, Node,
    Numbers, Opaque, Order, Pack, Partition, PermutedIndex, Piece, SeedRule, Selection,
    ShardedLanes, ShareRule, Source, StoredShuffle, Tail, WindowShuffle,
};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Digest, Identity, Role};

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, 0..(1_u64 << 53)]
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<u8>().prop_map(|byte| Digest::of(&[byte]))
}

fn name() -> impl Strategy<Value = String> {
    "[a-z~/\"]{1,4}"
}

fn tensor() -> impl Strategy<Value = Numbers> {
    name().prop_map(|name| {
        let identity = Identity {
            component: "main".to_owned(),
            role: Role::Blob,
            name,
            slot: String::new(),
            owner: String::new(),
            scope: Vec::new(),
        };
        Numbers::Tensor(Box::new(identity))
    })
}

fn seed_rule() -> impl Strategy<Value = SeedRule> {
    prop_oneof![Just(SeedRule::Seed), Just(SeedRule::SeedPlusEpoch)]
}

/// Not explicit.
fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Identity),
        (any::<u64>(), seed_rule())
            .prop_map(|(seed, seed_rule)| Order::TorchRandpermCpu { seed, seed_rule }),
        (any::<u32>(), seed_rule(), 2..99_u64).prop_map(|(seed, seed_rule, pairs)| {
            Order::GrainIndexShuffle { seed, seed_rule, rounds: pairs * 2 }
        }),
        (name(), count()).prop_map(|(algorithm, number)| {
            let number = Value::Int(number as i64);
            Order::Other { algorithm, members: Map::from([("x".to_owned(), number)]) }
        }),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    prop::collection::vec(count(), 1..6).prop_map(|integers| Item::of(&integers))
}

fn source() -> impl Strategy<Value = Source> {
    (prop::option::of(name()), 1..(1_u64 << 53), digest())
        .prop_map(|(name, records, sha256)| Source { name, records, sha256 })
}

fn permuted_index() -> impl Strategy<Value = Node> {
    let end = prop_oneof![
        Just(EpochEnd::Wrap),
        Just(EpochEnd::Stop),
        (1..50_u64).prop_map(|unit| EpochEnd::Pad { unit }),
        (1..50_u64).prop_map(|unit| EpochEnd::DropLast { unit }),
    ];
    (count(), end, order(), source(), any::<u64>(), prop::option::of(tensor())).prop_map(
        |(epoch, epoch_end, order, source, any, tensor)| {
            let order = tensor.map_or(order, Order::Explicit);
            let n = source.records.min(1 << 32);
            let (epoch_end, items) = match epoch_end.items(n) {
                None | Some(0) => (EpochEnd::Wrap, n),
                Some(items) => (epoch_end, items),
            };
            let position = any % (items + 1);
            Node::PermutedIndex(PermutedIndex { epoch, epoch_end, n, order, position, source })
        },
    )
}

fn sharded_lanes() -> impl Strategy<Value = Node> {
    let shards = prop::collection::vec(1..99_u64, 1..6);
    let lanes = prop::collection::vec((any::<u64>(), count()), 1..5);
    (count(), order(), source(), shards, lanes, any::<u64>(), prop::option::of(tensor())).prop_map(
        |(epoch, order, mut source, shards, lanes, any, tensor)| {
            let (n, count) = (shards.len() as u64, lanes.len() as u64);
            let lane = |(lane, (any, record)): (usize, (u64, u64))| {
                let most = (n + count - 1 - lane as u64) / count;
                let place = lane as u64 + any % (most + 1) * count;
                (place, if place < n { record } else { 0 })
            };
            let lanes: Vec<(u64, u64)> = lanes.into_iter().enumerate().map(lane).collect();
            source.records = shards.iter().sum();
            let (shards, order) = match tensor {
                Some(tensor) => (tensor, Order::Explicit(Numbers::List(vec![n - 1; n as usize]))),
                None => (Numbers::List(shards), order),
            };
            let epoch_end = if any % 2 == 0 { LaneEnd::Wrap } else { LaneEnd::Stop };
            let next_lane = any % count;
            Node::ShardedLanes(ShardedLanes {
                epoch,
                epoch_end,
                lanes,
                next_lane,
                n,
                order,
                source,
                shards,
            })
        },
    )
}

fn opaque_node() -> impl Strategy<Value = Node> {
    (name(), name(), count()).prop_map(|(media_type, key, number)| {
        let state = Tree::int(i128::from(number));
        let fingerprint = Tree::Map(vec![(MapKey::Str(key), state.clone())]);
        Node::Opaque(Opaque { fingerprint, media_type, state })
    })
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![3 => permuted_index(), 3 => sharded_lanes(), 1 => opaque_node()];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let child = inner.clone().prop_map(Box::new);
        let piece = (item(), count(), 1..99_u64)
            .prop_map(|(item, offset, count)| Piece { item, offset, count })
            .boxed();
        let leftover = prop_oneof![
            prop::option::of(piece.clone()).prop_map(Leftover::ConcatThenSplit),
            (name(), prop::collection::vec(piece, 0..3))
                .prop_map(|(algorithm, pieces)| Leftover::Other { algorithm, pieces }),
        ];
        let tail = prop_oneof![Just(Tail::Drop), Just(Tail::Keep)];
        let mixture =
            (prop::collection::vec((inner, count(), 1..(1_u64 << 32)), 1..4), any::<u8>())
                .prop_map(|(children, any)| {
                    let selection = if any % 4 == 0 {
                        let members = Map::from([("y".to_owned(), Value::Null)]);
                        Selection::Other { algorithm: "vendor/pick".to_owned(), members }
                    } else {
                        let end = if any % 4 == 1 { EndsWhen::First } else { EndsWhen::All };
                        let taken = children.iter().map(|(_, taken, _)| *taken).collect();
                        let weights = children.iter().map(|(_, _, weight)| *weight).collect();
                        Selection::Deficit(Deficit { end, taken, weights })
                    };
                    let children = children.into_iter().map(|(child, _, _)| child).collect();
                    Node::Mixture(Mixture { children, selection })
                });
        prop_oneof![
            mixture,
            (child.clone(), count(), order(), 1..(1_u64 << 53), any::<u64>()).prop_map(
                |(anchor, index, order, window, any)| {
                    let (replay, reverse) = (any % (window + 1), any % 2 == 0);
                    Node::WindowShuffle(WindowShuffle {
                        anchor,
                        index,
                        order,
                        replay,
                        reverse,
                        window,
                    })
                }
            ),
            (prop::collection::vec(item(), 0..4), child.clone(), order()).prop_map(
                |(buffer, child, order)| Node::StoredShuffle(StoredShuffle {
                    buffer,
                    child,
                    order
                })
            ),
            (child, leftover, 1..(1_u64 << 53), tail, prop::option::of(digest())).prop_map(
                |(child, leftover, length, tail, tokenizer)| {
                    Node::Pack(Pack { child, leftover, length, tail, tokenizer })
                }
            ),
        ]
    })
}

/// A cursor of any kinds of nodes that a record may hold.
pub(crate) fn cursor() -> impl Strategy<Value = Cursor> {
    let augment =
        prop_oneof![Just(Augment::None), Just(Augment::PerRecord), Just(Augment::WorkerStream)];
    let next = (0..65_537_u64, prop::collection::vec(item(), 4), digest()).prop_map(
        |(count, mut first, sha256)| {
            first.truncate(count as usize);
            Canary { count, first, sha256 }
        },
    );
    let partition =
        (Just(vec!["dp".to_owned(), "tp".to_owned()]).prop_shuffle(), 1..99_u64, any::<u8>());
    let parts = (prop::option::of(augment), next, prop::option::of(partition), any::<u32>());
    (node(), parts).prop_map(|(root, (augment, next, partition, any))| {
        let partition = partition.map(|(axes, batch, any)| {
            let rule = match any % 3 {
                0 if matches!(root, Node::ShardedLanes(_)) => ShareRule::ByLane,
                1 => ShareRule::Contiguous,
                _ => ShareRule::RoundRobin,
            };
            Partition { axes, batch, rule }
        });
        let consumed = match &root {
            Node::Opaque(_) => None,
            Node::PermutedIndex(leaf) => Some(leaf.position),
            _ => Some(u64::from(any)),
        };
        let next = if root.is_computed() || any % 2 == 0 { Some(next) } else { None };
        Cursor { augment, consumed, next, partition, root }
    })
}
