//! Which credential belongs to a URL: from the credential file if there is one, otherwise from the environment.
//!
//! A credential is read each time a store is opened, so that a changed file takes effect. All functions that read files
//! block.

mod credential;
mod file;
pub(crate) mod profile;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod variables;

pub(crate) use credential::{AzureAuthentication, AzureCredential, Credential, GcsCredential, S3Credential};
pub(crate) use source::find;
pub(crate) use variables::StoreVariables;
