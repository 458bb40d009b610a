//! The routes of the HTTP endpoint.
//!
//! The router splits a path at its slashes, and then percent-decodes each segment. So names may contain any character
//! (P-W11). The router ignores one slash at the end (P-W39). Everything else must match exactly.
use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use shared_memory::RegionKind;
use smallvec::SmallVec;

use super::docs::page_file::PageFile;
use crate::access::Category;

/// The route of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route<'p> {
    /// `/v2/health/live`
    Live,
    /// `/v2/health/ready`
    Ready,
    /// `/v2`
    Server,
    /// `/v2/models`
    Models,
    /// `/v2/models/stats`
    AllStatistics,
    /// `/v2/models/{M}[/versions/{V}][/...]`
    Model { model: Cow<'p, str>, version: Cow<'p, str>, about: About },
    /// `/v2/repository[/{R}]/index`. The name of the repository does not matter.
    Index,
    /// `/v2/repository[/{R}]/models/{M}/load` or `unload`
    Control { named_repository: bool, model: Cow<'p, str>, load: bool },
    /// `/v2[/models/{M}]/trace/setting`
    TraceSetting { model: Option<Cow<'p, str>> },
    /// `/v2/logging`
    Logging,
    /// `/v2/systemsharedmemory[/region/{R}]/status` and the same for CUDA
    Regions { kind: RegionKind, region: Option<Cow<'p, str>> },
    /// `/v2/systemsharedmemory[/region/{R}]/register` and the same for CUDA
    RegisterRegion { kind: RegionKind, region: Option<Cow<'p, str>> },
    /// `/v2/systemsharedmemory[/region/{R}]/unregister` and the same for CUDA
    UnregisterRegions { kind: RegionKind, region: Option<Cow<'p, str>> },
    /// `/openapi.json`
    OpenApi,
    /// `/docs` and its files
    Docs(PageFile),
    /// `/v2/explain`
    Explain,
    /// `/status` and its files
    StatusPage(PageFile),
}

/// The part of a model that a route addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Metadata,
    Ready,
    Config,
    Statistics,
    Infer,
    Generate,
    GenerateStream,
    /// Its answers in the response cache.
    Cache,
    /// The description of its own paths.
    OpenApi,
    /// What it does now, and why.
    Explain,
}

/// The methods a route allows. HEAD is allowed where GET is (P-W12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Methods {
    Get,
    Post,
    GetAndPost,
}

impl<'p> Route<'p> {
    /// The route of a path without its query. `None` if the path has no route.
    pub(super) fn of(path: &'p str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let segments: SmallVec<[Cow<'p, str>; 8]> =
            path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy()).collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let names: SmallVec<[&str; 8]> = segments.iter().map(AsRef::as_ref).collect();
        match names[..] {
            ["v2"] => Some(Self::Server),
            ["v2", "health", "live"] => Some(Self::Live),
            ["v2", "health", "ready"] => Some(Self::Ready),
            ["v2", "models"] => Some(Self::Models),
            ["v2", "models", "stats"] => Some(Self::AllStatistics),
            ["v2", "trace", "setting"] => Some(Self::TraceSetting { model: None }),
            ["v2", "models", _, "trace", "setting"] => {
                Some(Self::TraceSetting { model: Some(segments[2].clone()) })
            }
            ["v2", "models", _, "versions", version, ref rest @ ..] if is_version(version) => {
                let about = about(rest)?;
                Some(Self::Model { model: segments[2].clone(), version: segments[4].clone(), about })
            }
            ["v2", "models", _, ref rest @ ..] => {
                let about = about(rest)?;
                Some(Self::Model { model: segments[2].clone(), version: Cow::Borrowed(""), about })
            }
            ["openapi.json"] => Some(Self::OpenApi),
            ["docs"] => Some(Self::Docs(PageFile::Page)),
            ["docs", "page.css"] => Some(Self::Docs(PageFile::Style)),
            ["docs", "page.js"] => Some(Self::Docs(PageFile::Script)),
            ["v2", "explain"] => Some(Self::Explain),
            ["status"] => Some(Self::StatusPage(PageFile::Page)),
            ["status", "page.css"] => Some(Self::StatusPage(PageFile::Style)),
            ["status", "page.js"] => Some(Self::StatusPage(PageFile::Script)),
            ["v2", "logging"] => Some(Self::Logging),
            ["v2", "repository", "index"] | ["v2", "repository", _, "index"] => Some(Self::Index),
            ["v2", "repository", "models", _, action] => control(action, false, &segments[3]),
            ["v2", "repository", _, "models", _, action] => control(action, true, &segments[4]),
            ["v2", "systemsharedmemory", ref rest @ ..] => regions(RegionKind::System, rest),
            ["v2", "cudasharedmemory", ref rest @ ..] => regions(RegionKind::Cuda, rest),
            _ => None,
        }
    }

    /// The category by which an operator may restrict the route.
    pub(super) fn category(&self) -> Category {
        match self {
            Self::Live | Self::Ready => Category::Health,
            Self::Server | Self::OpenApi | Self::Docs(_) => Category::Metadata,
            Self::AllStatistics => Category::Statistics,
            Self::Model { about, .. } => match about {
                About::Metadata | About::OpenApi => Category::Metadata,
                About::Ready => Category::Health,
                About::Config => Category::ModelConfig,
                About::Statistics => Category::Statistics,
                About::Infer | About::Generate | About::GenerateStream => Category::Inference,
                About::Cache => Category::ModelRepository,
                About::Explain => Category::Status,
            },
            // The list has the category of the index, because it shows the same models.
            Self::Models | Self::Index | Self::Control { .. } => Category::ModelRepository,
            Self::TraceSetting { .. } => Category::Trace,
            Self::Logging => Category::Logging,
            Self::Explain | Self::StatusPage(_) => Category::Status,
            Self::Regions { .. } | Self::RegisterRegion { .. } | Self::UnregisterRegions { .. } => {
                Category::SharedMemory
            }
        }
    }

    /// Further categories whose headers the route needs: it repeats what those show. So a server whose statistics or models
    /// are restricted does not tell them here.
    pub(super) fn repeats(&self) -> &'static [Category] {
        match self {
            Self::Explain | Self::Model { about: About::Explain, .. } => {
                &[Category::Statistics, Category::ModelRepository]
            }
            _ => &[],
        }
    }

    /// Whether everybody may have it: the files of the status page tell nothing. What the page asks for is restricted, and
    /// the reader types the header into the page.
    pub(super) fn is_public(&self) -> bool {
        matches!(self, Self::StatusPage(_))
    }

    /// Whether it belongs to the status page.
    pub(super) fn is_status(&self) -> bool {
        matches!(self, Self::Explain | Self::StatusPage(_) | Self::Model { about: About::Explain, .. })
    }

    /// Whether it describes the endpoint.
    pub(super) fn is_description(&self) -> bool {
        matches!(self, Self::OpenApi | Self::Docs(_) | Self::Model { about: About::OpenApi, .. })
    }

    /// The model that the route names.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            Self::Model { model, .. } | Self::Control { model, .. } => Some(model),
            Self::TraceSetting { model } => model.as_deref(),
            Self::Live
            | Self::Ready
            | Self::Server
            | Self::Models
            | Self::AllStatistics
            | Self::Index
            | Self::Logging
            | Self::Regions { .. }
            | Self::RegisterRegion { .. }
            | Self::UnregisterRegions { .. }
            | Self::OpenApi
            | Self::Docs(_)
            | Self::Explain
            | Self::StatusPage(_) => None,
        }
    }

    /// The methods that the route allows.
    pub(super) fn methods(&self) -> Methods {
        match self {
            Self::Live | Self::Ready | Self::Server | Self::Models | Self::AllStatistics => Methods::Get,
            Self::OpenApi | Self::Docs(_) | Self::Explain | Self::StatusPage(_) => Methods::Get,
            Self::Model { about, .. } => match about {
                About::Metadata | About::Ready | About::Config => Methods::Get,
                About::Statistics | About::OpenApi | About::Explain => Methods::Get,
                About::Infer | About::Generate | About::GenerateStream | About::Cache => Methods::Post,
            },
            Self::Index | Self::Control { .. } => Methods::Post,
            Self::TraceSetting { .. } | Self::Logging => Methods::GetAndPost,
            Self::Regions { .. } => Methods::Get,
            Self::RegisterRegion { .. } | Self::UnregisterRegions { .. } => Methods::Post,
        }
    }
}

