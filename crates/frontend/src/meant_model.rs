//! The model that a client probably means by the name of none.
use engine::Engine;
use inference::{did_you_mean, nearest};
use vocabulary::{Error, ErrorCode};

use crate::access::Access;

/// The most models whose names are compared.
const MOST_MODELS: usize = 1000;

/// Adds to `error`, which the engine has made for the model `name`, the name that is probably meant. `lister` is the access
/// of a sender who may list models, and is asked for only if there is no such model.
pub(crate) fn explain<'a>(
    mut error: Error,
    engine: &Engine,
    name: &str,
    lister: impl FnOnce() -> Option<&'a Access>,
) -> Error {
    if error.code != ErrorCode::NotFound {
        return error;
    }
    let Some(access) = lister() else { return error };
    let known = engine.known_models(false);
    let names = known.iter().map(|entry| &entry.name);
    if !names.clone().any(|known| **known == *name) {
        let shown = names.filter(|known| access.shows(known)).take(MOST_MODELS);
        error.message.to_mut().push_str(&did_you_mean(nearest(name, shown)));
    }
    error
}
