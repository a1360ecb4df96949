//! Adding up gradients in an order that does not depend on the number of ranks, and giving out what
//! follows from the sum.
//!
//! Sums of rounded numbers depend on their order. So each sample's gradient travels alone to the
//! rank that owns a range of the parameters, which adds the samples in the order of the batch. A
//! real job would rather fix a tree of partial sums than send so much; the point is the same: the
//! order must not follow from who computed what.

use std::ops::Range;

use waystation_format::{Code, Error, Result};

use crate::params::share;
use crate::wire::Peers;

/// Which rank this is, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

/// Losses and gradients of the samples of a batch that one rank computed, in the batch's order.
pub(crate) struct Samples {
    pub(crate) losses: Vec<f32>,
    /// A flat list of all parameters each.
    pub(crate) gradients: Vec<Vec<f32>>,
}

/// What all of a batch say together.
pub(crate) struct Reduced {
    /// The mean loss; the same on every rank.
    pub(crate) loss: f32,
    /// The mean gradient of the range that this rank owns.
    pub(crate) gradient: Vec<f32>,
}

impl Place {
    fn others(self) -> impl Iterator<Item = usize> {
        (0..self.ranks).filter(move |&other| other != self.rank)
    }
}

/// Gives every rank the mean loss and the mean gradient of the range that it owns; `owned` says
/// which that is.
///
/// # Errors
/// `interrupted` when the job is gone.
pub(crate) fn reduce(
    place: Place,
    batch: usize,
    mine: &Samples,
    owned: &dyn Fn(usize) -> Range<usize>,
    peers: &mut dyn Peers,
) -> Result<Reduced> {
    for other in place.others() {
        let mut message = to_bytes(&mine.losses);
        for gradient in &mine.gradients {
            let theirs = gradient.get(owned(other)).ok_or_else(wrong_length)?;
            message.extend(to_bytes(theirs));
        }
        peers.send(other, &message)?;
    }
    let range = owned(place.rank);
    let mut loss = 0.0;
    let mut sum = vec![0.0; range.len()];
    // Ranks have contiguous shares of the batch, so this is the batch's order.
    for rank in 0..place.ranks {
        if rank == place.rank {
            for (sample, gradient) in mine.losses.iter().zip(&mine.gradients) {
                loss += sample;
                add(&mut sum, gradient.get(range.clone()).ok_or_else(wrong_length)?);
            }
            continue;
        }
        let numbers = from_bytes(&peers.receive(rank)?);
        let samples = share(batch, rank, place.ranks).len();
        let (losses, gradients) = numbers.split_at_checked(samples).ok_or_else(wrong_length)?;
        if gradients.len() != samples.saturating_mul(range.len()) {
            return Err(wrong_length());
        }
        for (sample, gradient) in losses.iter().zip(gradients.chunks(range.len().max(1))) {
            loss += sample;
            add(&mut sum, gradient);
        }
    }
    let count = batch as f32;
    sum.iter_mut().for_each(|sum| *sum /= count);
    Ok(Reduced { loss: loss / count, gradient: sum })
}

/// Every rank gives the others the range of `values` that it owns.
///
/// # Errors
/// `interrupted` when the job is gone.
pub(crate) fn gather(
    place: Place,
    values: &mut [f32],
    owned: &dyn Fn(usize) -> Range<usize>,
    peers: &mut dyn Peers,
) -> Result<()> {
    let mine = to_bytes(values.get(owned(place.rank)).ok_or_else(wrong_length)?);
    for other in place.others() {
        peers.send(other, &mine)?;
    }
    for other in place.others() {
        let numbers = from_bytes(&peers.receive(other)?);
        let theirs = values.get_mut(owned(other)).ok_or_else(wrong_length)?;
        if theirs.len() != numbers.len() {
            return Err(wrong_length());
        }
        theirs.copy_from_slice(&numbers);
    }
    Ok(())
}

/// As they stand in messages and in shards: little-endian, one after the other.
pub(crate) fn to_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// As [`to_bytes`], back.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

fn add(sum: &mut [f32], gradient: &[f32]) {
    sum.iter_mut().zip(gradient).for_each(|(sum, number)| *sum += number);
}

#[cold]
fn wrong_length() -> Error {
    Error::new(Code::BadArgument, "expected a message of the job's sizes, found another")
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;

    type Mail = HashMap<(usize, usize), VecDeque<Vec<u8>>>;

    /// Ranks as threads.
    struct Threads(usize, Arc<(Mutex<Mail>, Condvar)>);

    impl Peers for Threads {
        fn send(&mut self, to: usize, bytes: &[u8]) -> Result<()> {
            let (mail, news) = &*self.1;
            mail.lock().unwrap().entry((self.0, to)).or_default().push_back(bytes.to_vec());
            news.notify_all();
            Ok(())
        }

        fn receive(&mut self, from: usize) -> Result<Vec<u8>> {
            let (mail, news) = &*self.1;
            let mut mail = mail.lock().unwrap();
            loop {
                let found = mail.get_mut(&(from, self.0)).and_then(VecDeque::pop_front);
                if let Some(bytes) = found {
                    return Ok(bytes);
                }
                mail = news.wait(mail).unwrap();
            }
        }
    }

    /// Numbers whose sum depends on the order in which they are added.
    fn number(sample: usize, at: usize) -> f32 {
        let x = sample as f32 * 31.0 + at as f32 * 17.0;
        if sample.is_multiple_of(3) { x * 1e6 } else { x / 7.0 - 50.0 }
    }

    fn run(batch: usize, count: usize, ranks: usize) -> Vec<(f32, Vec<f32>)> {
        let mail = Arc::default();
        let owned = |rank| share(count, rank, ranks);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..ranks)
                .map(|rank| {
                    let mut peers = Threads(rank, Arc::clone(&mail));
                    scope.spawn(move || {
                        let place = Place { rank, ranks };
                        let samples = share(batch, rank, ranks);
                        let mine = Samples {
                            losses: samples.clone().map(|s| number(s, 5)).collect(),
                            gradients: samples
                                .map(|s| (0..count).map(|at| number(s, at)).collect())
                                .collect(),
                        };
                        let sum = reduce(place, batch, &mine, &owned, &mut peers).unwrap();
                        let mut values = vec![0.0; count];
                        values[owned(rank)].copy_from_slice(&sum.gradient);
                        gather(place, &mut values, &owned, &mut peers).unwrap();
                        (sum.loss, values)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn the_sum_is_the_same_bits_on_any_number_of_ranks() {
        let bits = |(loss, values): &(f32, Vec<f32>)| (loss.to_bits(), to_bytes(values));
        let alone = bits(&run(13, 29, 1)[0]);
        for ranks in [2, 3, 4, 5, 13, 16] {
            for one in run(13, 29, ranks) {
                assert_eq!(bits(&one), alone, "{ranks} ranks");
            }
        }
    }
}
