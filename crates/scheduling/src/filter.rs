//! The extension point for custom batching strategies.

/// Decides which requests may share a batch, beyond sizes and shapes.
///
/// A batch is always the head of the queue, so a filter can end it early and do no more: it neither reorders requests
/// nor lets a batch grow beyond the other rules. At most one batch is under construction at a time.
pub trait BatchFilter<T>: Send {
    /// Whether the next request, which fits by its size and shape, may join those admitted since the last
    /// [`reset`](Self::reset). A refusal ends the batch.
    ///
    /// The first request of a batch runs whatever the answer is: refused, it runs alone.
    ///
    /// Questions are few: no request is asked about twice as long as the queue only grows at its end, and none after the
    /// one that ended the batch. So between two resets there are never more than the rows of a batch, and one.
    fn admit(&mut self, payload: &T) -> bool;

    /// The batch under construction is over: it leaves, or the head of the queue has changed. The next request that the
    /// filter is asked about is the first of another batch, and may be one that the filter has seen before.
    fn reset(&mut self);
}
