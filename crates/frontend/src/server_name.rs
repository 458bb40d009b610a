//! The header that says which server has answered, so that a client or a balancer can send the next request of a sequence
//! there.
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header. In gRPC it is metadata of the response.
const SERVER: HeaderName = HeaderName::from_static("x-nereid-server");

/// The name of a server, as answers have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName(HeaderValue);

impl ServerName {
    /// `None` for a name that says nothing, because it is empty, and for one that cannot be the value of a header: one with
    /// control characters.
    pub fn new(name: &str) -> Option<Self> {
        HeaderValue::from_bytes(name.as_bytes()).ok().filter(|name| !name.is_empty()).map(Self)
    }
}

/// Adds the name of the server to an answer, if answers have it.
pub(crate) fn tell(name: Option<&ServerName>, answer: &mut HeaderMap) {
    if let Some(ServerName(name)) = name {
        answer.insert(SERVER, name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_name_if_there_is_one() {
        let mut answer = HeaderMap::new();
        tell(None, &mut answer);
        assert!(answer.is_empty());
        tell(ServerName::new("vision 3 é").as_ref(), &mut answer);
        assert_eq!(answer["x-nereid-server"].as_bytes(), "vision 3 é".as_bytes());
        assert_eq!(ServerName::new("two\nlines"), None);
        assert_eq!(ServerName::new(""), None);
    }
}
