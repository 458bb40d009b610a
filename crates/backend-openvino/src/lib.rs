//! The backend for OpenVINO.
//!
//! `ov` has the safe types over the library, and `library` finds it. The build does not depend on the library, which is
//! opened at run time.
#![deny(unsafe_code, missing_docs)]
#![cfg_attr(not(test), expect(dead_code, reason = "the serving half of the backend uses it"))]

mod bench_baseline;
mod library;
#[expect(unsafe_code, reason = "the wrapper of the C interface")]
mod ov;

pub use bench_baseline::RunOverhead;
