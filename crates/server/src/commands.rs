//! What `nereid` does besides serving: its commands, by their first word.

mod api_key;
mod check;
mod config;
mod dispatch;
mod explain;
mod record;
mod references;
mod streams;
mod tune;

pub use dispatch::run;
