//! Triton's C interfaces: the tables in `crates/c-api/abi`, the header made from them, and the checks against them.
//!
//! The tables are written first, and Rust is compared with them. A header made from the Rust functions would repeat
//! their mistakes, and users of the header could not notice.

mod comparison;
mod exports;
mod header;
mod signatures;
mod table;

pub(crate) use comparison::{broken, type_names, write_header};
