//! What each kind of store is told: its server, its credential, and where a credential of the machine comes from.

use std::fs;
use std::path::Path;

use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use vocabulary::{Error, ErrorCode};

use crate::credentials::{AzureAuthentication, AzureCredential, GcsCredential, S3Credential, StoreVariables};
use crate::failure::Redaction;
use crate::url::AzureEndpoint;

/// Without a region, requests are signed for this one, as by the libraries of AWS.
const DEFAULT_REGION: &str = "us-east-1";

pub(super) fn s3(
    bucket: &str,
    endpoint: Option<&str>,
    credential: &S3Credential,
    variables: &StoreVariables,
) -> AmazonS3Builder {
    let region = credential.region.as_deref().unwrap_or(DEFAULT_REGION);
    let from_variables =
        || variables.get("AWS_ENDPOINT_URL_S3").or_else(|| variables.get("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.map(str::to_owned).or_else(from_variables);
    let allows_http = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    // AWS wants the bucket in the name of the host. A name with dots does not fit into its certificate.
    let in_host = endpoint.is_none() && !bucket.contains('.');
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_virtual_hosted_style_request(in_host)
        .with_client_options(ClientOptions::new().with_allow_http(allows_http));
    let role = |name| variables.get(name);
    let options = [
        (AmazonS3ConfigKey::Endpoint, endpoint),
        (AmazonS3ConfigKey::AccessKeyId, credential.key_id.clone()),
        (AmazonS3ConfigKey::SecretAccessKey, credential.secret_key.clone()),
        (AmazonS3ConfigKey::Token, credential.session_token.clone()),
        (AmazonS3ConfigKey::WebIdentityTokenFile, role("AWS_WEB_IDENTITY_TOKEN_FILE")),
        (AmazonS3ConfigKey::RoleArn, role("AWS_ROLE_ARN")),
        (AmazonS3ConfigKey::RoleSessionName, role("AWS_ROLE_SESSION_NAME")),
        (AmazonS3ConfigKey::StsEndpoint, role("AWS_ENDPOINT_URL_STS")),
        (AmazonS3ConfigKey::ContainerCredentialsRelativeUri, role("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")),
        (AmazonS3ConfigKey::ContainerCredentialsFullUri, role("AWS_CONTAINER_CREDENTIALS_FULL_URI")),
        (AmazonS3ConfigKey::ContainerAuthorizationTokenFile, role("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")),
    ];
    for (key, value) in options {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

/// The fields of a key file whose values are secret.
const GOOGLE_SECRETS: &[&str] = &["private_key", "private_key_id", "client_secret", "refresh_token"];

pub(super) fn gcs(
    bucket: &str,
    credential: &GcsCredential,
    redaction: &mut Redaction,
) -> Result<GoogleCloudStorageBuilder, Error> {
    let builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket);
    let Some(file) = &credential.file else { return Ok(builder) };
    let key = google_key(file)?;
    for field in GOOGLE_SECRETS {
        redaction.add(key[field].as_str());
    }
    // Emulators are reached over HTTP; the server is named in the key.
    let allows_http = key["gcs_base_url"].as_str().is_some_and(|url| url.starts_with("http://"));
    let builder = builder.with_client_options(ClientOptions::new().with_allow_http(allows_http));
    Ok(match key["type"].as_str() {
        Some("authorized_user") => builder.with_application_credentials(file.to_string_lossy()),
        Some("service_account") | None => builder.with_service_account_key(key.to_string()),
        Some(kind) => {
            return Err(Error::new(
                ErrorCode::Unsupported,
                format!(
                    "key '{}' of Google Cloud has the type '{kind}'; service_account and authorized_user are supported",
                    file.display()
                ),
            ));
        }
    })
}

fn google_key(file: &Path) -> Result<serde_json::Value, Error> {
    let failed = |why: String| Error::invalid(format!("key '{}' of Google Cloud: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

pub(super) fn azure(
    container: &str,
    account: &str,
    endpoint: Option<&AzureEndpoint>,
    credential: &AzureCredential,
    variables: &StoreVariables,
) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::new().with_container_name(container).with_account(account);
    match endpoint {
        None => {}
        Some(AzureEndpoint::Host(host)) => builder = builder.with_endpoint(host.clone()),
        Some(AzureEndpoint::Server(server)) => {
            let options = ClientOptions::new().with_allow_http(server.starts_with("http://"));
            builder = builder.with_endpoint(format!("{server}/{account}")).with_client_options(options);
        }
    }
    if let Some(client) = &credential.client_id {
        builder = builder.with_client_id(client);
    }
    match credential.authentication {
        AzureAuthentication::Key => {
            if let Some(key) = &credential.key {
                builder = builder.with_access_key(key);
            }
        }
        AzureAuthentication::ManagedIdentity => builder = builder.with_credential_type("managed_identity"),
        AzureAuthentication::Environment => {
            let options = [
                (AzureConfigKey::AuthorityId, "AZURE_TENANT_ID"),
                (AzureConfigKey::ClientId, "AZURE_CLIENT_ID"),
                (AzureConfigKey::ClientSecret, "AZURE_CLIENT_SECRET"),
                (AzureConfigKey::FederatedTokenFile, "AZURE_FEDERATED_TOKEN_FILE"),
                (AzureConfigKey::AuthorityHost, "AZURE_AUTHORITY_HOST"),
            ];
            for (key, name) in options {
                if let Some(value) = variables.get(name) {
                    builder = builder.with_config(key, value);
                }
            }
        }
    }
    builder
}
