//! Compression of messages: what a client may send, and what it gets if the server compresses responses.
//!
//! Both algorithms work on the whole message. Long work runs on the runtime's threads for blocking work, see [`Work`].
use std::{
    io::{Read, Write},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use flate2::{
    Compression,
    read::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use http::{HeaderMap, HeaderName};
use tokio::task::JoinHandle;

use super::{
    chunks::Chunks,
    encode::MAX_MESSAGE,
    framing::PREFIX,
    options::CompressionLevel,
    status::{Code, Status},
};

/// Names the algorithm of the messages of a call.
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Lists the algorithms the sender understands.
pub(crate) const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// What we understand.
pub(crate) const ACCEPTED: &str = "identity, deflate, gzip";

/// Messages up to that many bytes are worked on where they are.
const BRIEF: usize = 16 << 10;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Gzip,
    /// That is: the zlib format.
    Deflate,
}

impl Algorithm {
    /// In the order in which the reference prefers them.
    const ALL: [Self; 2] = [Self::Gzip, Self::Deflate];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The algorithm of a request's compressed messages, `None` if it has none.
    ///
    /// # Errors
    /// UNIMPLEMENTED for an algorithm we do not know.
    pub(crate) fn of_request(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let Some(name) = headers.get(GRPC_ENCODING) else { return Ok(None) };
        if name == "identity" {
            return Ok(None);
        }
        let known = Self::ALL.into_iter().find(|algorithm| name == algorithm.name());
        known.map(Some).ok_or_else(|| {
            let name = String::from_utf8_lossy(name.as_bytes());
            Status::new(Code::Unimplemented, format!("Compression algorithm '{name}' is not supported."))
        })
    }
}

/// How the responses of a call are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compressor {
    pub(crate) algorithm: Algorithm,
    level: u32,
}

impl Compressor {
    /// What server and client agree on; `None` if one of them wants no compression.
    ///
    /// The level also chooses between algorithms that the client accepts, as gRPC's own servers do.
    pub(crate) fn agreed(level: CompressionLevel, headers: &HeaderMap) -> Option<Self> {
        let (level, rank) = match level {
            CompressionLevel::None => return None,
            CompressionLevel::Low => (1, 0),
            CompressionLevel::Medium => (6, 1),
            CompressionLevel::High => (9, 1),
        };
        let accepted = headers.get(GRPC_ACCEPT_ENCODING)?.to_str().ok()?;
        let accepted =
            |algorithm: &Algorithm| accepted.split(',').any(|name| name.trim() == algorithm.name());
        let mut common = Algorithm::ALL.into_iter().filter(accepted);
        let first = common.next()?;
        let algorithm = if rank == 0 { first } else { common.next().unwrap_or(first) };
        Some(Self { algorithm, level })
    }

    /// Compresses a message with its prefix, unless that makes it no shorter.
    pub(crate) fn compress(self, message: Chunks) -> Work<Chunks> {
        Work::of(message.remaining(), move || match self.compressed(&message) {
            Ok(shorter) if shorter.len() < message.remaining() => Bytes::from(shorter).into(),
            _ => message,
        })
    }

    fn compressed(self, message: &Chunks) -> std::io::Result<Vec<u8>> {
        let level = Compression::new(self.level);
        let target = vec![0; PREFIX];
        let mut compressed = match self.algorithm {
            Algorithm::Gzip => {
                let mut encoder = GzEncoder::new(target, level);
                write_content(message, &mut encoder)?;
                encoder.finish()?
            }
            Algorithm::Deflate => {
                let mut encoder = ZlibEncoder::new(target, level);
                write_content(message, &mut encoder)?;
                encoder.finish()?
            }
        };
        let length = u32::try_from(compressed.len() - PREFIX).map_err(std::io::Error::other)?;
        compressed[0] = 1;
        compressed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
        Ok(compressed)
    }
}

/// The message without its prefix.
fn write_content(message: &Chunks, target: &mut impl Write) -> std::io::Result<()> {
    let mut prefix = PREFIX;
    for range in message.ranges() {
        let passed = prefix.min(range.len());
        prefix -= passed;
        target.write_all(&range[passed..])?;
    }
    Ok(())
}

/// Decompresses a message that came in some frames.
pub(crate) fn decompress(algorithm: Algorithm, frames: &[Bytes]) -> Work<Result<Bytes, Status>> {
    let mut compressed = Chunks::new();
    frames.iter().for_each(|frame| compressed.push(frame.clone()));
    Work::of(compressed.remaining(), move || match algorithm {
        Algorithm::Gzip => read_all(GzDecoder::new(compressed.reader())),
        Algorithm::Deflate => read_all(ZlibDecoder::new(compressed.reader())),
    })
}

