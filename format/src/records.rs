//! What records of registered kinds say (chapters 16 to 18), read from their `value` and written
//! back.
//!
//! It knows the form of each kind and what of it can be checked by looking at the record alone. It
//! must not know engines, orders or other records, nor look into a kind that is not registered.

pub mod cursor;
pub mod ema;
pub mod number;
pub mod optimizer;
pub mod progress;
mod read;
pub mod rng;
pub mod scaler;
pub mod schedule;
pub mod uncaptured;
mod write;

use crate::common::{Coordinate, Topology};
use crate::json::Value;
use crate::value_tree::Tree;
use crate::{Code, Error, Result};

pub use cursor::Cursor;
pub use ema::Ema;
pub use number::{Float, Integer};
pub use optimizer::Optimizer;
pub use progress::Progress;
pub use rng::Stream;
pub use scaler::Scaler;
pub use schedule::Schedule;
pub use uncaptured::Uncaptured;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Typed {
    /// How far training has come.
    Progress(Progress),
    /// An optimizer.
    Optimizer(Optimizer),
    /// An average.
    Ema(Ema),
    /// A schedule.
    Schedule(Schedule),
    /// A loss scaler.
    Scaler(Scaler),
    /// A random stream.
    Rng(Box<Stream>),
    /// A data cursor.
    Cursor(Box<Cursor>),
    /// A value tree.
    Value(Tree),
    /// Something that was used and is not in the checkpoint.
    Uncaptured(Uncaptured),
    /// A kind that is not registered: it is carried and not looked into.
    Unknown,
}

impl Typed {
    /// Reads the `value` of a record of a kind. Without a topology it is not checked that a
    /// cursor's axes are the topology's.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`] for another form than the kind's, [`Code::BadName`] and
    /// [`Code::BadIdentity`] for names and identities in it, [`Code::Limit`] for what is above a
    /// limit, [`Code::BadPosition`] for a cursor at a place that its sequence does not have; with
    /// the pointer from the top of `value`.
    pub fn parse(kind: &str, value: &Value, topology: Option<&Topology>) -> Result<Self> {
        Ok(match kind {
            "progress" => Self::Progress(Progress::parse(value)?),
            "optimizer" => Self::Optimizer(Optimizer::parse(value)?),
            "ema" => Self::Ema(Ema::parse(value)?),
            "schedule" => Self::Schedule(Schedule::parse(value)?),
            "scaler" => Self::Scaler(Scaler::parse(value)?),
            "rng" => Self::Rng(Box::new(Stream::parse(value)?)),
            "cursor" => Self::Cursor(Box::new(Cursor::parse(value, topology)?)),
            "value" => Self::Value(Tree::parse_record_value(value)?),
            "uncaptured" => Self::Uncaptured(Uncaptured::parse(value)?),
            _ => Self::Unknown,
        })
    }

    /// The kind of such a record; `None` where it is not registered.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Progress(_) => "progress",
            Self::Optimizer(_) => "optimizer",
            Self::Ema(_) => "ema",
            Self::Schedule(_) => "schedule",
            Self::Scaler(_) => "scaler",
            Self::Rng(_) => "rng",
            Self::Cursor(_) => "cursor",
            Self::Value(_) => "value",
            Self::Uncaptured(_) => "uncaptured",
            Self::Unknown => return None,
        })
    }

    /// The `value` of such a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadArgument`] for [`Unknown`](Self::Unknown), of which nothing is known.
    pub fn to_value(&self) -> Result<Value> {
        Ok(match self {
            Self::Progress(progress) => progress.to_value(),
            Self::Optimizer(optimizer) => optimizer.to_value(),
            Self::Ema(ema) => ema.to_value(),
            Self::Schedule(schedule) => schedule.to_value(),
            Self::Scaler(scaler) => scaler.to_value(),
            Self::Rng(stream) => stream.to_value(),
            Self::Cursor(cursor) => cursor.to_value(),
            Self::Value(tree) => tree.to_record_value(),
            Self::Uncaptured(uncaptured) => uncaptured.to_value(),
            Self::Unknown => {
                let message = "expected a record of a registered kind, found an unknown one";
                return Err(Error::new(Code::BadArgument, message));
            }
        })
    }
}

/// Checks what the kind of a record says about its key and value; of a kind that is not registered
/// nothing.
///
/// # Errors
///
/// As [`Typed::parse`]; with the pointer from the top of the record.
pub(crate) fn check(
    kind: &str,
    name: &str,
    coordinate: &Coordinate,
    value: &Value,
    topology: Option<&Topology>,
) -> Result<()> {
    Typed::parse(kind, value, topology).map_err(|error| error.in_member("value"))?;
    // A rule about several members of the record comes after all of them.
    if kind == "progress" {
        progress::check_key(name, coordinate)?;
    }
    Ok(())
}
