//! What the model of the cost does not explain: a Gaussian process over the points.
//!
//! Neighbouring points deviate alike. The process gives each point a deviation with its standard deviation, also where
//! nothing was measured. Its length, its size and the noise of a measurement are those that make the measurements most
//! likely, of a few candidates each.

use super::space::TuningPoint;

/// The coordinates of a point.
type Place = [f64; 5];

/// How the process behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResidualShape {
    /// Over how many doublings neighbours are alike.
    length: f64,
    /// How much points deviate: a standard deviation.
    size: f64,
    /// The standard deviation of a measurement.
    pub(crate) noise: f64,
}

const LENGTHS: [f64; 3] = [1.5, 3.0, 6.0];
const SIZES: [f64; 4] = [0.03, 0.08, 0.2, 0.5];
const NOISES: [f64; 5] = [0.01, 0.025, 0.06, 0.15, 0.3];

/// The standard deviation of what all points have in common.
const COMMON: f64 = 0.3;

/// The process, after it was told the measurements.
pub(crate) struct Residual {
    shape: ResidualShape,
    places: Vec<Place>,
    factor: Vec<Vec<f64>>,
    /// The solution of the covariance for the measured deviations.
    weights: Vec<f64>,
}

fn place(point: &TuningPoint) -> Place {
    let setting = &point.setting;
    let log = |number: u32| f64::from(number.max(1)).log2();
    [
        log(setting.instances),
        log(setting.threads.unwrap_or(1)),
        log(setting.batch),
        (1.0 + f64::from(setting.delay_us) / 500.0).log2(),
        log(point.callers),
    ]
}

fn covariance(a: &Place, b: &Place, shape: &ResidualShape) -> f64 {
    let distance: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    shape.size.powi(2) * (-0.5 * distance / shape.length.powi(2)).exp() + COMMON.powi(2)
}

impl Residual {
    /// Learns deviations. `shape` is the shape to use; `None`: the most likely one.
    pub(crate) fn of(measured: &[(TuningPoint, f64)], shape: Option<ResidualShape>) -> Residual {
        let places: Vec<Place> = measured.iter().map(|(point, _)| place(point)).collect();
        let values: Vec<f64> = measured.iter().map(|(_, value)| *value).collect();
        if let Some(shape) = shape {
            return Residual::with(&places, &values, shape).0;
        }
        let mut best: Option<(Residual, f64)> = None;
        for length in LENGTHS {
            for size in SIZES {
                for noise in NOISES {
                    let found = Residual::with(&places, &values, ResidualShape { length, size, noise });
                    if best.as_ref().is_none_or(|(_, likelihood)| found.1 > *likelihood) {
                        best = Some(found);
                    }
                }
            }
        }
        best.expect("the lists of candidates are not empty").0
    }

    /// The process of one shape, and the logarithm of its likelihood.
    fn with(places: &[Place], values: &[f64], shape: ResidualShape) -> (Residual, f64) {
        let count = places.len();
        let mut factor = vec![vec![0.0; count]; count];
        for row in 0..count {
            for column in 0..=row {
                let mut sum = covariance(&places[row], &places[column], &shape);
                if row == column {
                    sum += shape.noise.powi(2);
                }
                let dot: f64 = (0..column).map(|k| factor[row][k] * factor[column][k]).sum();
                factor[row][column] = if row == column {
                    // The noise keeps the matrix positive; rounding must not make the root of a negative number.
                    (sum - dot).max(1e-12).sqrt()
                } else {
                    (sum - dot) / factor[column][column]
                };
            }
        }
        let half = forward(&factor, values);
        let mut weights = half.clone();
        for row in (0..count).rev() {
            let dot: f64 = (row + 1..count).map(|k| factor[k][row] * weights[k]).sum();
            weights[row] = (weights[row] - dot) / factor[row][row];
        }
        let likelihood = -0.5 * half.iter().map(|value| value * value).sum::<f64>()
            - (0..count).map(|row| factor[row][row].ln()).sum::<f64>();
        (Residual { shape, places: places.to_vec(), factor, weights }, likelihood)
    }

    pub(crate) fn shape(&self) -> ResidualShape {
        self.shape
    }

    /// The deviation of a point, and its standard deviation without the noise of a measurement.
    pub(crate) fn at(&self, point: &TuningPoint) -> (f64, f64) {
        let place = place(point);
        let toward: Vec<f64> =
            self.places.iter().map(|other| covariance(other, &place, &self.shape)).collect();
        let mean = toward.iter().zip(&self.weights).map(|(toward, weight)| toward * weight).sum();
        let known: f64 = forward(&self.factor, &toward).iter().map(|value| value * value).sum();
        let own = covariance(&place, &place, &self.shape);
        (mean, (own - known).max(1e-10).sqrt())
    }
}

/// Solves the triangular system.
fn forward(factor: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(values.len());
    for (row, value) in factor.iter().zip(values) {
        let dot: f64 = row.iter().zip(&solved).map(|(factor, known)| factor * known).sum();
        solved.push((value - dot) / row[solved.len()]);
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::super::space::TunedSetting;
    use super::*;

    fn point(batch: u32, callers: u32) -> TuningPoint {
        TuningPoint { setting: TunedSetting { instances: 1, threads: Some(1), batch, delay_us: 0 }, callers }
    }

    #[test]
    fn a_measured_point_is_known_and_a_distant_one_is_not() {
        let measured = [(point(1, 1), 0.5), (point(2, 1), 0.4), (point(4, 1), -0.1)];
        let process = Residual::of(&measured, Some(ResidualShape { length: 1.5, size: 0.5, noise: 0.01 }));
        for (point, value) in &measured {
            let (mean, sd) = process.at(point);
            assert!((mean - value).abs() < 0.02 && sd < 0.02, "{point}: {mean} {sd}");
        }
        let (_, near) = process.at(&point(2, 2));
        let (_, far) = process.at(&point(2, 1024));
        assert!(far > 1.5 * near && far > 0.5, "{far} {near}");
    }

    #[test]
    fn repeated_measurements_are_averaged() {
        let measured: Vec<_> = (0..16).map(|i| (point(8, 8), if i % 2 == 0 { 0.1 } else { -0.1 })).collect();
        let (mean, sd) = Residual::of(&measured, None).at(&point(8, 8));
        assert!(mean.abs() < 0.01 && sd < 0.06, "{mean} {sd}");
    }

    #[test]
    fn the_most_likely_noise_is_near_the_true_one() {
        let noisy: Vec<_> =
            (0..40).map(|i| (point(1 << (i % 4), 8), if i / 4 % 2 == 0 { 0.06 } else { -0.06 })).collect();
        assert!((Residual::of(&noisy, None).shape().noise - 0.06).abs() < 1e-9);
    }

    #[test]
    fn without_measurements_everything_is_open() {
        let (mean, sd) = Residual::of(&[], None).at(&point(1, 1));
        assert!(mean.abs() < 1e-9 && sd > 0.2);
    }
}
