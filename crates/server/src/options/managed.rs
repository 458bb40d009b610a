//! The settings of the endpoints for SageMaker and Vertex AI. Most come from the platforms' environment variables.

use frontend::{
    http::{InferenceType, SageMakerOptions},
    port::tls::TlsOptions,
};

use super::environment::ProcessEnvironment;
use super::meaning::{ListenSettings, SageMakerSettings, VertexAiSettings};
use super::typed::{TypedOptions, non_empty, unsigned};

/// As Triton: both endpoints listen on all addresses.
fn listen(port: i64) -> ListenSettings {
    ListenSettings { address: "0.0.0.0".to_owned(), port: unsigned(port), reuse_port: false, socket_mode: 0 }
}

/// The endpoint for SageMaker, if it is on. As Triton: unknown words in the variables count as the defaults.
pub(super) fn sagemaker(
    typed: &TypedOptions,
    tls: Option<TlsOptions>,
    environment: &ProcessEnvironment,
) -> Option<SageMakerSettings> {
    let outside = &typed.outside;
    let default = SageMakerOptions::default();
    outside.allow_sagemaker.then(|| SageMakerSettings {
        listen: listen(outside.sagemaker_port),
        tls,
        options: SageMakerOptions {
            pings_liveness: environment.sagemaker_ping_mode.as_deref() == Some("live"),
            inference: match environment.sagemaker_inference_type.as_deref() {
                Some("generate") => InferenceType::Generate,
                Some("generate_stream") => InferenceType::GenerateStream,
                Some(_) | None => InferenceType::Infer,
            },
            default_model: environment.sagemaker_default_model.clone().unwrap_or(default.default_model),
            model_root: environment.sagemaker_model_root.clone().unwrap_or(default.model_root),
        },
    })
}

/// The endpoint for Vertex AI, if it is on.
pub(super) fn vertex_ai(
    typed: &TypedOptions,
    tls: Option<TlsOptions>,
    environment: &ProcessEnvironment,
) -> Option<VertexAiSettings> {
    let outside = &typed.outside;
    outside.allow_vertex_ai.then(|| VertexAiSettings {
        listen: listen(outside.vertex_ai_port),
        tls,
        predict_route: environment.aip_predict_route.clone(),
        health_route: environment.aip_health_route.clone(),
        default_model: non_empty(outside.vertex_ai_default_model.clone()),
    })
}
