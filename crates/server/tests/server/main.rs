//! Tests of the program, of its server as a library, and of `libtritonserver.so`.
//!
//! `tests/verbose.rs` is a binary of its own: it sets the log of its process.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
mod adversarial;
mod api_keys;
mod bad_input;
mod caching;
mod checking;
mod embed;
mod golden;
mod library;
mod newcomer;
mod plugins;
mod program_names;
mod reference;
mod shutdown;
mod stalled_stop;
mod support;
mod symbols;
mod unread_log;
mod variables;
