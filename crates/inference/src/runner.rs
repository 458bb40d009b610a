//! Who does the work of a model version.
use std::sync::Arc;

use scheduling::{EntryId, SchedulingAttributes, SequenceId, SequencePosition, Timestamp};
use vocabulary::Error;

use crate::{ResponseOrder, backend::Execution};

/// Does the work of a model version: instances of a backend, the members of an ensemble, or something else.
///
/// A model validates requests, counts them and answers them from its cache. It knows of its runner only this.
pub trait ModelRunner: Send + Sync {
    /// Queues or begins a validated request that came at `queued`. A brief execution may happen before this function
    /// returns, if the thread may execute. Does not block.
    ///
    /// # Errors
    /// Why the runner refuses the request. The request has then been answered with the same error.
    fn enqueue(
        self: Arc<Self>,
        attributes: SchedulingAttributes,
        execution: Box<Execution>,
        queued: Timestamp,
        thread: RunThread,
    ) -> Result<(), Error>;

    /// The client of a request has cancelled it.
    fn cancel(self: Arc<Self>, entry: EntryId);

    /// The order in which requests are answered, if it is that of their arrival. The caller lines a request up that it
    /// may answer before the request is queued.
    fn response_order(&self) -> Option<&Arc<ResponseOrder>> {
        None
    }

    /// The reason why the version cannot be used any more, if there is one.
    fn fault(&self) -> Option<&Error>;

    /// Whether requests can be taken, as the backend reports it. Blocks as long as the backend does.
    fn ready_here(&self) -> bool;

    /// Whether a sequence may still get requests here.
    fn has_sequence(&self, id: &SequenceId) -> bool;

    /// Whether a request with this step of a sequence must come here, because earlier requests of the sequence did.
    fn continues(&self, step: &SequencePosition) -> bool;

    /// The number of sequences that may still get requests here.
    fn live_sequences(&self) -> usize;

    /// From now on, no request waits for others to share its batch. The runner still accepts requests.
    fn end_queue_delay(self: Arc<Self>);

    /// Accepts no new requests. Accepted requests continue.
    fn drain(self: Arc<Self>);

    /// Ends what executes requests, after the last one has ended. Blocks.
    fn close(self: Arc<Self>);
}

/// On which thread a request may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunThread {
    /// The thread that brings the request may execute it, too: it is the client's own, or one of the network.
    CallersMay,
    /// Only the runner's own threads execute it. The thread that brings the request has something else to do: it is the
    /// timer's, it is inside of a plug-in's call, or another client waits for it.
    OnlyOwn,
}
