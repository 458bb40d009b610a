//! The headers about the response cache, in HTTP and as metadata of gRPC.
use http::{HeaderMap, HeaderName, HeaderValue, header::CACHE_CONTROL};
use inference::{ResponseStream, cache::CacheControl};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What the client says about the response cache.
pub(crate) fn of_request(headers: &HeaderMap) -> CacheControl {
    let values = headers.get_all(CACHE_CONTROL).iter();
    values.fold(CacheControl::default(), |control, value| control.with(value.as_bytes()))
}

/// Tells the client where the answer comes from, if its request has asked the response cache.
pub(crate) fn tell(headers: &mut HeaderMap, responses: &ResponseStream) {
    let status = responses.timeline().cache_status();
    if let Some(value) = status.and_then(|status| HeaderValue::try_from(status.to_string()).ok()) {
        headers.insert(CACHE_STATUS, value);
    }
}
