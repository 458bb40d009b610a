//! What the inference protocol means, whichever door it comes by: HTTP and gRPC share these rules.
pub mod classification;
pub mod metadata;
pub mod output;
pub mod parameters;
pub mod shared_memory;
pub mod statistics;
pub mod version;
