//! Limits the number of connections: on one port, on several ports together, and from one address.
use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use inference::lock::Mutex;

/// A limit, and the number of its slots in use. Several ports may share one counter.
///
/// Invariant: `taken.all` is the number of live `ConnectionSlot`s of this counter, and each number of `taken.by_client` that
/// of its client.
#[derive(Debug)]
pub struct SlotCounter {
    taken: Mutex<TakenSlots>,
    limit: usize,
    /// The limit for each client that has an address. At most `limit`.
    client_limit: usize,
}

#[derive(Debug, Default)]
struct TakenSlots {
    all: usize,
    /// The clients with a slot. Empty if only `limit` limits them.
    by_client: HashMap<IpAddr, usize>,
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
    client: Option<IpAddr>,
}

/// Why there is no slot for a connection. Its display is the text for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// There are so many connections.
    Full(usize),
    /// The address of the client has so many connections.
    ClientFull(usize),
}

impl fmt::Display for NoSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(limit) => write!(f, "the server has reached its limit of {limit} connections"),
            Self::ClientFull(limit) => {
                write!(f, "the server has reached its limit of {limit} connections from one address")
            }
        }
    }
}

impl SlotCounter {
    /// A counter that permits `limit` connections at the same time, and `client_limit` from one address. `None`: a quarter
    /// of `limit`, and at least one.
    pub fn new(limit: usize, client_limit: Option<usize>) -> Arc<Self> {
        let client_limit = client_limit.unwrap_or(limit / 4).max(1).min(limit);
        Arc::new(Self { taken: Mutex::default(), limit, client_limit })
    }

    fn take(&self, client: Option<IpAddr>) -> Result<(), NoSlot> {
        let mut taken = self.taken.lock();
        if taken.all >= self.limit {
            return Err(NoSlot::Full(self.limit));
        }
        if let Some(client) = client.filter(|_| self.limits_clients()) {
            let of_client = taken.by_client.entry(client).or_default();
            if *of_client >= self.client_limit {
                return Err(NoSlot::ClientFull(self.client_limit));
            }
            *of_client += 1;
        }
        taken.all += 1;
        Ok(())
    }

    fn give_back(&self, client: Option<IpAddr>) {
        let mut taken = self.taken.lock();
        taken.all -= 1;
        if let Some(client) = client.filter(|_| self.limits_clients())
            && let Some(of_client) = taken.by_client.get_mut(&client)
        {
            *of_client -= 1;
            if *of_client == 0 {
                taken.by_client.remove(&client);
            }
        }
    }

    fn limits_clients(&self) -> bool {
        self.client_limit < self.limit
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

    /// Takes a slot for one more connection. A client without an address, on a unix socket, has no limit of its own.
    ///
    /// # Errors
    /// All slots of a counter are taken, or all that the client may have.
    pub(crate) fn take(&self, address: Option<IpAddr>) -> Result<ConnectionSlot, NoSlot> {
        let client = address.map(client_of);
        for (index, counter) in self.counters.iter().enumerate() {
            if let Err(no_slot) = counter.take(client) {
                self.counters[..index].iter().for_each(|taken| taken.give_back(client));
                return Err(no_slot);
            }
        }
        Ok(ConnectionSlot { counters: self.counters.clone(), client })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.counters.iter().for_each(|counter| counter.give_back(self.client));
    }
}

/// What counts as one client: an IPv4 address, or a network of 64 bits of IPv6, of which one client may have all addresses.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without limits of clients.
    fn counter(limit: usize) -> Arc<SlotCounter> {
        SlotCounter::new(limit, Some(limit))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_connection_counts_for_its_port_and_for_all_ports_together() {
        let total = counter(3);
        let http = ConnectionSlots::new([counter(2), total.clone()]);
        let grpc = ConnectionSlots::new([counter(9), total.clone()]);
        let first = http.take(None).unwrap();
        let _second = http.take(None).unwrap();
        assert_eq!(http.take(None).unwrap_err(), NoSlot::Full(2));
        let _third = grpc.take(None).unwrap();
        assert_eq!(grpc.take(None).unwrap_err(), NoSlot::Full(3), "what all ports share is used up");
        drop(first);
        let _fourth = grpc.take(None).unwrap();
        assert_eq!(http.take(None).unwrap_err(), NoSlot::Full(3));
        assert_eq!(http.counters[0].taken.lock().all, 1, "a refused connection counts nowhere");
    }

    #[test]
    fn without_counters_there_is_no_limit() {
        let slots = ConnectionSlots::unlimited();
        let taken: Vec<_> = (0..1000).map(|_| slots.take(address("10.0.0.1")).unwrap()).collect();
        assert_eq!(taken.len(), 1000);
    }

    #[test]
    fn one_address_leaves_slots_to_others() {
        let slots = ConnectionSlots::new([SlotCounter::new(8, None)]);
        let mut first: Vec<_> = (0..2).map(|_| slots.take(address("10.0.0.1")).unwrap()).collect();
        for same in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(slots.take(address(same)).unwrap_err(), NoSlot::ClientFull(2), "{same}");
        }
        let _other = slots.take(address("10.0.0.2")).unwrap();
        let _v6 = ["2001:db8::1", "2001:db8::2"].map(|one| slots.take(address(one)).unwrap());
        assert_eq!(slots.take(address("2001:db8:0:0:9::3")).unwrap_err(), NoSlot::ClientFull(2));
        let _others = ["2001:db8:0:1::1", "10.0.0.3"].map(|other| slots.take(address(other)).unwrap());
        first.pop();
        drop(slots.take(address("10.0.0.1")).unwrap());
        let _unix: Vec<_> = (0..2).map(|_| slots.take(None).unwrap()).collect();
        assert_eq!(slots.take(None).unwrap_err(), NoSlot::Full(8));
        drop(first);
        assert!(!slots.counters[0].taken.lock().by_client.contains_key(&address("10.0.0.1").unwrap()));
    }

    #[test]
    fn an_address_may_always_have_one_connection_and_never_more_than_all() {
        let limit = |limit, client_limit| SlotCounter::new(limit, client_limit).client_limit;
        assert_eq!((limit(10_000, None), limit(1, None), limit(3, None)), (2_500, 1, 1));
        assert_eq!((limit(100, Some(40)), limit(100, Some(4_000))), (40, 100));
    }
}
