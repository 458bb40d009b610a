//! Permits that clients get in turns: each client with waiting work gets one before any gets its next.
//!
//! A client with much waiting work thus delays others by one permit, not by all its work. The queue has no bound of its
//! own: what waits is a future of its caller, and leaves the queue when that future is dropped.
use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use inference::lock::Mutex;
use tokio::sync::oneshot;

/// A number of permits, and who waits for them.
///
/// Invariant: nobody waits while a permit is free.
#[derive(Debug)]
pub(crate) struct Turns<C: Copy + Eq + Hash> {
    queue: Mutex<TurnQueue<C>>,
}

/// Where a waiter stands: its round, and the order of arrival within a round.
type WaiterPlace = (u64, u64);

#[derive(Debug)]
struct TurnQueue<C: Copy + Eq + Hash> {
    free: usize,
    waiting: BTreeMap<WaiterPlace, (C, oneshot::Sender<Permit<C>>)>,
    /// The clients that wait.
    clients: HashMap<C, ClientPlaces>,
    /// The round of the latest permit that a waiter got.
    round: u64,
    arrivals: u64,
}

/// What is known of a client that waits.
#[derive(Debug)]
struct ClientPlaces {
    waiting: usize,
    /// The round of its latest arrival.
    last_round: u64,
}

/// The right to work. Dropping it gives the right to the next waiter.
#[derive(Debug)]
pub(crate) struct Permit<C: Copy + Eq + Hash>(Option<Arc<Turns<C>>>);

/// Waits for a permit. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct PermitWait<C: Copy + Eq + Hash> {
    turns: Arc<Turns<C>>,
    /// `None`: the permit was free.
    place: Option<WaiterPlace>,
    permit: oneshot::Receiver<Permit<C>>,
}

impl<C: Copy + Eq + Hash> Turns<C> {
    /// A queue with so many free permits, at least one.
    pub(crate) fn new(permits: usize) -> Arc<Self> {
        let queue = TurnQueue {
            free: permits.max(1),
            waiting: BTreeMap::new(),
            clients: HashMap::new(),
            round: 0,
            arrivals: 0,
        };
        Arc::new(Self { queue: Mutex::new(queue) })
    }

    /// Waits for a permit for `client`. The wait has its place from this call on.
    pub(crate) fn wait(self: &Arc<Self>, client: C) -> PermitWait<C> {
        let (sender, permit) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.free > 0 {
            queue.free -= 1;
            drop(queue);
            // The receiver is there.
            let _ = sender.send(Permit(Some(self.clone())));
            return PermitWait { turns: self.clone(), place: None, permit };
        }
        let place = queue.arrive(client, sender);
        PermitWait { turns: self.clone(), place: Some(place), permit }
    }

    /// Gives a permit to the next waiter that still wants it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let Some(next) = self.queue.lock().pop() else { return };
            match next.send(Permit(Some(self.clone()))) {
                Ok(()) => return,
                // The waiter has gone meanwhile. A loop, because a drop for each such waiter could nest deeply.
                Err(mut unwanted) => unwanted.0 = None,
            }
        }
    }
}

impl<C: Copy + Eq + Hash> TurnQueue<C> {
    fn arrive(&mut self, client: C, sender: oneshot::Sender<Permit<C>>) -> WaiterPlace {
        let round = self.round;
        let places = self
            .clients
            .entry(client)
            .and_modify(|places| {
                places.waiting += 1;
                places.last_round += 1;
            })
            .or_insert(ClientPlaces { waiting: 1, last_round: round });
        let place = (places.last_round, self.arrivals);
        self.arrivals += 1;
        self.waiting.insert(place, (client, sender));
        place
    }

    /// The next waiter. If nobody waits, the permit is free.
    fn pop(&mut self) -> Option<oneshot::Sender<Permit<C>>> {
        let Some((&place, _)) = self.waiting.first_key_value() else {
            self.free += 1;
            return None;
        };
        self.round = place.0;
        self.leave(place)
    }

    fn leave(&mut self, place: WaiterPlace) -> Option<oneshot::Sender<Permit<C>>> {
        let (client, sender) = self.waiting.remove(&place)?;
        if let Some(places) = self.clients.get_mut(&client) {
            places.waiting -= 1;
            if places.waiting == 0 {
                self.clients.remove(&client);
            }
        }
        Some(sender)
    }
}

impl<C: Copy + Eq + Hash> Future for PermitWait<C> {
    type Output = Permit<C>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<C>> {
        match Pin::new(&mut self.permit).poll(context) {
            Poll::Ready(Ok(permit)) => Poll::Ready(permit),
            // The sender is in the queue until it sends, and this future owns the queue.
            Poll::Ready(Err(_)) => Poll::Ready(Permit(None)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<C: Copy + Eq + Hash> Drop for PermitWait<C> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        // A waiter that has got its permit has left already. The sender is dropped without the lock.
        let sender = self.turns.queue.lock().leave(place);
        drop(sender);
    }
}

impl<C: Copy + Eq + Hash> Drop for Permit<C> {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    type Waits = Vec<(&'static str, PermitWait<u32>)>;

    /// The name of the only waiter that has got a permit, and the permit.
    fn served(waits: &mut Waits) -> Option<(&'static str, Permit<u32>)> {
        let ready = |(_, wait): &mut (&str, PermitWait<u32>)| wait.now_or_never();
        let (index, permit) =
            waits.iter_mut().enumerate().find_map(|(index, wait)| Some((index, ready(wait)?)))?;
        Some((waits.remove(index).0, permit))
    }

    #[test]
    fn a_client_with_much_work_delays_others_by_one_permit() {
        let turns = Turns::new(1);
        let mut permit = turns.wait(1).now_or_never();
        let mut waits: Waits = ["a1", "a2", "a3", "a4"].map(|name| (name, turns.wait(1))).into();
        waits.push(("b1", turns.wait(2)));
        waits.push(("b2", turns.wait(2)));
        waits.push(("c1", turns.wait(3)));
        let mut order = Vec::new();
        while permit.take().is_some() {
            let Some((name, next)) = served(&mut waits) else { break };
            assert!(served(&mut waits).is_none(), "there is one permit");
            if name == "a2" {
                waits.push(("d1", turns.wait(4)));
            }
            order.push(name);
            permit = Some(next);
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "d1", "a3", "a4"]);
        assert!(turns.wait(1).now_or_never().is_some(), "the permit is free again");
    }

    #[test]
    fn waiters_that_go_leave_nothing_and_lose_no_permit() {
        let turns = Turns::new(1);
        let permit = turns.wait(0).now_or_never().unwrap();
        for client in 0..100_000 {
            drop(turns.wait(client % 7));
        }
        {
            let queue = turns.queue.lock();
            assert_eq!((queue.waiting.len(), queue.clients.len(), queue.free), (0, 0, 0));
        }
        let (first, second) = (turns.wait(1), turns.wait(2));
        drop(permit);
        // The first has got the permit and goes before it looks.
        drop(first);
        assert!(second.now_or_never().is_some());
        assert_eq!(turns.queue.lock().free, 1);
    }

    #[tokio::test]
    async fn all_permits_work_at_the_same_time() {
        let turns = Turns::new(3);
        let permits: Vec<_> = (0..3).map(|_| turns.wait(1).now_or_never().unwrap()).collect();
        let late = turns.wait(2);
        assert_eq!(turns.queue.lock().waiting.len(), 1);
        drop(permits);
        drop(late.await);
        assert_eq!(turns.queue.lock().free, 3);
    }
}
