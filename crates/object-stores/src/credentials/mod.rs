//! Which credential belongs to a URL: from the credential file if there is one, otherwise from the environment.
//!
//! A credential is read each time a store is opened, so that a changed file takes effect. All functions that read files
//! block.

mod file;
pub(crate) mod profile;

use std::collections::BTreeMap;
use std::path::PathBuf;

use inference::Error;

use crate::url::{ObjectUrl, Service};

/// The variables that credentials and stores are made of. No other variable is read, except by the system's libraries.
const VARIABLES: &[&str] = &[
    "TRITON_CLOUD_CREDENTIAL_PATH",
    "HOME",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_CA_BUNDLE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_AUTH_TYPE",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
];

/// A copy of the variables that this crate uses. Empty values count as absent, as in Triton.
#[derive(Clone, Default)]
pub(crate) struct StoreVariables(BTreeMap<&'static str, String>);

impl StoreVariables {
    pub(crate) fn read(variables: &dyn Fn(&str) -> Option<String>) -> Self {
        let present = VARIABLES.iter().filter_map(|name| {
            let value = variables(name).filter(|value| !value.is_empty())?;
            Some((*name, value))
        });
        Self(present.collect())
    }

    /// The value of a variable of the list above.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        debug_assert!(VARIABLES.contains(&name), "{name} is not in the list of variables");
        self.0.get(name).cloned()
    }
}

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
    fn parse(name: &str) -> Result<Self, Error> {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
            let Credential::Azure(credential) = found("as://a/c", &[("AZURE_STORAGE_AUTH_TYPE", name)])
            else {
                panic!("not a credential of Azure")
            };
            assert_eq!(credential.authentication, expected);
        }
        let url = ObjectUrl::parse("as://a/c").unwrap();
        let error = find(&url, &variables(&[("AZURE_STORAGE_AUTH_TYPE", "magic")])).err().unwrap();
        assert!(error.message.contains("'magic' of Azure storage is unknown"), "{error}");
    }
}
