//! Asks the batching strategy of a model on behalf of its dynamic batcher.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use inference::{
    Name,
    backend::Execution,
    batching::{BatchingStrategy, PendingBatch},
};
use scheduling::{JoinRule, Joining};

/// A strategy, as the batcher knows it.
pub(super) struct Consulted {
    pub(super) strategy: Arc<dyn BatchingStrategy>,
    pub(super) model: Name,
}

impl JoinRule<Execution> for Consulted {
    fn begin(&self) -> Box<dyn Joining<Execution>> {
        let batch = unless_it_panics(&self.model, || self.strategy.begin());
        Box::new(Forming { batch, model: self.model.clone() })
    }
}

/// A batch in the making; without one of the strategy's own, because that panicked, nobody joins it.
struct Forming {
    batch: Option<Box<dyn PendingBatch>>,
    model: Name,
}

impl Joining<Execution> for Forming {
    fn join(&mut self, execution: &Execution) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        unless_it_panics(&self.model, || batch.include(&execution.request)).unwrap_or(false)
    }
}

/// A panic here would strike whoever has news for the model, in the middle of a visit: it ends a batch and no more.
fn unless_it_panics<A>(model: &Name, ask: impl FnOnce() -> A) -> Option<A> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    if answer.is_err() {
        log::error!("the batching strategy of model '{model}' panicked");
    }
    answer.ok()
}
