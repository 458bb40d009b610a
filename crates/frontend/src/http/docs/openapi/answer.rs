//! Answers with documents, and with the page that shows them.
use http::StatusCode;

use super::document;
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

/// The page that shows the document.
const PAGE: PageFiles = PageFiles {
    page: include_str!("page/index.html"),
    style: include_str!("page/page.css"),
    script: include_str!("page/page.js"),
};

/// The routes of descriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum OpenApiRoute<'p> {
    /// `/openapi.json`
    Server,
    /// `/v2/models/{M}[/versions/{V}]/openapi.json`: the description of a model's own paths.
    Model(ModelPath<'p>),
    /// `/docs` and its files
    Page(PageFile),
}

pub(in crate::http) fn rules<'r>(route: &'r OpenApiRoute<'_>) -> RouteRules<'r> {
    let rules = RouteRules::new(Category::Metadata, Methods::Get);
    match route {
        OpenApiRoute::Server | OpenApiRoute::Page(_) => rules,
        OpenApiRoute::Model(path) => rules.of_model(&path.model),
    }
}

pub(in crate::http) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    route: &OpenApiRoute<'_>,
) -> HttpOutcome {
    let engine = &context.engine;
    let document = match route {
        OpenApiRoute::Server => document::of_server(engine, |model| call.access.shows(model)),
        OpenApiRoute::Model(path) => {
            let version = path.version()?;
            let model = context.model(call, path).await?;
            document::of_model(engine, &model, version)
        }
        // The page names its files relative to its folder.
        OpenApiRoute::Page(PageFile::Page) if call.uri.path().ends_with('/') => {
            return Ok(reply::moved("../docs"));
        }
        OpenApiRoute::Page(file) => return Ok(PAGE.reply_with(*file)),
    };
    Ok(reply::json(StatusCode::OK, document))
}
