//! Answers `/v2/explain`, and with the page that shows it.
use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use kserve::{log_control::LogLine, metadata::VERSION};
use serde_json::json;

use super::{
    document::{document, log_line},
    name_filter::NameFilter,
};
use crate::{
    access::Category,
    http::{
        call::HttpCall,
        context::HttpContext,
        docs::page_file::{PageFile, PageFiles},
        reply::{self, HttpOutcome},
        route_rules::{Methods, ModelPath, RouteRules},
    },
};

/// The page.
const PAGE: PageFiles = PageFiles {
    page: include_str!("page/index.html"),
    style: include_str!("page/page.css"),
    script: include_str!("page/page.js"),
};

/// The routes of the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum StatusRoute<'p> {
    /// `/v2/explain[?name={part of a name}]`
    Server,
    /// `/v2/models/{M}[/versions/{V}]/explain`
    Model(ModelPath<'p>),
    /// `/status` and its files
    Page(PageFile),
}

pub(in crate::http) fn rules<'r>(route: &'r StatusRoute<'_>) -> RouteRules<'r> {
    let rules = RouteRules::new(Category::Status, Methods::Get);
    let repeats: &[_] = &[Category::Statistics, Category::ModelRepository];
    match route {
        StatusRoute::Server => RouteRules { repeats, ..rules },
        StatusRoute::Model(path) => RouteRules { repeats, ..rules }.of_model(&path.model),
        // The files of the page tell nothing. What the page asks for is restricted, and the reader types the header into
        // the page.
        StatusRoute::Page(_) => RouteRules { is_public: true, ..rules },
    }
}

pub(in crate::http) fn answer(
    context: &HttpContext,
    call: &HttpCall<'_>,
    route: &StatusRoute<'_>,
) -> HttpOutcome {
    match route {
        StatusRoute::Server => explain(context, call, None),
        StatusRoute::Model(path) => explain(context, call, Some((&path.model, path.version()?))),
        StatusRoute::Page(PageFile::Page) if call.uri.path().ends_with('/') => Ok(reply::moved("../status")),
        StatusRoute::Page(file) => Ok(PAGE.reply_with(*file)),
    }
}

fn explain(context: &HttpContext, call: &HttpCall<'_>, model: Option<(&str, Option<i64>)>) -> HttpOutcome {
    let filter = NameFilter::of(call.uri.query())?;
    let shows = |name: &str| call.access.shows(name) && filter.admits(name);
    let explained = context.engine.explain(model, shows).map_err(|error| match model {
        Some((name, _)) => context.about_model(error, name, call),
        None => error,
    })?;
    let mut document = document(&explained);
    let server = context.engine.server();
    document["server"]["name"] = json!(server.name);
    document["server"]["version"] = json!(server.version);
    document["server"]["nereid_version"] = json!(VERSION);
    if model.is_none()
        && let Some(lines) = visible_log(context, call)
    {
        document["log"] = lines.iter().map(log_line).collect();
    }
    let mut reply = reply::json(StatusCode::OK, document.to_string().into_bytes());
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// The last lines of the log, for senders that may use the API of the log and may know all models.
fn visible_log(context: &HttpContext, call: &HttpCall<'_>) -> Option<Vec<LogLine>> {
    let may_see = context.meets_restriction(Category::Logging, call).is_ok()
        && call.access.check(Category::Logging, None).is_ok()
        && call.access.shows_all();
    context.options.log.as_ref().filter(|_| may_see)?.last_lines()
}
