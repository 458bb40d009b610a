//! The models of the recorded exchanges, as native code.
//!
//! The recorded server ran Python programs. One backend with the name `python` behaves like the program of the same
//! model, with the same error texts. It runs no Python: a model without a recording cannot be opened.
//!
//! Models whose name ends with an odd byte have thread-bound instances, the others movable ones. So a run of all
//! exchanges tests both.
mod backend;
mod behaviour;
mod python_text;

pub use backend::Python;
