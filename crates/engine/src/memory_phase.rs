//! The span between what begins and what ends for the allocators.

/// One of the [`MemoryFunctions`](inference::MemoryFunctions) has been told that something begins. It is told of the
/// end when this is dropped, also after a panic, or with the runtime of the task that has it.
pub(crate) struct MemoryPhase(fn(bool));

impl MemoryPhase {
    /// Tells a function that something begins.
    pub(crate) fn begin(function: fn(bool)) -> Self {
        function(true);
        Self(function)
    }
}

impl Drop for MemoryPhase {
    fn drop(&mut self) {
        (self.0)(false);
    }
}
