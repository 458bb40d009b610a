//! Limits the number of connections: on one port, on several ports together, and from one address.
use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use inference::lock::Mutex;

/// A limit, and the number of its permits in use. Several ports may share one counter.
///
/// Invariant: `taken.all` is the number of live `ConnectionPermit`s of this counter, and each number of `taken.by_client` that
/// of its client.
#[derive(Debug)]
pub struct ConnectionCounter {
    taken: Mutex<TakenPermits>,
    limit: usize,
    /// The limit for each client that has an address. At most `limit`.
    client_limit: usize,
}

#[derive(Debug, Default)]
struct TakenPermits {
    all: usize,
    /// The clients with a permit. Empty if only `limit` limits them.
    by_client: HashMap<IpAddr, usize>,
}

/// The connections that one port may have. Each connection takes a permit of every counter of the port.
#[derive(Debug, Clone)]
pub struct ConnectionPermits {
    counters: Arc<[Arc<ConnectionCounter>]>,
}

/// Counts one connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    counters: Arc<[Arc<ConnectionCounter>]>,
    client: Option<IpAddr>,
}

/// Why there is no permit for a connection. Its display is the text for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// There are so many connections.
    Full(usize),
    /// The address of the client has so many connections.
    ClientFull(usize),
    /// The process may not open more files.
    NoDescriptor,
}

impl fmt::Display for NoPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(limit) => write!(f, "the server has reached its limit of {limit} connections"),
            Self::ClientFull(limit) => {
                write!(f, "the server has reached its limit of {limit} connections from one address")
            }
            Self::NoDescriptor => f.write_str("the server has reached its limit of open files"),
        }
    }
}

impl ConnectionCounter {
    /// A counter that permits `limit` connections at the same time, and `client_limit` from one address. `None`: a quarter
    /// of `limit`, and at least one.
    pub fn new(limit: usize, client_limit: Option<usize>) -> Arc<Self> {
        let client_limit = client_limit.unwrap_or(limit / 4).max(1).min(limit);
        Arc::new(Self { taken: Mutex::default(), limit, client_limit })
    }

    fn take(&self, client: Option<IpAddr>) -> Result<(), NoPermit> {
        let mut taken = self.taken.lock();
        if taken.all >= self.limit {
            return Err(NoPermit::Full(self.limit));
        }
        if let Some(client) = client.filter(|_| self.limits_clients()) {
            let of_client = taken.by_client.entry(client).or_default();
            if *of_client >= self.client_limit {
                return Err(NoPermit::ClientFull(self.client_limit));
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

impl ConnectionPermits {
    /// The permits of a port. Each connection takes a permit of each of `counters`.
    pub fn new(counters: impl IntoIterator<Item = Arc<ConnectionCounter>>) -> Self {
        Self { counters: counters.into_iter().collect() }
    }

    /// Any number of connections.
    pub fn unlimited() -> Self {
        Self::new([])
    }

    /// How many more connections the port may have now, whoever their clients are.
    pub(super) fn free(&self) -> usize {
        let free = |counter: &Arc<ConnectionCounter>| counter.limit.saturating_sub(counter.taken.lock().all);
        self.counters.iter().map(free).min().unwrap_or(usize::MAX)
    }

    /// Takes a permit for one more connection. A client without an address, on a unix socket, has no limit of its own.
    ///
    /// # Errors
    /// All permits of a counter are taken, or all that the client may have.
    pub(crate) fn take(&self, address: Option<IpAddr>) -> Result<ConnectionPermit, NoPermit> {
        let client = address.map(client_of);
        for (index, counter) in self.counters.iter().enumerate() {
            if let Err(no_permit) = counter.take(client) {
                self.counters[..index].iter().for_each(|taken| taken.give_back(client));
                return Err(no_permit);
            }
        }
        Ok(ConnectionPermit { counters: self.counters.clone(), client })
    }
}

impl Drop for ConnectionPermit {
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
    fn counter(limit: usize) -> Arc<ConnectionCounter> {
        ConnectionCounter::new(limit, Some(limit))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_connection_counts_for_its_port_and_for_all_ports_together() {
        let total = counter(3);
        let http = ConnectionPermits::new([counter(2), total.clone()]);
        let grpc = ConnectionPermits::new([counter(9), total.clone()]);
        let first = http.take(None).unwrap();
        let _second = http.take(None).unwrap();
        assert_eq!(http.take(None).unwrap_err(), NoPermit::Full(2));
        let _third = grpc.take(None).unwrap();
        assert_eq!(grpc.take(None).unwrap_err(), NoPermit::Full(3), "what all ports share is used up");
        drop(first);
        let _fourth = grpc.take(None).unwrap();
        assert_eq!(http.take(None).unwrap_err(), NoPermit::Full(3));
        assert_eq!(http.counters[0].taken.lock().all, 1, "a refused connection counts nowhere");
    }

    #[test]
    fn without_counters_there_is_no_limit() {
        let permits = ConnectionPermits::unlimited();
        let taken: Vec<_> = (0..1000).map(|_| permits.take(address("10.0.0.1")).unwrap()).collect();
        assert_eq!(taken.len(), 1000);
    }

    #[test]
    fn one_address_leaves_permits_to_others() {
        let permits = ConnectionPermits::new([ConnectionCounter::new(8, None)]);
        let mut first: Vec<_> = (0..2).map(|_| permits.take(address("10.0.0.1")).unwrap()).collect();
        for same in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(permits.take(address(same)).unwrap_err(), NoPermit::ClientFull(2), "{same}");
        }
        let _other = permits.take(address("10.0.0.2")).unwrap();
        let _v6 = ["2001:db8::1", "2001:db8::2"].map(|one| permits.take(address(one)).unwrap());
        assert_eq!(permits.take(address("2001:db8:0:0:9::3")).unwrap_err(), NoPermit::ClientFull(2));
        let _others = ["2001:db8:0:1::1", "10.0.0.3"].map(|other| permits.take(address(other)).unwrap());
        first.pop();
        drop(permits.take(address("10.0.0.1")).unwrap());
        let _unix: Vec<_> = (0..2).map(|_| permits.take(None).unwrap()).collect();
        assert_eq!(permits.take(None).unwrap_err(), NoPermit::Full(8));
        drop(first);
        assert!(!permits.counters[0].taken.lock().by_client.contains_key(&address("10.0.0.1").unwrap()));
    }

    #[test]
    fn an_address_may_always_have_one_connection_and_never_more_than_all() {
        let limit = |limit, client_limit| ConnectionCounter::new(limit, client_limit).client_limit;
        assert_eq!((limit(10_000, None), limit(1, None), limit(3, None)), (2_500, 1, 1));
        assert_eq!((limit(100, Some(40)), limit(100, Some(4_000))), (40, 100));
    }
}
