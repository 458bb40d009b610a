//! Options of the endpoints for SageMaker and Vertex AI.

use super::{INT_MAX, OptionValue, Spec, boolean, checked, port, text, values};

const NO_EFFECT: &str = "No effect while the endpoint is off.";

pub(super) const SAGEMAKER: &[Spec] = &[
    boolean(
        "allow-sagemaker",
        |typed, value| typed.outside.allow_sagemaker = value,
        "Listen for SageMaker requests.",
    )
    .default("false")
    .unsupported_if(|typed| typed.outside.allow_sagemaker, "the SageMaker endpoint"),
    port("sagemaker-port", |typed, value| typed.outside.sagemaker_port = value, NO_EFFECT).default("8080"),
    checked(
        "sagemaker-safe-port-range",
        "<integer>-<integer>",
        |typed, value| {
            let (first, last) = values::pair(value, "-")?;
            let number = |text| values::integer(text, -INT_MAX - 1, INT_MAX);
            typed.outside.sagemaker_safe_range = Some((number(first)?, number(last)?));
            Ok(())
        },
        "The ports that other endpoints on the same address may use. No effect while the endpoint is off.",
    ),
    Spec::new("sagemaker-thread-count", OptionValue::Integer(1, INT_MAX, |_, _| ()), NO_EFFECT).default("8"),
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
    port("vertex-ai-port", |typed, value| typed.outside.vertex_ai_port = value, NO_EFFECT).default("8080"),
    Spec::new("vertex-ai-thread-count", OptionValue::Integer(1, INT_MAX, |_, _| ()), NO_EFFECT).default("8"),
    text("vertex-ai-default-model", |_, _| (), NO_EFFECT).default(""),
];
