//! The conversation with one worker: what goes to it, what is read from it, and the memory that both share.
pub(crate) mod area;
pub(crate) mod batches;
pub(crate) mod calls;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod placed_tensors;
pub(crate) mod ranges;
pub(crate) mod readiness;
pub(crate) mod watch;
pub(crate) mod worker_session;
