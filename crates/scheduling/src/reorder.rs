//! Sends responses in the order of the requests, whatever the order of the model's responses (`preserve_ordering`).
use std::collections::VecDeque;

/// A position in the order. [`ReorderBuffer::ticket`] issues it. It has a meaning only in that buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Holds items back until all items of earlier tickets have left.
///
/// A ticket may have any number of items, or none. A ticket is over when its last item is pushed or when the caller
/// [closes](Self::close) it. A ticket that is never over blocks all later tickets for ever, so its owner must end it
/// on every path. Items of the earliest ticket leave at once.
///
/// The caller must deliver the released items before it uses the buffer again (under the same lock, if there is one).
/// Otherwise the order is lost.
#[derive(Debug)]
pub struct ReorderBuffer<I> {
    /// Tickets that are not over, or that wait behind such a ticket. The first one is never over.
    places: VecDeque<ReorderEntry<I>>,
    /// The number of the first of `places`.
    first: u64,
}

#[derive(Debug)]
struct ReorderEntry<I> {
    held: Vec<I>,
    over: bool,
}

impl<I> ReorderBuffer<I> {
    /// Starts without tickets.
    #[must_use]
    pub fn new() -> Self {
        Self { places: VecDeque::new(), first: 0 }
    }

    /// Returns the next position in the order. Take one ticket for each request, when the request leaves its queue.
    pub fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.first + self.places.len() as u64);
        self.places.push_back(ReorderEntry { held: Vec::new(), over: false });
        ticket
    }

    /// Adds an item, and passes every item that may leave now to `release`, in order. `last` means that the ticket
    /// gets no further item.
    ///
    /// An item for a ticket that is already over is not lost. If the ticket still waits, the item leaves with it.
    /// Otherwise the item leaves at once.
    pub fn push(&mut self, ticket: Ticket, item: I, last: bool, mut release: impl FnMut(I)) {
        match self.place(ticket) {
            None | Some((0, _)) => release(item),
            Some((_, place)) => place.held.push(item),
        }
        if last {
            self.close(ticket, release);
        }
    }

    /// Ends a ticket, and passes every item that may leave now to `release`, in order. Does nothing if the ticket is
    /// already over.
    pub fn close(&mut self, ticket: Ticket, mut release: impl FnMut(I)) {
        let Some((_, place)) = self.place(ticket) else { return };
        place.over = true;
        while self.places.front().is_some_and(|place| place.over) {
            self.places.pop_front();
            self.first += 1;
            // The next ticket is now the earliest. Its items may leave, whether it is over or not.
            if let Some(next) = self.places.front_mut() {
                next.held.drain(..).for_each(&mut release);
            }
        }
    }

    /// The number of tickets that are not over, or that wait for an earlier ticket.
    #[must_use]
    pub fn open(&self) -> usize {
        self.places.len()
    }

    /// The items that wait for earlier tickets, in order.
    pub(crate) fn held(&self) -> impl Iterator<Item = &I> {
        self.places.iter().flat_map(|place| &place.held)
    }

    /// The entry of a ticket that has not left, and the number of entries before it.
    fn place(&mut self, ticket: Ticket) -> Option<(usize, &mut ReorderEntry<I>)> {
        let index = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        self.places.get_mut(index).map(|place| (index, place))
    }
}

impl<I> Default for ReorderBuffer<I> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffer: &mut ReorderBuffer<char>, ticket: Ticket, item: char, last: bool) -> String {
        let mut released = String::new();
        buffer.push(ticket, item, last, |item| released.push(item));
        released
    }

    fn close(buffer: &mut ReorderBuffer<char>, ticket: Ticket) -> String {
        let mut released = String::new();
        buffer.close(ticket, |item| released.push(item));
        released
    }

    #[test]
    fn a_response_waits_for_those_of_earlier_requests() {
        let mut buffer = ReorderBuffer::new();
        let [first, second, third] = [(); 3].map(|()| buffer.ticket());
        assert_eq!(push(&mut buffer, third, 'c', true), "");
        assert_eq!(push(&mut buffer, second, 'b', true), "");
        assert_eq!(push(&mut buffer, first, 'a', true), "abc");
        assert_eq!(buffer.open(), 0);
    }

    #[test]
    fn many_responses_of_one_request_pass_as_soon_as_it_is_their_turn() {
        let mut buffer = ReorderBuffer::new();
        let [first, second] = [(); 2].map(|()| buffer.ticket());
        assert_eq!(push(&mut buffer, second, 'x', false), "");
        assert_eq!(push(&mut buffer, first, 'a', false), "a");
        assert_eq!(push(&mut buffer, first, 'b', false), "b");
        assert_eq!(push(&mut buffer, first, 'c', true), "cx");
        assert_eq!(push(&mut buffer, second, 'y', false), "y");
        assert_eq!(push(&mut buffer, second, 'z', true), "z");
        assert_eq!(buffer.open(), 0);
    }

    #[test]
    fn a_request_without_responses_does_not_hold_up_the_others() {
        let mut buffer = ReorderBuffer::new();
        let [first, second, third] = [(); 3].map(|()| buffer.ticket());
        assert_eq!(push(&mut buffer, third, 'c', true), "");
        assert_eq!(close(&mut buffer, second), "");
        assert_eq!(close(&mut buffer, first), "c");
    }

    #[test]
    fn ending_a_ticket_twice_does_nothing() {
        let mut buffer = ReorderBuffer::new();
        let [first, second] = [(); 2].map(|()| buffer.ticket());
        assert_eq!(push(&mut buffer, first, 'a', true), "a");
        assert_eq!(close(&mut buffer, first), "");
        assert_eq!(buffer.open(), 1);
        assert_eq!(push(&mut buffer, second, 'b', true), "b");
    }

    #[test]
    fn an_item_that_comes_too_late_is_not_lost() {
        let mut buffer = ReorderBuffer::new();
        let [first, second] = [(); 2].map(|()| buffer.ticket());
        assert_eq!(close(&mut buffer, second), "");
        assert_eq!(push(&mut buffer, second, 'b', false), "");
        assert_eq!(push(&mut buffer, first, 'a', true), "ab");
        assert_eq!(push(&mut buffer, second, 'c', true), "c");
        assert_eq!(buffer.open(), 0);
    }
}
