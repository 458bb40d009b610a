//! Rules that a program can check and no other tool does.

mod circles;
mod declared_files;
mod dependencies;
mod exception_list;
mod explanations;
mod function_use;
mod layers;
mod layout;
mod life_of_a_request;
mod names;
mod page_paths;
mod python_graph;
mod run;
mod rust_graph;
mod source_graph;
mod sources;
mod timing;
mod timing_exceptions;
mod type_shape;

pub(crate) use exception_list::Upkeep;
pub(crate) use run::run;
