//! The commands of the program, for its help, its manual page and completions.
//!
//! Some read their words themselves: their options are in [`tables`], and their help is made from there. The others have
//! a table of their own crate.

mod command_spec;
mod description;
mod list;
mod tables;
mod usage;

pub(super) use command_spec::CommandSpec;
pub(super) use description::{
    CommandDescription, CommandOptionDescription, ServerOptionsPlace, ValueDescription, descriptions,
    server_options,
};
#[cfg(test)]
pub(super) use list::names;
pub use list::nearest_command;
pub(super) use list::{COMMANDS, purposes};
pub use usage::{calls, usage};
