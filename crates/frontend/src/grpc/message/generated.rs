//! The codec of rare messages, which uses the generated types.
use bytes::{BufMut, Bytes, BytesMut};
use kserve::long_write::BRIEF;
use prost::Message;
use vocabulary::Error;

use super::prefix::{MAX_MESSAGE, PREFIX};
use crate::{chunks::Chunks, decode_pool::PooledResult, grpc::status::Status};

/// Decodes the message of a call; a long one in the decode pool.
pub(in crate::grpc) async fn decode<M>(frames: &[Bytes]) -> Result<M, Status>
where
    M: Message + Default + Unpin + 'static,
{
    if frames.iter().map(Bytes::len).sum::<usize>() <= BRIEF {
        return decode_here(frames);
    }
    let frames = frames.to_vec();
    PooledResult::pooled(move |_| decode_here(&frames)).await?
}

/// Decodes a message that is known to be short.
pub(in crate::grpc) fn decode_here<M: Message + Default>(frames: &[Bytes]) -> Result<M, Status> {
    let mut message = Chunks::new();
    frames.iter().for_each(|frame| message.push(frame.clone()));
    M::decode(message).map_err(|_| Status::unparsable())
}

/// Encodes the message after its prefix.
pub(in crate::grpc) fn encode(message: &impl Message) -> Result<Chunks, Status> {
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
