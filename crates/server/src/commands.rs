//! What `nereid` does besides serving: its commands, by their first word.

mod api_key;
mod check;
mod config;
mod dispatch;
mod entry_point;
mod explain;
mod program_name;
mod record;
mod references;
mod streams;
mod tune;

pub use dispatch::run;
pub use entry_point::run_program;
pub use program_name::ProgramName;
