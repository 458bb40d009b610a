//! What is known of the requests of a model version.
mod request_account;

pub(crate) use request_account::RequestAccount;
