//! The credential file (`TRITON_CLOUD_CREDENTIAL_PATH`): JSON with a section for each scheme, and in it a credential
//! for each prefix of URLs. A prefix ends where a part of the path ends. The longest prefix that fits wins; the empty
//! prefix fits all.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use vocabulary::Error;

use super::credential::{AzureAuthentication, AzureCredential, Credential, GcsCredential, S3Credential};
use super::profile;
use super::variables::StoreVariables;
use crate::url::{ObjectUrl, Service};

/// # Errors
/// See [`super::find`]. Errors name the file, the section and the field, but no value.
pub(super) fn find(path: &Path, url: &ObjectUrl, variables: &StoreVariables) -> Result<Credential, Error> {
    let failed = |why: String| Error::invalid(format!("credential file '{}': {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let section = match url.service {
        Service::S3 { .. } => "s3",
        Service::Gcs => "gs",
        Service::Azure { .. } => "as",
    };
    let document = document.as_object().ok_or_else(|| failed("is not a JSON object".into()))?;
    let entries = match document.get(section) {
        None => None,
        Some(Value::Object(entries)) => longest_prefix(entries, &url.text),
        Some(_) => return Err(failed(format!("section '{section}' is not a JSON object"))),
    };
    let Some((prefix, entry)) = entries else {
        // As Triton, with its two blanks.
        return Err(Error::not_found(format!("Cannot match credential for path  {}", url.text)));
    };
    let entry = CredentialEntry { value: entry, place: format!("section '{section}', prefix '{prefix}'") };
    match url.service {
        Service::S3 { .. } => {
            let credential = S3Credential {
                key_id: entry.text("key_id").map_err(failed)?,
                secret_key: entry.text("secret_key").map_err(failed)?,
                session_token: entry.text("session_token").map_err(failed)?,
                region: entry.text("region").map_err(failed)?,
            };
            let profile = entry.text("profile").map_err(failed)?;
            profile::complete(credential, profile, variables).map(Credential::S3)
        }
        Service::Gcs => {
            let Value::String(file) = entry.value else {
                return Err(failed(format!("{} is not the path of a key, which is a string", entry.place)));
            };
            let file = Some(PathBuf::from(file)).filter(|file| !file.as_os_str().is_empty());
            Ok(Credential::Gcs(GcsCredential { file }))
        }
        Service::Azure { .. } => Ok(Credential::Azure(AzureCredential {
            account: entry.text("account_str").map_err(failed)?,
            key: entry.text("account_key").map_err(failed)?,
            authentication: AzureAuthentication::parse(
                &entry.text("auth_type").map_err(failed)?.unwrap_or_default(),
            )?,
            client_id: entry.text("client_id").map_err(failed)?,
        })),
    }
}

fn longest_prefix<'a>(entries: &'a Map<String, Value>, url: &str) -> Option<(&'a str, &'a Value)> {
    let fitting = entries.iter().filter(|(prefix, _)| is_at_or_above(prefix, url));
    fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(prefix, value)| (prefix.as_str(), value))
}

/// Whether a prefix consists of whole parts of a URL: the credential of `s3://bucket` does not belong to
/// `s3://bucket-of-others`.
fn is_at_or_above(prefix: &str, url: &str) -> bool {
    // The URL has no slash at its end; a prefix may have one.
    match url.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        None => prefix.strip_suffix('/') == Some(url),
    }
}

/// The credential of one prefix, and where it is in the file.
struct CredentialEntry<'a> {
    value: &'a Value,
    place: String,
}

