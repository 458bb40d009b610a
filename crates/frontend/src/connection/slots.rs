//! Limits the number of connections, on one port and on several ports together.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A limit, and the number of its slots in use. Several ports may share one counter.
///
/// Invariant: `used` is the number of live `ConnectionSlot`s of this counter.
#[derive(Debug)]
pub struct SlotCounter {
    used: AtomicUsize,
    limit: usize,
}

/// The connections that one port may have. Each connection takes a slot of every counter of the port.
#[derive(Debug, Clone)]
pub struct ConnectionSlots {
    counters: Arc<[Arc<SlotCounter>]>,
}

/// Counts one connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    counters: Arc<[Arc<SlotCounter>]>,
}

impl SlotCounter {
    /// A counter that permits `limit` connections at the same time.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    fn take(&self) -> bool {
        let free = |used| (used < self.limit).then_some(used + 1);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }

    fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConnectionSlots {
    /// The slots of a port. Each connection takes a slot of each of `counters`.
    pub fn new(counters: impl IntoIterator<Item = Arc<SlotCounter>>) -> Self {
        Self { counters: counters.into_iter().collect() }
    }

    /// Any number of connections.
    pub fn unlimited() -> Self {
        Self::new([])
    }

    /// Takes a slot for one more connection.
    ///
    /// # Errors
    /// All slots of a counter are taken. The error is its limit.
    pub(crate) fn take(&self) -> Result<ConnectionSlot, usize> {
        for (index, counter) in self.counters.iter().enumerate() {
            if !counter.take() {
                self.counters[..index].iter().for_each(|taken| taken.give_back());
                return Err(counter.limit);
            }
        }
        Ok(ConnectionSlot { counters: self.counters.clone() })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.counters.iter().for_each(|counter| counter.give_back());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_for_its_port_and_for_all_ports_together() {
        let total = SlotCounter::new(3);
        let http = ConnectionSlots::new([SlotCounter::new(2), total.clone()]);
        let grpc = ConnectionSlots::new([SlotCounter::new(9), total.clone()]);
        let first = http.take().unwrap();
        let _second = http.take().unwrap();
        assert_eq!(http.take().unwrap_err(), 2);
        let _third = grpc.take().unwrap();
        assert_eq!(grpc.take().unwrap_err(), 3, "what all ports share is used up");
        drop(first);
        let _fourth = grpc.take().unwrap();
        assert_eq!(http.take().unwrap_err(), 3);
        assert_eq!(http.counters[0].used.load(Ordering::Relaxed), 1, "a refused connection counts nowhere");
    }

    #[test]
    fn without_counters_there_is_no_limit() {
        let slots = ConnectionSlots::unlimited();
        let taken: Vec<_> = (0..1000).map(|_| slots.take().unwrap()).collect();
        assert_eq!(taken.len(), 1000);
    }
}
