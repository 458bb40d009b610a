//! The scales of a plot: where a value is, and which values are marked.

/// The values of an axis. It ends at round numbers: 1, 2 or 5 times a power of ten, or a few times one of these.
#[derive(Debug, Clone, Copy)]
pub struct PlotScale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl PlotScale {
    /// From zero to at least the largest of the values.
    #[must_use]
    pub fn linear(values: impl IntoIterator<Item = f64>) -> PlotScale {
        let largest = ends(values).map_or(1.0, |(_, largest)| largest);
        let step = step_for(largest);
        PlotScale { low: 0.0, high: (largest / step).ceil() * step, is_logarithmic: false }
    }

    /// Equal distances are equal ratios. Values that are not above zero are drawn at the low end.
    #[must_use]
    pub fn logarithmic(values: impl IntoIterator<Item = f64>) -> PlotScale {
        let (smallest, largest) = ends(values).unwrap_or((1.0, 10.0));
        let low = rounded_down(smallest);
        PlotScale { low, high: rounded_up(largest.max(low * 1.01)), is_logarithmic: true }
    }

    /// Logarithmic if the values differ more than tenfold, else linear.
    #[must_use]
    pub fn fitting(values: impl IntoIterator<Item = f64>) -> PlotScale {
        match ends(values) {
            Some((smallest, largest)) if largest > 10.0 * smallest => {
                PlotScale::logarithmic([smallest, largest])
            }
            ends => PlotScale::linear(ends.map(|(_, largest)| largest)),
        }
    }

    /// Where a value is drawn: 0 is the low end, 1 the high end. A value beyond an end is drawn at the end.
    #[must_use]
    pub fn share(&self, value: f64) -> f64 {
        // What is not a number becomes the low end.
        let value = value.max(self.low).min(self.high);
        match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// The value that is drawn there.
    #[must_use]
    pub fn value(&self, share: f64) -> f64 {
        match self.is_logarithmic {
            true => self.low * (self.high / self.low).powf(share),
            false => self.low + share * (self.high - self.low),
        }
    }

    /// The values that are marked.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.is_logarithmic {
            let step = step_for(self.high);
            let count = (self.high / step).round() as usize;
            return (0..=count).map(|index| index as f64 * step).collect();
        }
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.low.log10().floor());
        while power <= self.high * 1.001 {
            ticks.extend([1.0, 2.0, 5.0].map(|digit| digit * power));
            power *= 10.0;
        }
        ticks.retain(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick));
        ticks
    }
}

/// The smallest and the largest of the values above zero. Values that no power of ten can frame do not count.
fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| (1e-300..1e300).contains(value)).fold(None, |ends, value| {
        let (smallest, largest) = ends.unwrap_or((value, value));
        Some((value.min(smallest), value.max(largest)))
    })
}

/// A distance of 1, 2 or 5 times a power of ten that divides the axis into about five parts.
fn step_for(largest: f64) -> f64 {
    let power = 10_f64.powf((largest / 5.0).log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power * 5.0 >= largest * 0.999);
    digit.unwrap_or(10.0) * power
}

/// The largest of 1, 2 and 5 times a power of ten that is not above the value.
fn rounded_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0].into_iter().find(|digit| digit * power <= value * 1.000_001);
    digit.unwrap_or(1.0) * power
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below the value.
fn rounded_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= value * 0.999_999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_number() {
        let scale = PlotScale::linear([12.0, 93.0]);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!([0.0, 50.0, 100.0, 200.0].map(|value| scale.share(value)), [0.0, 0.5, 1.0, 1.0]);
        assert_eq!(scale.value(0.25), 25.0);
    }

    #[test]
    fn a_logarithmic_axis_has_its_values_between_its_ends() {
        let scale = PlotScale::logarithmic([130.0, 7000.0]);
        let ticks: Vec<i64> = scale.ticks().into_iter().map(|tick| tick.round() as i64).collect();
        assert_eq!(ticks, [100, 200, 500, 1000, 2000, 5000, 10_000]);
        assert!((scale.share(1000.0) - 0.5).abs() < 1e-9 && (scale.value(0.5) - 1000.0).abs() < 1e-9);
        let single = PlotScale::logarithmic([100.0]);
        assert!(single.share(100.0).is_finite() && single.ticks().len() >= 2);
    }

    #[test]
    fn values_that_differ_much_have_a_logarithmic_axis() {
        assert!(PlotScale::fitting([1.0, 11.0]).is_logarithmic);
        assert!(!PlotScale::fitting([1.0, 9.0]).is_logarithmic);
    }

    #[test]
    fn every_value_has_a_place() {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::from_bits(1)];
        for scale in [PlotScale::linear(odd), PlotScale::logarithmic(odd), PlotScale::fitting(odd)] {
            assert!(odd.iter().all(|value| (0.0..=1.0).contains(&scale.share(*value))), "{scale:?}");
            assert!((2..20).contains(&scale.ticks().len()), "{scale:?}");
        }
    }
}
