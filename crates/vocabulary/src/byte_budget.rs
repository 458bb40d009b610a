//! A limit on the bytes that many holders reserve at the same time, such as the inputs of all requests in the
//! process.
use std::{
    fmt,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{Error, FailureReason};

/// What a budget counts for a request besides its inputs, in bytes: its names and parameters, its place in a queue, and
/// its response channel. An estimate: without it, a client could fill the memory with requests of few bytes.
pub const REQUEST_BYTES: usize = 2048;

/// What requests hold that are not large: so many reserved bytes, or fewer.
pub const FEW_BYTES: usize = 8 << 20;

/// The limit in bytes, and the bytes reserved now.
pub struct ByteBudget {
    limit: usize,
    used: AtomicUsize,
    /// Called when the bytes have passed one of the [`marks`](Self::marks), or are [`FEW_BYTES`] again.
    passed: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The error of a reservation that exceeds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// Bytes that the caller wanted.
    pub wanted: usize,
    /// Bytes that were reserved already.
    pub used: usize,
    /// Bytes that may be reserved.
    pub limit: usize,
}

/// Reserved bytes of a budget. Dropping it releases them.
#[derive(Debug)]
pub struct ByteReservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl From<BudgetExceeded> for Error {
    fn from(BudgetExceeded { wanted, used, limit }: BudgetExceeded) -> Self {
        Self::exhausted(format!(
            "the server has no room for {wanted} more bytes of requests: {used} of {limit} are in use \
             (--max-inflight-bytes)"
        ))
        .because(FailureReason::Rejected)
    }
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), passed: None })
    }

    /// A budget of `limit` bytes that calls `passed` after the reserved bytes have become more than half of the limit,
    /// no more than a quarter, or no more than [`FEW_BYTES`]. Any thread may call it, at the same time as others, so it
    /// must not block. It asks [`ByteBudget::pressure`] for what holds now.
    pub fn observed(limit: usize, passed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), passed: Some(Box::new(passed)) })
    }

    /// Bytes that are reserved now.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether more than half of the bytes are reserved. Who can do with less memory for more work then should.
    pub fn is_scarce(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Whether there was pressure before, and has not ended, or whether there is now. Pressure begins when more than half
    /// of the bytes are reserved, and ends when no more than a quarter is.
    pub fn pressure(&self, before: bool) -> bool {
        let [low, high] = self.marks();
        self.used() > if before { low } else { high }
    }

    /// The bytes at which pressure ends, and those at which it begins.
    fn marks(&self) -> [usize; 2] {
        [self.limit / 4, self.limit / 2]
    }

    /// A reservation without bytes.
    pub fn reservation(self: &Arc<Self>) -> ByteReservation {
        ByteReservation { budget: self.clone(), bytes: 0 }
    }

    /// A reservation of `bytes`.
    ///
    /// # Errors
    /// The bytes exceed the limit, together with the reserved ones. Then nothing is reserved.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<ByteReservation, BudgetExceeded> {
        self.take(bytes)?;
        Ok(ByteReservation { budget: self.clone(), bytes })
    }

    fn take(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        if bytes == 0 {
            return Ok(());
        }
        let before = self.used.fetch_add(bytes, Relaxed);
        if let Some(after) = before.checked_add(bytes).filter(|after| *after <= self.limit) {
            let [_, high] = self.marks();
            if before <= high && after > high {
                self.tell_passed();
            }
            return Ok(());
        }
        self.used.fetch_sub(bytes, Relaxed);
        // Another thread may have counted with these bytes meanwhile, and not have seen that it passed a mark.
        self.tell_passed();
        Err(BudgetExceeded { wanted: bytes, used: before, limit: self.limit })
    }

    fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        let [low, _] = self.marks();
        let after = before.saturating_sub(bytes);
        if [low, FEW_BYTES].iter().any(|&mark| before > mark && after <= mark) {
            self.tell_passed();
        }
    }

    #[cold]
    fn tell_passed(&self) {
        if let Some(passed) = &self.passed {
            passed();
        }
    }
}

