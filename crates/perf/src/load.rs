//! Runs the callers for one point: in a closed loop or an open loop, after a warm-up that does not count.
//!
//! A point owns its tasks and aborts them when it ends, also after an error.

mod closed_loop;
mod measured;
mod open_loop;
mod point;
mod tally;

pub(crate) use self::closed_loop::closed;
pub(crate) use self::measured::{Measured, RequestRecord};
pub(crate) use self::open_loop::open;
pub(crate) use self::point::{MeasuredPoint, MeasurementPlan};