impl CredentialEntry<'_> {
    /// The text of a field; an empty one counts as absent. The error does not contain the value.
    fn text(&self, field: &str) -> Result<Option<String>, String> {
        let object = self.value.as_object().ok_or_else(|| format!("{} is not a JSON object", self.place))?;
        match object.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("field '{field}' in {} is not a string", self.place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::tests::variables;

    fn found(content: &str, url: &str) -> Result<Credential, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials.json");
        fs::write(&path, content).unwrap();
        find(&path, &ObjectUrl::parse(url).unwrap(), &variables(&[]))
    }

    fn key_id(content: &str, url: &str) -> Option<String> {
        match found(content, url).unwrap_or_else(|error| panic!("{error}")) {
            Credential::S3(credential) => credential.key_id,
            Credential::Gcs(_) | Credential::Azure(_) => panic!("not a credential of S3"),
        }
    }

    const S3: &str = r#"{"s3": {
        "": {"key_id": "any", "secret_key": "x"},
        "s3://bucket": {"key_id": "bucket", "secret_key": "x"},
        "s3://bucket/a/": {"key_id": "folder", "secret_key": "x", "session_token": ""}}}"#;

    #[test]
    fn the_longest_prefix_wins() {
        assert_eq!(key_id(S3, "s3://bucket/a/b").as_deref(), Some("folder"));
        assert_eq!(key_id(S3, "s3://bucket/a").as_deref(), Some("folder"));
        assert_eq!(key_id(S3, "s3://bucket/ab").as_deref(), Some("bucket"));
        assert_eq!(key_id(S3, "s3://other").as_deref(), Some("any"));
        assert_eq!(key_id(S3, "s3://localhost:9000/bucket").as_deref(), Some("any"));
    }

    #[test]
    fn a_credential_is_not_sent_to_a_place_whose_name_only_begins_like_its_own() {
        let none = |content: &str, url: &str| {
            let expected = Error::not_found(format!("Cannot match credential for path  {url}"));
            assert_eq!(found(content, url).err(), Some(expected), "{content} {url}");
        };
        for prefix in ["s3://bucket", "s3://bucket/a", "s3://bucket/a/", "s3://https://host"] {
            let content = format!(r#"{{"s3": {{"{prefix}": {{"key_id": "k", "secret_key": "x"}}}}}}"#);
            let whole = prefix.trim_end_matches('/');
            let bucket = if whole.contains("host") { "/bucket" } else { "" };
            assert_eq!(key_id(&content, &format!("{whole}{bucket}")).as_deref(), Some("k"));
            assert_eq!(key_id(&content, &format!("{whole}{bucket}/b")).as_deref(), Some("k"));
            none(&content, &format!("{whole}-evil/bucket"));
        }
        none(r#"{"s3": {"s3://localhost:900": {}}}"#, "s3://localhost:9000/bucket");
        none(r#"{"s3": {"s3://https://host": {}}}"#, "s3://https://host.evil/bucket");
        none(r#"{"gs": {"gs://bucket": "key.json"}}"#, "gs://bucket-evil");
        none(r#"{"as": {"as://account": {}}}"#, "as://account2/container");
        none(r#"{"as": {"as://account/container": {}}}"#, "as://account/container2");
        assert_eq!(
            key_id(r#"{"s3": {"s3://": {"key_id": "k", "secret_key": "x"}}}"#, "s3://bucket").as_deref(),
            Some("k")
        );
    }

    #[test]
    fn a_url_that_no_prefix_fits_is_refused_with_the_text_of_triton() {
        for content in [r#"{"s3": {"s3://bucket": {}}}"#, "{}", r#"{"gs": {"": "key.json"}}"#] {
            let error = found(content, "s3://other/a").err().unwrap();
            assert_eq!(error, Error::not_found("Cannot match credential for path  s3://other/a"));
        }
    }

    #[test]
    fn google_and_azure_have_their_own_fields() {
        let content = r#"{"gs": {"": "/key.json"}, "as": {"": {"account_str": "account", "account_key": "a2V5",
            "auth_type": "default", "client_id": "client"}}}"#;
        let Ok(Credential::Gcs(google)) = found(content, "gs://bucket") else { panic!("not Google") };
        assert_eq!(google.file, Some("/key.json".into()));
        let Ok(Credential::Azure(azure)) = found(content, "as://a/b") else { panic!("not Azure") };
        assert_eq!(azure.account.as_deref(), Some("account"));
        assert_eq!(azure.key.as_deref(), Some("a2V5"));
        assert_eq!(azure.authentication, AzureAuthentication::Environment);
        assert_eq!(azure.client_id.as_deref(), Some("client"));
    }

    #[test]
    fn a_wrong_file_is_refused_by_its_place_and_never_by_its_values() {
        for (content, expected) in [
            (
                r#"{"s3": {"": {"key_id": ["SECRET"]}}}"#,
                "field 'key_id' in section 's3', prefix '' is not a string",
            ),
            (r#"{"s3": {"": "SECRET"}}"#, "section 's3', prefix '' is not a JSON object"),
            (r#"{"s3": "SECRET"}"#, "section 's3' is not a JSON object"),
            (r#"["SECRET"]"#, "is not a JSON object"),
            (r#"{"s3": {"": {"secret_key": "SECRET"}"#, "at line 1"),
        ] {
            let error = found(content, "s3://bucket").err().unwrap();
            assert!(error.message.contains(expected) && !error.message.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let path = Path::new("no-such-file.json");
        let error = find(path, &ObjectUrl::parse("s3://b").unwrap(), &variables(&[])).err().unwrap();
        assert!(error.message.starts_with("credential file 'no-such-file.json': cannot be read"), "{error}");
    }
}
