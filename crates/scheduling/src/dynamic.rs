//! The dynamic batcher: it combines requests of one model into batches, for any instance of the model.
mod batcher;
mod config;
mod priority_level;
mod queue;
mod service_key;

pub use batcher::DynamicBatcher;
pub use config::{DynamicBatching, QueuePolicy, TimeoutAction};
