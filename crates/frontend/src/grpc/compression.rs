//! Compression of the messages of a call: which codings a client may use, and how the server compresses its responses.
//!
//! Compression and decompression always work on a whole message.
use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName};
use vocabulary::Error;

use super::{
    message::prefix::PREFIX,
    options::CompressionLevel,
    status::{Code, Status},
};
use crate::{chunks::Chunks, compression::Coding, decode_pool::PooledResult};

/// The header that names the coding of the messages of a call.
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The header that lists the codings that the sender understands.
pub(crate) const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The codings that the server understands.
pub(crate) const ACCEPTED: &str = "identity, deflate, gzip";

/// The coding of the compressed messages of a request. `None` if the request names no coding.
///
/// # Errors
/// UNIMPLEMENTED for a coding that the server does not know.
pub(crate) fn of_request(headers: &HeaderMap) -> Result<Option<Coding>, Status> {
    let Some(name) = headers.get(GRPC_ENCODING) else { return Ok(None) };
    if name == "identity" {
        return Ok(None);
    }
    let known = Coding::ALL.into_iter().find(|coding| name == coding.name());
    known.map(Some).ok_or_else(|| {
        let name = String::from_utf8_lossy(name.as_bytes());
        Status::new(Code::Unimplemented, format!("Compression algorithm '{name}' is not supported."))
    })
}

/// How the responses of a call are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compressor {
    pub(crate) coding: Coding,
    level: u32,
}

impl Compressor {
    /// The coding that the server and the client both accept. `None` if the server or the client wants no compression.
    ///
    /// The level also selects between codings that the client accepts, as in gRPC's own servers.
    pub(crate) fn agreed(level: CompressionLevel, headers: &HeaderMap) -> Option<Self> {
        let (level, rank) = match level {
            CompressionLevel::None => return None,
            CompressionLevel::Low => (1, 0),
            CompressionLevel::Medium => (6, 1),
            CompressionLevel::High => (9, 1),
        };
        let accepted = headers.get(GRPC_ACCEPT_ENCODING)?.to_str().ok()?;
        let accepted = |coding: &Coding| accepted.split(',').any(|name| name.trim() == coding.name());
        let mut common = Coding::ALL.into_iter().filter(accepted);
        let first = common.next()?;
        let coding = if rank == 0 { first } else { common.next().unwrap_or(first) };
        Some(Self { coding, level })
    }

    /// Compresses a message with its prefix, unless the result would not be shorter.
    pub(crate) fn compress(self, message: Chunks) -> Compressing {
        let ranges: Chunks = message.ranges().cloned().collect();
        let mut content = ranges;
        content.advance(PREFIX);
        Compressing { work: self.coding.deflate(content, self.level, PREFIX), message }
    }
}

/// A message that is being compressed.
pub(crate) struct Compressing {
    work: PooledResult<Option<Vec<u8>>>,
    /// The uncompressed message. It is sent if compression does not make it shorter.
    message: Chunks,
}

impl Future for Compressing {
    type Output = Result<Chunks, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.work).poll(context).map_ok(|compressed| {
            compressed.and_then(prefixed).unwrap_or_else(|| std::mem::take(&mut self.message))
        })
    }
}

/// Writes the prefix of a compressed message into the free bytes before the message.
fn prefixed(mut compressed: Vec<u8>) -> Option<Chunks> {
    let length = u32::try_from(compressed.len() - PREFIX).ok()?;
    compressed[0] = 1;
    compressed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    Some(Bytes::from(compressed).into())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use vocabulary::ByteBudget;

    use super::*;

    fn message(content: &[u8]) -> Chunks {
        let mut message = vec![0];
        message.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        message.extend_from_slice(content);
        let message = Bytes::from(message);
        let mut chunks = Chunks::new();
        chunks.push(message.slice(..3));
        chunks.push(message.slice(3..));
        chunks
    }

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[tokio::test]
    async fn a_compressed_message_has_its_own_prefix() {
        for size in [100, 100_000] {
            for coding in Coding::ALL {
                let content = vec![7; size];
                let compressor = Compressor { coding, level: 1 };
                let mut chunks = compressor.compress(message(&content)).await.unwrap();
                let mut sent = chunks.copy_to_bytes(chunks.remaining());
                assert!(sent.len() < size && sent[0] == 1);
                assert_eq!(sent.get_u8(), 1);
                assert_eq!(usize::try_from(sent.get_u32()).unwrap(), sent.len());
                let received = ByteBudget::new(usize::MAX).reservation();
                assert_eq!(coding.inflate(sent.into(), size, received).await.unwrap().unwrap().0, content);
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_compression_does_not_shorten_is_not_compressed() {
        let compressor = Compressor { coding: Coding::Gzip, level: 9 };
        let mut sent = compressor.compress(message(b"ab")).await.unwrap();
        assert_eq!(sent.copy_to_bytes(sent.remaining()), "\0\0\0\0\u{2}ab");
    }

    #[test]
    fn an_unknown_coding_is_named() {
        assert_eq!(of_request(&headers(GRPC_ENCODING, "identity")), Ok(None));
        assert_eq!(of_request(&headers(GRPC_ENCODING, "deflate")), Ok(Some(Coding::Deflate)));
        let refused = of_request(&headers(GRPC_ENCODING, "snappy")).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        assert_eq!(refused.message(), "Compression algorithm 'snappy' is not supported.");
    }

    #[test]
    fn the_level_chooses_among_what_the_client_accepts() {
        let all = headers(GRPC_ACCEPT_ENCODING, "identity, deflate,gzip");
        let agreed = |level, headers| Compressor::agreed(level, headers).map(|compressor| compressor.coding);
        assert_eq!(agreed(CompressionLevel::None, &all), None);
        assert_eq!(agreed(CompressionLevel::Low, &all), Some(Coding::Gzip));
        assert_eq!(agreed(CompressionLevel::High, &all), Some(Coding::Deflate));
        let gzip = headers(GRPC_ACCEPT_ENCODING, "gzip");
        assert_eq!(agreed(CompressionLevel::High, &gzip), Some(Coding::Gzip));
        assert_eq!(agreed(CompressionLevel::High, &HeaderMap::new()), None);
    }
}
