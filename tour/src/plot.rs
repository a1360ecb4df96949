//! The loss as a picture of characters: no colour, no more columns than there are.
//!
//! It knows numbers and columns. Each point is drawn as the number of ranks that computed it.

/// Rows of the picture.
const ROWS: usize = 11;
/// Columns left of it.
const MARGIN: usize = 9;

/// A loss and who computed it, by step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) loss: f32,
    pub(crate) ranks: usize,
}

/// Something that happened after a step: a sign under the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) step: usize,
    pub(crate) sign: char,
}

/// The picture; the first point is that of step 1. Where several steps share a column it shows
/// their mean.
pub(crate) fn plot(points: &[Point], marks: &[Mark], width: usize) -> Vec<String> {
    let columns = width.saturating_sub(MARGIN).clamp(10, 120).min(points.len().max(1));
    let column_of = |step: usize| {
        let at = step.saturating_sub(1).saturating_mul(columns);
        at.checked_div(points.len()).unwrap_or(0).min(columns.saturating_sub(1))
    };
    let mut sums = vec![(0.0_f32, 0.0_f32, 0_usize); columns];
    for (step, point) in (1..).zip(points) {
        if let Some((sum, count, ranks)) = sums.get_mut(column_of(step)) {
            *sum += point.loss;
            *count += 1.0;
            *ranks = point.ranks;
        }
    }
    let means: Vec<(f32, usize)> = sums.iter().map(|(sum, n, ranks)| (sum / n, *ranks)).collect();
    let top = means.iter().map(|mean| mean.0).fold(f32::MIN, f32::max);
    let bottom = means.iter().map(|mean| mean.0).fold(f32::MAX, f32::min);
    let height = (top - bottom).max(f32::MIN_POSITIVE) / (ROWS.saturating_sub(1)) as f32;

    let mut lines = Vec::new();
    for row in 0..ROWS {
        let level = top - height * row as f32;
        let mut line = format!("{level:>7.2} │");
        for &(mean, ranks) in &means {
            let here = (mean - level).abs() <= height * 0.5;
            let digit = u32::try_from(ranks).ok().and_then(|ranks| char::from_digit(ranks, 36));
            line.push(if here { digit.unwrap_or('•') } else { ' ' });
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.push(format!("{:>7} └{}", "loss", "─".repeat(columns)));
    let mut signs = vec![' '; columns];
    for mark in marks {
        if let Some(sign) = signs.get_mut(column_of(mark.step)) {
            *sign = mark.sign;
        }
    }
    lines.push(format!("{:>9}{}", "step ", signs.iter().collect::<String>().trim_end()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_from_left_to_right_and_fits() {
        let points: Vec<Point> =
            (0..240).map(|i| Point { loss: 3.0 - i as f32 / 120.0, ranks: 4 }).collect();
        for width in [0, 30, 80, 200] {
            let lines = plot(&points, &[Mark { step: 240, sign: 'x' }], width);
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width.max(19), "{width}: {longest}");
            assert!(lines[0].ends_with('4') && lines[ROWS - 1].ends_with('4'));
            assert!(lines[0].chars().count() < lines[ROWS - 1].chars().count());
            assert_eq!(lines.last().unwrap().chars().last(), Some('x'));
        }
    }

    #[test]
    fn every_column_has_a_point() {
        let points: Vec<Point> =
            [3.0, 1.0, 2.5, 2.0, 1.5].map(|loss| Point { loss, ranks: 1 }).to_vec();
        let lines = plot(&points, &[], 80);
        let dots: usize = lines[..ROWS].iter().map(|line| line.matches('1').count()).sum();
        // Of the scale, only "1.…" has more of them.
        let scale: usize = lines[..ROWS].iter().map(|line| line[..8].matches('1').count()).sum();
        assert_eq!(dots - scale, 5);
    }
}
