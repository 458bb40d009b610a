//! The documents of a server and of a model.
use std::collections::BTreeSet;

use engine::{Engine, Model};
use kserve::metadata::VERSION;
use serde_json::{Value, json};

use super::{fragments::Paths, model, routes, schemas};

/// The document of the whole server describes so many models. Each model has a document of its own.
const MOST_MODELS: usize = 100;

/// The document of the server: all routes, and the models that are ready and that `shows` permits.
pub(super) fn of_server(engine: &Engine, shows: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut paths = routes::paths();
    let mut names: Vec<_> = engine.known_models(true).into_iter().map(|entry| entry.name).collect();
    names.dedup();
    names.retain(|name| shows(name));
    for name in names.iter().take(MOST_MODELS) {
        // A model that has left meanwhile has no paths.
        let Ok(model) = engine.model(name, None) else { continue };
        paths.extend(model::paths(&model, None));
    }
    let left_out = names.len().saturating_sub(MOST_MODELS);
    let description = match left_out {
        0 => String::new(),
        left_out => format!(
            " {left_out} more models are ready. `/v2/models/{{model}}/openapi.json` describes each of them."
        ),
    };
    document(engine, "Nereid", &description, &paths)
}

/// The document of a model. `version` is the version that its paths name, if they do.
pub(super) fn of_model(engine: &Engine, model: &Model, version: Option<i64>) -> Vec<u8> {
    document(engine, model.name(), "", &model::paths(model, version))
}

fn document(engine: &Engine, title: &str, more: &str, paths: &Paths) -> Vec<u8> {
    let follows = &engine.server().version;
    let description = format!(
        "An inference server with the KServe v2 protocol and Triton's extensions, as of Triton {follows}. Tensors may also be sent in binary \
         form: `Inference-Header-Content-Length` is the length of the JSON part, and the bytes of the tensors follow \
         it.{more}"
    );
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": VERSION, "description": description },
        "tags": tags(paths),
        "paths": paths,
        "components": { "schemas": schemas::all() },
    });
    document.to_string().into_bytes()
}

/// The groups of operations: first the models, then the others in the order of their importance.
fn tags(paths: &Paths) -> Vec<Value> {
    let used: BTreeSet<_> = paths
        .values()
        .flat_map(|item| ["get", "post"].map(|method| item[method]["tags"][0].as_str()))
        .flatten()
        .collect();
    let models = used.iter().filter(|tag| !routes::TAGS.contains(tag));
    let others = routes::TAGS.iter().filter(|tag| used.contains(*tag));
    models.chain(others).map(|tag| json!({ "name": tag })).collect()
}
