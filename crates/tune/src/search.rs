//! The search: decides what to measure next, when it is enough, and what is best. It has no clock and does nothing.
//!
//! Each measurement gives throughput and latency of a [`TuningPoint`]. A [`CostModel`] explains them by few constants, and
//! a Gaussian process explains the rest. Both together predict every point of the [`TuningSpace`] with a standard
//! deviation. The next point is the one from which the most improvement is expected. In the end the best points are
//! measured again in turns, because one measurement of the best of many points is too good.

mod belief;
mod cost;
mod goal;
mod residual;
mod sample;
mod simplex;
mod space;
mod state;
#[cfg(test)]
mod synthetic_tests;

pub use cost::{BatchTime, CostModel};
pub use goal::{Estimate, KNEE_EXPONENT, TuningGoal};
pub use sample::TuningSample;
pub use space::{DELAYS_US, SpaceLimits, TunedSetting, TuningPoint, TuningSpace, powers};
pub use state::{Search, SearchPlan, SearchStep};
