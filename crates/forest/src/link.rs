//! Links: what makes predictions of sums of leaves.

use crate::real::Real;

/// The function that makes the predictions of a row from its margins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Link {
    /// The margin itself.
    Identity,
    /// `1 / (1 + exp(-slope * x))`, for each class on its own.
    Logistic {
        /// LightGBM's parameter `sigmoid`, otherwise 1.
        slope: f64,
    },
    /// `exp(x)`, divided by its sum over the classes of a target.
    Softmax,
    /// `exp(x)`.
    Exponential,
    /// `2^(-x / ratio)`, the score of isolation forests.
    ExponentialRatio {
        /// The mean depth of a leaf, treelite's `ratio_c`.
        ratio: f64,
    },
    /// `ln(1 + exp(x))`.
    LogOnePlusExp,
    /// `x * |x|`, for targets that were learnt as their square root.
    SignedSquare,
    /// 1 if the margin is positive, otherwise 0.
    Hinge,
}

impl Link {
    /// Makes predictions of the margins of one row. Each `classes` margins are one target's.
    pub(crate) fn apply<R: Real>(self, margins: &mut [R], classes: usize) {
        match self {
            Self::Identity => {}
            Self::Softmax => margins.chunks_mut(classes.max(1)).for_each(softmax),
            Self::Logistic { slope } => {
                let slope = R::near(slope);
                each(margins, |x| R::ONE / (R::ONE + (-slope * x).exp()));
            }
            Self::Exponential => each(margins, R::exp),
            Self::ExponentialRatio { ratio } => {
                let ratio = R::near(ratio);
                each(margins, |x| (-x / ratio).exp2());
            }
            Self::LogOnePlusExp => each(margins, |x| x.exp().ln_1p()),
            Self::SignedSquare => each(margins, |x| x * x.abs()),
            Self::Hinge => each(margins, |x| if x > R::ZERO { R::ONE } else { R::ZERO }),
        }
    }
}

fn each<R: Real>(margins: &mut [R], prediction: impl Fn(R) -> R) {
    for margin in margins {
        *margin = prediction(*margin);
    }
}

/// The largest margin becomes `exp(0)`, so that none overflows. The sum is one of 64 bits, as in the libraries.
fn softmax<R: Real>(margins: &mut [R]) {
    let largest = margins.iter().copied().reduce(|a, b| if b > a { b } else { a });
    let Some(largest) = largest else { return };
    let mut sum = 0.0f64;
    for margin in margins.iter_mut() {
        *margin = (*margin - largest).exp();
        sum += (*margin).into();
    }
    each(margins, |power| power / R::near(sum));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_the_functions_of_their_names() {
        let apply = |link: Link, mut margins: [f64; 2]| {
            link.apply(&mut margins, 2);
            margins
        };
        assert_eq!(apply(Link::Identity, [2.0, -3.0]), [2.0, -3.0]);
        assert_eq!(apply(Link::Logistic { slope: 2.0 }, [0.0, f64::NEG_INFINITY]), [0.5, 0.0]);
        assert_eq!(apply(Link::Softmax, [1000.0, 1000.0]), [0.5, 0.5]);
        assert_eq!(apply(Link::Exponential, [0.0, 1.0]), [1.0, 1.0f64.exp()]);
        assert_eq!(apply(Link::ExponentialRatio { ratio: 2.0 }, [4.0, -2.0]), [0.25, 2.0]);
        assert_eq!(apply(Link::LogOnePlusExp, [0.0, f64::NEG_INFINITY]), [2.0f64.ln(), 0.0]);
        assert_eq!(apply(Link::SignedSquare, [2.0, -3.0]), [4.0, -9.0]);
        assert_eq!(apply(Link::Hinge, [0.0, 0.1]), [0.0, 1.0]);
    }
}
