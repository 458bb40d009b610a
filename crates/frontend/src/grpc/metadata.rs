//! Reads the headers of a call: its deadline, whether the call is a gRPC call, and whether it has too much metadata.
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

use super::status::{Code, Status};

/// The header with the time that the client allows for the call.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The most metadata of a call, in bytes. As gRPC's default (`grpc.absolute_max_metadata_size`).
const MAX_METADATA: usize = 16 << 10;

/// What each header counts beside its name and value, in bytes. Source: RFC 9113, section 6.5.2.
const HEADER_BYTES: usize = 32;

/// Checks the size of the metadata.
///
/// # Errors
/// RESOURCE_EXHAUSTED beyond [`MAX_METADATA`], in the words of gRPC.
pub(crate) fn check_size(headers: &HeaderMap) -> Result<(), Status> {
    let of = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + HEADER_BYTES;
    let bytes: usize = headers.iter().map(of).sum();
    if bytes <= MAX_METADATA {
        return Ok(());
    }
    let text = format!("received metadata size exceeds hard limit ({bytes} vs. {MAX_METADATA})");
    Err(Status::new(Code::ResourceExhausted, text))
}

/// Whether the content type is gRPC with protocol buffers: `application/grpc`, `application/grpc+proto`.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    rest.is_empty() || rest.starts_with(b";") || matches!(rest.strip_prefix(b"+proto"), Some([] | [b';', ..]))
}

/// The time that the client allows for the call, from now.
///
/// # Errors
/// INVALID_ARGUMENT unless the value is one to eight digits and a unit.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse_timeout);
    parsed.map(Some).ok_or_else(|| {
        let value = String::from_utf8_lossy(value.as_bytes());
        Status::new(
            Code::InvalidArgument,
            format!("invalid grpc-timeout '{value}', expected 1 to 8 digits and one of H, M, S, m, u, n"),
        )
    })
}

fn parse_timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(value: &'static str) -> Result<Option<Duration>, Status> {
        timeout(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(value))]))
    }

    #[test]
    fn a_timeout_is_a_count_of_units() {
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        assert_eq!(granted("250m"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(granted("99999999H"), Ok(Some(Duration::from_secs(99_999_999 * 3600))));
        assert_eq!(granted("0n"), Ok(Some(Duration::ZERO)));
        for wrong in ["", "S", "1", "123456789S", "-1S", "+1S", "1 S", "1s"] {
            assert_eq!(granted(wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn metadata_has_a_limit_that_the_error_names() {
        let sized = |bytes: usize| {
            let value = HeaderValue::from_str(&"v".repeat(bytes - 1 - HEADER_BYTES)).unwrap();
            check_size(&HeaderMap::from_iter([(HeaderName::from_static("n"), value)]))
        };
        assert_eq!(sized(MAX_METADATA), Ok(()));
        let error = sized(MAX_METADATA + 1).unwrap_err();
        let text = "received metadata size exceeds hard limit (16385 vs. 16384)";
        assert_eq!((error.code(), error.message()), (Code::ResourceExhausted, text));
    }

    #[test]
    fn only_grpc_with_protocol_buffers_is_taken() {
        let typed = |value| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]));
        assert!(
            typed("application/grpc") && typed("application/grpc+proto") && typed("application/grpc;v=1")
        );
        assert!(
            !typed("application/grpc+json") && !typed("application/grpc-web") && !typed("application/json")
        );
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
