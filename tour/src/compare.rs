//! Comparing the interrupted run with the other one, bit for bit.
//!
//! It knows losses and checkpoints. It must not know what either means.

use std::collections::BTreeMap;
use std::sync::Arc;

use waystation_format::record::Record;
use waystation_format::{Entry, Result};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::Store;

use crate::reduce::from_bytes;
use crate::report::{Compared, Difference, JobReport};

/// Compares every loss of every job with that of the same step in `reference`, whose first is
/// that of step 1. A step that was done twice is compared twice.
pub(crate) fn losses(reference: &[f32], jobs: &[JobReport], found: &mut Compared) {
    for job in jobs {
        for (step, &loss) in (job.first..).zip(&job.losses) {
            let at = usize::try_from(step.saturating_sub(1)).unwrap_or(usize::MAX);
            let expected = reference.get(at).copied();
            found.losses = found.losses.saturating_add(1);
            if expected.map(f32::to_bits) == Some(loss.to_bits()) {
                continue;
            }
            found.different_losses = found.different_losses.saturating_add(1);
            found.first_difference.get_or_insert(Difference {
                step,
                ranks: job.ranks,
                expected: expected.unwrap_or(f32::NAN),
                found: loss,
            });
        }
    }
}

/// Compares all tensors and records of two checkpoints. Returns whether they hold the same.
///
/// # Errors
/// Those of reading.
pub(crate) fn checkpoints(
    reference: &Arc<dyn Store>,
    other: &Arc<dyn Store>,
    found: &mut Compared,
) -> Result<bool> {
    let reference = Checkpoint::open_store(Arc::clone(reference), OpenOptions::default())?;
    let other = Checkpoint::open_store(Arc::clone(other), OpenOptions::default())?;
    let (expected, tensors) = (tensors(&reference)?, tensors(&other)?);
    for (key, numbers) in &expected {
        let other = tensors.get(key).map(Vec::as_slice).unwrap_or_default();
        let same = numbers.iter().zip(other).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
        let count = numbers.len().max(other.len());
        found.numbers = found.numbers.saturating_add(count);
        found.different_numbers =
            found.different_numbers.saturating_add(count.saturating_sub(same));
    }
    let same_keys = expected.keys().eq(tensors.keys());
    let (expected, records) = (records(&reference)?, records(&other)?);
    for (key, record) in &expected {
        found.records = found.records.saturating_add(1);
        if records.get(key) != Some(record) {
            found.different_records.push(key.clone());
        }
    }
    let same_keys = same_keys && expected.keys().eq(records.keys());
    Ok(same_keys && found.different_numbers == 0 && found.different_records.is_empty())
}

fn tensors(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Vec<f32>>> {
    let mut all = BTreeMap::new();
    for entry in checkpoint.entries() {
        let entry = entry?;
        if let Entry::Tensor(tensor) = &*entry {
            let bytes = checkpoint.tensor_of(&entry)?.read()?;
            all.insert(tensor.identity.key(), from_bytes(&bytes));
        }
    }
    Ok(all)
}

fn records(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Record>> {
    checkpoint.records().map(|record| record.map(|record| (record.key.key(), record))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_seen() {
        let reference = [3.0, 2.5, 2.0];
        let other = f32::from_bits(2.0_f32.to_bits() + 1);
        let job = |first, losses| JobReport {
            ranks: 3,
            resumed_from: None,
            first,
            losses,
            checkpoints: 0,
        };
        let mut found = Compared::default();
        losses(&reference, &[job(1, vec![3.0, 2.5]), job(2, vec![2.5, 2.0])], &mut found);
        assert_eq!((found.losses, found.different_losses), (4, 0));
        losses(&reference, &[job(2, vec![2.5, other]), job(4, vec![1.0])], &mut found);
        assert_eq!((found.losses, found.different_losses), (7, 2));
        assert_eq!(found.first_difference.unwrap().step, 3);
        // A loss that is no number is not equal to one that is missing.
        let mut found = Compared::default();
        losses(&reference, &[job(4, vec![f32::NAN])], &mut found);
        assert_eq!((found.losses, found.different_losses), (1, 1));
    }
}
