//! The endpoints of managed platforms: SageMaker and Vertex AI.
//!
//! Both have their own paths, and answer by the routes of the protocol. Both mark binary requests by a content type
//! instead of a header.
mod binary_marker;
mod model_url;
mod sagemaker;
mod sagemaker_models;
mod vertex_ai;

pub use sagemaker::{InferenceType, SageMakerOptions, SageMakerService};
pub use vertex_ai::{VertexAiOptions, VertexAiService};
