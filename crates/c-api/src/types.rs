//! The types that all four interfaces share: enumerations, errors, messages, parameters, buffers, traces, metrics, the
//! log.
pub mod buffer_attributes;
pub mod enums;
pub mod error;
pub mod log;
pub mod message;
pub mod metrics;
pub mod parameter;
pub mod trace;
pub mod version;
