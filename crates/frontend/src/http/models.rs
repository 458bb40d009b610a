//! The models of the server: what they are, whether they are ready, their statistics, and the repository.
mod answer;
mod repository;

pub(super) use answer::{ModelsRoute, answer, rules};
