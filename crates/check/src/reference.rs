//! Writes the reference of configurations: `docs/configuration-reference.md`.
//!
//! Names, types, defaults and comments come from the schema that the server reads configurations with. Notes add what
//! the schema cannot say; tests compare them with the schema, with the rules, and with the names that the backends know.

mod document;
mod model_fields;
mod notes;
mod parameters;
mod scheduling_fields;

pub use document::configuration_reference;
