//! Which requests which keys permit.
use std::{fs, sync::Arc};

use http::{HeaderMap, HeaderValue};

use super::{sender::MAX_KEY_BYTES, *};
use crate::{access::Category, port::Reload};

fn keys() -> (tempfile::TempDir, Arc<ApiKeys>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let entry = |name: &str, key: &str, apis: &str, models: &str| {
        format!(r#"{{"name":"{name}","sha256":"{}","apis":[{apis}],"models":[{models}]}}"#, digest_text(key))
    };
    let keys = [
        entry("user", "user-key", r#""inference","metadata""#, r#""resnet*","bert""#),
        entry("admin", "admin-key", r#""*""#, r#""*""#),
    ];
    let text =
        format!(r#"{{"keys":[{}],"anonymous":{{"apis":["health"],"models":["open"]}}}}"#, keys.join(","));
    fs::write(&path, text).unwrap();
    let keys = ApiKeys::new(path).unwrap();
    (directory, keys)
}

fn access(keys: &Arc<ApiKeys>, headers: &[(&'static str, &'static str)]) -> Access {
    let header = |(name, value): &(&'static str, &'static str)| {
        ((*name).parse().unwrap(), HeaderValue::from_static(value))
    };
    Access::of(Some(keys), &headers.iter().map(header).collect())
}

#[test]
fn a_key_permits_its_apis_and_models_and_nothing_else() {
    let (_directory, keys) = keys();
    let user = access(&keys, &[("authorization", "Bearer user-key")]);
    assert_eq!(user.check(Category::Inference, Some("resnet50")), Ok(()));
    assert_eq!(user.check(Category::Metadata, None), Ok(()));
    let refused = user.check(Category::Inference, Some("gpt")).unwrap_err();
    assert_eq!(refused, AccessDenied::Model("user".into(), "gpt".into()));
    assert_eq!(refused.status(), 403);
    let refused = user.check(Category::ModelRepository, Some("bert")).unwrap_err();
    assert_eq!(refused, AccessDenied::Category("user".into(), Category::ModelRepository));
    assert_eq!(refused.status(), 403);
    assert!(user.shows("bert") && !user.shows("bert2") && !user.shows("open") && !user.shows_all());
    let admin = access(&keys, &[("x-api-key", "admin-key")]);
    assert!(Category::ALL.iter().all(|category| admin.check(*category, Some("any")).is_ok()));
    assert!(admin.shows_all());
}

#[test]
fn a_request_without_a_key_may_do_what_anonymous_clients_may() {
    let (_directory, keys) = keys();
    for headers in [&[][..], &[("authorization", "Basic dXNlcg==")]] {
        let anonymous = access(&keys, headers);
        assert_eq!(anonymous.check(Category::Health, None), Ok(()));
        assert_eq!(anonymous.check(Category::Health, Some("open")), Ok(()));
        assert_eq!(anonymous.check(Category::Health, Some("bert")), Err(AccessDenied::NoKey));
        assert_eq!(anonymous.check(Category::Inference, Some("open")), Err(AccessDenied::NoKey));
        assert!(!anonymous.shows("bert"));
    }
    assert_eq!(AccessDenied::NoKey.status(), 401);
}

#[test]
fn an_unknown_key_permits_not_even_what_no_key_permits() {
    let (_directory, keys) = keys();
    let long: &'static str = String::leak("x".repeat(MAX_KEY_BYTES + 1));
    for key in ["", "user-ke", "user-key2", "USER-KEY", long] {
        let unknown = access(&keys, &[("x-api-key", key)]);
        assert_eq!(unknown.check(Category::Health, None), Err(AccessDenied::UnknownKey), "{key}");
        assert!(!unknown.shows("open"));
    }
    // The digest itself is no key.
    let digest: &'static str = String::leak(digest_text("user-key"));
    let unknown = access(&keys, &[("x-api-key", digest)]);
    assert_eq!(unknown.check(Category::Health, None), Err(AccessDenied::UnknownKey));
}

#[test]
fn a_bearer_token_counts_before_the_other_header() {
    let (_directory, keys) = keys();
    let both = access(&keys, &[("authorization", "bearer  user-key "), ("x-api-key", "admin-key")]);
    assert!(both.check(Category::Inference, None).is_ok() && both.check(Category::Trace, None).is_err());
}

#[test]
fn a_removed_key_permits_nothing_to_calls_that_have_begun() {
    let (directory, keys) = keys();
    let user = access(&keys, &[("x-api-key", "user-key")]);
    assert_eq!(user.check(Category::Inference, None), Ok(()));
    let path = directory.path().join("keys.json");
    fs::write(&path, "broken").unwrap();
    keys.reload_if_changed();
    assert_eq!(user.check(Category::Inference, None), Ok(()), "a broken file changes nothing");
    fs::write(&path, r#"{"keys":[]}"#).unwrap();
    keys.reload_if_changed();
    assert_eq!(user.check(Category::Inference, None), Err(AccessDenied::UnknownKey));
}

#[test]
fn without_a_file_everything_is_permitted() {
    let access = Access::of(None, &HeaderMap::new());
    assert_eq!(access.check(Category::ModelRepository, Some("any")), Ok(()));
    assert!(access.shows("any") && access.shows_all());
}

#[test]
fn the_digest_is_that_of_sha256sum() {
    let expected = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
    assert_eq!(digest_text("key"), expected);
    let (one, other) = (new_key().unwrap(), new_key().unwrap());
    assert!(one != other && one.len() == 64);
}
