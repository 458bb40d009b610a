//! A store that is open, and what it is opened with.

use std::sync::Arc;
use std::time::Duration;

use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use vocabulary::{Error, innermost_cause};

use super::builders;
use crate::connector::StoreConnector;
use crate::credentials::{self, AzureAuthentication, AzureCredential, Credential, StoreVariables};
use crate::failure::Redaction;
use crate::url::{ObjectUrl, Service};

/// How long the search for credentials of the machine may take before requests are sent without a signature.
const CREDENTIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// What stores are opened with, besides a URL.
#[derive(Clone)]
pub(crate) struct StoreSettings {
    pub(crate) variables: StoreVariables,
    pub(crate) connector: StoreConnector,
    pub(crate) retry: RetryConfig,
}

/// A request is repeated four times within a minute, with growing pauses.
pub(crate) fn default_retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 4,
        retry_timeout: Duration::from_secs(60),
    }
}

/// An open store, and the secrets that must not be in its errors.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) redaction: Redaction,
}

/// Finds the credential of the URL and opens its store. Without a credential, asks the machine for one, and otherwise
/// sends requests without a signature, which is enough for public data.
///
/// # Errors
/// The credential cannot be found or read, or the store refuses its form.
pub(crate) async fn open(url: &ObjectUrl, settings: &StoreSettings) -> Result<OpenStore, Error> {
    let (url, settings) = (url.clone(), settings.clone());
    let opened = spawn(move || {
        let credential = credentials::find(&url, &settings.variables)?;
        let opened = build(&url, &settings, &credential, is_public(&credential))?;
        Ok((url, settings, credential, opened))
    });
    let (url, settings, credential, (client, redaction)) = opened.await?;
    let store = if client.has_credential(&credential, &settings.variables).await {
        client.into_store()
    } else {
        log::info!("repository '{}': no credential was found, so requests have no signature", url.text);
        spawn(move || build(&url, &settings, &credential, true)).await?.0.into_store()
    };
    Ok(OpenStore { store, redaction })
}

/// Runs a function that blocks.
pub(crate) async fn spawn<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let result = tokio::task::spawn_blocking(function).await;
    result.unwrap_or_else(|error| Err(Error::internal(format!("work on object stores was stopped: {error}"))))
}

/// A client of one kind of store.
enum StoreKind {
    S3(object_store::aws::AmazonS3),
    Gcs(object_store::gcp::GoogleCloudStorage),
    Azure(object_store::azure::MicrosoftAzure),
}

impl StoreKind {
    fn into_store(self) -> Arc<dyn ObjectStore> {
        match self {
            Self::S3(store) => Arc::new(store),
            Self::Gcs(store) => Arc::new(store),
            Self::Azure(store) => Arc::new(store),
        }
    }

    /// Whether requests can be signed. Only where no credential is configured, the machine is asked.
    async fn has_credential(&self, credential: &Credential, variables: &StoreVariables) -> bool {
        let is_disabled = || {
            variables.get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        };
        match (self, credential) {
            (Self::S3(store), Credential::S3(found)) if found.key_id.is_none() && !has_role(variables) => {
                !is_disabled() && in_time(store.credentials().get_credential()).await
            }
            (Self::Gcs(store), Credential::Gcs(found)) if found.file.is_none() => {
                in_time(store.credentials().get_credential()).await
            }
            (Self::S3(_) | Self::Gcs(_) | Self::Azure(_), _) => true,
        }
    }
}

async fn in_time<T, E>(credential: impl Future<Output = Result<T, E>>) -> bool {
    tokio::time::timeout(CREDENTIAL_TIMEOUT, credential).await.is_ok_and(|found| found.is_ok())
}

/// Whether the environment names a role or a container that gives credentials for AWS.
fn has_role(variables: &StoreVariables) -> bool {
    variables.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() && variables.get("AWS_ROLE_ARN").is_some()
        || variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").is_some()
        || variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
            && variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").is_some()
}

fn is_public(credential: &Credential) -> bool {
    matches!(
        credential,
        Credential::Azure(AzureCredential { key: None, authentication: AzureAuthentication::Key, .. })
    )
}

