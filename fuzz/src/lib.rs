//! Every parser of bytes from outside, as a target of fuzzers, with one oracle for all.
//!
//! A [`FuzzTarget`] runs a parser on an input. The oracle ([`FuzzTarget::check`]) counts what the parser allocates, and fails if
//! the parser panics, takes more memory than its bound allows, or works longer than in proportion to its input. Memory
//! that the parser has reserved in a budget counts as input.
//!
//! Two things search for inputs that fail: libFuzzer, which follows what the code does (`cargo xtask fuzz`, the program of
//! this package), and a fixed number of mutations of the corpus, which are the same each time (the tests of this package).

mod counting_allocator;
mod files;
mod mutation;
mod oracle;
mod target;
mod targets;

pub use files::{SavedInput, corpus};
pub use mutation::Mutator;
pub use oracle::{Bound, Broken, Effort};
pub use target::FuzzTarget;
pub use targets::{TARGETS, find_target};
