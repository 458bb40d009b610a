//! What the server does now, as JSON, and the page that shows it.
mod answer;
mod document;
mod name_filter;

pub(in crate::http) use answer::{StatusRoute, answer, rules};
