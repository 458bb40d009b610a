//! The table of options. Only the table defines an option's name, value, default and help text.

mod connections;
mod credentials;
mod deprecated;
mod devices;
mod endpoints;
mod extensions;
mod groups;
mod grpc;
mod http;
mod metrics;
mod option_spec;
mod repository;
mod server;

pub(super) use devices::NO_COPYING_THREADS;
pub(super) use groups::{GROUPS, all, defaults, named, note};
pub(super) use option_spec::{CONFIG, INT_MAX, ONLY_ON_THE_LINE, OptionSpec};