/// Blocks, because it reads files.
fn build(
    url: &ObjectUrl,
    settings: &StoreSettings,
    credential: &Credential,
    is_unsigned: bool,
) -> Result<(StoreKind, Redaction), Error> {
    let mut redaction = Redaction::default();
    let built = match (&url.service, credential) {
        (Service::S3 { endpoint }, Credential::S3(credential)) => {
            for secret in [&credential.key_id, &credential.secret_key, &credential.session_token] {
                redaction.add(secret.as_deref());
            }
            let builder = builders::s3(&url.bucket, endpoint.as_deref(), credential, &settings.variables);
            let builder = builder.with_skip_signature(is_unsigned).with_retry(settings.retry.clone());
            builder.with_http_connector(settings.connector.clone()).build().map(StoreKind::S3)
        }
        (Service::Gcs, Credential::Gcs(credential)) => {
            let builder = builders::gcs(&url.bucket, credential, &mut redaction)?;
            let builder = builder.with_skip_signature(is_unsigned).with_retry(settings.retry.clone());
            builder.with_http_connector(settings.connector.clone()).build().map(StoreKind::Gcs)
        }
        (Service::Azure { account, endpoint }, Credential::Azure(credential)) => {
            redaction.add(credential.key.as_deref());
            redaction.add(settings.variables.get("AZURE_CLIENT_SECRET").as_deref());
            let account = credential.account.as_ref().unwrap_or(account);
            let builder =
                builders::azure(&url.bucket, account, endpoint.as_ref(), credential, &settings.variables);
            let builder = builder.with_skip_signature(is_unsigned).with_retry(settings.retry.clone());
            builder.with_http_connector(settings.connector.clone()).build().map(StoreKind::Azure)
        }
        (Service::S3 { .. } | Service::Gcs | Service::Azure { .. }, _) => {
            return Err(Error::internal(format!(
                "'{}': the credential is for another kind of store",
                url.text
            )));
        }
    };
    match built {
        Ok(store) => Ok((store, redaction)),
        Err(error) => {
            let why = redaction.apply(&innermost_cause(&error).to_string());
            Err(Error::invalid(format!("'{}': the credential cannot be used: {why}", url.text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::connector::RequestTimeouts;
    use crate::credentials::tests::variables;

    async fn opened(url: &str, pairs: &[(&str, &str)]) -> Result<String, Error> {
        let settings = StoreSettings {
            variables: variables(pairs),
            connector: StoreConnector::new(None, RequestTimeouts::default()).unwrap(),
            retry: default_retry(),
        };
        let open = open(&ObjectUrl::parse(url).unwrap(), &settings).await?;
        Ok(open.store.to_string())
    }

    const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    #[tokio::test]
    async fn a_store_is_opened_without_asking_its_server() {
        assert!(opened("s3://bucket/a", &KEY).await.unwrap().contains("bucket"));
        assert!(opened("as://account/container/a", &[]).await.unwrap().contains("container"));
    }

    #[tokio::test]
    async fn an_endpoint_of_the_environment_is_used_unless_the_url_has_one() {
        let endpoint = [KEY[0], KEY[1], ("AWS_ENDPOINT_URL", "http://localhost:9000")];
        assert!(opened("s3://bucket/a", &endpoint).await.is_ok());
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_decoded_is_refused_without_its_value() {
        let error = opened("as://account/container", &[("AZURE_STORAGE_KEY", "SECRET!")]).await.unwrap_err();
        assert!(
            error.message.starts_with("'as://account/container': the credential cannot be used"),
            "{error}"
        );
        assert!(!error.message.contains("SECRET"), "{error}");
    }

    #[tokio::test]
    async fn a_key_of_google_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        let path = path.to_str().unwrap();
        for (content, expected) in [
            (r#"{"type": "external_account"}"#, "has the type 'external_account'"),
            (r#"{"private_key": "SECRET""#, "EOF"),
            (r#"{"private_key": "SECRET"}"#, "the credential cannot be used"),
        ] {
            fs::write(path, content).unwrap();
            let error = opened("gs://bucket", &[("GOOGLE_APPLICATION_CREDENTIALS", path)]).await.unwrap_err();
            assert!(error.message.contains(expected) && !error.message.contains("SECRET"), "{error}");
        }
    }
}
