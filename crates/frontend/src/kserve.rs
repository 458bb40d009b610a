//! The rules of the inference protocol that HTTP and gRPC share.
pub mod classification;
pub mod lengths;
pub mod metadata;
pub mod output;
pub mod parameters;
pub mod shared_memory;
pub mod statistics;
pub mod trace_settings;
pub mod version;
