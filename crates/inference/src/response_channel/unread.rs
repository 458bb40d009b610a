//! Counts the bytes of responses that clients have not read yet, and says whose request must end when they are too
//! many: the largest request of the client with the most unread bytes.
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{AcqRel, Relaxed, SeqCst},
    },
};

use crate::{ClientId, lock::Mutex};

/// Unread bytes of requests, up to a limit. Each request has a handle by which it can be ended.
pub(super) struct UnreadBytes<T> {
    limit: usize,
    used: AtomicUsize,
    ledger: Mutex<UnreadLedger<T>>,
}

impl<T> UnreadBytes<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), ledger: Mutex::default() }
    }

    /// Bytes of unread responses now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Counts `bytes` of a response. If the limit is exceeded, returns the handle of the request that must end.
    pub(super) fn charge(
        &self,
        account: &UnreadAccount,
        bytes: usize,
        handle: impl FnOnce() -> T,
    ) -> Option<T> {
        if bytes == 0 {
            // The end of a stream without a response takes no memory: no other request ends for it.
            return None;
        }
        let before = self.used.fetch_add(bytes, AcqRel);
        let unread = account.add(bytes);
        // One response alone may exceed the limit.
        let exceeded = before > 0 && before.saturating_add(bytes) > self.limit;
        let worth_listing = unread > bytes
            || bytes >= self.limit / LARGE_FRACTION
            || before.saturating_add(bytes) >= self.limit / 2;
        if !exceeded && !worth_listing {
            return None;
        }
        let mut ledger = self.ledger.lock();
        account.list(&mut ledger, handle);
        if exceeded { ledger.take_furthest_behind() } else { None }
    }

    /// Counts the error that replaces the unread responses of a request. The replacement frees more bytes than the
    /// error takes.
    pub(super) fn charge_error(&self, account: &UnreadAccount, bytes: usize) {
        self.used.fetch_add(bytes, AcqRel);
        account.add(bytes);
    }

    /// Removes `bytes` of a response from the count.
    pub(super) fn refund(&self, account: &UnreadAccount, bytes: usize) {
        self.used.fetch_sub(bytes, AcqRel);
        account.subtract(bytes);
        if account.is_listed() {
            account.update(&mut self.ledger.lock());
        }
    }
}

impl<T> fmt::Debug for UnreadBytes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadBytes")
            .field("limit", &self.limit)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// A response larger than this fraction of the budget is listed even if it is the only one of its request. Most
/// requests have one small response, and their clients read it at once. The ledger does not list them while less than
/// half of the budget is in use.
const LARGE_FRACTION: usize = 64;

/// The share of one request in a budget.
#[derive(Debug)]
pub(super) struct UnreadAccount {
    client: ClientId,
    request: u64,
    unread: AtomicUsize,
    listed: AtomicBool,
}

impl UnreadAccount {
    /// An account for a request of `client`. Without an id the request is a client of its own.
    pub(super) fn new(client: Option<ClientId>) -> Self {
        let request = ClientId::unique();
        Self {
            client: client.unwrap_or(request),
            request: request.0,
            unread: AtomicUsize::new(0),
            listed: AtomicBool::new(false),
        }
    }

    fn add(&self, bytes: usize) -> usize {
        self.unread.fetch_add(bytes, SeqCst) + bytes
    }

    fn subtract(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, SeqCst);
    }

    fn is_listed(&self) -> bool {
        self.listed.load(SeqCst)
    }

    /// Adds the request and its unread bytes to the ledger.
    ///
    /// The function sets `listed` before it reads the count, and a refund changes the count before it reads `listed`.
    /// All four accesses are sequentially consistent. So this function sees the refund, or the refund updates the
    /// ledger.
    fn list<T>(&self, ledger: &mut UnreadLedger<T>, handle: impl FnOnce() -> T) {
        self.listed.store(true, SeqCst);
        ledger.set(self.client, self.request, self.unread.load(SeqCst), handle);
    }

    /// Updates the ledger. Removes a request without unread bytes.
    ///
    /// The function reads the count under the ledger's lock. If several threads change the count, the last one sees
    /// the changes of all.
    fn update<T>(&self, ledger: &mut UnreadLedger<T>) {
        let unread = self.unread.load(SeqCst);
        ledger.change(self.client, self.request, unread);
        if unread == 0 {
            self.listed.store(false, SeqCst);
        }
    }
}

/// Pure bookkeeping: the unread bytes of each client and of each of its requests.
#[derive(Debug)]
struct UnreadLedger<T> {
    clients: HashMap<ClientId, Client>,
    /// All clients, ordered by their unread bytes.
    ranking: BTreeSet<(usize, ClientId)>,
    handles: HashMap<u64, T>,
}

