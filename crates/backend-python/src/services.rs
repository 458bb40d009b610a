//! What the model of a worker uses of the server: metrics, other models, and requests to them. Nothing here knows the worker:
//! answers are returned, or wait until they are taken.
pub(crate) mod model_metrics;
pub(crate) mod model_services;
pub(crate) mod nested_inferences;
pub(crate) mod question_threads;
pub(crate) mod service_answer;