impl Methods {
    /// The value of the header `Allow`.
    pub(super) const fn names(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::GetAndPost => "GET, HEAD, POST",
        }
    }

    /// Tells whether the route allows `method`.
    pub(super) fn allow(self, method: &http::Method) -> bool {
        let get = matches!(self, Self::Get | Self::GetAndPost);
        let post = matches!(self, Self::Post | Self::GetAndPost);
        (get && (method == http::Method::GET || method == http::Method::HEAD))
            || (post && method == http::Method::POST)
    }
}

fn is_version(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn about(rest: &[&str]) -> Option<About> {
    match rest {
        [] => Some(About::Metadata),
        ["ready"] => Some(About::Ready),
        ["config"] => Some(About::Config),
        ["stats"] => Some(About::Statistics),
        ["infer"] => Some(About::Infer),
        ["generate"] => Some(About::Generate),
        ["generate_stream"] => Some(About::GenerateStream),
        ["empty_cache"] => Some(About::Cache),
        ["openapi.json"] => Some(About::OpenApi),
        ["explain"] => Some(About::Explain),
        _ => None,
    }
}

fn control<'p>(action: &str, named_repository: bool, model: &Cow<'p, str>) -> Option<Route<'p>> {
    let load = match action {
        "load" => true,
        "unload" => false,
        _ => return None,
    };
    Some(Route::Control { named_repository, model: model.clone(), load })
}

