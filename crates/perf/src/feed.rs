//! Which request a caller sends next: requests in turn, or the requests of its sequence.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::sequences::{OpenSequence, PlannedPosition, SequenceSource};

/// What all callers share.
pub(crate) struct SharedFeed {
    request_count: usize,
    turn: Cell<usize>,
    /// `None`: requests are not part of sequences.
    sequences: Option<RefCell<SequenceSource>>,
}

impl SharedFeed {
    pub(crate) fn new(request_count: usize, sequences: Option<SequenceSource>) -> Rc<SharedFeed> {
        Rc::new(SharedFeed { request_count, turn: Cell::new(0), sequences: sequences.map(RefCell::new) })
    }
}

/// The feed of one caller.
pub(crate) struct CallerFeed {
    shared: Rc<SharedFeed>,
    open: Option<OpenSequence>,
}

/// A request to send: its index, and its place in a sequence.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) struct NextRequest {
    pub(crate) index: usize,
    pub(crate) position: Option<PlannedPosition>,
}

impl CallerFeed {
    pub(crate) fn new(shared: Rc<SharedFeed>) -> CallerFeed {
        CallerFeed { shared, open: None }
    }

    /// The next request. Begins a sequence if none is open.
    pub(crate) fn next(&mut self) -> NextRequest {
        let Some(sequences) = &self.shared.sequences else {
            let index = self.shared.turn.get();
            self.shared.turn.set((index + 1) % self.shared.request_count);
            return NextRequest { index, position: None };
        };
        let mut sequences = sequences.borrow_mut();
        loop {
            let open = self.open.get_or_insert_with(|| sequences.begin());
            if let Some((index, position)) = sequences.next(open) {
                return NextRequest { index, position: Some(position) };
            }
            sequences.close(open);
            self.open = None;
        }
    }

    /// Forgets the open sequence, because one of its requests failed.
    pub(crate) fn abandon(&mut self) {
        if let (Some(open), Some(sequences)) = (self.open.take(), &self.shared.sequences) {
            sequences.borrow_mut().close(&open);
        }
    }

    /// The request that ends the open sequence early. `None` if no sequence is open at the server.
    pub(crate) fn last(&mut self) -> Option<NextRequest> {
        let mut sequences = self.shared.sequences.as_ref()?.borrow_mut();
        let (index, position) = sequences.cut(self.open.as_mut()?)?;
        Some(NextRequest { index, position: Some(position) })
    }
}

impl Drop for CallerFeed {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SequenceOptions;

    #[test]
    fn callers_take_requests_in_turn() {
        let shared = SharedFeed::new(3, None);
        let mut callers = [CallerFeed::new(shared.clone()), CallerFeed::new(shared)];
        let indexes: Vec<usize> = (0..5).map(|turn| callers[turn % 2].next().index).collect();
        assert_eq!(indexes, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn each_caller_has_a_sequence_of_its_own() {
        let options = SequenceOptions {
            of_one_request: false,
            length: Some(2),
            variation: 0.0,
            first_id: 1,
            end_id: None,
            count: 4,
            header: None,
        };
        let sequences = SequenceSource::new(&options, vec![vec![0]], false, 1, 2).unwrap();
        let shared = SharedFeed::new(1, Some(sequences));
        let (mut first, mut second) = (CallerFeed::new(shared.clone()), CallerFeed::new(shared));
        let ids = [&mut first, &mut second].map(|feed| feed.next().position.unwrap().id);
        assert_eq!(ids, [1, 2]);
        assert!(first.next().position.unwrap().end);
        let next = first.next().position.unwrap();
        assert_eq!((next.id, next.start), (3, true));
        second.abandon();
        assert_eq!(second.last(), None);
        assert!(first.last().unwrap().position.unwrap().end);
        assert_eq!(first.last(), None);
    }
}