fn read_all(decoder: impl Read) -> Result<Bytes, Status> {
    let mut message = Vec::new();
    decoder
        .take(MAX_MESSAGE as u64 + 1)
        .read_to_end(&mut message)
        .map_err(|_| Status::new(Code::Internal, "failed to decompress request"))?;
    if message.len() > MAX_MESSAGE {
        return Err(too_long(message.len()));
    }
    Ok(message.into())
}

/// The refusal of a message of that many bytes.
pub(crate) fn too_long(length: usize) -> Status {
    let text = format!("Received message larger than max ({length} vs. {MAX_MESSAGE})");
    Status::new(Code::ResourceExhausted, text)
}

/// A result that is there at once, or comes from another thread.
///
/// Dropping it lets work that has begun run to its end unseen; it is bounded by the size of a message.
pub(crate) enum Work<T> {
    Done(Option<T>),
    Running(JoinHandle<T>),
}

impl<T: Send + 'static> Work<T> {
    fn of(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Self {
        if size <= BRIEF {
            Self::Done(Some(work()))
        } else {
            Self::Running(tokio::task::spawn_blocking(work))
        }
    }
}

impl<T: Unpin> Future for Work<T> {
    type Output = Result<T, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(Ok(result.take().expect("polled once"))),
            Self::Running(handle) => Pin::new(handle)
                .poll(context)
                .map_err(|error| Status::new(Code::Internal, format!("compression failed: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
    async fn what_is_compressed_can_be_decompressed_whatever_its_size() {
        for size in [100, 100_000] {
            for algorithm in Algorithm::ALL {
                let content = vec![7; size];
                let compressor = Compressor { algorithm, level: 1 };
                let mut chunks = compressor.compress(message(&content)).await.unwrap();
                let mut sent = chunks.copy_to_bytes(chunks.remaining());
                assert!(sent.len() < size && sent[0] == 1);
                assert_eq!(sent.get_u8(), 1);
                assert_eq!(usize::try_from(sent.get_u32()).unwrap(), sent.len());
                let pieces = [sent.slice(..10), sent.slice(10..)];
                assert_eq!(decompress(algorithm, &pieces).await.unwrap().unwrap(), content);
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_gets_no_shorter_is_left_alone() {
        let compressor = Compressor { algorithm: Algorithm::Gzip, level: 9 };
        let mut sent = compressor.compress(message(b"ab")).await.unwrap();
        assert_eq!(sent.copy_to_bytes(sent.remaining()), "\0\0\0\0\u{2}ab");
    }

    #[tokio::test]
    async fn a_damaged_message_is_refused() {
        for algorithm in Algorithm::ALL {
            let refused = decompress(algorithm, &[Bytes::from_static(b"garbage")]).await.unwrap();
            assert_eq!(refused.unwrap_err().message, "failed to decompress request");
        }
    }

    #[test]
    fn an_unknown_algorithm_is_named() {
        assert_eq!(Algorithm::of_request(&headers(GRPC_ENCODING, "identity")), Ok(None));
        assert_eq!(Algorithm::of_request(&headers(GRPC_ENCODING, "deflate")), Ok(Some(Algorithm::Deflate)));
        let refused = Algorithm::of_request(&headers(GRPC_ENCODING, "snappy")).unwrap_err();
        assert_eq!(refused.code, Code::Unimplemented);
        assert_eq!(refused.message, "Compression algorithm 'snappy' is not supported.");
    }

    #[test]
    fn the_level_chooses_among_what_the_client_accepts() {
        let all = headers(GRPC_ACCEPT_ENCODING, "identity, deflate,gzip");
        let agreed =
            |level, headers| Compressor::agreed(level, headers).map(|compressor| compressor.algorithm);
        assert_eq!(agreed(CompressionLevel::None, &all), None);
        assert_eq!(agreed(CompressionLevel::Low, &all), Some(Algorithm::Gzip));
        assert_eq!(agreed(CompressionLevel::High, &all), Some(Algorithm::Deflate));
        let gzip = headers(GRPC_ACCEPT_ENCODING, "gzip");
        assert_eq!(agreed(CompressionLevel::High, &gzip), Some(Algorithm::Gzip));
        assert_eq!(agreed(CompressionLevel::High, &HeaderMap::new()), None);
    }
}
