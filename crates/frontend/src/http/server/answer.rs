//! Answers requests about the server.
use std::borrow::Cow;

use engine::Readiness;
use http::{HeaderName, HeaderValue, StatusCode};
use kserve::{metadata::VERSION, show};

use super::{logging, trace_settings};
use crate::{
    access::Category,
    error,
    http::{
        call::HttpCall,
        context::HttpContext,
        reply::{self, HttpOutcome, HttpReply},
        route_rules::{Methods, RouteRules},
    },
};

/// The header with Nereid's own version. What the protocols call the version is Triton's.
const NEREID_VERSION: HeaderName = HeaderName::from_static("nereid-version");

/// The routes of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum ServerRoute<'p> {
    /// `/v2/health/live`
    Live,
    /// `/v2/health/ready`
    Ready,
    /// `/v2`
    Metadata,
    /// `/v2/load`
    Load,
    /// `/v2[/models/{M}]/trace/setting`
    TraceSetting { model: Option<Cow<'p, str>> },
    /// `/v2/logging`
    Logging,
}

pub(in crate::http) fn rules<'r>(route: &'r ServerRoute<'_>) -> RouteRules<'r> {
    match route {
        ServerRoute::Live | ServerRoute::Ready => RouteRules::new(Category::Health, Methods::Get),
        ServerRoute::Metadata => RouteRules::new(Category::Metadata, Methods::Get),
        ServerRoute::Load => RouteRules::new(Category::Statistics, Methods::Get),
        ServerRoute::TraceSetting { model } => {
            let rules = RouteRules::new(Category::Trace, Methods::GetAndPost);
            RouteRules { model: model.as_deref(), ..rules }
        }
        ServerRoute::Logging => RouteRules::new(Category::Logging, Methods::GetAndPost),
    }
}

pub(in crate::http) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    route: &ServerRoute<'_>,
) -> HttpOutcome {
    match route {
        ServerRoute::Live => Ok(health(context.engine.live()?)),
        ServerRoute::Ready => Ok(match context.engine.readiness().await? {
            Readiness::Ready => health(true),
            Readiness::StopAnnounced => reply::json(
                context.options.drain_status.code(),
                error::body("Server not ready: it will stop"),
            ),
            Readiness::NotReady(mut missing) => {
                missing.retain(|model| call.access.shows(&model.name));
                reply::json(StatusCode::BAD_REQUEST, show::not_ready(&missing))
            }
        }),
        ServerRoute::Metadata => {
            let mut reply = reply::json(StatusCode::OK, context.server_metadata.clone());
            reply.headers_mut().insert(NEREID_VERSION, HeaderValue::from_static(VERSION));
            Ok(reply)
        }
        ServerRoute::Load => {
            let workload = context.engine.workload(|model| call.access.shows(model));
            Ok(reply::json(StatusCode::OK, show::workload(&workload)))
        }
        ServerRoute::TraceSetting { model } => trace_settings::answer(context, call, model.as_deref()).await,
        ServerRoute::Logging => logging::answer(context, call).await,
    }
}

fn health(fine: bool) -> HttpReply {
    reply::bare(if fine { StatusCode::OK } else { StatusCode::BAD_REQUEST })
}
