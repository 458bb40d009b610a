//! Checks model repositories without loading them.
//!
//! The crate reads models as the server does, with the functions of `repository::layout`, and judges them by the rules of
//! `config`. Backends tell what their files say (`Backend::inspect`). Nothing is opened by a runtime, no
//! library is loaded, and no port is used. [`check_repositories`] reports every problem of every model at once.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend_choice;
mod effective;
mod ensembles;
mod finding;
mod initial;
mod interpreter;
mod model;
mod options;
mod python;
mod reference;
mod render;
mod repositories;
mod rules;
mod unread_files;

pub use effective::{EffectiveConfig, effective_config};
pub use finding::{CheckReport, Finding, Severity};
pub use initial::initial_config;
pub use options::CheckOptions;
pub use reference::configuration_reference;
pub use render::{json, sarif, text, text_with};
pub use repositories::check_repositories;
pub use rules::all_rules;
