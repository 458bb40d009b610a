//! Options of the endpoints for SageMaker and Vertex AI.

use super::{INT_MAX, OptionValue, Spec, boolean, checked, port, text, values};

/// The reason why the other options of an endpoint have no effect.
const OFF: &str = "the endpoint is off";

pub(super) const SAGEMAKER: &[Spec] = &[
    boolean(
        "allow-sagemaker",
        |typed, value| typed.outside.allow_sagemaker = value,
        "Listen for SageMaker requests.",
    )
    .default("false")
    .unsupported_if(|typed| typed.outside.allow_sagemaker, "the SageMaker endpoint"),
    port("sagemaker-port", |typed, value| typed.outside.sagemaker_port = value, "The port to listen on.")
        .default("8080")
        .without_effect(OFF),
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
    )
    .without_effect(OFF),
    Spec::new(
        "sagemaker-thread-count",
        OptionValue::Integer(1, INT_MAX, |_, _| ()),
        "The number of threads of the endpoint.",
    )
    .default("8")
    .without_effect(OFF),
];

pub(super) const VERTEX: &[Spec] = &[
    boolean(
        "allow-vertex-ai",
        |typed, value| typed.outside.allow_vertex_ai = value,
        "Listen for Vertex AI requests.",
    )
    .default_note(
        "true if the environment variable AIP_MODE is PREDICTION, which also makes --allow-http and \
             --allow-grpc false",
    )
    .unsupported_if(|typed| typed.outside.allow_vertex_ai, "the Vertex AI endpoint"),
    port("vertex-ai-port", |typed, value| typed.outside.vertex_ai_port = value, "The port to listen on.")
        .default("8080")
        .without_effect(OFF),
    Spec::new(
        "vertex-ai-thread-count",
        OptionValue::Integer(1, INT_MAX, |_, _| ()),
        "The number of threads of the endpoint.",
    )
    .default("8")
    .without_effect(OFF),
    text("vertex-ai-default-model", |_, _| (), "The model for requests that do not name a model.")
        .default("")
        .without_effect(OFF),
];
