//! The metrics text of models and of the host.
mod distributions;
mod host_gauges;
mod series;
mod text;

pub(crate) use text::Exposition;
