//! Inflation on the caller's thread, as an entrance for fuzzers.
use bytes::{Buf, Bytes};
use vocabulary::ByteBudget;

use super::{Coding, Inflater, STEP};
use crate::chunks::Chunks;

/// Inflates bytes to at most `limit` bytes, with a budget of as many and room for the source. Returns the most bytes that
/// were reserved.
///
/// # Panics
/// The result has bytes that were not reserved.
pub fn inflate(source: &Bytes, gzip: bool, limit: usize) -> usize {
    let budget = ByteBudget::new(limit.saturating_add(source.len()));
    let Ok(reservation) = budget.reserve(source.len()) else { return 0 };
    let coding = if gzip { Coding::Gzip } else { Coding::Deflate };
    let mut inflater = Inflater::of_reader(coding, Chunks::One(source.clone()).reader(), limit, reservation);
    let mut most = budget.used();
    loop {
        let step = inflater.step(STEP);
        most = most.max(budget.used());
        match step {
            Ok(false) => {}
            Ok(true) => break,
            Err(_) => return most,
        }
    }
    let (plain, reservation) = inflater.finish();
    assert!(plain.len() <= reservation.bytes().min(limit), "{} bytes are not reserved", plain.len());
    most
}
