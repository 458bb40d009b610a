//! Passes on what belongs to iterations in the order of iterations.
use std::collections::BTreeMap;

use crate::{ReorderBuffer, Ticket};

/// Holds items of an iteration back until all earlier iterations are over.
#[derive(Debug)]
pub(super) struct IterationOrder<I> {
    buffer: ReorderBuffer<I>,
    /// The number of the next ticket. The buffer issues tickets in the order of iterations.
    issued: u64,
    /// The tickets of iterations that are not over.
    tickets: BTreeMap<u64, Ticket>,
}

impl<I> IterationOrder<I> {
    pub(super) fn new() -> Self {
        Self { buffer: ReorderBuffer::new(), issued: 0, tickets: BTreeMap::new() }
    }

    /// Adds an item of an iteration that is not over. Passes all items to `release` that may leave now.
    pub(super) fn push(&mut self, iteration: u64, item: I, release: impl FnMut(I)) {
        if let Some(ticket) = self.ticket(iteration) {
            self.buffer.push(ticket, item, false, release);
        }
    }

    /// Ends an iteration. Passes all items to `release` that may leave now.
    pub(super) fn end(&mut self, iteration: u64, release: impl FnMut(I)) {
        if let Some(ticket) = self.ticket(iteration) {
            self.tickets.remove(&iteration);
            self.buffer.close(ticket, release);
        }
    }

    /// The items that wait for earlier iterations.
    pub(super) fn held(&self) -> impl Iterator<Item = &I> {
        self.buffer.held()
    }

    /// The number of entries that take memory.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.buffer.open() + self.tickets.len()
    }

    /// The ticket of an iteration; `None` if the iteration is over.
    fn ticket(&mut self, iteration: u64) -> Option<Ticket> {
        while self.issued <= iteration {
            self.tickets.insert(self.issued, self.buffer.ticket());
            self.issued += 1;
        }
        self.tickets.get(&iteration).copied()
    }
}
