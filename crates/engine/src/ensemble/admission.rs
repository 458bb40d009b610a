//! How many requests of an ensemble run at a time, so that the tensors between its steps stay within a limit.
//!
//! A request that begins has no intermediate tensors yet, and nobody knows how many it will have. So each request is
//! charged with what earlier requests had at most, and before the first one has ended with a guess. A request that has
//! more is charged with what it has. A request begins if the charges leave room for it, or if none is running. The
//! others wait in their order.
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use inference::lock::Mutex;
use tokio::sync::oneshot;

/// What a request is expected to hold before the first one has ended, in bytes.
const GUESS: usize = 1 << 20;

/// Which requests may begin.
pub(super) struct Admission {
    /// Bytes of intermediate tensors of all requests.
    limit: usize,
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    running: usize,
    /// The charges of all running requests, in bytes.
    charged: usize,
    /// What a request is expected to hold at most, in bytes; `None` before a request has ended.
    expected: Option<usize>,
    /// Those that wait, by their numbers, which follow their order.
    waiting: BTreeMap<u64, oneshot::Sender<Arc<Admitted>>>,
    next_number: u64,
}

impl AdmissionState {
    /// The charge of another request, if it may begin.
    fn admit(&mut self, limit: usize) -> Option<usize> {
        let charge = self.expected.unwrap_or(GUESS);
        if self.running > 0 && self.charged.saturating_add(charge) > limit {
            return None;
        }
        self.running += 1;
        self.charged += charge;
        Some(charge)
    }

    /// A request of that charge has ended. It held `most` bytes at most.
    fn ended(&mut self, charge: usize, most: usize) {
        self.running -= 1;
        self.charged -= charge;
        // A large request is remembered for a while.
        let remembered = self.expected.map_or(0, |expected| expected - expected / 8);
        self.expected = Some(most.max(remembered));
    }
}

impl Admission {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The number of requests that wait to begin.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Whether running requests hold as much as they may.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().charged >= self.limit
    }

    /// Admits a request, or tells it later.
    ///
    /// # Errors
    /// The future gives the admission. A request that drops it does not wait any more.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Arc<Admitted>, AwaitedAdmission> {
        let mut state = self.state.lock();
        if state.waiting.is_empty()
            && let Some(charge) = state.admit(self.limit)
        {
            return Ok(self.admitted(charge));
        }
        let (sender, receiver) = oneshot::channel();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.insert(number, sender);
        Err(AwaitedAdmission { admission: self.clone(), number, receiver })
    }

    fn admitted(self: &Arc<Self>, charge: usize) -> Arc<Admitted> {
        let charge = AtomicUsize::new(charge);
        Arc::new(Admitted {
            admission: self.clone(),
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            charge,
            is_void: AtomicBool::new(false),
        })
    }

    fn ended(self: &Arc<Self>, charge: usize, most: usize) {
        self.state.lock().ended(charge, most);
        loop {
            let mut state = self.state.lock();
            if state.waiting.is_empty() {
                return;
            }
            let Some(charge) = state.admit(self.limit) else { return };
            let next = state.waiting.pop_first();
            drop(state);
            let refused = next.and_then(|(_, next)| next.send(self.admitted(charge)).err());
            // The request has just given up. Its admission is taken back here, and not by a drop inside of this one: so
            // the next one's turn comes in this loop.
            if let Some(admitted) = refused {
                admitted.is_void.store(true, Relaxed);
                let mut state = self.state.lock();
                state.running -= 1;
                state.charged -= charge;
            }
        }
    }
}

/// The admission of a request that waits. Dropping it gives up the place.
pub(super) struct AwaitedAdmission {
    admission: Arc<Admission>,
    number: u64,
    receiver: oneshot::Receiver<Arc<Admitted>>,
}

impl Future for AwaitedAdmission {
    /// `None` if the ensemble has ended.
    type Output = Option<Arc<Admitted>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(Result::ok)
    }
}

impl Drop for AwaitedAdmission {
    fn drop(&mut self) {
        let place = self.admission.state.lock().waiting.remove(&self.number);
        // Its receiver is dropped after this. Without the lock: that may give an admission back.
        drop(place);
    }
}

/// A running request. Its admission ends when the request and all its tensors have been dropped.
pub(super) struct Admitted {
    admission: Arc<Admission>,
    held: AtomicUsize,
    most: AtomicUsize,
    /// Grows only under the lock of the admission.
    charge: AtomicUsize,
    /// Nobody has got it, and its charge was taken back.
    is_void: AtomicBool,
}

