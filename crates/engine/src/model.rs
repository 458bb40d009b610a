//! The model version that clients see, and how it knows those before and after it.
#[expect(clippy::module_inception, reason = "the room has the name of what is in it")]
mod model;
mod succession;

pub use model::Model;
pub(crate) use model::{ModelParts, RequestOrigin};
