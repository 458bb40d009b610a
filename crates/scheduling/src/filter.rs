//! The extension point for custom batching strategies.

/// Decides which requests may share a batch, in addition to the rules on sizes and shapes.
///
/// A batch is always the head of the queue. A filter can only end a batch early: it cannot reorder requests, and a
/// batch cannot exceed the other rules. At most one batch is under construction at a time.
pub trait BatchFilter<T>: Send {
    /// Whether the next request may join the requests admitted since the last [`reset`](Self::reset). The request
    /// already fits by its size and shape. A refusal ends the batch.
    ///
    /// The first request of a batch runs whatever the filter returns. If the filter refuses it, it runs alone.
    ///
    /// The batcher calls this method rarely. While the queue only grows at its end, the batcher asks about each
    /// request at most once. After a refusal it asks about no further request. Between two resets it therefore makes
    /// at most as many calls as a batch has rows, and one more.
    fn admit(&mut self, payload: &T) -> bool;

    /// Ends the batch under construction: the batch leaves, or the head of the queue has changed. The next call to
    /// [`admit`](Self::admit) is about the first request of another batch. The filter may have seen that request
    /// before.
    fn reset(&mut self);
}
