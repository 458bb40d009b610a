//! The settings of the server that clients may see and change.
mod logging;
mod trace_settings;
