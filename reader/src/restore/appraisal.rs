//! What a place would get, beside the refusal to hand it out.
//!
//! It knows that the two may stand side by side. It must not know grades.

use waystation_format::Error;

use super::Restored;

/// What a place would get of a checkpoint's records, and why it may not have it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Appraisal {
    /// What would be handed out, with a grade for every record in its `report`. Nobody trains on it
    /// while it is refused.
    pub restored: Restored,
    /// The refusal: `not-exact` for everything that is graded worse than was demanded, and for
    /// streams that require axes which have changed. It names the records that the place lacks.
    pub refused: Option<Error>,
}
