//! The scales of a plot: where a value is drawn, and which values are marked.

/// An axis. Values from `low` to `high` are drawn from `from` to `to`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlotScale {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl PlotScale {
    /// An axis from zero to at least `largest`.
    pub(crate) fn linear(largest: f64, from: f64, to: f64) -> PlotScale {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = step_for(largest);
        PlotScale { low: 0.0, high: (largest / step).ceil() * step, is_log: false, from, to }
    }

    /// An axis whose distances are ratios. Both values are above zero.
    pub(crate) fn logarithmic(smallest: f64, largest: f64, from: f64, to: f64) -> PlotScale {
        let low = rounded_down(smallest);
        let high = rounded_up(largest.max(low * 1.01));
        PlotScale { low, high, is_log: true, from, to }
    }

    /// Where a value is drawn.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + share * (self.to - self.from)
    }

    /// The values that are marked.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
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
        let scale = PlotScale::linear(93.0, 0.0, 100.0);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((scale.at(0.0), scale.at(50.0), scale.at(100.0)), (0.0, 50.0, 100.0));
        assert_eq!(PlotScale::linear(0.0, 0.0, 1.0).at(0.0), 0.0);
    }

    #[test]
    fn a_logarithmic_axis_has_its_values_between_its_ends() {
        let scale = PlotScale::logarithmic(130.0, 7000.0, 100.0, 0.0);
        let ticks: Vec<i64> = scale.ticks().into_iter().map(|tick| tick.round() as i64).collect();
        assert_eq!(ticks, [100, 200, 500, 1000, 2000, 5000, 10_000]);
        assert!((scale.at(1000.0) - 50.0).abs() < 1e-9);
        let single = PlotScale::logarithmic(100.0, 100.0, 0.0, 1.0);
        assert!(single.at(100.0).is_finite() && single.ticks().len() >= 2);
    }
}
