//! The sequences of a call whose end its client has not sent: a server that stops lets the call go on for them.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use engine::Model;
use inference::{Request, SequenceId};
use vocabulary::Name;

/// At this number, those that the server has ended by itself are looked for.
const FEW: usize = 64;

/// The sequences that a call has carried and that its client has not ended.
///
/// It has at most twice as many as the models have, because the server forgets sequences whose clients are silent.
#[derive(Debug)]
pub(super) struct CarriedSequences {
    open: HashMap<(Name, SequenceId), Weak<Model>>,
    /// At this number, those that have ended are forgotten.
    forgets_at: usize,
}

impl Default for CarriedSequences {
    fn default() -> Self {
        Self { open: HashMap::new(), forgets_at: FEW }
    }
}

impl CarriedSequences {
    /// Notes a request for a model.
    pub(super) fn carry(&mut self, model: &Arc<Model>, request: &Request) {
        let Some(id) = &request.sequence.id else { return };
        let key = (model.name().clone(), id.clone());
        if request.sequence.end {
            self.open.remove(&key);
            return;
        }
        self.open.insert(key, Arc::downgrade(model));
        if self.open.len() >= self.forgets_at {
            self.forget_ended();
            self.forgets_at = FEW.max(2 * self.open.len());
        }
    }

    fn forget_ended(&mut self) {
        self.open.retain(|(_, id), model| runs(model, id));
    }

    /// Whether a request may still continue one of them.
    pub(super) fn run(&self) -> bool {
        self.open.iter().any(|((_, id), model)| runs(model, id))
    }
}

fn runs(model: &Weak<Model>, id: &SequenceId) -> bool {
    model.upgrade().is_some_and(|model| model.has_sequence(id))
}
