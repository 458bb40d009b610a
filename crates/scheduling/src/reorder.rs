//! Responses leave in the order requests came, whatever order the model answers in (`preserve_ordering`).
use std::collections::VecDeque;

/// A place in the order. Handed out by [`ReorderBuffer::ticket`] and meaningful only there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Holds items back until all items of earlier tickets have left.
///
/// A ticket may have any number of items, none included. It is over when its last item is pushed or when
/// it is [closed](Self::close); a ticket that is never over holds back all later ones for ever, so whoever
/// owns one must end it on every path. Items of the earliest ticket pass straight through.
///
/// What comes out must be delivered before the buffer is used again (under the same lock, if there is
/// one), or the order is lost after all.
#[derive(Debug)]
pub struct ReorderBuffer<I> {
    /// Tickets that are not over, or wait behind one that is not; the first one is never over.
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
    /// Starts with no tickets.
    #[must_use]
    pub fn new() -> Self {
        Self { places: VecDeque::new(), first: 0 }
    }

    /// The next place in the order. Take one per request, when it is dequeued.
    pub fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.first + self.places.len() as u64);
        self.places.push_back(ReorderEntry { held: Vec::new(), over: false });
        ticket
    }

    /// Brings an item, and hands `release` everything that may leave now, in order. `last` says that
    /// nothing more comes for this ticket.
    ///
    /// An item that comes for a ticket that is over is not lost: it leaves with its ticket if that still
    /// waits, and at once otherwise.
    pub fn push(&mut self, ticket: Ticket, item: I, last: bool, mut release: impl FnMut(I)) {
        match self.place(ticket) {
            None | Some((0, _)) => release(item),
            Some((_, place)) => place.held.push(item),
        }
        if last {
            self.close(ticket, release);
        }
    }

    /// Takes back what a ticket holds, because something else is to take its place. What has left stays away.
    pub fn discard(&mut self, ticket: Ticket) -> Vec<I> {
        self.place(ticket).map(|(_, place)| std::mem::take(&mut place.held)).unwrap_or_default()
    }

    /// Ends a ticket, and hands `release` everything that may leave now, in order. Does nothing if the
    /// ticket is over already.
    pub fn close(&mut self, ticket: Ticket, mut release: impl FnMut(I)) {
        let Some((_, place)) = self.place(ticket) else { return };
        place.over = true;
        while self.places.front().is_some_and(|place| place.over) {
            self.places.pop_front();
            self.first += 1;
            // The next one is the earliest now: what it held may leave, over or not.
            if let Some(next) = self.places.front_mut() {
                next.held.drain(..).for_each(&mut release);
            }
        }
    }

    /// How many tickets are not over, or are held back.
    #[must_use]
    pub fn open(&self) -> usize {
        self.places.len()
    }

    /// The place of a ticket that has not left, and how many are before it.
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

    #[test]
    fn what_a_ticket_holds_can_be_taken_back_and_its_place_stays() {
        let mut buffer = ReorderBuffer::new();
        let [first, second] = [(); 2].map(|()| buffer.ticket());
        assert_eq!(push(&mut buffer, second, 'b', false), "");
        assert_eq!(push(&mut buffer, second, 'c', true), "");
        assert_eq!(buffer.discard(second), ['b', 'c']);
        assert_eq!(push(&mut buffer, second, 'x', true), "");
        assert_eq!(push(&mut buffer, first, 'a', true), "ax");
    }
}
