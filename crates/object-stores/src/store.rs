//! Opens the store of a URL: which server it is, how requests are signed, how often they are repeated.

mod builders;
mod open_store;

pub(crate) use open_store::{OpenStore, StoreSettings, default_retry, open, spawn};
