//! What stands behind the engine's error about a model: the name that the client probably means, or why the model has failed.
use engine::{Engine, IndexEntry, ModelState};
use inference::{did_you_mean, nearest};
use vocabulary::{Error, ErrorCode};

use crate::access::Access;

/// The most models whose names are compared.
const MOST_MODELS: usize = 1000;

/// Adds to `error`, which the engine has made for the model `name`, the name that is probably meant, or why the model has
/// failed. `lister` is the access of a sender who may list models, and is asked for only if there is no such model.
pub(crate) fn explain<'a>(
    mut error: Error,
    engine: &Engine,
    name: &str,
    lister: impl FnOnce() -> Option<&'a Access>,
) -> Error {
    if !matches!(error.code, ErrorCode::NotFound | ErrorCode::Unavailable) {
        return error;
    }
    let Some(access) = lister() else { return error };
    let known = engine.known_models(false);
    let more = if known.iter().any(|entry| *entry.name == *name) {
        let shown = known.iter().filter(|entry| *entry.name == *name && access.shows(&entry.name));
        failure_of(&error, shown)
    } else {
        let shown = known.iter().map(|entry| &entry.name).filter(|known| access.shows(known));
        did_you_mean(nearest(name, shown.take(MOST_MODELS)))
    };
    error.message.to_mut().push_str(&more);
    error
}

/// The first line of the reason why the version that the error is about, or the largest one, has failed.
fn failure_of<'a>(error: &Error, entries: impl DoubleEndedIterator<Item = &'a IndexEntry>) -> String {
    let is_about = |version: Option<i64>| match version {
        Some(version) => {
            error.message.ends_with(" has no available versions")
                || error.message.ends_with(&format!(" version {version} is not at ready state"))
        }
        None => {
            error.message.ends_with(" has no available versions") || error.message.ends_with(" is not found")
        }
    };
    let has_failed = |entry: &&IndexEntry| {
        let is_told = !entry.reason.is_empty() && !entry.is_unloaded();
        entry.state == Some(ModelState::Unavailable) && is_told && is_about(entry.version)
    };
    let Some(IndexEntry { version, reason, .. }) = entries.rev().find(has_failed) else {
        return String::new();
    };
    let reason = reason.lines().next().unwrap_or_default();
    match version {
        Some(version) => format!(": version {version} is UNAVAILABLE: {reason}"),
        None => format!(": {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_about_a_model_that_has_failed_has_the_reason() {
        let entry = |version, state, reason: &str| IndexEntry {
            name: "m".into(),
            namespace: None,
            version,
            state: Some(state),
            reason: reason.to_owned(),
        };
        let versions = [
            entry(Some(1), ModelState::Unavailable, "Internal: no graph\nat line 1"),
            entry(Some(2), ModelState::Unavailable, "unloaded"),
            entry(Some(3), ModelState::Loading, ""),
        ];
        let unread = [entry(None, ModelState::Unavailable, "no such field")];
        for (entries, text, more) in [
            (&versions[..], "has no available versions", ": version 1 is UNAVAILABLE: Internal: no graph"),
            (&versions, "version 1 is not at ready state", ": version 1 is UNAVAILABLE: Internal: no graph"),
            (&versions, "version 2 is not at ready state", ""),
            (&versions, "version 3 is not at ready state", ""),
            (&versions, "version 7 is not found", ""),
            (&unread, "is not found", ": no such field"),
        ] {
            let error = Error::not_found(format!("Request for unknown model: 'm' {text}"));
            assert_eq!(failure_of(&error, entries.iter()), more, "{text}");
        }
    }
}
