//! The kinds of credentials.

use std::path::PathBuf;

use vocabulary::Error;

/// What proves to a store who asks. It has no `Debug`, so that no secret can be logged.
#[derive(Clone, PartialEq)]
pub(crate) enum Credential {
    S3(S3Credential),
    Gcs(GcsCredential),
    Azure(AzureCredential),
}

/// A key for S3. Without a key, the store uses the web identity, the container or the machine that the process runs in.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct S3Credential {
    pub(crate) key_id: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
}

/// The file with a key of Google Cloud. Without a file, the store uses the machine that the process runs on.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct GcsCredential {
    pub(crate) file: Option<PathBuf>,
}

/// A key or an identity for Azure.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct AzureCredential {
    /// As Triton: this account is used instead of the account in the URL.
    pub(crate) account: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) authentication: AzureAuthentication,
    pub(crate) client_id: Option<String>,
}

/// How Nereid proves its identity to Azure (`AZURE_STORAGE_AUTH_TYPE`).
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) enum AzureAuthentication {
    /// With the account's key; without a key, requests are anonymous.
    #[default]
    Key,
    /// With the identity that Azure gives the machine.
    ManagedIdentity,
    /// With a workload identity or a client secret from the environment, otherwise with the managed identity.
    Environment,
}

impl AzureAuthentication {
    pub(super) fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "" | "key" => Ok(Self::Key),
            "managed_identity" => Ok(Self::ManagedIdentity),
            "default" => Ok(Self::Environment),
            _ => Err(Error::invalid(format!(
                "authentication type '{name}' of Azure storage is unknown; it is 'key', 'managed_identity' or 'default'"
            ))),
        }
    }
}
