//! The model: eight characters in, a guess at the ninth out; forward and backward, one sample at a
//! time.
//!
//! It knows sizes and arithmetic, always in the same order, so a sample's loss and gradient are the
//! same bits whoever computes them. It must not know batches, ranks or where masks come from.

use waystation_format::{Code, Error, Result};

use crate::math::{exp, ln, tanh};
use crate::params::Params;
use crate::text::{CONTEXT, Window};

/// Numbers by which a character is described.
const EMBEDDING: usize = 16;
/// Units of the hidden layer.
pub(crate) const HIDDEN: usize = 160;
const INPUTS: usize = CONTEXT * EMBEDDING;

/// Embedding, one hidden layer with dropout, one number for each character that may follow.
pub(crate) struct Model {
    pub(crate) params: Params,
    alphabet: usize,
}

/// A flat list of numbers, by tensor.
struct Tensors<'f> {
    embedding: &'f [f32],
    hidden: &'f [f32],
    hidden_bias: &'f [f32],
    output: &'f [f32],
    output_bias: &'f [f32],
}

/// What a rank reuses from sample to sample.
pub(crate) struct Scratch {
    inputs: Vec<f32>,
    hidden: Vec<f32>,
    dropped: Vec<f32>,
    guesses: Vec<f32>,
    to_hidden: Vec<f32>,
    to_inputs: Vec<f32>,
}

impl Model {
    pub(crate) fn new(alphabet: usize) -> Self {
        let params = Params::new(vec![
            ("embedding.weight", vec![alphabet, EMBEDDING], true),
            ("hidden.weight", vec![HIDDEN, INPUTS], true),
            ("hidden.bias", vec![HIDDEN], false),
            ("output.weight", vec![alphabet, HIDDEN], true),
            ("output.bias", vec![alphabet], false),
        ]);
        Self { params, alphabet }
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch {
            inputs: vec![0.0; INPUTS],
            hidden: vec![0.0; HIDDEN],
            dropped: vec![0.0; HIDDEN],
            guesses: vec![0.0; self.alphabet],
            to_hidden: vec![0.0; HIDDEN],
            to_inputs: vec![0.0; INPUTS],
        }
    }

    /// How far the first numbers of each tensor may lie from zero, in the order of the flat list.
    pub(crate) fn spread(&self, name: &str) -> f32 {
        match name {
            "embedding.weight" => 1.0,
            "hidden.weight" => 1.0 / (INPUTS as f32).sqrt(),
            "output.weight" => 1.0 / (HIDDEN as f32).sqrt(),
            _ => 0.0,
        }
    }

    /// The loss of one sample. Its gradient is written into `gradient`, a flat list like `values`.
    /// `mask` has one factor for each hidden unit.
    ///
    /// # Errors
    /// `bad-argument` when a list is of the wrong length.
    pub(crate) fn sample(
        &self,
        values: &[f32],
        window: &Window<'_>,
        mask: &[f32],
        scratch: &mut Scratch,
        gradient: &mut [f32],
    ) -> Result<f32> {
        let of = self.split(values).ok_or_else(wrong_length)?;
        // Forward.
        for (&number, input) in window.context.iter().zip(scratch.inputs.chunks_mut(EMBEDDING)) {
            input.copy_from_slice(row(of.embedding, number, EMBEDDING).ok_or_else(wrong_length)?);
        }
        product(of.hidden, &scratch.inputs, of.hidden_bias, &mut scratch.hidden);
        for ((hidden, dropped), &factor) in
            scratch.hidden.iter_mut().zip(&mut scratch.dropped).zip(mask)
        {
            *hidden = tanh(*hidden);
            *dropped = *hidden * factor;
        }
        product(of.output, &scratch.dropped, of.output_bias, &mut scratch.guesses);
        let loss = softmax(&mut scratch.guesses, window.next).ok_or_else(wrong_length)?;

        // Backward. The guesses now hold what the loss wants of each of them.
        gradient.fill(0.0);
        let to = self.split_mut(gradient).ok_or_else(wrong_length)?;
        let [to_embedding, to_hidden, to_hidden_bias, to_output, to_output_bias] = to;
        to_output_bias.copy_from_slice(&scratch.guesses);
        outer(&scratch.guesses, &scratch.dropped, to_output);
        transposed(of.output, &scratch.guesses, &mut scratch.to_hidden);
        for ((want, hidden), factor) in scratch.to_hidden.iter_mut().zip(&scratch.hidden).zip(mask)
        {
            *want *= factor * (1.0 - hidden * hidden);
        }
        to_hidden_bias.copy_from_slice(&scratch.to_hidden);
        outer(&scratch.to_hidden, &scratch.inputs, to_hidden);
        transposed(of.hidden, &scratch.to_hidden, &mut scratch.to_inputs);
        for (&number, wants) in window.context.iter().zip(scratch.to_inputs.chunks(EMBEDDING)) {
            let row = row_mut(to_embedding, number, EMBEDDING).ok_or_else(wrong_length)?;
            row.iter_mut().zip(wants).for_each(|(sum, want)| *sum += want);
        }
        Ok(loss)
    }

