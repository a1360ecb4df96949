//! Which items of a global batch are a place's (18.5), in words and one by one.
//!
//! It knows partitions. Which items come is for the walk to say.

use serde_json::{Value, json};
use waystation_format::records::Cursor;
use waystation_format::records::cursor::{Item, Node, Partition, ShareRule};
use waystation_format::{Code, Error, Result};
use waystation_reader::Checkpoint;
use waystation_reader::restore::Place;
use waystation_state::Budget;
use waystation_state::cursor::Rank;

/// Items of a batch that are looked at one by one.
const MOST_ITEMS: u64 = 10_000_000;

/// What the place takes of each batch, or why the batch cannot be shared so; nothing for a cursor
/// without a partition.
pub(super) fn in_words(cursor: &Cursor, place: &Place) -> Option<String> {
    let partition = cursor.partition.as_ref()?;
    let Rank { rank, world } = match rank(partition, place) {
        Ok(rank) => rank,
        Err(error) => {
            let missing = partition.axes.iter().find(|axis| place.topology().size(axis).is_none());
            let why = missing.map_or_else(
                || error.message().to_owned(),
                |axis| format!("axis {axis:?} is not there (cursor.share)"),
            );
            return Some(format!("cannot share: {why}"));
        }
    };
    let batch = partition.batch;
    let each = |count: u64| {
        let whole = count.checked_rem(world) == Some(0);
        whole.then(|| count.checked_div(world)).flatten()
    };
    let takes = match partition.rule {
        ShareRule::RoundRobin => {
            let mine = batch.saturating_sub(rank).div_ceil(world.max(1));
            format!("takes {mine} of {batch} items round-robin")
        }
        ShareRule::Contiguous => match each(batch) {
            Some(mine) => format!("takes {mine} of {batch} items contiguously"),
            None => {
                let what = format!("{batch} items contiguously");
                return Some(format!("cannot share {what} among {world} (cursor.share)"));
            }
        },
        ShareRule::ByLane => {
            let lanes = match &cursor.root {
                Node::ShardedLanes(leaf) => u64::try_from(leaf.lanes.len()).unwrap_or(u64::MAX),
                _ => 0,
            };
            match each(lanes) {
                Some(mine) => format!("takes {mine} of {lanes} lanes, {batch} items a batch"),
                None => {
                    return Some(format!(
                        "cannot share {lanes} lanes among {world} (cursor.share)"
                    ));
                }
            }
        }
    };
    Some(format!("rank {rank} of {world}: {takes}"))
}

/// The items of the next global batch that the place takes; `None` for a cursor without a partition,
/// and for one that is not computed.
///
/// # Errors
/// `not-exact` under `cursor.share`; `limit` for a batch that is too large to be listed; those of
/// walking.
pub(super) fn items(
    checkpoint: &Checkpoint,
    cursor: &Cursor,
    place: &Place,
    budget: Budget,
) -> Result<Option<Vec<Item>>> {
    let Some(partition) = cursor.partition.as_ref().filter(|_| cursor.is_computed()) else {
        return Ok(None);
    };
    let rank = rank(partition, place)?;
    if partition.batch > MOST_ITEMS {
        let found = partition.batch;
        let message = format!("expected at most {MOST_ITEMS} items of a batch, found {found}");
        return Err(Error::new(Code::Limit, message));
    }
    let batch = checkpoint.walk(cursor, budget)?.batch(partition.batch)?;
    batch.share(partition.rule, rank).map(Some)
}

/// An item as records spell it: one integer bare, more as a list.
pub(super) fn item_json(item: &Item) -> Value {
    match item.integers() {
        [one] => json!(one),
        more => json!(more),
    }
}

/// An item for people, as `next` of a cursor is told.
pub(super) fn item_text(item: &Item) -> String {
    let integers: Vec<String> = item.integers().iter().map(u64::to_string).collect();
    integers.join("/")
}

fn rank(partition: &Partition, place: &Place) -> Result<Rank> {
    Rank::of(partition, place.topology(), place.coordinate())
}

#[cfg(test)]
mod tests {
    use waystation_format::Topology;

    use super::*;

    const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    /// A cursor of 48 records, read along 4 lanes where it is shared by them.
    fn cursor(axes: &str, rule: &str) -> Cursor {
        let root = if rule == "by-lane" {
            format!(
                r#""kind":"sharded-lanes","lanes":[[0,0],[1,0],[2,0],[3,0]],"next":NEXT,"next_lane":0,"order":{{"algorithm":"identity","n":4}},"partition":PARTITION,"source":{{"records":48,"sha256":"{ZEROS}","shards":[12,12,12,12]}}"#
            )
        } else {
            format!(
                r#""kind":"permuted-index","next":NEXT,"order":{{"algorithm":"identity","n":48}},"partition":PARTITION,"position":0,"source":{{"records":48,"sha256":"{ZEROS}"}}"#
            )
        };
        let text = format!(r#"{{"consumed":0,"epoch":0,"epoch_end":{{"rule":"wrap"}},{root}}}"#)
            .replace("NEXT", &format!(r#"{{"count":1,"first":[0],"sha256":"{ZEROS}"}}"#))
            .replace("PARTITION", &format!(r#"{{"axes":[{axes}],"batch":48,"rule":"{rule}"}}"#));
        Cursor::parse(&waystation_format::json::Value::parse(&text).unwrap(), None).unwrap()
    }

    #[test]
    fn shares_are_told_or_why_there_is_none() {
        let sizes = |dp| Topology(vec![("dp".to_owned(), dp)]);
        let place = |dp, at| Place::new(sizes(dp), vec![("dp".to_owned(), at)]).unwrap();
        for (axes, rule, at, says) in [
            ("\"dp\"", "round-robin", place(5, 1), "rank 1 of 5: takes 10 of 48 items round-robin"),
            ("\"dp\"", "round-robin", place(5, 4), "rank 4 of 5: takes 9 of 48 items round-robin"),
            (
                "\"dp\"",
                "round-robin",
                place(99, 98),
                "rank 98 of 99: takes 0 of 48 items round-robin",
            ),
            ("\"dp\"", "contiguous", place(4, 3), "rank 3 of 4: takes 12 of 48 items contiguously"),
            (
                "\"dp\"",
                "contiguous",
                place(5, 1),
                "cannot share 48 items contiguously among 5 (cursor.share)",
            ),
            (
                "\"ep\"",
                "round-robin",
                place(5, 1),
                "cannot share: axis \"ep\" is not there (cursor.share)",
            ),
            ("", "contiguous", place(5, 1), "rank 0 of 1: takes 48 of 48 items contiguously"),
            ("\"dp\"", "by-lane", place(2, 1), "rank 1 of 2: takes 2 of 4 lanes, 48 items a batch"),
            ("\"dp\"", "by-lane", place(3, 1), "cannot share 4 lanes among 3 (cursor.share)"),
        ] {
            let words = in_words(&cursor(axes, rule), &at);
            assert_eq!(words.as_deref(), Some(says));
        }
    }
}
