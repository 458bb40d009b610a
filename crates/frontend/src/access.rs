//! Who may use what, and what the log tells of it.
//!
//! [`Restrictions`] ask for a header, [`ApiKeys`] for a key. The [`AccessLog`] gets an entry for each request, from what the
//! handlers have learned of it.
mod access_log;
pub mod api_keys;
pub(crate) mod request_facts;
mod restrictions;

pub(crate) use access_log::AccessLine;
pub use access_log::{AccessEntry, AccessLog};
pub use api_keys::ApiKeys;
pub(crate) use api_keys::{Access, AccessDenied, is_key_header};
pub use request_facts::RequestTimes;
pub(crate) use request_facts::{KnownFacts, RequestFacts};
pub use restrictions::{Category, Denied, Restrictions};
