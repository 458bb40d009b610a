//! The rules for configurations, one function each, with the order and texts of Triton.
//!
//! Each function only adds its problems to the errors. One attempt to load a model therefore reports all problems of
//! its configuration.
mod ensemble;
mod instance_groups;
mod paths;
mod priorities;
mod sequence;
mod states;
mod structure;
mod tensors;
mod warmup;

pub(super) use instance_groups::check_instance_groups;
pub(super) use paths::check_paths;
pub(super) use states::check_states;
pub(super) use structure::{check_structure, directory_has_the_name};
pub(super) use tensors::check_tensors;
pub(super) use warmup::check_warmups;

#[cfg(test)]
mod tests;
