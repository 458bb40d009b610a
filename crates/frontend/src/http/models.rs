//! The models of the server.
mod repository;
