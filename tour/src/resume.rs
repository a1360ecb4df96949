//! Going on from a checkpoint, on any number of ranks.
//!
//! This is what a trainer does with `waystation-reader`. It knows what a rank needs and in which
//! order to put it back.

use std::sync::Arc;

use waystation_format::{Code, Digest, Error, Result};
use waystation_reader::{Checkpoint, OpenOptions, Want};
use waystation_store::Store;

use crate::records;
use crate::reduce::{Place, from_bytes};
use crate::trainer::Trainer;

/// The state of the checkpoint `name` of `run` for one rank, and how many numbers it read: all
/// parameters, and of the optimizer's moments the range that it owns now. The boxes need not be
/// those that any rank wrote.
///
/// # Errors
/// Those of `waystation-reader`, [`records::read`] and [`records::put_back`]; `digest-mismatch` when
/// it is not the checkpoint that was decided on.
pub(crate) fn resume(
    run: &Arc<dyn Store>,
    name: &str,
    digest: Digest,
    place: Place,
) -> Result<(Trainer, usize)> {
    let store = run.dir(name)?.ok_or_else(|| {
        Error::new(Code::NotFound, "expected the checkpoint to resume from, found none")
            .in_file(name)
    })?;
    let checkpoint = Checkpoint::open_store(store, OpenOptions::default())?;
    if checkpoint.digest() != digest {
        let message = format!("expected the checkpoint {digest}, found {}", checkpoint.digest());
        return Err(Error::new(Code::DigestMismatch, message).in_file(name));
    }
    let mut trainer = Trainer::new(place)?;
    // Refuses before anything is changed.
    let restored = records::read(&checkpoint, &trainer)?;
    let numbers = tensors(&checkpoint, &mut trainer)?;
    records::put_back(&restored, &mut trainer)?;
    Ok((trainer, numbers))
}

fn tensors(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<usize> {
    let params = trainer.model.params.clone();
    let owned = trainer.owned();
    let pieces = params.pieces(&owned)?;
    let mut wants: Vec<Want> = params.0.iter().map(|param| Want::whole(param.identity())).collect();
    for slot in ["adam.m", "adam.v"] {
        let of = |piece: &crate::params::Piece<'_>| {
            Want::region(piece.param.moment(slot), piece.region.clone())
        };
        wants.extend(pieces.iter().map(of));
    }
    // In the order of the wants, which is that of the flat list, three times.
    let read: Vec<f32> =
        checkpoint.read(&wants)?.iter().flat_map(|bytes| from_bytes(bytes)).collect();
    let numbers = read.len();
    let split = read.split_at_checked(trainer.values.len()).and_then(|(values, moments)| {
        let (m, v) = moments.split_at_checked(owned.len())?;
        (v.len() == owned.len()).then_some((values, m, v))
    });
    let Some((values, m, v)) = split else {
        let message = format!("expected tensors of this model, found {numbers} numbers");
        return Err(Error::new(Code::BadShape, message));
    };
    (trainer.values, trainer.moments.m, trainer.moments.v) =
        (values.to_vec(), m.to_vec(), v.to_vec());
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use waystation_format::Topology;
    use waystation_store::MemoryFs;
    use waystation_writer::SessionPlan;

    use super::*;
    use crate::records::records;
    use crate::save::Saver;
    use crate::wire::Nobody;

    /// A run with one checkpoint of one rank after a few steps, and that rank.
    fn saved() -> (Arc<dyn Store>, String, Digest, Trainer) {
        let run = MemoryFs::new().store();
        let plan = SessionPlan::next_in(&run, "tour", 1, Topology(vec![("dp".to_owned(), 1)]));
        let mut saver = Saver::new(Arc::clone(&run), plan.unwrap());
        let mut trainer = Trainer::new(Place { rank: 0, ranks: 1 }).unwrap();
        for _ in 0..3 {
            trainer.step(&mut Nobody).unwrap();
        }
        let saved = saver.save(&trainer, &mut Nobody, &mut |_, _| Ok(())).unwrap();
        let (name, committed) = saved.unwrap();
        (run, name, committed.digest, trainer)
    }

    #[test]
    fn any_rank_of_any_number_gets_its_own() {
        let (run, name, digest, trainer) = saved();
        for ranks in [1, 2, 3, 4, 48] {
            for rank in 0..ranks {
                let place = Place { rank, ranks };
                let (resumed, numbers) = resume(&run, &name, digest, place).unwrap();
                let owned = resumed.owned();
                assert_eq!(resumed.step, 3);
                assert_eq!(resumed.values, trainer.values);
                assert_eq!(resumed.moments.m, trainer.moments.m[owned.clone()]);
                assert_eq!(resumed.moments.v, trainer.moments.v[owned.clone()]);
                assert_eq!(numbers, trainer.values.len() + 2 * owned.len());
                // Who saves again at once says the same.
                assert_eq!(records(&resumed).unwrap(), records(&trainer).unwrap());
            }
        }
    }

    #[test]
    fn ranks_that_cannot_share_a_batch_are_refused() {
        let (run, name, digest, _) = saved();
        let (mut resumed, _) = resume(&run, &name, digest, Place { rank: 1, ranks: 5 }).unwrap();
        assert_eq!(resumed.step(&mut Nobody).unwrap_err().code(), Code::NotExact);
    }

    #[test]
    fn another_checkpoint_than_was_decided_on_is_refused() {
        let (run, name, _, _) = saved();
        let refused = resume(&run, &name, Digest::of(b"other"), Place { rank: 0, ranks: 1 });
        assert_eq!(refused.err().map(|e| e.code()), Some(Code::DigestMismatch));
    }
}
