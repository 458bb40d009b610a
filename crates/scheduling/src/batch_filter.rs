//! What may keep requests apart besides their sizes and shapes: the door for custom batching strategies.

/// A rule about which requests may share a batch, beyond sizes and shapes.
///
/// A batch is always the head of the queue, so the rule can end it early and do no more: it neither reorders requests
/// nor lets a batch grow beyond the other rules.
pub trait BatchFilter<T>: Send {
    /// A batch begins to form. At most one forms at a time.
    fn begin(&self) -> Box<dyn BatchFilterState<T>>;
}

/// A batch that forms. Dropped before the batch leaves, and when the head of the queue is not what it was: then
/// another one begins, and is asked about the same requests again.
///
/// Questions are few: no request is asked about twice as long as the queue only grows at its end, and none after the
/// one that ended the batch. So there are never more than the rows of a batch, and one.
pub trait BatchFilterState<T>: Send {
    /// Whether the next request, which fits by its size and shape, may join those before it. A refusal ends the batch.
    ///
    /// The first request of a batch runs whatever the answer is: refused, it runs alone.
    fn join(&mut self, payload: &T) -> bool;
}
