//! Which variables a credential is made of.

use std::path::PathBuf;

use super::*;
use crate::url::ObjectUrl;

/// The variables of a test.
pub(crate) fn variables(pairs: &[(&str, &str)]) -> StoreVariables {
    let find = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| *key == name);
        pair.map(|(_, value)| (*value).to_owned())
    };
    StoreVariables::read(&find)
}

fn found(url: &str, pairs: &[(&str, &str)]) -> Credential {
    find(&ObjectUrl::parse(url).unwrap(), &variables(pairs)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn s3_takes_the_variables_of_aws() {
    let Credential::S3(credential) = found(
        "s3://bucket",
        &[
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
            ("AWS_SESSION_TOKEN", ""),
            ("AWS_REGION", "eu-west-1"),
        ],
    ) else {
        panic!("not a credential of S3")
    };
    assert_eq!(credential.key_id.as_deref(), Some("id"));
    assert_eq!(credential.secret_key.as_deref(), Some("key"));
    assert_eq!(credential.session_token, None, "an empty value counts as absent");
    assert_eq!(credential.region.as_deref(), Some("eu-west-1"));
}

#[test]
fn google_takes_the_path_of_its_key() {
    let Credential::Gcs(credential) = found("gs://b", &[("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")])
    else {
        panic!("not a credential of Google")
    };
    assert_eq!(credential.file, Some(PathBuf::from("/key.json")));
}

#[test]
fn azure_knows_three_kinds_of_authentication() {
    for (name, expected) in [
        ("", AzureAuthentication::Key),
        ("key", AzureAuthentication::Key),
        ("managed_identity", AzureAuthentication::ManagedIdentity),
        ("default", AzureAuthentication::Environment),
    ] {
        let Credential::Azure(credential) = found("as://a/c", &[("AZURE_STORAGE_AUTH_TYPE", name)]) else {
            panic!("not a credential of Azure")
        };
        assert_eq!(credential.authentication, expected);
    }
    let url = ObjectUrl::parse("as://a/c").unwrap();
    let error = find(&url, &variables(&[("AZURE_STORAGE_AUTH_TYPE", "magic")])).err().unwrap();
    assert!(error.message.contains("'magic' of Azure storage is unknown"), "{error}");
}