impl Admitted {
    /// Counts bytes of intermediate tensors, until they are dropped.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Arc<HeldBytes> {
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        self.most.fetch_max(held, Relaxed);
        if held > self.charge.load(Relaxed) {
            let mut state = self.admission.state.lock();
            let charge = self.charge.fetch_max(held, Relaxed);
            if held > charge {
                state.charged += held - charge;
                state.expected = Some(state.expected.unwrap_or_default().max(held));
            }
        }
        Arc::new(HeldBytes { admitted: self.clone(), bytes })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !*self.is_void.get_mut() {
            self.admission.ended(*self.charge.get_mut(), *self.most.get_mut());
        }
    }
}

/// Bytes of intermediate tensors.
pub(super) struct HeldBytes {
    admitted: Arc<Admitted>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.admitted.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(admission: &Arc<Admission>) -> Arc<Admitted> {
        admission.admit().unwrap_or_else(|_| panic!("there is room"))
    }

    #[test]
    fn the_first_request_shows_how_many_fit() {
        let admission = Arc::new(Admission::new(100));
        let first = begin(&admission);
        let mut waiting: Vec<_> = (0..5).map(|_| admission.admit().err().unwrap()).collect();
        assert_eq!(admission.waiting(), 5);
        drop(first.hold(30));
        drop(first);
        // Three requests of 30 bytes fit.
        let admitted: Vec<_> =
            waiting.iter_mut().filter_map(|waiting| waiting.receiver.try_recv().ok()).collect();
        assert_eq!((admitted.len(), admission.waiting()), (3, 2));
    }

    #[test]
    fn a_request_that_does_not_wait_any_more_leaves_its_turn_to_the_next() {
        let admission = Arc::new(Admission::new(10));
        let first = begin(&admission);
        let (gone, mut stays) = (admission.admit().err().unwrap(), admission.admit().err().unwrap());
        drop(gone);
        drop(first.hold(10));
        drop(first);
        assert!(stays.receiver.try_recv().is_ok());
        assert_eq!(admission.waiting(), 0);
    }

    /// Each dead request used to nest one drop in another.
    #[test]
    fn a_million_requests_that_have_given_up_need_no_stack_and_no_memory() {
        let test = || {
            let admission = Arc::new(Admission::new(10));
            let first = begin(&admission);
            let waiting: Vec<_> = (0..1_000_000).map(|_| admission.admit().err().unwrap()).collect();
            let mut last = admission.admit().err().unwrap();
            assert_eq!(admission.waiting(), 1_000_001);
            drop(waiting);
            assert_eq!((admission.waiting(), admission.state.lock().waiting.len()), (1, 1));
            drop(first);
            assert!(last.receiver.try_recv().is_ok());
        };
        std::thread::Builder::new().stack_size(128 << 10).spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn requests_that_give_up_while_they_are_admitted_leave_their_turns_in_a_loop() {
        let test = || {
            let admission = Arc::new(Admission::new(10));
            let first = begin(&admission);
            // As if each had been dropped after the loop took its sender.
            for number in 0..100_000 {
                admission.state.lock().waiting.insert(number, oneshot::channel().0);
            }
            admission.state.lock().next_number = 100_000;
            let mut last = admission.admit().err().unwrap();
            drop(first);
            assert!(last.receiver.try_recv().is_ok());
            let state = admission.state.lock();
            assert_eq!((state.running, state.charged), (0, 0));
        };
        std::thread::Builder::new().stack_size(128 << 10).spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn a_request_that_holds_more_than_expected_is_charged_with_it() {
        let admission = Arc::new(Admission::new(100));
        drop(begin(&admission));
        let (one, two) = (begin(&admission), begin(&admission));
        let held = one.hold(90);
        assert!(admission.admit().is_err() && !admission.is_full());
        let more = two.hold(10);
        assert!(admission.is_full());
        drop((held, more, one, two));
        assert_eq!(admission.state.lock().charged, 0);
    }

    #[test]
    fn tensors_that_outlive_their_request_keep_its_charge() {
        let admission = Arc::new(Admission::new(10));
        let first = begin(&admission);
        let held = first.hold(10);
        drop(first);
        let mut waiting = admission.admit().err().unwrap();
        assert!(waiting.receiver.try_recv().is_err());
        drop(held);
        assert!(waiting.receiver.try_recv().is_ok());
    }
}
