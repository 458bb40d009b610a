//! The frames of gRPC: a byte that tells whether the message is compressed, the length in big endian, and the message.

use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use prost::Message;

use crate::options::MessageCompression;

/// Frames a message.
pub(crate) fn grpc_message(message: &impl Message) -> Bytes {
    frame(&[&message.encode_to_vec()], None)
}

/// Frames a message that is given in parts.
pub(crate) fn frame(parts: &[&[u8]], compression: Option<MessageCompression>) -> Bytes {
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
        // The format of zlib, as HTTP calls it.
        MessageCompression::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(message).and_then(|()| encoder.finish())
        }
    };
    written.expect("writing to memory does not fail")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

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
        flate2::read::GzDecoder::new(&framed[5..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcabc");
        let framed = frame(&[b"abcabc"], Some(MessageCompression::Deflate));
        text.clear();
        flate2::read::ZlibDecoder::new(&framed[5..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcabc");
    }
}
