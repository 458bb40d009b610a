//! The backend `fil`: it serves forests of decision trees on the processor.
//!
//! The crate `forest` reads the files of XGBoost, LightGBM and treelite and predicts. This crate has what Triton's FIL
//! backend shows: `parameters` reads the parameters of a configuration, `model_file` finds the file and its format,
//! `fit` completes a configuration and checks it against the forest, `answer` decides what the numbers of a forest become
//! in an output, and `instance` runs batches. No library is needed.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod answer;
mod fit;
mod instance;
mod model;
mod model_file;
mod parameters;

pub use model::ForestBackend;
