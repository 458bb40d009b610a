//! `nereid tune`: finds the settings of a model for a target, by few measurements on this machine.
//!
//! [`search`] decides what to measure and what is best. It has no clock and does nothing. The other modules serve the model
//! in a process of its own, measure it with the load generator, and write the configuration and the report.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod command;
pub mod config_text;
pub mod options;
pub mod processors;
pub mod report;
pub mod round;
pub mod scratch;
pub mod search;
pub mod served;
pub mod tunable;
pub mod tuning;

pub use command::run;
