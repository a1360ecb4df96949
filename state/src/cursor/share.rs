//! Shares (18.5): which items of a global batch a rank takes.
//!
//! It knows batches and ranks. Whether copies of a rank along other axes exist does not matter.

use waystation_format::records::cursor::{Item, Partition, ShareRule};
use waystation_format::{Code, Coordinate, Error, Result, Topology, rule};

/// The items of one global batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// G, which the last batch of a cursor that ends may fall short of.
    size: u64,
    items: Vec<Item>,
    /// The lane of each item and how many lanes there are, where the cursor is read along lanes.
    lanes: Option<(u64, Vec<u64>)>,
}

/// A rank among those that share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// r: below `world`.
    pub rank: u64,
    /// W: at least 1.
    pub world: u64,
}

impl Rank {
    /// The number of a place along the axes of a partition, the first outermost.
    ///
    /// # Errors
    ///
    /// As [`along`](Self::along).
    pub fn of(partition: &Partition, topology: &Topology, place: &Coordinate) -> Result<Self> {
        Self::along(partition.axes.iter().map(String::as_str), topology, place)
    }

    /// The number of a place along some axes, the first outermost; along none it is the only one.
    ///
    /// # Errors
    ///
    /// [`Code::NotExact`] under `cursor.share` when the topology lacks one of the axes;
    /// [`Code::BadArgument`] when the place is not one along all of them, or they have more places
    /// than 64 bits count.
    pub fn along<'a>(
        axes: impl IntoIterator<Item = &'a str>,
        topology: &Topology,
        place: &Coordinate,
    ) -> Result<Self> {
        let (mut rank, mut world) = (0_u64, 1_u64);
        for axis in axes {
            let Some(size) = topology.size(axis) else {
                let message = format!("expected a topology with the axis {axis:?}, found none");
                return Err(Error::rule(Code::NotExact, rule::CURSOR_SHARE, message));
            };
            let index = place.iter().find(|(name, _)| name == axis).map(|(_, index)| *index);
            let Some(index) = index.filter(|index| *index < size) else {
                let found = index.map_or_else(|| "none".to_owned(), |index| index.to_string());
                let message =
                    format!("expected an index below {size} along {axis:?}, found {found}");
                return Err(Error::new(Code::BadArgument, message));
            };
            // Ranks are below their world, so what overflows first is the world.
            let wider = world.checked_mul(size);
            let further = rank.checked_mul(size).and_then(|rank| rank.checked_add(index));
            let Some(numbers) = further.zip(wider) else {
                let message = format!("expected at most 2^64 places, found {world} times {size}");
                return Err(Error::new(Code::BadArgument, message));
            };
            (rank, world) = numbers;
        }
        Ok(Self { rank, world })
    }
}

impl Batch {
    pub(super) fn new(size: u64, lanes: Option<u64>) -> Self {
        Self { size, items: Vec::new(), lanes: lanes.map(|lanes| (lanes, Vec::new())) }
    }

    pub(super) fn is_full(&self) -> bool {
        u64::try_from(self.items.len()).is_ok_and(|items| items >= self.size)
    }

    pub(super) fn push(&mut self, item: Item, lane: u64) {
        self.items.push(item);
        if let Some((_, lanes)) = &mut self.lanes {
            lanes.push(lane);
        }
    }

    /// All items, in the global order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The items that a rank takes, in the order in which it takes them. What the batch falls
    /// short of is missing from shares as well.
    ///
    /// # Errors
    ///
    /// [`Code::NotExact`] under `cursor.share` when the batch or the lanes cannot be shared by so
    /// many ranks, or there are no lanes to share by; [`Code::BadArgument`] for a rank that is not
    /// below its world.
    pub fn share(&self, rule: ShareRule, rank: Rank) -> Result<Vec<Item>> {
        let Rank { rank, world } = rank;
        if rank >= world {
            let message = format!("expected a rank below {world}, found {rank}");
            return Err(Error::new(Code::BadArgument, message));
        }
        let mine: Box<dyn Fn(u64, u64) -> bool> = match rule {
            ShareRule::RoundRobin => {
                Box::new(move |place, _| place.checked_rem(world) == Some(rank))
            }
            ShareRule::Contiguous => {
                let each = share_of(self.size, world, "items of a batch")?;
                Box::new(move |place, _| place.checked_div(each) == Some(rank))
            }
            ShareRule::ByLane => {
                let lanes = self.lanes.as_ref().map_or(0, |(lanes, _)| *lanes);
                if lanes == 0 {
                    return Err(not_exact("expected lanes to share by, found none".to_owned()));
                }
                share_of(lanes, world, "lanes")?;
                Box::new(move |_, lane| lane.checked_rem(world) == Some(rank))
            }
        };
        let lanes = self.lanes.as_ref().map_or(&[][..], |(_, lanes)| lanes);
        let lanes = lanes.iter().copied().chain(std::iter::repeat(0));
        let placed = (0_u64..).zip(&self.items).zip(lanes);
        Ok(placed
            .filter(|((place, _), lane)| mine(*place, *lane))
            .map(|((_, item), _)| item.clone())
            .collect())
    }
}

/// What each of `world` gets of `count`, if that is the same for all.
fn share_of(count: u64, world: u64, what: &str) -> Result<u64> {
    match (count.checked_div(world), count.checked_rem(world)) {
        (Some(each), Some(0)) => Ok(each),
        _ => Err(not_exact(format!("expected {what} in a multiple of {world}, found {count}"))),
    }
}

#[cold]
fn not_exact(message: String) -> Error {
    Error::rule(Code::NotExact, rule::CURSOR_SHARE, message)
}