    fn split<'f>(&self, flat: &'f [f32]) -> Option<Tensors<'f>> {
        let [a, b, c, d, e] = self.params.0.as_slice() else { return None };
        Some(Tensors {
            embedding: flat.get(a.flat.clone())?,
            hidden: flat.get(b.flat.clone())?,
            hidden_bias: flat.get(c.flat.clone())?,
            output: flat.get(d.flat.clone())?,
            output_bias: flat.get(e.flat.clone())?,
        })
    }

    fn split_mut<'f>(&self, flat: &'f mut [f32]) -> Option<[&'f mut [f32]; 5]> {
        let [a, b, c, d, e] = self.params.0.as_slice() else { return None };
        let ranges = [&a.flat, &b.flat, &c.flat, &d.flat, &e.flat].map(Clone::clone);
        flat.get_disjoint_mut(ranges).ok()
    }
}

/// `out = matrix · x + bias`; a row of the matrix for each number of `out`.
fn product(matrix: &[f32], x: &[f32], bias: &[f32], out: &mut [f32]) {
    let rows = matrix.chunks_exact(x.len().max(1)).zip(bias);
    for (out, (row, bias)) in out.iter_mut().zip(rows) {
        *out = row.iter().zip(x).fold(*bias, |sum, (weight, x)| sum + weight * x);
    }
}

/// `out = matrixᵀ · y`.
fn transposed(matrix: &[f32], y: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (row, y) in matrix.chunks_exact(out.len().max(1)).zip(y) {
        out.iter_mut().zip(row).for_each(|(sum, weight)| *sum += weight * y);
    }
}

/// `out = y · xᵀ`.
fn outer(y: &[f32], x: &[f32], out: &mut [f32]) {
    for (row, y) in out.chunks_exact_mut(x.len().max(1)).zip(y) {
        row.iter_mut().zip(x).for_each(|(out, x)| *out = y * x);
    }
}

/// The loss when `right` is the right answer; leaves the loss's gradient in place of the guesses.
fn softmax(guesses: &mut [f32], right: usize) -> Option<f32> {
    let top = guesses.iter().copied().fold(f32::MIN, f32::max);
    let chosen = *guesses.get(right)? - top;
    let mut sum = 0.0;
    for guess in &mut *guesses {
        *guess = exp(*guess - top);
        sum += *guess;
    }
    guesses.iter_mut().for_each(|guess| *guess /= sum);
    *guesses.get_mut(right)? -= 1.0;
    Some(ln(sum) - chosen)
}

fn row(matrix: &[f32], number: usize, length: usize) -> Option<&[f32]> {
    matrix.chunks_exact(length).nth(number)
}

fn row_mut(matrix: &mut [f32], number: usize, length: usize) -> Option<&mut [f32]> {
    matrix.chunks_exact_mut(length).nth(number)
}

#[cold]
fn wrong_length() -> Error {
    Error::new(Code::BadArgument, "expected lists of the model's sizes, found others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    /// The gradient is what a small change of a parameter does to the loss.
    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let text = Text::new();
        let model = Model::new(text.alphabet());
        let mut values: Vec<f32> =
            (0..model.params.len()).map(|i| ((i * 7919) % 1000) as f32 / 5000.0 - 0.1).collect();
        let mask: Vec<f32> = (0..HIDDEN).map(|i| if i % 7 == 0 { 0.0 } else { 1.1 }).collect();
        let (mut scratch, mut gradient) = (model.scratch(), vec![0.0; values.len()]);
        let window = text.window(100).unwrap();
        model.sample(&values, &window, &mask, &mut scratch, &mut gradient).unwrap();
        let slopes = gradient.clone();
        for param in &model.params.0 {
            // The steepest of each tensor: rounding hides the slope of the others.
            let steeper = |a: &usize, b: &usize| slopes[*a].abs().total_cmp(&slopes[*b].abs());
            let at = param.flat.clone().max_by(steeper).unwrap();
            let mut loss_at = |shift: f32| {
                let before = values[at];
                values[at] += shift;
                let loss = model.sample(&values, &window, &mask, &mut scratch, &mut gradient);
                values[at] = before;
                loss.unwrap()
            };
            let slope = (loss_at(0.01) - loss_at(-0.01)) / 0.02;
            let close = (slope - slopes[at]).abs() <= 0.02 * slopes[at].abs();
            assert!(close, "{}: {slope} {}", param.name, slopes[at]);
        }
    }
}
