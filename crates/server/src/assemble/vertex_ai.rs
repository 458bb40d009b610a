//! What the endpoint for Vertex AI needs: two routes, and a model for predictions.
use engine::{Engine, ModelState};
use frontend::http::VertexAiOptions;
use vocabulary::Error;

use super::endpoint_service::{EndpointService, StartError};
use crate::options::{ResolvedOptions, VertexAiSettings};

/// Checks that the platform has told the routes. The texts are Triton's, the misspelling too.
///
/// # Errors
/// INVALID_ARG: a variable is missing.
pub(super) fn check_routes(options: &ResolvedOptions) -> Result<(), StartError> {
    options.vertex_ai.iter().try_for_each(|settings| {
        routes(settings).map(drop).map_err(|error| EndpointService::VertexAi.failed(error))
    })
}

/// The paths of predictions and of the readiness check.
fn routes(settings: &VertexAiSettings) -> Result<(&str, &str), Error> {
    let missing = |name: &str| Error::invalid(format!("{name} is not defined for Vertex AI endpoint"));
    let predict = settings.predict_route.as_deref().ok_or_else(|| missing("API_PREDICT_ROUTE"))?;
    let health = settings.health_route.as_deref().ok_or_else(|| missing("AIP_HEALTH_ROUTE"))?;
    Ok((predict, health))
}

/// The settings of the endpoint, when the models are loaded. As Triton: vertex_ai_server.cc.
///
/// # Errors
/// INVALID_ARG: the model for predictions is not loaded, or it is not clear which one it is.
pub(super) fn options(settings: &VertexAiSettings, engine: &Engine) -> Result<VertexAiOptions, Error> {
    let (predict_route, health_route) = routes(settings)?;
    let ready = engine.known_models(true);
    let mut ready =
        ready.iter().filter(|entry| entry.state == Some(ModelState::Ready)).map(|entry| &*entry.name);
    let default_model = match &settings.default_model {
        Some(model) if ready.any(|name| name == model) => model.clone(),
        Some(model) => return Err(Error::invalid(format!("Expect the default model '{model}' is loaded"))),
        None => {
            let mut names: Vec<_> = ready.collect();
            names.dedup();
            match names[..] {
                [only] => only.to_owned(),
                _ => {
                    return Err(Error::invalid(
                        "Expect the model repository contains only a single model if default model is not specified",
                    ));
                }
            }
        }
    };
    Ok(VertexAiOptions {
        predict_route: predict_route.to_owned(),
        health_route: health_route.to_owned(),
        default_model,
    })
}
