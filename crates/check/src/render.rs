//! The forms of a report.
mod json;
mod sarif;
mod text;

pub use json::json;
pub use sarif::sarif;
pub use text::{text, text_with};
