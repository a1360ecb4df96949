//! Data cursors out of a fuzzer's bytes: trees of small sequences, each at a place that it may have.

use arbitrary::{Result, Unstructured};
use waystation_format::Digest;
use waystation_format::records::cursor::{
    Augment, Cursor, Deficit, EndsWhen, EpochEnd, LaneEnd, Mixture, Node, Numbers, Order,
    Partition, PermutedIndex, SeedRule, Selection, ShardedLanes, ShareRule, Source, WindowShuffle,
};

/// Records of a leaf.
const RECORDS: u64 = 40;

/// A cursor that the specification computes, without a canary: the beginning of a walk.
///
/// # Errors
/// When the bytes are too few.
pub fn cursor(u: &mut Unstructured<'_>) -> Result<Cursor> {
    Ok(Cursor {
        augment: *u.choose(&[
            None,
            Some(Augment::None),
            Some(Augment::PerRecord),
            Some(Augment::WorkerStream),
        ])?,
        consumed: Some(u.int_in_range(0..=1000)?),
        next: None,
        partition: match u.arbitrary()? {
            true => Some(Partition {
                axes: vec!["dp".to_owned()],
                batch: u.int_in_range(1..=12)?,
                rule: *u.choose(&[
                    ShareRule::RoundRobin,
                    ShareRule::Contiguous,
                    ShareRule::ByLane,
                ])?,
            }),
            false => None,
        },
        root: node(u, 3)?,
    })
}

fn node(u: &mut Unstructured<'_>, depth: u32) -> Result<Node> {
    let kinds = if depth == 0 { 1 } else { 3 };
    Ok(match u.int_in_range(0..=kinds)? {
        0 => Node::PermutedIndex(permuted(u)?),
        1 => Node::ShardedLanes(lanes(u)?),
        2 => {
            let children = (0..u.int_in_range(1..=3)?)
                .map(|_| node(u, depth - 1))
                .collect::<Result<Vec<_>>>()?;
            let taken = children.iter().map(|_| u.int_in_range(0..=9)).collect::<Result<_>>()?;
            let weights = children
                .iter()
                .map(|_| Ok(*u.choose(&[1, 2, 3, 1000, u64::from(u32::MAX)])?))
                .collect::<Result<_>>()?;
            let end = *u.choose(&[EndsWhen::First, EndsWhen::All])?;
            Node::Mixture(Mixture {
                children,
                selection: Selection::Deficit(Deficit { end, taken, weights }),
            })
        }
        _ => {
            let window = u.int_in_range(1..=9)?;
            Node::WindowShuffle(WindowShuffle {
                anchor: Box::new(node(u, depth - 1)?),
                index: u.int_in_range(0..=3)?,
                order: order(u, window)?,
                replay: u.int_in_range(0..=window)?,
                reverse: u.arbitrary()?,
                window,
            })
        }
    })
}

fn permuted(u: &mut Unstructured<'_>) -> Result<PermutedIndex> {
    let n = u.int_in_range(1..=RECORDS)?;
    let unit = u.int_in_range(1..=7)?;
    Ok(PermutedIndex {
        epoch: u.int_in_range(0..=3)?,
        epoch_end: *u.choose(&[
            EpochEnd::DropLast { unit },
            EpochEnd::Pad { unit },
            EpochEnd::Wrap,
            EpochEnd::Stop,
        ])?,
        n,
        order: order(u, n)?,
        position: u.int_in_range(0..=n)?,
        source: source(n),
    })
}

fn lanes(u: &mut Unstructured<'_>) -> Result<ShardedLanes> {
    let n = u.int_in_range(1..=6)?;
    let shards = (0..n).map(|_| u.int_in_range(0..=5)).collect::<Result<Vec<u64>>>()?;
    let count = u.int_in_range(1..=4_u64)?;
    let lanes = (0..count)
        .map(|_| Ok((u.int_in_range(0..=n)?, u.int_in_range(0..=3)?)))
        .collect::<Result<_>>()?;
    Ok(ShardedLanes {
        epoch: u.int_in_range(0..=2)?,
        epoch_end: *u.choose(&[LaneEnd::Wrap, LaneEnd::Stop])?,
        lanes,
        next_lane: u.int_in_range(0..=count - 1)?,
        n,
        order: order(u, n)?,
        source: source(shards.iter().sum()),
        shards: Numbers::List(shards),
    })
}

fn order(u: &mut Unstructured<'_>, n: u64) -> Result<Order> {
    let seed_rule = *u.choose(&[SeedRule::Seed, SeedRule::SeedPlusEpoch])?;
    Ok(match u.int_in_range(0..=3)? {
        0 => Order::Identity,
        1 => Order::Explicit(Numbers::List(
            (0..n).map(|_| u.int_in_range(0..=n - 1)).collect::<Result<_>>()?,
        )),
        2 => Order::TorchRandpermCpu { seed: u.arbitrary()?, seed_rule },
        _ => Order::GrainIndexShuffle {
            seed: u.arbitrary()?,
            seed_rule,
            rounds: *u.choose(&[4, 6, 8])?,
        },
    })
}

fn source(records: u64) -> Source {
    Source { name: None, records, sha256: Digest::of(b"source") }
}