#[derive(Debug, Default)]
struct Client {
    unread: usize,
    requests: HashMap<u64, usize>,
    /// The requests of the client, ordered by their unread bytes.
    ranking: BTreeSet<(usize, u64)>,
}

impl<T> Default for UnreadLedger<T> {
    fn default() -> Self {
        Self { clients: HashMap::new(), ranking: BTreeSet::new(), handles: HashMap::new() }
    }
}

impl<T> UnreadLedger<T> {
    /// Adds a request, or changes its unread bytes.
    fn set(&mut self, client: ClientId, request: u64, unread: usize, handle: impl FnOnce() -> T) {
        if unread == 0 {
            return self.change(client, request, 0);
        }
        let entry = self.clients.entry(client).or_default();
        self.ranking.remove(&(entry.unread, client));
        if let Some(before) = entry.requests.insert(request, unread) {
            entry.ranking.remove(&(before, request));
            entry.unread -= before;
        }
        entry.ranking.insert((unread, request));
        entry.unread += unread;
        self.ranking.insert((entry.unread, client));
        self.handles.entry(request).or_insert_with(handle);
    }

    /// Changes the unread bytes of a request, if the ledger contains it. Removes the request if it has none.
    fn change(&mut self, client: ClientId, request: u64, unread: usize) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let Some(before) = entry.requests.get(&request).copied() else { return };
        self.ranking.remove(&(entry.unread, client));
        entry.ranking.remove(&(before, request));
        entry.unread = entry.unread - before + unread;
        if unread == 0 {
            entry.requests.remove(&request);
            self.handles.remove(&request);
        } else {
            entry.requests.insert(request, unread);
            entry.ranking.insert((unread, request));
        }
        if entry.requests.is_empty() {
            self.clients.remove(&client);
        } else {
            self.ranking.insert((entry.unread, client));
        }
    }

    /// Removes the request with the most unread bytes of the client with the most unread bytes.
    fn take_furthest_behind(&mut self) -> Option<T> {
        let &(_, client) = self.ranking.last()?;
        let &(_, request) = self.clients.get(&client)?.ranking.last()?;
        let handle = self.handles.remove(&request);
        self.change(client, request, 0);
        handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ledger: &mut UnreadLedger<u64>, client: u64, request: u64, unread: usize) {
        ledger.set(ClientId(client), request, unread, || request);
    }

    #[test]
    fn the_client_with_the_most_bytes_is_furthest_behind_and_its_largest_request_ends() {
        let mut ledger = UnreadLedger::default();
        set(&mut ledger, 1, 10, 500);
        set(&mut ledger, 2, 20, 300);
        set(&mut ledger, 2, 21, 299);
        assert_eq!(ledger.take_furthest_behind(), Some(20));
        assert_eq!(ledger.take_furthest_behind(), Some(10));
        assert_eq!(ledger.take_furthest_behind(), Some(21));
        assert_eq!(ledger.take_furthest_behind(), None);
        assert!(ledger.clients.is_empty() && ledger.ranking.is_empty() && ledger.handles.is_empty());
    }

    #[test]
    fn a_client_that_reads_is_no_longer_behind() {
        let mut ledger = UnreadLedger::default();
        set(&mut ledger, 1, 10, 500);
        set(&mut ledger, 2, 20, 300);
        ledger.change(ClientId(1), 10, 100);
        set(&mut ledger, 2, 20, 350);
        assert_eq!(ledger.take_furthest_behind(), Some(20));
        ledger.change(ClientId(1), 10, 0);
        assert!(ledger.clients.is_empty() && ledger.ranking.is_empty() && ledger.handles.is_empty());
    }

    #[test]
    fn the_ledger_agrees_with_a_plain_sum_whatever_happens() {
        let mut ledger = UnreadLedger::default();
        let mut plain: HashMap<(u64, u64), usize> = HashMap::new();
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let (client, request, unread) = (random(5), random(4), random(50) as usize);
            set(&mut ledger, client, client * 10 + request, unread);
            plain.insert((client, request), unread);
            if random(9) == 0 {
                let of = |client: u64| -> usize {
                    plain.iter().filter(|((owner, _), _)| *owner == client).map(|(_, unread)| unread).sum()
                };
                let most = (0..5).map(of).max().unwrap_or(0);
                match ledger.take_furthest_behind() {
                    None => assert_eq!(most, 0),
                    Some(request) => {
                        let key = (request / 10, request % 10);
                        assert_eq!(of(key.0), most);
                        plain.insert(key, 0);
                    }
                }
            }
        }
    }
}
