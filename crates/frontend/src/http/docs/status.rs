//! What the server does now, as JSON, and the page that shows it.
mod document;
mod explain;
mod name_filter;
mod page;

pub(in crate::http) use page::PAGE;
