//! The dynamic batcher: requests of one model, any instance, the largest sensible batch.
mod batcher;
mod config;
mod priority_level;
mod queue;

pub use batcher::DynamicBatcher;
pub use config::{DynamicBatching, QueuePolicy, TimeoutAction};
