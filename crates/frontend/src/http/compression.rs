//! gzip and deflate, both ways.
use std::io::{Read, Write};

use bytes::Bytes;
use flate2::{
    Compression,
    read::{MultiGzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use http::HeaderMap;
use inference::{Error, TensorData};

use super::cursor::Cursor;

/// Responses shorter than this are sent as they are: headers and frames weigh as much (P-W23).
pub(super) const MIN_LEN: usize = 1 << 10;

/// From this length on the work is done beside the network threads (P-W23).
const BLOCKING_LEN: usize = 64 << 10;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// The zlib format, as HTTP means the word.
    Deflate,
}

impl Coding {
    /// The token in headers.
    pub(super) const fn token(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// How the request's body is coded.
///
/// # Errors
/// A coding that is none of ours; case matters, as in the reference.
pub(super) fn of_request(headers: &HeaderMap) -> Result<Option<Coding>, Error> {
    match headers.get(http::header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(None),
        Some(b"gzip") => Ok(Some(Coding::Gzip)),
        Some(b"deflate") => Ok(Some(Coding::Deflate)),
        Some(_) => Err(Error::unsupported("Unsupported compression type")),
    }
}

/// The coding the client likes best, `None` for none: the highest quality counts, the first of equal ones, and
/// identity if it is among them. By the token rules of RFC 9110 (P-W61); `*` is not supported, as in the reference.
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

/// The value of a `q` parameter: `None` for another parameter, `Some(None)` for one that is malformed.
fn quality(parameter: &str) -> Option<Option<f64>> {
    let (name, value) = parameter.split_once('=')?;
    name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().ok())
}

/// Decompresses a request; the format is recognised by its first bytes, whatever the header said.
///
/// # Errors
/// INVALID_ARG for an empty, corrupt, truncated (P-W9) or too large body.
pub(super) async fn decompress(body: TensorData, limit: usize) -> Result<Bytes, Error> {
    if body.is_empty() {
        return Err(Error::invalid("nothing to be decompressed"));
    }
    if body.len() < BLOCKING_LEN {
        return inflate(&body, limit);
    }
    let task = tokio::task::spawn_blocking(move || inflate(&body, limit));
    task.await.unwrap_or_else(|_| Err(Error::internal("failed to decompress request")))
}

/// The refusal of a request that unfolds to more than `limit` bytes.
pub(super) fn too_large(limit: usize) -> Error {
    Error::invalid(format!(
        "Decompressed data size exceeds the maximum allowed value of {limit} bytes. Use --http-max-input-size to \
         increase the limit."
    ))
}

fn inflate(body: &TensorData, limit: usize) -> Result<Bytes, Error> {
    let source = Cursor::new(body);
    let gzip = body.pieces().first().is_some_and(|piece| piece.starts_with(b"\x1f"));
    // One byte more than allowed tells that there is more.
    let limit_plus_one = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::with_capacity(body.len().saturating_mul(4).min(limit));
    let read = if gzip {
        MultiGzDecoder::new(source).take(limit_plus_one).read_to_end(&mut plain)
    } else {
        ZlibDecoder::new(source).take(limit_plus_one).read_to_end(&mut plain)
    };
    match read {
        Ok(_) if plain.len() > limit => Err(too_large(limit)),
        Ok(_) => Ok(plain.into()),
        Err(_) => Err(Error::invalid("failed to decompress request")),
    }
}

/// Compresses a response at the lowest level; `None` if that does not make it shorter.
pub(super) async fn compress(head: Bytes, tail: Vec<Bytes>, coding: Coding) -> Option<Bytes> {
    let len = head.len() + tail.iter().map(Bytes::len).sum::<usize>();
    if len < BLOCKING_LEN {
        return deflate(&head, &tail, len, coding);
    }
    tokio::task::spawn_blocking(move || deflate(&head, &tail, len, coding)).await.ok().flatten()
}

fn deflate(head: &Bytes, tail: &[Bytes], len: usize, coding: Coding) -> Option<Bytes> {
    let target = Vec::with_capacity(len / 2);
    let pieces = || std::iter::once(head).chain(tail);
    // Writing to a vector cannot fail.
    let compressed = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(target, Compression::fast());
            pieces().try_for_each(|piece| encoder.write_all(piece)).and_then(|()| encoder.finish())
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(target, Compression::fast());
            pieces().try_for_each(|piece| encoder.write_all(piece)).and_then(|()| encoder.finish())
        }
    };
    compressed.ok().filter(|compressed| compressed.len() < len).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(coding("identity"), Ok(None));
        assert_eq!(of_request(&HeaderMap::new()), Ok(None));
        for unknown in ["br", "GZIP", "gzip, gzip"] {
            assert_eq!(coding(unknown), Err(Error::unsupported("Unsupported compression type")));
        }
    }

    async fn round_trip(coding: Coding, plain: &[u8], pieces: usize) -> Result<Bytes, Error> {
        let compressed = compress(Bytes::copy_from_slice(plain), vec![], coding).await.unwrap();
        let size = compressed.len().div_ceil(pieces);
        let pieces = compressed.chunks(size).map(Bytes::copy_from_slice);
        decompress(TensorData::from_pieces(pieces), plain.len()).await
    }

    #[tokio::test]
    async fn what_is_compressed_unfolds_again() {
        for len in [2_000, 300_000] {
            let plain = "0123".repeat(len / 4);
            for coding in [Coding::Gzip, Coding::Deflate] {
                for pieces in [1, 7] {
                    assert_eq!(round_trip(coding, plain.as_bytes(), pieces).await.unwrap(), plain);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_response_that_would_grow_is_not_compressed() {
        // Each byte once, so there is nothing to find.
        let plain: Vec<u8> = (0..=255).collect();
        assert_eq!(compress(plain.into(), vec![], Coding::Gzip).await, None);
    }

    #[tokio::test]
    async fn a_broken_body_is_refused() {
        let failed = Err(Error::invalid("failed to decompress request"));
        let plain = Bytes::from("0123".repeat(1000));
        for coding in [Coding::Gzip, Coding::Deflate] {
            let whole = compress(plain.clone(), vec![], coding).await.unwrap();
            for len in [1, 5, whole.len() / 2, whole.len() - 1] {
                let cut = decompress(whole.slice(..len).into(), 1 << 20).await;
                assert_eq!(cut, failed, "{coding:?} cut to {len}");
            }
            let mut damaged = whole.to_vec();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(decompress(damaged.into(), 1 << 20).await, failed, "{coding:?} with a wrong checksum");
        }
        assert_eq!(decompress(Bytes::from("not gzip at all").into(), 1 << 20).await, failed);
        let nothing = Err(Error::invalid("nothing to be decompressed"));
        assert_eq!(decompress(TensorData::default(), 1 << 20).await, nothing);
    }

    #[tokio::test]
    async fn a_body_that_unfolds_too_far_is_refused() {
        let bomb = compress(Bytes::from(vec![0; 100_000]), vec![], Coding::Gzip).await.unwrap();
        assert_eq!(decompress(bomb.clone().into(), 99_999).await, Err(too_large(99_999)));
        assert_eq!(decompress(bomb.into(), 100_000).await.unwrap().len(), 100_000);
    }
}
