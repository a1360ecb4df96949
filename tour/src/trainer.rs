//! One rank of the training: everything that a step changes, and the step.
//!
//! It knows how model, data, dropout, reduction and optimizer play together. It must not know
//! checkpoints: `save` and `resume` do.

use std::ops::Range;

use waystation_format::{Code, Error, Result};

use crate::data::Data;
use crate::model::{HIDDEN, Model};
use crate::optimizer::{AdamW, Moments, Schedule};
use crate::params::share;
use crate::reduce::{Place, Samples, gather, reduce};
use crate::stream::Stream;
use crate::text::Text;
use crate::wire::Peers;

/// Samples of one step, over all ranks.
pub(crate) const BATCH: usize = 48;
/// Optimizer steps of the whole training.
pub(crate) const STEPS: u64 = 240;

/// Settings of the optimizer.
pub(crate) const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.01 };
/// The learning rate.
pub(crate) const SCHEDULE: Schedule =
    Schedule { base: 0.01, floor: 0.0005, warmup: 12, total: STEPS };

/// Where the numbers at the start come from. Not needed again, so no checkpoint holds it.
const SEED_OF_WEIGHTS: u64 = 2026;
/// Where the dropout stream starts.
pub(crate) const SEED_OF_DROPOUT: u64 = 11;

/// The state of one rank.
pub(crate) struct Trainer {
    pub(crate) place: Place,
    pub(crate) text: Text,
    pub(crate) model: Model,
    /// Optimizer steps done.
    pub(crate) step: u64,
    /// All parameters, on every rank.
    pub(crate) values: Vec<f32>,
    /// Of the range that this rank owns.
    pub(crate) moments: Moments,
    /// The same on every rank.
    pub(crate) dropout: Stream,
    /// The same on every rank.
    pub(crate) data: Data,
    /// By number of the range that this rank owns: whether it decays.
    decays: Vec<bool>,
}

impl Trainer {
    /// The state before the first step.
    ///
    /// # Errors
    /// None: the engines are known.
    pub(crate) fn new(place: Place) -> Result<Self> {
        let text = Text::new();
        let model = Model::new(text.alphabet());
        let mut stream = Stream::seeded(SEED_OF_WEIGHTS)?;
        let mut values = Vec::with_capacity(model.params.len());
        for param in &model.params.0 {
            let spread = model.spread(param.name);
            values.extend(stream.spread(param.flat.len()).iter().map(|number| number * spread));
        }
        let owned = model.params.owned(place.rank, place.ranks);
        let data = Data::new(text.windows(), BATCH)?;
        let mut decays = Vec::with_capacity(model.params.len());
        for param in &model.params.0 {
            decays.extend(param.flat.clone().map(|_| param.decays));
        }
        let decays = decays.get(owned.clone()).unwrap_or_default().to_vec();
        let moments = Moments::zero(owned.len());
        let dropout = Stream::seeded(SEED_OF_DROPOUT)?;
        Ok(Self { place, text, model, step: 0, values, moments, dropout, data, decays })
    }

    /// The range of the flat list of parameters that this rank owns.
    pub(crate) fn owned(&self) -> Range<usize> {
        self.model.params.owned(self.place.rank, self.place.ranks)
    }

    /// The learning rate of the next step.
    pub(crate) fn rate(&self) -> f64 {
        SCHEDULE.rate(self.step)
    }

    /// One optimizer step of the whole job. The mean loss of its samples, as the parameters were
    /// before it.
    ///
    /// # Errors
    /// `interrupted` when the job is gone.
    pub(crate) fn step(&mut self, peers: &mut dyn Peers) -> Result<f32> {
        let mine = self.samples()?;
        let Place { rank, ranks } = self.place;
        let params = &self.model.params;
        let owned = |rank| params.owned(rank, ranks);
        let reduced = reduce(self.place, BATCH, &mine, &owned, peers)?;
        let next = self.step.saturating_add(1);
        let rate = SCHEDULE.rate(self.step);
        let values = self.values.get_mut(owned(rank)).ok_or_else(no_sample)?;
        ADAM.update(next, rate, values, &reduced.gradient, &mut self.moments, &self.decays);
        gather(self.place, &mut self.values, &owned, peers)?;
        self.step = next;
        Ok(reduced.loss)
    }

    /// Losses and gradients of this rank's share of the next batch.
    fn samples(&mut self) -> Result<Samples> {
        let mine = self.data.share(BATCH, self.place)?;
        // Every rank draws the masks of all samples: so the stream is at one place on all of them,
        // and a sample's mask does not depend on who computes it.
        let masks = self.dropout.mask(BATCH.saturating_mul(HIDDEN));
        let share = share(BATCH, self.place.rank, self.place.ranks);
        let mut samples = Samples { losses: Vec::new(), gradients: Vec::new() };
        let mut scratch = self.model.scratch();
        for (&at, mask) in mine.iter().zip(masks.chunks(HIDDEN).skip(share.start)) {
            let window = self.text.window(at).ok_or_else(no_sample)?;
            let mut gradient = vec![0.0; self.values.len()];
            let loss =
                self.model.sample(&self.values, &window, mask, &mut scratch, &mut gradient)?;
            samples.losses.push(loss);
            samples.gradients.push(gradient);
        }
        Ok(samples)
    }
}

#[cold]
fn no_sample() -> Error {
    Error::new(Code::BadArgument, "expected sizes of this model and text, found others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Nobody;

    #[test]
    fn it_learns() {
        let mut trainer = Trainer::new(Place { rank: 0, ranks: 1 }).unwrap();
        let losses: Vec<f32> = (0..STEPS).map(|_| trainer.step(&mut Nobody).unwrap()).collect();
        let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
        assert!(mean(&losses[..5]) > 3.0);
        assert!(mean(&losses[230..]) < 2.0);
        // The same on any machine, however it is compiled: see `math`.
        let bits: Vec<String> =
            [0, 19, 239].map(|at| format!("{:08x}", losses[at].to_bits())).to_vec();
        assert_eq!(bits, ["4058fb38", "401909c3", "3f876506"]);
    }
}
