//! The description of the HTTP endpoint in the form of OpenAPI 3.1, and the page that shows it.
//!
//! `routes` lists the routes, `operations` describes one, and `schemas` describes the bodies. `model` describes one model by its configuration.
mod answer;
mod document;
mod explanation;
mod fragments;
mod model;
mod operations;
mod routes;
mod schemas;
#[cfg(test)]
mod tests;

pub(in crate::http) use answer::{OpenApiRoute, answer, rules};
