//! Things done wrong on purpose, to see that the tour notices.
//!
//! A comparison that was never seen to fail proves nothing. It knows the state of a rank. It must
//! not know how the tour compares.

use serde::{Deserialize, Serialize};
use waystation_format::Result;

use crate::trainer::Trainer;

/// What goes wrong right after a checkpoint was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// One bit of one moment of the optimizer is flipped.
    MomentBit,
    /// One number of the dropout stream is skipped.
    DroppedDraw,
    /// The cursor stands one sample further on.
    CursorMoved,
    /// One rank alone skips a number of the dropout stream that all share.
    RankApart,
}

impl Fault {
    /// The fault of a name, as the hidden option of the program spells it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "moment-bit" => Self::MomentBit,
            "dropped-draw" => Self::DroppedDraw,
            "cursor-moved" => Self::CursorMoved,
            "rank-apart" => Self::RankApart,
            _ => return None,
        })
    }

    /// Does it.
    ///
    /// # Errors
    /// None for this trainer.
    pub(crate) fn apply(self, trainer: &mut Trainer) -> Result<()> {
        match self {
            Self::MomentBit => {
                // The last number of all is the bias of a character's guess: every sample moves it.
                if trainer.place.rank.saturating_add(1) == trainer.place.ranks
                    && let Some(last) = trainer.moments.m.last_mut()
                {
                    *last = f32::from_bits(last.to_bits() ^ 1 << 22);
                }
            }
            Self::DroppedDraw => drop(trainer.dropout.draw(1)),
            Self::CursorMoved => trainer.data.skip(1)?,
            Self::RankApart if trainer.place.rank == 1 => drop(trainer.dropout.draw(1)),
            Self::RankApart => {}
        }
        Ok(())
    }
}
