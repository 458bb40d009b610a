//! Content codings of HTTP: which codings a client may use, which coding a response gets, and the errors of
//! decompression.
use bytes::{Buf, Bytes};
use http::HeaderMap;
use vocabulary::{ByteReservation, Error};

use super::body::ReceivedBody;
use crate::{
    chunks::Chunks,
    compression::{Coding, InflateError},
};

/// Shorter responses are not compressed, because headers and frames are about as long (P-W23).
pub(super) const MIN_LEN: usize = 1 << 10;

/// The compression level of responses (P-W23).
const LEVEL: u32 = 1;

/// The coding of the request's body.
///
/// # Errors
/// The server does not support the coding. The comparison is case-sensitive, as in the reference.
pub(super) fn of_request(headers: &HeaderMap) -> Result<Option<Coding>, Error> {
    match headers.get(http::header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(None),
        Some(b"gzip") => Ok(Some(Coding::Gzip)),
        Some(b"deflate") => Ok(Some(Coding::Deflate)),
        Some(_) => Err(Error::unsupported("Unsupported compression type")),
    }
}

/// The coding with the highest quality in the client's list; `None` for no compression. The first of several equal ones
/// counts, and identity takes part. The token rules are those of RFC 9110 (P-W61). `*` is not supported, as in the
/// reference.
pub(super) fn for_response(headers: &HeaderMap) -> Option<Coding> {
    let values = headers.get_all(http::header::ACCEPT_ENCODING);
    let mut best = (None, 0.0);
    for item in values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = match parts.next().unwrap_or_default() {
            token if token.eq_ignore_ascii_case("gzip") => Some(Coding::Gzip),
            token if token.eq_ignore_ascii_case("deflate") => Some(Coding::Deflate),
            token if token.eq_ignore_ascii_case("identity") => None,
            _ => continue,
        };
        let Some(quality) = parts.find_map(quality).unwrap_or(Some(1.0)) else { continue };
        if quality > best.1 {
            best = (coding, quality);
        }
    }
    best.0
}

/// The value of a `q` parameter. `None` for another parameter, `Some(None)` for a malformed value.
fn quality(parameter: &str) -> Option<Option<f64>> {
    let (name, value) = parameter.split_once('=')?;
    name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().ok())
}

/// Decompresses a request. The first bytes determine the format, whatever the header says.
///
/// # Errors
/// INVALID_ARG for an empty, corrupt, truncated (P-W9) or too large body; RESOURCE_EXHAUSTED if there is no room for it.
pub(super) async fn decompress(body: ReceivedBody, limit: usize) -> Result<(Bytes, ByteReservation), Error> {
    let ReceivedBody { bytes: body, reservation } = body;
    let Some(first) = body.pieces().first() else {
        return Err(Error::invalid("nothing to be decompressed"));
    };
    let coding = if first.starts_with(b"\x1f") { Coding::Gzip } else { Coding::Deflate };
    coding.inflate(body.into(), limit, reservation).await?.map_err(|error| match error {
        InflateError::TooLarge => too_large(limit),
        InflateError::BudgetExceeded(refused) => refused.into(),
        InflateError::Corrupt | InflateError::Abandoned => Error::invalid("failed to decompress request"),
    })
}

/// The refusal of a request that has more than `limit` bytes after decompression.
pub(super) fn too_large(limit: usize) -> Error {
    Error::invalid(format!(
        "Decompressed data size exceeds the maximum allowed value of {limit} bytes. Use --http-max-input-size to \
         increase the limit."
    ))
}

/// Compresses a response. `None` if the result would not be shorter.
pub(super) async fn compress(response: Chunks, coding: Coding) -> Option<Bytes> {
    debug_assert!(response.has_remaining(), "a response that is worth it has bytes");
    coding.deflate(response, LEVEL, 0).await.ok().flatten().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use vocabulary::{ByteBudget, TensorData};

    use super::*;

    async fn unfold(body: impl Into<TensorData>, limit: usize) -> Result<Bytes, Error> {
        let reservation = ByteBudget::new(usize::MAX).reservation();
        Ok(decompress(ReceivedBody { bytes: body.into(), reservation }, limit).await?.0)
    }

    fn accept(values: &[&str]) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(http::header::ACCEPT_ENCODING, value.parse().unwrap());
        }
        for_response(&headers)
    }

    #[test]
    fn the_coding_of_a_response_is_negotiated() {
        use Coding::{Deflate, Gzip};
        let table: [(&[&str], Option<Coding>); 15] = [
            (&[], None),
            (&["gzip"], Some(Gzip)),
            (&[" gzip"], Some(Gzip)),
            (&["deflate"], Some(Deflate)),
            (&["*"], None),
            (&["br"], None),
            (&["gzip, deflate, br"], Some(Gzip)),
            (&["identity;q=0.5, gzip;q=0.5"], None),
            (&["gzip;q=0.5, identity;q=0.5"], Some(Gzip)),
            (&["gzip;q=abc"], None),
            (&["gzip;q=abc, deflate;q=0.1"], Some(Deflate)),
            (&["gzip ; q=1"], Some(Gzip)),
            (&["GZIP"], Some(Gzip)),
            (&["gzip;q=0"], None),
            (&["deflate;q=0.5", "gzip"], Some(Gzip)),
        ];
        for (values, expected) in table {
            assert_eq!(accept(values), expected, "{values:?}");
        }
    }

    #[test]
    fn only_codings_in_lower_case_are_known_in_requests() {
        let coding = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::CONTENT_ENCODING, value.parse().unwrap());
            of_request(&headers)
        };
        assert_eq!(coding("gzip"), Ok(Some(Coding::Gzip)));
        assert_eq!(coding("deflate"), Ok(Some(Coding::Deflate)));
        assert_eq!((coding("identity"), coding("")), (Ok(None), Ok(None)));
        assert_eq!(of_request(&HeaderMap::new()), Ok(None));
        for unknown in ["br", "GZIP", "gzip, gzip"] {
            assert_eq!(coding(unknown), Err(Error::unsupported("Unsupported compression type")));
        }
    }

    #[tokio::test]
    async fn the_format_is_recognised_whatever_the_pieces() {
        for len in [2_000, 300_000] {
            let plain = "0123".repeat(len / 4);
            for coding in Coding::ALL {
                let compressed = compress(Bytes::from(plain.clone()).into(), coding).await.unwrap();
                for pieces in [1, 7] {
                    let pieces =
                        compressed.chunks(compressed.len().div_ceil(pieces)).map(Bytes::copy_from_slice);
                    let body = TensorData::from_pieces(pieces);
                    assert_eq!(unfold(body, len).await.unwrap(), plain);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_broken_body_is_refused() {
        let failed = Err(Error::invalid("failed to decompress request"));
        let whole = compress(Bytes::from("0123".repeat(1000)).into(), Coding::Gzip).await.unwrap();
        assert_eq!(unfold(whole.slice(..whole.len() / 2), 1 << 20).await, failed);
        assert_eq!(unfold(Bytes::from("not gzip at all"), 1 << 20).await, failed);
        let nothing = Err(Error::invalid("nothing to be decompressed"));
        assert_eq!(unfold(TensorData::default(), 1 << 20).await, nothing);
    }

    #[tokio::test]
    async fn a_body_that_inflates_beyond_the_limit_is_refused() {
        let bomb = compress(Bytes::from(vec![0; 100_000]).into(), Coding::Gzip).await.unwrap();
        assert_eq!(unfold(bomb.clone(), 99_999).await, Err(too_large(99_999)));
        assert_eq!(unfold(bomb, 100_000).await.unwrap().len(), 100_000);
    }
}
