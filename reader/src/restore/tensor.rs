//! The tensors of a place: which regions of each, and how good they are.
//!
//! It knows scopes and blocks. Reading is the tensor's own business.

use std::sync::Arc;

use waystation_format::{Code, Entry, Grade, Region, Result, Tensor};

use super::{Place, Placement};
use crate::checkpoint::Checkpoint;
use crate::tensor::TensorRef;

/// What one place gets of a tensor.
#[derive(Clone, Debug)]
pub struct PlacedTensor<'c> {
    /// The tensor.
    pub tensor: TensorRef<'c>,
    /// Its regions, in row-major order; none when the place holds nothing of it.
    pub regions: Vec<Region>,
    /// How good they are: `requantised` where blocks are cut, `none` where its scope does not fit.
    pub grade: Grade,
    /// Why it is not exact.
    pub reason: Option<String>,
}

impl Checkpoint {
    /// The tensors of a place, ascending by identity key, each with the regions that `placement`
    /// gives it. A tensor with a scope is given to the places that its scope is for; of those whose
    /// scope does not fit the topology each is given, with grade `none` and no regions, since what
    /// a place should get of them nobody knows.
    ///
    /// A block-quantised tensor or companion that would be cut within a block has the grade
    /// `requantised`: its regions cannot be read as they are stored, so the whole is to be read,
    /// dequantised and cut.
    ///
    /// # Errors
    /// Breaches of the pages, those of `placement`, `bad-argument` for a dimension or axis that is
    /// not there. It ends after an error.
    pub fn placed<'c>(
        &'c self,
        place: &'c Place,
        placement: impl Fn(&Tensor) -> Placement + 'c,
    ) -> impl Iterator<Item = Result<PlacedTensor<'c>>> + 'c {
        self.entries().filter_map(move |entry| match entry {
            Ok(entry) => self.place(&entry, place, &placement).transpose(),
            Err(e) => Some(Err(e)),
        })
    }

    fn place(
        &self,
        entry: &Arc<Entry>,
        place: &Place,
        placement: &impl Fn(&Tensor) -> Placement,
    ) -> Result<Option<PlacedTensor<'_>>> {
        let Entry::Tensor(stored) = &**entry else { return Ok(None) };
        let tensor = self.tensor_of(entry)?;
        let scope = &stored.identity.scope;
        if let Some(reason) = place.misfit(scope, &self.manifest().common.topology) {
            let (regions, grade) = (Vec::new(), Grade::None);
            return Ok(Some(PlacedTensor { tensor, regions, grade, reason: Some(reason) }));
        }
        if !scope.iter().all(|index| place.coordinate().contains(index)) {
            return Ok(None);
        }
        let regions = placement(stored).regions(&stored.shape, place)?;
        let (mut grade, mut reason) = (Grade::Exact, None);
        for region in &regions {
            match tensor.region_bytes(region) {
                Ok(_) => {}
                Err(e) if e.code() == Code::BlockBoundary => {
                    (grade, reason) = (Grade::Requantised, Some(e.message().to_owned()));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Some(PlacedTensor { tensor, regions, grade, reason }))
    }
}
