//! Bytes of a response. They count in the budget of requests until the connection has sent them: the client decides when
//! that is.
use std::sync::Arc;

use bytes::Bytes;
use inference::ResponseStream;
use vocabulary::{BudgetExceeded, ByteBudget, ByteReservation};

/// The most bytes of a response that are not counted. An open call and an open connection have about as many anyway.
pub(crate) const UNCOUNTED: usize = 4 << 10;

struct CountedBytes {
    bytes: Bytes,
    /// Dropped with the last handle to the bytes.
    _reservation: ByteReservation,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes. `reservation` lives as long as they do.
pub(crate) fn hold(bytes: Bytes, reservation: ByteReservation) -> Bytes {
    Bytes::from_owner(CountedBytes { bytes, _reservation: reservation })
}

/// The reservation with so many bytes.
///
/// # Errors
/// The budget has no room for them.
pub(crate) fn resized(
    mut reservation: ByteReservation,
    bytes: usize,
) -> Result<ByteReservation, BudgetExceeded> {
    reservation.grow_to(bytes)?;
    reservation.shrink_to(bytes);
    Ok(reservation)
}

/// The room of a request, for the bytes of its last response: both count once.
pub(crate) fn room_of(responses: &ResponseStream, budget: &Arc<ByteBudget>) -> ByteReservation {
    responses.take_reservation().unwrap_or_else(|| budget.reservation())
}

#[cfg(test)]
mod tests {
    use vocabulary::ByteBudget;

    use super::*;

    #[test]
    fn the_last_handle_releases_the_bytes() {
        let budget = ByteBudget::new(10);
        let mut bytes = hold(Bytes::from_static(b"abcdef"), budget.reserve(6).unwrap());
        let front = bytes.split_to(2);
        assert_eq!((&*front, &*bytes, budget.used()), (&b"ab"[..], &b"cdef"[..], 6));
        drop(front);
        assert_eq!(budget.used(), 6);
        drop(bytes);
        assert_eq!(budget.used(), 0);
    }
}
