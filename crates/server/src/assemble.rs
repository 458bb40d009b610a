//! The composition root: it makes every part and passes each part explicitly to its users.

mod endpoint_service;
mod file_repository;
mod links;
mod part_options;
mod ports;
mod server;
mod vertex_ai;

pub use endpoint_service::StartError;
pub use server::{Server, Stopped, starting::StartingServer};
