//! The frames of gRPC: a byte that tells whether the message is compressed, the length in big endian, and the message.

use std::io::{Read, Write};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use prost::Message;

/// How messages are compressed.
#[derive(Debug, PartialEq, Clone, Copy)]
pub enum MessageCompression {
    /// The format of gzip.
    Gzip,
    /// The format of zlib, as HTTP calls it.
    Deflate,
}

impl MessageCompression {
    /// The name of the algorithm in HTTP and gRPC.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MessageCompression::Gzip => "gzip",
            MessageCompression::Deflate => "deflate",
        }
    }
}

/// Frames a message.
pub fn grpc_message(message: &impl Message) -> Bytes {
    frame(&[&message.encode_to_vec()], None)
}

/// Frames a message that is given in parts.
pub fn frame(parts: &[&[u8]], compression: Option<MessageCompression>) -> Bytes {
    match compression {
        None => framed(0, parts),
        Some(algorithm) => framed(1, &[&compressed(&parts.concat(), algorithm)]),
    }
}

fn framed(flag: u8, parts: &[&[u8]]) -> Bytes {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(flag);
    framed.put_u32(u32::try_from(length).expect("a message of over 4 GiB does not fit the memory set aside"));
    parts.iter().for_each(|part| framed.put_slice(part));
    framed.freeze()
}

fn compressed(message: &[u8], algorithm: MessageCompression) -> Vec<u8> {
    let written = match algorithm {
        MessageCompression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(message).and_then(|()| encoder.finish())
        }
        MessageCompression::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(message).and_then(|()| encoder.finish())
        }
    };
    written.expect("writing to memory does not fail")
}

/// The bytes before a message.
pub const FRAME_HEAD: usize = 5;

/// Takes the first frame with its head, if all of it is there.
pub fn next_frame(unread: &mut BytesMut) -> Option<Bytes> {
    let length = frame_length(unread)?;
    (unread.len() >= length).then(|| unread.split_to(length).freeze())
}

/// The length of the first frame with its head, in bytes, if its head is there.
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..)?.first_chunk()?;
    Some(FRAME_HEAD + u32::from_be_bytes(*length) as usize)
}

/// The messages of a body, without their frames. They are decompressed if `encoding` names an algorithm and they are
/// compressed. No message gets longer than `limit` bytes.
///
/// `None` if a frame is incomplete, a message is too long, or it cannot be decompressed.
pub fn messages(body: &Bytes, encoding: Option<&str>, limit: usize) -> Option<Vec<Bytes>> {
    let mut messages = Vec::new();
    let mut rest = body.clone();
    while !rest.is_empty() {
        let length = frame_length(&rest)?;
        let mut frame = (rest.len() >= length).then(|| rest.split_to(length))?;
        let is_compressed = frame[0] != 0;
        let message = frame.split_off(FRAME_HEAD);
        messages.push(if is_compressed { decompressed(&message, encoding?, limit)? } else { message });
    }
    Some(messages)
}

/// The content of compressed bytes, by the name of the algorithm in HTTP or gRPC. `None` if it is not known, the bytes are not
/// of it, or the content is longer than `limit` bytes.
pub fn decompressed(bytes: &[u8], encoding: &str, limit: usize) -> Option<Bytes> {
    let mut content = Vec::new();
    let most = limit as u64 + 1;
    match encoding {
        "gzip" => GzDecoder::new(bytes).take(most).read_to_end(&mut content).ok()?,
        "deflate" => ZlibDecoder::new(bytes).take(most).read_to_end(&mut content).ok()?,
        _ => return None,
    };
    (content.len() <= limit).then(|| content.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_message_follow_each_other() {
        assert_eq!(&frame(&[b"ab", b"c"], None)[..], b"\0\0\0\0\x03abc");
    }

    #[test]
    fn a_compressed_message_has_its_flag_and_comes_back() {
        let framed = frame(&[b"abc", b"abc"], Some(MessageCompression::Gzip));
        assert_eq!((framed[0], framed.len() - 5), (1, usize::from(framed[4])));
        let mut text = String::new();
        GzDecoder::new(&framed[5..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcabc");
        let framed = frame(&[b"abcabc"], Some(MessageCompression::Deflate));
        text.clear();
        ZlibDecoder::new(&framed[5..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcabc");
    }

    #[test]
    fn a_frame_is_taken_when_all_of_it_is_there() {
        let mut unread = BytesMut::new();
        let mut taken = Vec::new();
        for byte in [0, 0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0] {
            unread.extend_from_slice(&[byte]);
            taken.extend(next_frame(&mut unread).map(|frame| frame.to_vec()));
        }
        assert_eq!(taken, [vec![0, 0, 0, 0, 1, 9], vec![0; 5]]);
        assert_eq!(unread.len(), 1);
    }

    #[test]
    fn messages_are_decompressed_within_a_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&[7; 100]).unwrap();
        let packed = encoder.finish().unwrap();
        let mut body = vec![0, 0, 0, 0, 1, 5, 1, 0, 0, 0, packed.len() as u8];
        body.extend_from_slice(&packed);
        let body = Bytes::from(body);
        let read = messages(&body, Some("gzip"), 100).unwrap();
        assert_eq!((&read[0][..], &read[1][..]), (&[5][..], &[7; 100][..]));
        assert_eq!(messages(&body, Some("gzip"), 99), None);
        assert_eq!(messages(&body, None, 100), None);
        assert_eq!(messages(&body, Some("deflate"), 100), None);
        assert_eq!(messages(&body.slice(..9), Some("gzip"), 100), None);
    }
}
