//! The parsers of URLs and of files of credentials, as entrances for fuzzers. They exist only with the feature `fuzzing`,
//! and are no part of the interface of this crate.
use crate::{credentials::profile, is_url, url::ObjectUrl};

/// Reads the URL of a repository.
///
/// # Panics
/// A URL that is accepted is shown in a form that means something else, or an error shows the query, which may be a secret.
pub fn url(text: &str) {
    let parsed = ObjectUrl::parse(text);
    assert!(parsed.is_err() || is_url(text), "'{text}' is no URL of an object store");
    match parsed {
        Ok(url) => {
            assert_eq!(ObjectUrl::parse(&url.text).as_ref(), Ok(&url), "'{text}' is shown as '{}'", url.text);
        }
        Err(error) => {
            // A short query, or one that is also a part of what an error may show, may be there by chance.
            let shows = |(before, query): (&str, &str)| {
                query.len() > 8 && !format!("{before}?").contains(query) && error.message.contains(query)
            };
            assert!(!text.split_once('?').is_some_and(shows), "an error shows '{text}'");
        }
    }
}

/// Reads a section of a file of profiles of AWS.
pub fn profile(text: &str) {
    let _ = profile::parsed(text, "profile models");
}
