//! What every gRPC message has: a prefix of five bytes, and a maximum length. Also the codec of rare messages, which uses
//! the generated types.
use bytes::{BufMut, Bytes, BytesMut};
use inference::Error;
use prost::Message;

use super::status::Status;
use crate::{
    chunks::Chunks,
    decode_pool::{BRIEF, Work},
};

/// Length of the prefix of each message, in bytes. The prefix says whether the message is compressed, and states its
/// length.
pub(crate) const PREFIX: usize = 5;

/// Largest message of the protocol, in bytes: 2^31 - 1.
pub(crate) const MAX_MESSAGE: usize = i32::MAX as usize;

/// Decodes the message of a call; a long one in the decode pool.
pub(super) async fn decode<M>(frames: &[Bytes]) -> Result<M, Status>
where
    M: Message + Default + Unpin + 'static,
{
    if frames.iter().map(Bytes::len).sum::<usize>() <= BRIEF {
        return decode_here(frames);
    }
    let frames = frames.to_vec();
    Work::pooled(move |_| decode_here(&frames)).await?
}

/// Decodes a message that is known to be short.
pub(super) fn decode_here<M: Message + Default>(frames: &[Bytes]) -> Result<M, Status> {
    let mut message = Chunks::new();
    frames.iter().for_each(|frame| message.push(frame.clone()));
    M::decode(message).map_err(|_| Status::unparsable())
}

/// Encodes the message after its prefix.
pub(super) fn encode(message: &impl Message) -> Result<Chunks, Status> {
    let length = message.encoded_len();
    let Some(prefix) = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE) else {
        return Err(Error::internal(format!("a response of {length} bytes is too large for gRPC")).into());
    };
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(prefix);
    message.encode_raw(&mut bytes);
    Ok(bytes.freeze().into())
}
