//! Which headers of a call go on to the server, and which of them a recording has.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

/// The headers that belong to one connection.
const OF_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::UPGRADE,
];

/// The headers that a replay makes anew.
const MADE_ANEW: [&str; 2] = ["host", "content-length"];

/// Removes the headers of a message that belong to its connection only.
pub(crate) fn remove_those_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// Which parts of the head of a message a recording has: all but secrets, and what a replay makes anew.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedHeaders {
    /// Headers that the operator names, as a recording does not have them.
    omitted: Vec<HeaderName>,
}

impl RecordedHeaders {
    /// Leaves out `omitted`, too.
    pub(crate) fn without(omitted: Vec<HeaderName>) -> Self {
        Self { omitted }
    }

    /// The headers or trailers of a message.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers
            .iter()
            .filter(|(name, _)| !MADE_ANEW.contains(&name.as_str()) && !self.omits(name.as_str()))
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect()
    }

    /// The path and the query of a request. The values of parameters with secrets are empty.
    pub(crate) fn path(&self, path: &str) -> String {
        let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
        let parameters: Vec<&str> = query
            .split('&')
            .map(|parameter| match parameter.find('=') {
                Some(end) if self.omits(&parameter[..end].to_ascii_lowercase()) => &parameter[..=end],
                _ => parameter,
            })
            .collect();
        format!("{path}?{}", parameters.join("&"))
    }

    /// Whether the value of a header or parameter with this name, in lower case, is left out.
    fn omits(&self, name: &str) -> bool {
        is_secret(name) || self.omitted.iter().any(|omitted| omitted.as_str() == name)
    }
}

/// Words that tell of a secret wherever they are in a name.
const SECRET_TEXTS: [&str; 12] = [
    "apikey",
    "assertion",
    "authorization",
    "authtoken",
    "cookie",
    "credential",
    "passphrase",
    "passw",
    "secret",
    "session",
    "signature",
    "token",
];

/// Words that tell of a secret if they are a part of a name, such as `x-goog-api-key`.
const SECRET_PARTS: [&str; 9] = ["auth", "bearer", "csrf", "jwt", "key", "keys", "otp", "pwd", "sig"];

/// The beginning of the headers that Triton's restricted protocols ask for.
pub(crate) const RESTRICTED_PROTOCOL: &str = "triton-grpc-protocol-";

/// Whether a name, in lower case, is one that clients and proxies usually give to credentials. What is only named like
/// one is left out, too: a recording is passed on to people who must not have the credential.
fn is_secret(name: &str) -> bool {
    name.starts_with(RESTRICTED_PROTOCOL)
        || SECRET_TEXTS.iter().any(|text| name.contains(text))
        || name.split(['-', '_', '.']).any(|part| SECRET_PARTS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_connection_keeps_its_own_headers() {
        let mut all = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("x-mine", "2"),
        ]);
        remove_those_of_connection(&mut all);
        assert_eq!(all, headers(&[("te", "trailers"), ("x-mine", "2")]));
    }

    #[test]
    fn secrets_are_never_recorded() {
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "set-cookie",
            "x-api-key",
            "api-key",
            "apikey",
            "admin-key",
            "ocp-apim-subscription-key",
            "x-functions-key",
            "x-goog-api-key",
            "x-goog-iap-jwt-assertion",
            "x-amz-security-token",
            "x-ms-token-aad-access-token",
            "x-auth-request-access-token",
            "private-token",
            "x-vault-token",
            "x-auth",
            "x-session-id",
            "x-client-secret",
            "x-db-password",
            "x-hub-signature-256",
            "x-csrf",
            "triton-grpc-protocol-admin",
        ] {
            let kept = RecordedHeaders::default().of(&headers(&[(name, "s3cret"), ("x-mine", "2")]));
            assert_eq!(kept, [("x-mine".to_owned(), "2".to_owned())], "{name}");
        }
    }

    #[test]
    fn headers_without_secrets_are_recorded() {
        for name in [
            "accept-encoding",
            "content-type",
            "grpc-status",
            "inference-header-content-length",
            "te",
            "traceparent",
            "user-agent",
            "x-correlation-id",
            "x-keyboard",
            "x-request-id",
            "x-tenant",
        ] {
            assert_eq!(RecordedHeaders::default().of(&headers(&[(name, "v")])).len(), 1, "{name}");
        }
    }

    #[test]
    fn what_the_operator_names_is_left_out_of_headers_and_queries() {
        let recorded = RecordedHeaders::without(vec![HeaderName::from_static("x-tenant")]);
        let kept = recorded.of(&headers(&[("x-tenant", "t"), ("host", "h"), ("x-mine", "2")]));
        assert_eq!(kept, [("x-mine".to_owned(), "2".to_owned())]);
        assert_eq!(recorded.path("/v2/models/x-tenant=1/infer"), "/v2/models/x-tenant=1/infer");
        let path = "/v2/explain?model=m&Access_Token=s3cret&x-tenant=t=u&flag&sig=1";
        assert_eq!(recorded.path(path), "/v2/explain?model=m&Access_Token=&x-tenant=&flag&sig=");
    }
}
