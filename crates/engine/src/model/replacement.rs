//! Which copy of a model takes a request while one copy replaces another.
//!
//! A caller looks a copy up and then sends it a request. In between, the copy may have been replaced. The model is then
//! looked up again. A request of a running sequence goes to the copy that has the sequence's state, as long as that
//! copy waits for its sequences (M-W24).
use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use arc_swap::ArcSwap;
use inference::{Error, Request, ResponseStream, SequenceId, config::Scheduling};

use super::Model;

/// The other copies of a model version that a copy knows.
#[derive(Default)]
pub(super) struct Replacement {
    /// The server stops: no other copy will take a late request.
    server_stops: AtomicBool,
    /// Copies that wait for their sequences. They end before the repository forgets them.
    previous: ArcSwap<Vec<Weak<Model>>>,
    /// Another copy has replaced this one, which takes only requests of the sequences that it has.
    is_replaced: AtomicBool,
    /// Other copies leave requests of its sequences to this copy.
    waits_for_sequences: AtomicBool,
}

impl Model {
    /// Whether this copy takes only requests of the sequences that it has, and this request is none.
    pub(super) fn leaves_to_others(&self, request: &Request) -> bool {
        self.replacement.is_replaced.load(SeqCst) && !self.continues(request)
    }

    /// The copy that must get a request because of its sequence, if it is another one.
    pub(super) fn previous_copy_for(&self, request: &Request) -> Option<Arc<Self>> {
        request.sequence.id.as_ref()?;
        if self.replacement.previous.load().is_empty() || self.continues(request) {
            return None;
        }
        self.waiting_copy(|copy| copy.continues(request))
    }

    /// A copy before this one that waits for its sequences. One that waits no more may have closed, and would send requests
    /// back.
    fn waiting_copy(&self, fits: impl Fn(&Self) -> bool) -> Option<Arc<Self>> {
        let previous = self.replacement.previous.load();
        let mut copies = previous.iter().filter_map(Weak::upgrade);
        copies.find(|copy| copy.waits_for_sequences() && fits(copy))
    }

    /// Whether a request continues a sequence that runs on this copy or on one that waits for its sequences.
    pub fn has_sequence_of(&self, request: &Request) -> bool {
        let sequence = &request.sequence;
        !sequence.start && sequence.id.as_ref().is_some_and(|id| self.has_sequence(id))
    }

    /// Whether a sequence runs on this copy or on one that waits for its sequences.
    pub fn has_sequence(&self, id: &SequenceId) -> bool {
        self.account.runner().has_sequence(id)
            || self.waiting_copy(|copy| copy.account.runner().has_sequence(id)).is_some()
    }

    /// The number of sequences of several requests that may still get requests.
    pub(crate) fn live_sequences(&self) -> usize {
        if self.has_sequences_of_clients() { self.account.runner().live_sequences() } else { 0 }
    }

    /// Whether this copy must get a request because of its sequence. A model that has sequences has the one that the request
    /// continues. An ensemble of such models has earlier requests of the sequence, which the request must not overtake.
    fn continues(&self, request: &Request) -> bool {
        self.account.runner().continues(&request.sequence)
    }

    /// The model has been replaced or unloaded since the caller looked it up: it is looked up again.
    pub(super) fn infer_elsewhere(&self, request: Request) -> Result<ResponseStream, Error> {
        match &self.server.inferer {
            Some(inferer) if !self.replacement.server_stops.load(SeqCst) => {
                inferer.infer(self.name(), request.model_version, request)
            }
            Some(_) | None => Err(self.refusal(&request)),
        }
    }

    /// From now on, late requests are refused: the server stops.
    pub(crate) fn refuse_late_requests(&self) {
        self.replacement.server_stops.store(true, SeqCst);
    }

    /// Whether requests of running sequences still come to this copy, though it has been replaced.
    pub(crate) fn waits_for_sequences(&self) -> bool {
        self.replacement.waits_for_sequences.load(SeqCst)
    }

    /// Lets requests of the sequences that `old` has go there from now on. Called before this copy serves.
    pub(crate) fn follow(&self, old: &Arc<Self>) {
        if !old.has_sequences_of_clients() && !old.is_ensemble_of_sequences() {
            return;
        }
        old.replacement.waits_for_sequences.store(true, SeqCst);
        let before = old.replacement.previous.load();
        let known = self.replacement.previous.load();
        let all = known.iter().chain(before.iter()).filter(|copy| copy.strong_count() > 0).cloned();
        let all = all.chain([Arc::downgrade(old)]).collect();
        self.replacement.previous.store(Arc::new(all));
    }

    /// From now on, this copy takes only requests of the sequences that it has, if others have [followed](Self::follow) it.
    /// Called when others can be looked up.
    pub(crate) fn leave_new_sequences(&self) {
        self.replacement.is_replaced.store(self.waits_for_sequences(), SeqCst);
    }

    /// Whether clients send sequences of several requests to the model.
    pub(crate) fn has_sequences_of_clients(&self) -> bool {
        matches!(&self.config.scheduling, Scheduling::Sequence(sequence) if !sequence.batching.iterative)
    }

    /// Whether the model is an ensemble that keeps the order of the requests of a sequence.
    fn is_ensemble_of_sequences(&self) -> bool {
        self.is_ensemble() && self.config.has_sequences
    }

    /// From now on the copy takes requests of sequences no more.
    pub(crate) fn end_wait_for_sequences(&self) {
        self.replacement.waits_for_sequences.store(false, SeqCst);
    }

    /// Knows the copies from now on that the other one knows.
    pub(crate) fn follow_as(&self, other: &Self) {
        self.replacement.previous.store(other.replacement.previous.load_full());
    }
}
