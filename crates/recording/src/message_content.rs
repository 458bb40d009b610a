//! What a body holds, by the headers of its message: without compression, and JSON apart from what follows it.

use bytes::Bytes;
use client::framing;
use http::HeaderMap;

/// The most bytes of the content of a compressed body or message.
const MOST_CONTENT: usize = 256 << 20;

/// The text of a header.
pub(crate) fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The length of the JSON in a body over HTTP, in bytes, if binary tensors follow it.
pub(crate) fn json_length(headers: &HeaderMap) -> Option<usize> {
    header_text(headers, "inference-header-content-length")?.parse().ok()
}

/// Whether the body consists of server-sent events.
pub(crate) fn has_events(headers: &HeaderMap) -> bool {
    header_text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// How a body over HTTP is compressed.
pub(crate) fn http_encoding(headers: &HeaderMap) -> Option<&str> {
    header_text(headers, "content-encoding").filter(|encoding| *encoding != "identity")
}

/// How messages of gRPC are compressed.
pub(crate) fn grpc_encoding(headers: &HeaderMap) -> Option<&str> {
    header_text(headers, "grpc-encoding")
}

/// The content of a body over HTTP. `None` if it cannot be decompressed, or is too long.
pub(crate) fn http_content(body: &Bytes, encoding: Option<&str>) -> Option<Bytes> {
    match encoding {
        None => Some(body.clone()),
        Some(encoding) => framing::decompressed(body, encoding, MOST_CONTENT),
    }
}

/// The messages of a body of gRPC. `None` if a frame is wrong, or a message cannot be decompressed or is too long.
pub(crate) fn grpc_messages(body: &Bytes, encoding: Option<&str>) -> Option<Vec<Bytes>> {
    framing::messages(body, encoding, MOST_CONTENT)
}
