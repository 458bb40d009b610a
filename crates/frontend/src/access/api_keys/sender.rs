//! What the sender of a request may use, by the key that the request brings.
use std::{fmt, sync::Arc};

use http::{HeaderMap, StatusCode, header::AUTHORIZATION};

use super::{
    digest::{KeyDigest, digest_of},
    keys::ApiKeys,
    table::KeyScope,
};
use crate::access::Category;

/// The header with a key, besides `Authorization: Bearer <key>`.
const KEY_HEADER: &str = "x-api-key";

/// The longest key, in bytes. Longer ones are unknown without a look at them.
pub(super) const MAX_KEY_BYTES: usize = 512;

/// What the sender of a request may use.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// `None`: the server has no keys, and everything is permitted.
    keys: Option<Arc<ApiKeys>>,
    sender: Sender,
}

/// How a sender identifies itself.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Anonymous,
    /// By a key with this digest.
    Key(KeyDigest),
    /// By something that cannot be a key.
    Malformed,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessDenied {
    /// The request needs a key.
    NoKey,
    UnknownKey,
    /// The key with this name is not for that part of the protocol.
    Category(String, Category),
    /// The key with this name is not for that model.
    Model(String, String),
}

impl Access {
    /// The access of a request with these headers.
    pub(crate) fn of(keys: Option<&Arc<ApiKeys>>, headers: &HeaderMap) -> Self {
        let Some(keys) = keys else { return Self { keys: None, sender: Sender::Anonymous } };
        let sender = match presented(headers) {
            None => Sender::Anonymous,
            Some(key) if key.len() > MAX_KEY_BYTES => Sender::Malformed,
            Some(key) => Sender::Key(digest_of(key)),
        };
        Self { keys: Some(keys.clone()), sender }
    }

    /// Checks that the sender may use a part of the protocol, and the model if the request names one.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check(&self, category: Category, model: Option<&str>) -> Result<(), AccessDenied> {
        self.with_scope(|name, scope| match (name, model) {
            (None, _) if !scope.permits(category) => Err(AccessDenied::NoKey),
            (Some(name), _) if !scope.permits(category) => {
                Err(AccessDenied::Category(name.to_owned(), category))
            }
            (_, None) => Ok(()),
            (_, Some(model)) if scope.permits_model(model) => Ok(()),
            (None, Some(_)) => Err(AccessDenied::NoKey),
            (Some(name), Some(model)) => Err(AccessDenied::Model(name.to_owned(), model.to_owned())),
        })
    }

    /// Whether the sender may know all models, also those that come later.
    pub(crate) fn shows_all(&self) -> bool {
        let judge = |_: Option<&str>, scope: &KeyScope| {
            if scope.permits_all_models() { Ok(()) } else { Err(AccessDenied::NoKey) }
        };
        self.with_scope(judge).is_ok()
    }

    /// Whether lists for the sender contain the model.
    pub(crate) fn shows(&self, model: &str) -> bool {
        self.with_scope(|_, scope| if scope.permits_model(model) { Ok(()) } else { Err(AccessDenied::NoKey) })
            .is_ok()
    }

    /// Calls `judge` with the name of the sender's key and its scope, as they are now.
    fn with_scope(
        &self,
        judge: impl FnOnce(Option<&str>, &KeyScope) -> Result<(), AccessDenied>,
    ) -> Result<(), AccessDenied> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let table = keys.current();
        match self.sender {
            Sender::Anonymous => judge(None, &table.anonymous),
            Sender::Malformed => Err(AccessDenied::UnknownKey),
            Sender::Key(digest) => match table.find(&digest) {
                Some(key) => judge(Some(&key.name), &key.scope),
                None => Err(AccessDenied::UnknownKey),
            },
        }
    }
}

/// Whether a header may contain a key. Such headers never become parameters of requests while the server has keys.
pub(crate) fn is_key_header(name: &str) -> bool {
    name.eq_ignore_ascii_case(KEY_HEADER) || name.eq_ignore_ascii_case(AUTHORIZATION.as_str())
}

/// The key that a request brings. Other kinds of `Authorization` are none of Nereid's.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    const BEARER: &[u8] = b"bearer ";
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(BEARER.len())?;
        scheme.eq_ignore_ascii_case(BEARER).then(|| key.trim_ascii())
    });
    bearer.or_else(|| Some(headers.get(KEY_HEADER)?.as_bytes()))
}

impl AccessDenied {
    /// The HTTP status: 401 if another key, or any key, may help; otherwise 403.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoKey | Self::UnknownKey => StatusCode::UNAUTHORIZED,
            Self::Category(..) | Self::Model(..) => StatusCode::FORBIDDEN,
        }
    }
}

impl fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str(
                "this request needs an API key: 'Authorization: Bearer <key>' or 'x-api-key: <key>'",
            ),
            Self::UnknownKey => f.write_str("the API key is not known"),
            Self::Category(name, category) => {
                write!(f, "the API key '{name}' does not permit '{}'", category.name())
            }
            Self::Model(name, model) => write!(f, "the API key '{name}' does not permit model '{model}'"),
        }
    }
}
