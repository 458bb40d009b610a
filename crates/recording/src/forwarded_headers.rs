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

/// The headers that hold secrets of clients.
const SECRETS: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"];

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

/// The headers as a recording has them: without secrets, those in `omitted`, and those that a replay makes anew.
pub(crate) fn recorded(headers: &HeaderMap, omitted: &[HeaderName]) -> Vec<(String, String)> {
    let is_kept = |name: &HeaderName| {
        !SECRETS.contains(&name.as_str()) && !MADE_ANEW.contains(&name.as_str()) && !omitted.contains(name)
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers
        .iter()
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
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
        let all =
            headers(&[("authorization", "Bearer k"), ("x-api-key", "k"), ("x-tenant", "t"), ("x-mine", "2")]);
        let kept = recorded(&all, &[HeaderName::from_static("x-tenant")]);
        assert_eq!(kept, [("x-mine".to_owned(), "2".to_owned())]);
    }
}
