//! Reads the JSON of a request: a short text at once, a long one in the pool and in pieces.
use kserve::long_write::BRIEF;
use vocabulary::{ByteReservation, Error, TensorData};

use super::{
    body::ReceivedBody,
    json::{JsonText, LongRead},
};
use crate::decode_pool::{PooledResult, WorkTurn};

/// What was made of a text, and the reservation of its bytes.
type JsonRead<T> = Result<(T, ByteReservation), Error>;

/// Passes the text of a body to `read`, here or in the pool. The reservation gets the bytes of what is made of it.
pub(super) fn read<T: Send + Unpin + 'static>(
    ReceivedBody { bytes: json, reservation }: ReceivedBody,
    read: impl FnOnce(JsonText<'_>) -> Result<T, Error> + Send + 'static,
) -> PooledResult<JsonRead<T>> {
    if json.len() <= BRIEF {
        let result = read(JsonText::from(&*json.contiguous()));
        return PooledResult::done(result.map(|read| (read, reservation)));
    }
    PooledResult::pooled(move |turn| in_pieces(turn, json, reservation, read))
}

/// Passes a text to `read`, which reads it in pieces.
pub(super) fn in_pieces<T>(
    turn: &WorkTurn<'_>,
    json: TensorData,
    mut reservation: ByteReservation,
    read: impl FnOnce(JsonText<'_>) -> Result<T, Error>,
) -> JsonRead<T> {
    let before = reservation.bytes();
    if json.pieces().len() > 1 {
        // They are copied to be joined.
        reservation.grow(json.len())?;
    }
    let text = json.contiguous();
    drop(json);
    reservation.shrink_to(before);
    let goes_on = || turn.goes_on();
    let reading = LongRead::new(reservation, &goes_on);
    let read = read(JsonText::long(&text, &reading))?;
    Ok((read, reading.into_reservation()))
}
