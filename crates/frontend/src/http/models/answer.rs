//! Answers requests about models.
use std::borrow::Cow;

use http::StatusCode;
use kserve::{self, show};
use vocabulary::Error;

use super::repository;
use crate::{
    access::{Access, Category},
    error,
    http::{
        call::HttpCall,
        context::HttpContext,
        reply::{self, HttpOutcome},
        route_rules::{Methods, ModelPath, RouteRules},
    },
};

/// The routes of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum ModelsRoute<'p> {
    /// `/v2/models`
    List,
    /// `/v2/repository[/{R}]/index`. The name of the repository does not matter.
    Index,
    /// `/v2/repository[/{R}]/models/{M}/load` or `unload`
    Control { named_repository: bool, model: Cow<'p, str>, load: bool },
    /// `/v2/models/stats`
    AllStatistics,
    /// `/v2/models/{M}[/versions/{V}]`
    Metadata(ModelPath<'p>),
    /// `.../ready`
    Ready(ModelPath<'p>),
    /// `.../config`
    Config(ModelPath<'p>),
    /// `.../stats`
    Statistics(ModelPath<'p>),
    /// `.../empty_cache`: removes the model's answers from the response cache.
    EmptyCache(ModelPath<'p>),
}

pub(in crate::http) fn rules<'r>(route: &'r ModelsRoute<'_>) -> RouteRules<'r> {
    match route {
        // The list has the category of the index, because it shows the same models.
        ModelsRoute::List => RouteRules::new(Category::ModelRepository, Methods::Get),
        ModelsRoute::Index => RouteRules::new(Category::ModelRepository, Methods::Post),
        ModelsRoute::Control { model, .. } => {
            RouteRules::new(Category::ModelRepository, Methods::Post).of_model(model)
        }
        ModelsRoute::AllStatistics => RouteRules::new(Category::Statistics, Methods::Get),
        ModelsRoute::Metadata(path) => {
            RouteRules::new(Category::Metadata, Methods::Get).of_model(&path.model)
        }
        ModelsRoute::Ready(path) => RouteRules::new(Category::Health, Methods::Get).of_model(&path.model),
        ModelsRoute::Config(path) => {
            RouteRules::new(Category::ModelConfig, Methods::Get).of_model(&path.model)
        }
        ModelsRoute::Statistics(path) => {
            RouteRules::new(Category::Statistics, Methods::Get).of_model(&path.model)
        }
        ModelsRoute::EmptyCache(path) => {
            RouteRules::new(Category::ModelRepository, Methods::Post).of_model(&path.model)
        }
    }
}

pub(in crate::http) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    route: &ModelsRoute<'_>,
) -> HttpOutcome {
    match route {
        ModelsRoute::List => Ok(repository::list(context, call).await),
        ModelsRoute::Index => repository::index(context, call).await,
        ModelsRoute::Control { named_repository: true, .. } => {
            Err(Error::unsupported("'repository_name' specification is not supported").into())
        }
        ModelsRoute::Control { model, load: true, .. } => repository::load(context, call, model).await,
        ModelsRoute::Control { model, load: false, .. } => repository::unload(context, call, model).await,
        ModelsRoute::AllStatistics => statistics(context, &call.access, None, None),
        ModelsRoute::Metadata(path) => metadata(context, call, path).await,
        ModelsRoute::Ready(path) => ready(context, path).await,
        ModelsRoute::Config(path) => config(context, call, path).await,
        ModelsRoute::Statistics(path) => {
            statistics(context, &call.access, Some(&path.model), path.version()?)
        }
        ModelsRoute::EmptyCache(path) => repository::empty_cache(context, path).await,
    }
}

async fn metadata(context: &HttpContext, call: &mut HttpCall<'_>, path: &ModelPath<'_>) -> HttpOutcome {
    let model = context.model(call, path).await?;
    let metadata = kserve::metadata::of_model(&context.engine, &model, path.version()?);
    Ok(reply::json(StatusCode::OK, show::model(&metadata)))
}

async fn ready(context: &HttpContext, path: &ModelPath<'_>) -> HttpOutcome {
    Ok(if context.engine.demands().ready(&path.model, path.version()?).await {
        reply::bare(StatusCode::OK)
    } else {
        reply::json(StatusCode::BAD_REQUEST, error::body("Model version not ready"))
    })
}

async fn config(context: &HttpContext, call: &mut HttpCall<'_>, path: &ModelPath<'_>) -> HttpOutcome {
    let model = context.model(call, path).await?;
    Ok(reply::json(StatusCode::OK, proto::json::to_json(model.shown())))
}

fn statistics(
    context: &HttpContext,
    access: &Access,
    name: Option<&str>,
    version: Option<i64>,
) -> HttpOutcome {
    let mut statistics = context.engine.statistics(name, version)?;
    statistics.retain(|model| access.shows(&model.name));
    let statistics = kserve::statistics::response(&statistics);
    Ok(reply::json(StatusCode::OK, show::statistics(&statistics)))
}
