//! Options of the endpoints for SageMaker and Vertex AI.

use super::option_spec::{INT_MAX, OptionSpec, SHARED_THREADS, boolean, checked, count, port, text};
use crate::options::values;

pub(super) const SAGEMAKER: &[OptionSpec] = &[
    boolean(
        "allow-sagemaker",
        |typed, value| typed.outside.allow_sagemaker = value,
        "Listen for SageMaker requests.",
    )
    .default("false"),
    port("sagemaker-port", |typed, value| typed.outside.sagemaker_port = value, "The port to listen on.")
        .default("8080"),
    checked(
        "sagemaker-safe-port-range",
        "<integer>-<integer>",
        |typed, value| {
            let (first, last) = values::pair(value, "-")?;
            let number = |text| values::integer(text, -INT_MAX - 1, INT_MAX);
            typed.outside.sagemaker_safe_range = Some((number(first)?, number(last)?));
            Ok(())
        },
        "The ports that other endpoints on the same address may use.",
    ),
    count("sagemaker-thread-count", |_, _| (), "The number of threads of the endpoint.")
        .default("8")
        .without_effect(SHARED_THREADS),
];

pub(super) const VERTEX: &[OptionSpec] = &[
    boolean(
        "allow-vertex-ai",
        |typed, value| typed.outside.allow_vertex_ai = value,
        "Listen for Vertex AI requests.",
    )
    .default_note(
        "true if the environment variable AIP_MODE is PREDICTION, which also makes --allow-http and \
             --allow-grpc false",
    ),
    port(
        "vertex-ai-port",
        |typed, value| typed.outside.vertex_ai_port = value,
        "The port to listen on. The environment variable AIP_HTTP_PORT changes the default.",
    )
    .default("8080"),
    count("vertex-ai-thread-count", |_, _| (), "The number of threads of the endpoint.")
    .default("8")
    .without_effect(SHARED_THREADS),
    text(
        "vertex-ai-default-model",
        |typed, value| typed.outside.vertex_ai_default_model = value.to_owned(),
        "The model for requests that do not name a model. Without the option the server must have exactly one model.",
    )
    .default(""),
];
