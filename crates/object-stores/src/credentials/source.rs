//! Where the credential of a URL comes from.

use std::path::PathBuf;

use vocabulary::Error;

use super::credential::{AzureAuthentication, AzureCredential, Credential, GcsCredential, S3Credential};
use super::variables::StoreVariables;
use super::{file, profile};
use crate::url::{ObjectUrl, Service};

/// Finds the credential for a URL. Blocks, because it may read files.
///
/// # Errors
/// NOT_FOUND: no entry of the credential file fits the URL. INVALID_ARGUMENT: a file cannot be read or understood, or a
/// profile does not exist.
pub(crate) fn find(url: &ObjectUrl, variables: &StoreVariables) -> Result<Credential, Error> {
    if let Some(path) = variables.get("TRITON_CLOUD_CREDENTIAL_PATH") {
        return file::find(&PathBuf::from(path), url, variables);
    }
    match url.service {
        Service::S3 { .. } => {
            let credential = S3Credential {
                key_id: variables.get("AWS_ACCESS_KEY_ID"),
                secret_key: variables.get("AWS_SECRET_ACCESS_KEY"),
                session_token: variables.get("AWS_SESSION_TOKEN"),
                region: variables.get("AWS_DEFAULT_REGION").or_else(|| variables.get("AWS_REGION")),
            };
            profile::complete(credential, variables.get("AWS_PROFILE"), variables).map(Credential::S3)
        }
        Service::Gcs => {
            let file = variables.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
            Ok(Credential::Gcs(GcsCredential { file }))
        }
        Service::Azure { .. } => Ok(Credential::Azure(AzureCredential {
            account: variables.get("AZURE_STORAGE_ACCOUNT"),
            key: variables.get("AZURE_STORAGE_KEY"),
            authentication: AzureAuthentication::parse(
                &variables.get("AZURE_STORAGE_AUTH_TYPE").unwrap_or_default(),
            )?,
            client_id: variables.get("AZURE_STORAGE_CLIENT_ID"),
        })),
    }
}
