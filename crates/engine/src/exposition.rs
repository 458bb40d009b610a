//! The metrics text of models and of the host.
mod distributions;
mod host;
mod series;
mod text;

pub(crate) use text::Exposition;
