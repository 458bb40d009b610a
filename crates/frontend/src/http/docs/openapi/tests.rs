//! The document describes the routes, no more and no less.
use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    operations::HttpOperation,
    routes::{MODEL_ROUTES, ROUTES},
    *,
};
use crate::http::{
    docs::status::StatusRoute,
    generate::GenerateRoute,
    models::ModelsRoute,
    regions::{RegionAction, RegionsRoute},
    route_rules::Methods,
    router::Route,
    server::ServerRoute,
};

/// Each path of the document with a value for each parameter, and its operation.
fn examples() -> impl Iterator<Item = (String, &'static HttpOperation)> {
    let of_models = MODEL_ROUTES.iter().flat_map(|route| {
        let roots = ["/v2/models/m", "/v2/models/m/versions/1"];
        roots.map(|root| (format!("{root}{}", route.path), route))
    });
    let filled = |path: &str| path.replace("{model}", "m").replace("{region}", "r");
    ROUTES.iter().map(move |route| (filled(route.path), route)).chain(of_models)
}

/// The name of a route. A new route does not compile until it has one here.
fn name(route: &Route<'_>) -> &'static str {
    match route {
        Route::Server(ServerRoute::Live) => "live",
        Route::Server(ServerRoute::Ready) => "ready",
        Route::Server(ServerRoute::Metadata) => "server",
        Route::Server(ServerRoute::Load) => "server load",
        Route::Server(ServerRoute::TraceSetting { .. }) => "trace setting",
        Route::Server(ServerRoute::Logging) => "logging",
        Route::Models(ModelsRoute::List) => "models",
        Route::Models(ModelsRoute::Index) => "index",
        Route::Models(ModelsRoute::Control { load: true, .. }) => "load",
        Route::Models(ModelsRoute::Control { load: false, .. }) => "unload",
        Route::Models(ModelsRoute::AllStatistics) => "all statistics",
        Route::Models(ModelsRoute::Metadata(_)) => "metadata",
        Route::Models(ModelsRoute::Ready(_)) => "model ready",
        Route::Models(ModelsRoute::Config(_)) => "config",
        Route::Models(ModelsRoute::Statistics(_)) => "statistics",
        Route::Models(ModelsRoute::EmptyCache(_)) => "cache",
        Route::Infer(_) => "infer",
        Route::Generate(GenerateRoute::Once(_)) => "generate",
        Route::Generate(GenerateRoute::Stream(_)) => "generate stream",
        Route::Regions(RegionsRoute { action: RegionAction::Status, .. }) => "regions",
        Route::Regions(RegionsRoute { action: RegionAction::Register, .. }) => "register region",
        Route::Regions(RegionsRoute { action: RegionAction::Unregister, .. }) => "unregister regions",
        Route::OpenApi(OpenApiRoute::Server) => "openapi",
        Route::OpenApi(OpenApiRoute::Model(_)) => "model openapi",
        Route::OpenApi(OpenApiRoute::Page(_)) => "docs",
        Route::Status(StatusRoute::Server) => "explain",
        Route::Status(StatusRoute::Model(_)) => "explain model",
        Route::Status(StatusRoute::Page(_)) => "status page",
    }
}

#[test]
fn every_route_is_described_with_its_methods() {
    let mut described = BTreeSet::new();
    for (path, operation) in examples() {
        let route = Route::of(&path).unwrap_or_else(|| panic!("{path} has no route"));
        let fits = match route.rules().methods {
            Methods::Get => operation.method == "get",
            Methods::Post => operation.method == "post",
            Methods::GetAndPost => true,
        };
        assert!(fits, "{} {path}", operation.method);
        described.insert((name(&route), operation.method));
    }
    let expected = [
        ("all statistics", "get"),
        ("cache", "post"),
        ("config", "get"),
        ("docs", "get"),
        ("explain", "get"),
        ("explain model", "get"),
        ("generate", "post"),
        ("generate stream", "post"),
        ("index", "post"),
        ("infer", "post"),
        ("live", "get"),
        ("load", "post"),
        ("logging", "get"),
        ("logging", "post"),
        ("metadata", "get"),
        ("model openapi", "get"),
        ("model ready", "get"),
        ("models", "get"),
        ("openapi", "get"),
        ("ready", "get"),
        ("regions", "get"),
        ("register region", "post"),
        ("server", "get"),
        ("server load", "get"),
        ("statistics", "get"),
        ("status page", "get"),
        ("trace setting", "get"),
        ("trace setting", "post"),
        ("unload", "post"),
        ("unregister regions", "post"),
    ];
    assert_eq!(described, expected.into());
}

#[test]
fn every_operation_has_a_name_of_its_own() {
    let paths = routes::paths();
    let mut names = BTreeSet::new();
    for (path, item) in &paths {
        for method in ["get", "post"] {
            let Some(operation) = item.get(method) else { continue };
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name), "{method} {path}");
        }
    }
    assert_eq!(names.len(), ROUTES.len() + 2 * MODEL_ROUTES.len());
}

/// Collects the names of all schemas that a part of the document refers to.
fn references(part: &Value, found: &mut BTreeSet<String>) {
    match part {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value.as_str()) {
                    ("$ref", Some(target)) => {
                        found.insert(target.strip_prefix("#/components/schemas/").unwrap().to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_schema_is_used_and_every_used_schema_is_there() {
    let schemas = schemas::all();
    let mut used = BTreeSet::new();
    references(&Value::Object(routes::paths()), &mut used);
    references(&schemas, &mut used);
    let there: BTreeSet<_> = schemas.as_object().unwrap().keys().cloned().collect();
    assert_eq!(used, there);
}
