//! `nereid tune`: finds the settings of a model for a target, by few measurements on this machine.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod config_text;
pub mod search;
pub mod tunable;
