//! The variables of the environment.

use std::collections::BTreeMap;

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
