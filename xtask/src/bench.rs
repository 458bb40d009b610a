//! `cargo xtask bench`: compares Nereid with Triton and with a bare loop over ONNX Runtime.
//!
//! All contenders of a row take turns within each round, so that other load on the machine affects all of them.

mod adversary;
mod adversary_process;
mod backends;
mod bare_loop;
mod bare_programs;
mod cache;
mod callgrind;
mod command;
mod ensemble;
mod frameworks;
mod generation;
mod growth;
mod instructions;
mod load;
mod micro;
mod observe;
mod options;
mod peers;
mod processors;
mod promises;
mod python_models;
mod reload;
mod replicas;
mod results;
mod row;
mod server_contender;
mod setup;
mod shared_memory;
mod table;
mod tune;
mod turns;
mod worst_inputs;

pub(crate) use command::run;
pub(crate) use options::BenchOptions;
