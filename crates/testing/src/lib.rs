//! Test doubles and clients: native backends and a cache with known behaviour, model repositories on disk, foreign memory, the
//! recorded exchanges, HTTP and gRPC clients that see every byte, C plug-ins,
//! processes that end with their test, the server as a program, and the cost of what wraps a library.
//!
//! No server uses this crate. Tests and examples of any crate above `inference` may use it.
#![forbid(unsafe_code)]

mod agents;
pub mod batches;
pub mod compare;
pub mod elf;
mod eventually;
pub mod fixtures;
mod gate;
pub mod golden;
pub mod grpc;
pub mod http;
mod identity;
mod memory_cache;
pub mod model_parts;
mod output_offer;
pub mod plugins;
mod process;
mod program;
mod region;
mod repository;
mod run_cost;
pub mod schema;

pub use agents::Agents;
pub use eventually::eventually;
pub use gate::Gate;
pub use identity::Identity;
pub use memory_cache::{MemoryCache, MemoryCaches};
pub use output_offer::OutputOffer;
pub use process::{TestProcess, command};
pub use program::Program;
pub use region::TestRegion;
pub use repository::Repository;
pub use run_cost::RunCost;