impl fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteBudget")
            .field("limit", &self.limit)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl ByteReservation {
    /// Bytes in this reservation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    /// The budget would be exceeded. The reservation keeps its size.
    pub fn grow(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves more, so that the reservation has at least `bytes`.
    ///
    /// # Errors
    /// The budget would be exceeded. The reservation keeps its size.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Releases the bytes that exceed `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        drop(self.split_off(self.bytes.saturating_sub(bytes)));
    }

    /// Moves `bytes` into a new reservation, or all bytes if there are fewer.
    #[must_use]
    pub fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

/// Requires that the server can make `bytes` bytes which a configuration asks for: samples for warm-up, or states.
///
/// They may be `bound` bytes, half of the memory that the process may use. An allocation beyond a limit of the process,
/// such as `ulimit -v`, would end the server. So this function tries to allocate them.
///
/// # Errors
/// INVALID_ARG beyond the bound; INTERNAL if the process does not get the memory. `what` is the subject.
pub fn require_memory(what: &str, bytes: u128, bound: usize) -> Result<(), Error> {
    let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= bound) else {
        let text =
            format!("{what} takes {bytes} bytes, more than half of the memory of the server ({bound} bytes)");
        return Err(Error::invalid(text));
    };
    let mut memory = Vec::<u8>::new();
    let reserved = memory.try_reserve_exact(bytes);
    // Otherwise the compiler may leave out an allocation that nothing uses.
    black_box(&mut memory);
    reserved
        .map_err(|_| Error::internal(format!("{what} takes {bytes} bytes, which the server cannot allocate")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let budget = ByteBudget::new(10);
        let mut held = budget.reserve(6).unwrap();
        assert_eq!(budget.reserve(5).unwrap_err(), BudgetExceeded { wanted: 5, used: 6, limit: 10 });
        held.grow(4).unwrap();
        assert!(held.grow(1).is_err());
        assert_eq!((held.bytes(), budget.used()), (10, 10));
        assert!(budget.reserve(usize::MAX).is_err());
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(10).is_ok());
        let half = budget.reserve(5).unwrap();
        assert!(!budget.is_scarce());
        let _more = budget.reserve(1).unwrap();
        assert!(budget.is_scarce());
        drop(half);
    }

    #[test]
    fn pressure_begins_above_half_and_ends_at_a_quarter() {
        let told = Arc::new(AtomicUsize::new(0));
        let counter = told.clone();
        let budget = ByteBudget::observed(100, move || {
            counter.fetch_add(1, Relaxed);
        });
        let told = || told.load(Relaxed);
        let quarter = budget.reserve(25).unwrap();
        let second = budget.reserve(25).unwrap();
        assert_eq!((told(), budget.pressure(false)), (0, false));
        let third = budget.reserve(1).unwrap();
        assert_eq!((told(), budget.pressure(false)), (1, true));
        drop(third);
        assert_eq!((told(), budget.pressure(true)), (1, true), "it goes on below half");
        drop(second);
        assert_eq!((told(), budget.pressure(true)), (2, false));
        drop(quarter);
        assert_eq!(told(), 2);
        // What is refused may have hidden from others that they passed a mark.
        assert!(budget.reserve(101).is_err());
        assert_eq!((told(), budget.pressure(false)), (3, false));
    }

    #[test]
    fn the_end_of_a_large_reservation_is_told() {
        let told = Arc::new(AtomicUsize::new(0));
        let counter = told.clone();
        let budget = ByteBudget::observed(100 * FEW_BYTES, move || {
            counter.fetch_add(1, Relaxed);
        });
        let few = budget.reserve(FEW_BYTES).unwrap();
        drop(budget.reserve(1).unwrap());
        assert_eq!(told.load(Relaxed), 1);
        drop(few);
        assert_eq!(told.load(Relaxed), 1);
    }

    #[test]
    fn a_reservation_is_split_and_shrunk_without_losing_bytes() {
        let budget = ByteBudget::new(10);
        let mut held = budget.reserve(8).unwrap();
        let part = held.split_off(5);
        assert_eq!((held.bytes(), part.bytes(), budget.used()), (3, 5, 8));
        drop(part);
        assert_eq!(budget.used(), 3);
        held.grow_to(2).unwrap();
        held.grow_to(10).unwrap();
        assert_eq!(held.grow_to(11), Err(BudgetExceeded { wanted: 1, used: 10, limit: 10 }));
        held.shrink_to(11);
        held.shrink_to(4);
        assert_eq!((held.bytes(), budget.used()), (4, 4));
        assert_eq!(held.split_off(9).bytes(), 4);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_larger_than_half_of_the_memory_is_refused() {
        let bound = 1 << 20;
        assert_eq!(require_memory("a state", 1 << 20, bound), Ok(()));
        for bytes in [(1 << 20) + 1, u128::MAX] {
            assert_eq!(
                require_memory("a state", bytes, bound).unwrap_err().message,
                format!(
                    "a state takes {bytes} bytes, more than half of the memory of the server ({bound} bytes)"
                )
            );
        }
    }
}
