//! A queue from which elements can be removed at any position, by their serial numbers.
//!
//! A removed element leaves a gap. A run of neighbouring gaps knows its length, so that no operation visits the gaps
//! one by one. The queue closes gaps when they outnumber the elements. A removal thus costs a binary search. Every
//! other operation costs as much as in a plain queue.
use std::collections::VecDeque;

use crate::cost_counter;

/// Elements in the order of their serial numbers.
///
/// Invariant: the first and the last cell hold elements.
#[derive(Debug)]
pub(crate) struct SerialQueue<E> {
    cells: VecDeque<SerialCell<E>>,
    /// The number of cells that hold elements.
    len: usize,
}

#[derive(Debug)]
struct SerialCell<E> {
    serial: u64,
    content: CellContent<E>,
}

#[derive(Debug)]
enum CellContent<E> {
    Element(E),
    /// A gap in a run of gaps. The first and the last gap of a run know the length of the run.
    Gap {
        run: usize,
    },
}

impl<E> SerialCell<E> {
    fn run(&self) -> usize {
        match self.content {
            CellContent::Element(_) => 0,
            CellContent::Gap { run } => run,
        }
    }
}

/// In queues shorter than this, the queue does not close gaps.
const SHORT: usize = 32;

impl<E> SerialQueue<E> {
    pub(crate) fn new() -> Self {
        Self { cells: VecDeque::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an element at the end. Serial numbers must increase.
    pub(crate) fn push(&mut self, serial: u64, element: E) {
        debug_assert!(self.cells.back().is_none_or(|last| last.serial < serial), "serial numbers rise");
        self.cells.push_back(SerialCell { serial, content: CellContent::Element(element) });
        self.len += 1;
    }

    /// Removes the first element.
    pub(crate) fn pop(&mut self) -> Option<E> {
        let first = self.cells.pop_front()?;
        self.len -= 1;
        self.drop_gaps_at_front();
        match first.content {
            CellContent::Element(element) => Some(element),
            CellContent::Gap { .. } => unreachable!("the first cell holds an element"),
        }
    }

    /// Removes the element with that number, if the queue contains it.
    pub(crate) fn remove(&mut self, serial: u64) -> Option<E> {
        let index = self.find(serial)?;
        let cell = self.cells.get_mut(index)?;
        let element = match std::mem::replace(&mut cell.content, CellContent::Gap { run: 1 }) {
            CellContent::Element(element) => element,
            gap @ CellContent::Gap { .. } => {
                cell.content = gap;
                return None;
            }
        };
        self.len -= 1;
        if index == 0 {
            self.drop_gaps_at_front();
        } else if index + 1 == self.cells.len() {
            self.drop_gaps_at_back();
        } else {
            self.join_gaps(index);
            self.close_gaps();
        }
        Some(element)
    }

    /// The first element.
    pub(crate) fn front(&self) -> Option<&E> {
        self.iter().next()
    }

    /// The last element.
    pub(crate) fn back(&self) -> Option<&E> {
        match &self.cells.back()?.content {
            CellContent::Element(element) => Some(element),
            CellContent::Gap { .. } => unreachable!("the last cell holds an element"),
        }
    }

    /// The elements in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.numbered().map(|(_, element)| element)
    }

    /// The elements in order, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &E)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            loop {
                let cell = self.cells.get(next)?;
                cost_counter::count();
                match &cell.content {
                    CellContent::Element(element) => {
                        next += 1;
                        return Some((cell.serial, element));
                    }
                    CellContent::Gap { run } => next += run,
                }
            }
        })
    }

    /// Removes all elements.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = E> + use<E> {
        let cells = std::mem::take(&mut self.cells);
        self.len = 0;
        cells.into_iter().filter_map(|cell| match cell.content {
            CellContent::Element(element) => Some(element),
            CellContent::Gap { .. } => None,
        })
    }

    fn find(&self, serial: u64) -> Option<usize> {
        let compare = |cell: &SerialCell<E>| {
            cost_counter::count();
            cell.serial.cmp(&serial)
        };
        self.cells.binary_search_by(compare).ok()
    }

    fn drop_gaps_at_front(&mut self) {
        while self.cells.front().is_some_and(|cell| cell.run() > 0) {
            cost_counter::count();
            self.cells.pop_front();
        }
    }

    fn drop_gaps_at_back(&mut self) {
        while self.cells.back().is_some_and(|cell| cell.run() > 0) {
            cost_counter::count();
            self.cells.pop_back();
        }
    }

    /// Joins a new gap and the gaps beside it into one run.
    fn join_gaps(&mut self, index: usize) {
        let run_at = |index: usize| self.cells.get(index).map_or(0, SerialCell::run);
        let (before, after) = (run_at(index - 1), run_at(index + 1));
        let run = before + 1 + after;
        for end in [index - before, index + after] {
            if let Some(cell) = self.cells.get_mut(end) {
                cell.content = CellContent::Gap { run };
            }
        }
    }

    fn close_gaps(&mut self) {
        if self.cells.len() <= SHORT || self.cells.len() <= 2 * self.len {
            return;
        }
        self.cells.retain(|cell| {
            cost_counter::count();
            cell.run() == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_removed_is_not_there_any_more() {
        let mut queue = SerialQueue::new();
        for (serial, element) in [(2, 'a'), (3, 'b'), (5, 'c'), (9, 'd'), (10, 'e')] {
            queue.push(serial, element);
        }
        assert_eq!(queue.remove(4), None);
        assert_eq!(queue.remove(5), Some('c'));
        assert_eq!(queue.remove(5), None);
        assert_eq!(queue.remove(3), Some('b'));
        assert_eq!(queue.iter().collect::<String>(), "ade");
        assert_eq!(queue.remove(2), Some('a'));
        assert_eq!((queue.front(), queue.back(), queue.len()), (Some(&'d'), Some(&'e'), 2));
        assert_eq!(queue.remove(10), Some('e'));
        assert_eq!((queue.pop(), queue.pop(), queue.is_empty()), (Some('d'), None, true));
    }

    #[test]
    fn it_is_a_map_that_is_popped_at_its_front() {
        let mut seed = 1_u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let (mut queue, mut plain) = (SerialQueue::new(), BTreeMap::new());
        let mut serial = 0;
        for step in 0..40_000 {
            // The queue grows for a while, and then shrinks.
            let growing = (step / 5_000) % 2 == 0;
            match random(10) {
                choice if choice < if growing { 6 } else { 2 } => {
                    serial += 1 + random(2);
                    queue.push(serial, step);
                    plain.insert(serial, step);
                }
                0..9 => {
                    let chosen = random(serial + 1);
                    assert_eq!(queue.remove(chosen), plain.remove(&chosen));
                }
                _ => assert_eq!(queue.pop(), plain.pop_first().map(|(_, element)| element)),
            }
            assert_eq!(queue.len(), plain.len());
            assert_eq!(queue.back(), plain.last_key_value().map(|(_, element)| element));
            if step % 97 == 0 {
                assert!(queue.iter().eq(plain.values()));
                assert!(queue.cells.len() <= SHORT.max(2 * queue.len()));
            }
        }
        assert!(queue.take_all().eq(plain.into_values()));
        assert!(queue.is_empty());
    }

    #[test]
    fn gaps_are_skipped_in_one_step() {
        let mut queue = SerialQueue::new();
        for serial in 0..10_000 {
            queue.push(serial, ());
        }
        let cost = cost_counter::of(|| {
            for serial in 1..4_000 {
                queue.remove(serial);
                assert_eq!(queue.iter().take(2).count(), 2);
            }
        });
        assert!(cost < 4_000 * 24, "{cost} steps");
    }
}
