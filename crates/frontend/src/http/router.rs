//! The routes of the HTTP endpoint.
//!
//! The router splits a path at its slashes, and then percent-decodes each segment. So names may contain any character
//! (P-W11). The router ignores one slash at the end (P-W39). Everything else must match exactly.
use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use shared_memory::RegionKind;
use smallvec::SmallVec;

use super::{
    docs::{
        openapi::{self, OpenApiRoute},
        page_file::PageFile,
        status::{self, StatusRoute},
    },
    generate::{self, GenerateRoute},
    infer,
    models::{self, ModelsRoute},
    regions::{self, RegionAction, RegionsRoute},
    route_rules::{ModelPath, RouteRules},
    server::{self, ServerRoute},
};

/// The area that answers a path, with what the path says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route<'p> {
    Server(ServerRoute<'p>),
    Models(ModelsRoute<'p>),
    /// `/v2/models/{M}[/versions/{V}]/infer`
    Infer(ModelPath<'p>),
    Generate(GenerateRoute<'p>),
    Regions(RegionsRoute<'p>),
    OpenApi(OpenApiRoute<'p>),
    Status(StatusRoute<'p>),
}

impl<'p> Route<'p> {
    /// The route of a path without its query. `None` if the path has no route.
    pub(super) fn of(path: &'p str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_encoded = path.as_bytes().contains(&b'%');
        let segments: SmallVec<[Cow<'p, str>; 8]> = path
            .split('/')
            .map(|segment| match is_encoded {
                true => percent_decode_str(segment).decode_utf8_lossy(),
                false => Cow::Borrowed(segment),
            })
            .collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let names: SmallVec<[&str; 8]> = segments.iter().map(AsRef::as_ref).collect();
        Some(match names[..] {
            ["v2"] => Self::Server(ServerRoute::Metadata),
            ["v2", "health", "live"] => Self::Server(ServerRoute::Live),
            ["v2", "health", "ready"] => Self::Server(ServerRoute::Ready),
            ["v2", "trace", "setting"] => Self::Server(ServerRoute::TraceSetting { model: None }),
            ["v2", "models", _, "trace", "setting"] => {
                Self::Server(ServerRoute::TraceSetting { model: Some(segments[2].clone()) })
            }
            ["v2", "load"] => Self::Server(ServerRoute::Load),
            ["v2", "logging"] => Self::Server(ServerRoute::Logging),
            ["v2", "models"] => Self::Models(ModelsRoute::List),
            ["v2", "models", "stats"] => Self::Models(ModelsRoute::AllStatistics),
            ["v2", "models", _, "versions", version, ref rest @ ..] if is_version(version) => {
                let path = ModelPath { model: segments[2].clone(), version: segments[4].clone() };
                return Self::of_model(path, rest);
            }
            ["v2", "models", _, ref rest @ ..] => {
                let path = ModelPath { model: segments[2].clone(), version: Cow::Borrowed("") };
                return Self::of_model(path, rest);
            }
            ["v2", "repository", "index"] | ["v2", "repository", _, "index"] => {
                Self::Models(ModelsRoute::Index)
            }
            ["v2", "repository", "models", _, action] => return control(action, false, &segments[3]),
            ["v2", "repository", _, "models", _, action] => return control(action, true, &segments[4]),
            ["v2", "systemsharedmemory", ref rest @ ..] => return regions(RegionKind::System, rest),
            ["v2", "cudasharedmemory", ref rest @ ..] => return regions(RegionKind::Cuda, rest),
            ["openapi.json"] => Self::OpenApi(OpenApiRoute::Server),
            ["docs"] => Self::OpenApi(OpenApiRoute::Page(PageFile::Page)),
            ["docs", "page.css"] => Self::OpenApi(OpenApiRoute::Page(PageFile::Style)),
            ["docs", "page.js"] => Self::OpenApi(OpenApiRoute::Page(PageFile::Script)),
            ["v2", "explain"] => Self::Status(StatusRoute::Server),
            ["status"] => Self::Status(StatusRoute::Page(PageFile::Page)),
            ["status", "page.css"] => Self::Status(StatusRoute::Page(PageFile::Style)),
            ["status", "page.js"] => Self::Status(StatusRoute::Page(PageFile::Script)),
            _ => return None,
        })
    }

    /// The route of what follows a model in its path.
    fn of_model(path: ModelPath<'p>, rest: &[&str]) -> Option<Self> {
        Some(match rest {
            [] => Self::Models(ModelsRoute::Metadata(path)),
            ["ready"] => Self::Models(ModelsRoute::Ready(path)),
            ["config"] => Self::Models(ModelsRoute::Config(path)),
            ["stats"] => Self::Models(ModelsRoute::Statistics(path)),
            ["empty_cache"] => Self::Models(ModelsRoute::EmptyCache(path)),
            ["infer"] => Self::Infer(path),
            ["generate"] => Self::Generate(GenerateRoute::Once(path)),
            ["generate_stream"] => Self::Generate(GenerateRoute::Stream(path)),
            ["openapi.json"] => Self::OpenApi(OpenApiRoute::Model(path)),
            ["explain"] => Self::Status(StatusRoute::Model(path)),
            _ => return None,
        })
    }

    /// What the route asks of its requests.
    pub(super) fn rules(&self) -> RouteRules<'_> {
        match self {
            Self::Server(route) => server::rules(route),
            Self::Models(route) => models::rules(route),
            Self::Infer(path) => infer::rules(path),
            Self::Generate(route) => generate::rules(route),
            Self::Regions(route) => regions::rules(route),
            Self::OpenApi(route) => openapi::rules(route),
            Self::Status(route) => status::rules(route),
        }
    }
}

fn is_version(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn control<'p>(action: &str, named_repository: bool, model: &Cow<'p, str>) -> Option<Route<'p>> {
    let load = match action {
        "load" => true,
        "unload" => false,
        _ => return None,
    };
    Some(Route::Models(ModelsRoute::Control { named_repository, model: model.clone(), load }))
}

fn regions<'p>(kind: RegionKind, rest: &[&str]) -> Option<Route<'p>> {
    let (region, action) = match rest {
        [action] => (None, *action),
        ["region", region, action] => (Some(Cow::Owned((*region).to_owned())), *action),
        _ => return None,
    };
    let action = match action {
        "status" => RegionAction::Status,
        "register" => RegionAction::Register,
        "unregister" => RegionAction::Unregister,
        _ => return None,
    };
    Some(Route::Regions(RegionsRoute { kind, region, action }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path<'p>(model: &'p str, version: &'p str) -> ModelPath<'p> {
        ModelPath { model: model.into(), version: version.into() }
    }

    #[test]
    fn each_path_has_its_route() {
        let models = |route| Some(Route::Models(route));
        let control = |named_repository, load| {
            models(ModelsRoute::Control { named_repository, model: "m".into(), load })
        };
        let server = |route| Some(Route::Server(route));
        let generate = |route| Some(Route::Generate(route));
        let openapi = |route| Some(Route::OpenApi(route));
        let status = |route| Some(Route::Status(route));
        let regions = |kind, region: Option<&'static str>, action| {
            Some(Route::Regions(RegionsRoute { kind, region: region.map(Cow::Borrowed), action }))
        };
        let table = [
            ("/v2", server(ServerRoute::Metadata)),
            ("/v2/", server(ServerRoute::Metadata)),
            ("/v2/health/live", server(ServerRoute::Live)),
            ("/v2/health/ready/", server(ServerRoute::Ready)),
            ("/v2/models", models(ModelsRoute::List)),
            ("/v2/models/stats", models(ModelsRoute::AllStatistics)),
            ("/v2/models/m", models(ModelsRoute::Metadata(path("m", "")))),
            ("/v2/models/m/", models(ModelsRoute::Metadata(path("m", "")))),
            ("/v2/models/m/versions/1", models(ModelsRoute::Metadata(path("m", "1")))),
            ("/v2/models/m/ready", models(ModelsRoute::Ready(path("m", "")))),
            ("/v2/models/m/versions/007/config", models(ModelsRoute::Config(path("m", "007")))),
            ("/v2/models/m/stats", models(ModelsRoute::Statistics(path("m", "")))),
            ("/v2/models/m/versions/3/infer/", Some(Route::Infer(path("m", "3")))),
            ("/v2/models/m/generate", generate(GenerateRoute::Once(path("m", "")))),
            ("/v2/models/m/generate_stream", generate(GenerateRoute::Stream(path("m", "")))),
            ("/v2/models/m/versions/2/empty_cache", models(ModelsRoute::EmptyCache(path("m", "2")))),
            ("/v2/models/my%20model%2Fx/infer", Some(Route::Infer(path("my model/x", "")))),
            ("/v2/models/m/trace/setting", server(ServerRoute::TraceSetting { model: Some("m".into()) })),
            ("/v2/trace/setting", server(ServerRoute::TraceSetting { model: None })),
            ("/v2/logging", server(ServerRoute::Logging)),
            ("/v2/repository/index", models(ModelsRoute::Index)),
            ("/v2/repository/foo/index", models(ModelsRoute::Index)),
            ("/v2/repository/models/m/load", control(false, true)),
            ("/v2/repository/models/m/unload", control(false, false)),
            ("/v2/repository/r/models/m/load", control(true, true)),
            ("/v2/systemsharedmemory/status", regions(RegionKind::System, None, RegionAction::Status)),
            (
                "/v2/cudasharedmemory/region/r/register",
                regions(RegionKind::Cuda, Some("r"), RegionAction::Register),
            ),
            (
                "/v2/systemsharedmemory/region/a%2Fb/unregister",
                regions(RegionKind::System, Some("a/b"), RegionAction::Unregister),
            ),
            ("/v2/cudasharedmemory/unregister", regions(RegionKind::Cuda, None, RegionAction::Unregister)),
            ("/openapi.json", openapi(OpenApiRoute::Server)),
            ("/v2/models/m/openapi.json", openapi(OpenApiRoute::Model(path("m", "")))),
            ("/docs", openapi(OpenApiRoute::Page(PageFile::Page))),
            ("/docs/page.css", openapi(OpenApiRoute::Page(PageFile::Style))),
            ("/docs/page.js", openapi(OpenApiRoute::Page(PageFile::Script))),
            ("/v2/explain", status(StatusRoute::Server)),
            ("/v2/models/m/versions/2/explain", status(StatusRoute::Model(path("m", "2")))),
            ("/status", status(StatusRoute::Page(PageFile::Page))),
            ("/status/page.css", status(StatusRoute::Page(PageFile::Style))),
            ("/status/page.js", status(StatusRoute::Page(PageFile::Script))),
        ];
        for (path, route) in table {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn every_other_path_has_no_route() {
        for path in [
            "",
            "/",
            "//",
            "/nope",
            "//v2/health/live",
            "/v2//",
            "/v2/health",
            "/v2/health/live/x",
            "/v2/models/m/versions",
            "/v2/models/m/versions/x",
            "/v2/models/m/versions/1a/infer",
            "/v2/models/m/versions/1/trace/setting",
            "/v2/models/m/inference",
            "/v2/models/a/b/infer",
            "/v2/models//infer",
            "/v2/repository/models/m/reload",
            "/v2/systemsharedmemory/region/status",
            "/v2/systemsharedmemory",
            "/docs/index.html",
            "/v2/systemsharedmemory/region/r",
            "/v2/systemsharedmemory/region/r/remove",
            "*",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
    }
}
