//! The server as a whole: its health, its metadata, and the settings that clients may see and change.
mod answer;
mod logging;
mod trace_settings;

pub(super) use answer::{ServerRoute, answer, rules};
