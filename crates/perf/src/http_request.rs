//! Whole HTTP/1.1 requests without tensors, and what all requests have in common.

use bytes::Bytes;
use http::HeaderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::options::PerfOptions;
use crate::sequences::PlannedPosition;

/// The characters that are escaped in a path: all but those that RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `/v2/models/M[/versions/V]`, with the name escaped where the path needs it.
pub(crate) fn model_path(options: &PerfOptions) -> String {
    let name = utf8_percent_encode(&options.model, ESCAPED);
    match &options.version {
        Some(version) => {
            format!("/v2/models/{name}/versions/{}", utf8_percent_encode(version, ESCAPED))
        }
        None => format!("/v2/models/{name}"),
    }
}

/// A GET request.
pub(crate) fn get(options: &PerfOptions, path: &str) -> Bytes {
    format!("GET {path} HTTP/1.1\r\n{}\r\n", headers(options)).into()
}

/// A POST request.
pub(crate) fn post(options: &PerfOptions, path: &str, body: &str) -> Bytes {
    let head = format!("POST {path} HTTP/1.1\r\n{}Content-Type: application/json", headers(options));
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}

/// The header that tells a balancer the sequence of a request, with its end of line. Empty if no option names it.
pub(crate) fn sequence_header(name: Option<&HeaderName>, position: Option<&PlannedPosition>) -> String {
    name.zip(position).map(|(name, position)| format!("{name}: {}\r\n", position.id)).unwrap_or_default()
}

/// The headers of every request, each with its end of line.
pub(crate) fn headers(options: &PerfOptions) -> String {
    let own = options.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("Host: {}\r\n{}", options.address, own.collect::<String>())
}