fn regions<'p>(kind: RegionKind, rest: &[&str]) -> Option<Route<'p>> {
    let (region, action) = match rest {
        [action] => (None, *action),
        ["region", region, action] => (Some(Cow::Owned((*region).to_owned())), *action),
        _ => return None,
    };
    match action {
        "status" => Some(Route::Regions { kind, region }),
        "register" => Some(Route::RegisterRegion { kind, region }),
        "unregister" => Some(Route::UnregisterRegions { kind, region }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model<'p>(model: &'p str, version: &'p str, about: About) -> Option<Route<'p>> {
        Some(Route::Model { model: model.into(), version: version.into(), about })
    }

    #[test]
    fn each_path_has_its_route() {
        let control =
            |named_repository, load| Some(Route::Control { named_repository, model: "m".into(), load });
        let table = [
            ("/v2", Some(Route::Server)),
            ("/v2/", Some(Route::Server)),
            ("/v2/health/live", Some(Route::Live)),
            ("/v2/health/ready/", Some(Route::Ready)),
            ("/v2/models", Some(Route::Models)),
            ("/v2/models/stats", Some(Route::AllStatistics)),
            ("/v2/models/m", model("m", "", About::Metadata)),
            ("/v2/models/m/", model("m", "", About::Metadata)),
            ("/v2/models/m/versions/1", model("m", "1", About::Metadata)),
            ("/v2/models/m/ready", model("m", "", About::Ready)),
            ("/v2/models/m/versions/007/config", model("m", "007", About::Config)),
            ("/v2/models/m/stats", model("m", "", About::Statistics)),
            ("/v2/models/m/versions/3/infer/", model("m", "3", About::Infer)),
            ("/v2/models/m/generate", model("m", "", About::Generate)),
            ("/v2/models/m/generate_stream", model("m", "", About::GenerateStream)),
            ("/v2/models/m/versions/2/empty_cache", model("m", "2", About::Cache)),
            ("/v2/models/my%20model%2Fx/infer", model("my model/x", "", About::Infer)),
            ("/v2/models/m/trace/setting", Some(Route::TraceSetting { model: Some("m".into()) })),
            ("/v2/trace/setting", Some(Route::TraceSetting { model: None })),
            ("/v2/logging", Some(Route::Logging)),
            ("/v2/repository/index", Some(Route::Index)),
            ("/v2/repository/foo/index", Some(Route::Index)),
            ("/v2/repository/models/m/load", control(false, true)),
            ("/v2/repository/models/m/unload", control(false, false)),
            ("/v2/repository/r/models/m/load", control(true, true)),
            (
                "/v2/systemsharedmemory/status",
                Some(Route::Regions { kind: RegionKind::System, region: None }),
            ),
            (
                "/v2/cudasharedmemory/region/r/register",
                Some(Route::RegisterRegion { kind: RegionKind::Cuda, region: Some("r".into()) }),
            ),
            (
                "/v2/systemsharedmemory/region/a%2Fb/unregister",
                Some(Route::UnregisterRegions { kind: RegionKind::System, region: Some("a/b".into()) }),
            ),
            (
                "/v2/cudasharedmemory/unregister",
                Some(Route::UnregisterRegions { kind: RegionKind::Cuda, region: None }),
            ),
            ("/openapi.json", Some(Route::OpenApi)),
            ("/v2/models/m/openapi.json", model("m", "", About::OpenApi)),
            ("/docs", Some(Route::Docs(PageFile::Page))),
            ("/docs/page.css", Some(Route::Docs(PageFile::Style))),
            ("/docs/page.js", Some(Route::Docs(PageFile::Script))),
            ("/v2/explain", Some(Route::Explain)),
            ("/v2/models/m/versions/2/explain", model("m", "2", About::Explain)),
            ("/status", Some(Route::StatusPage(PageFile::Page))),
            ("/status/page.css", Some(Route::StatusPage(PageFile::Style))),
            ("/status/page.js", Some(Route::StatusPage(PageFile::Script))),
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

    #[test]
    fn a_head_is_allowed_where_a_get_is() {
        use http::Method;
        assert!(Methods::Get.allow(&Method::HEAD) && !Methods::Post.allow(&Method::HEAD));
        assert!(Methods::GetAndPost.allow(&Method::POST) && !Methods::Get.allow(&Method::POST));
        assert!(!Methods::GetAndPost.allow(&Method::PUT));
    }
}
