//! Calls the batching strategy of a model for its dynamic batcher.
use std::panic::{AssertUnwindSafe, catch_unwind};

use inference::{
    backend::Execution,
    batching::{BatchCandidate, BatchingStrategy},
};
use scheduling::BatchFilter;
use vocabulary::Name;

/// A batching strategy, with the batch under construction.
pub(super) struct CustomBatchFilter {
    /// Dropped before the strategy.
    pending: PendingCustomBatch,
    strategy: Box<dyn BatchingStrategy>,
    model: Name,
}

enum PendingCustomBatch {
    /// The executor has not called the strategy about a batch.
    None,
    Begun(Box<dyn BatchCandidate>),
    /// The strategy has panicked: no request joins this batch.
    Broken,
}

impl CustomBatchFilter {
    pub(super) fn new(strategy: Box<dyn BatchingStrategy>, model: Name) -> Self {
        Self { pending: PendingCustomBatch::None, strategy, model }
    }
}

impl BatchFilter<Box<Execution>> for CustomBatchFilter {
    fn admit(&mut self, execution: &Box<Execution>) -> bool {
        if let PendingCustomBatch::None = self.pending {
            let begun = catch_panic(&self.model, || self.strategy.begin());
            self.pending = begun.map_or(PendingCustomBatch::Broken, PendingCustomBatch::Begun);
        }
        let PendingCustomBatch::Begun(batch) = &mut self.pending else { return false };
        catch_panic(&self.model, || batch.include(&execution.request)).unwrap_or(false)
    }

    fn reset(&mut self) {
        let pending = std::mem::replace(&mut self.pending, PendingCustomBatch::None);
        catch_panic(&self.model, || drop(pending));
    }
}

/// Limits a panic to the batch under construction. Otherwise it would unwind through a thread that holds the driver's
/// lock.
fn catch_panic<A>(model: &Name, ask: impl FnOnce() -> A) -> Option<A> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    if answer.is_err() {
        log::error!("the batching strategy of model '{model}' panicked");
    }
    answer.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::{ModelConfig, Scheduling};
    use inference::{
        ModelRunner, Request,
        backend::{BackendInstance, BackendModel, Batch, BuiltInstance, InstanceSpec},
        lock::Mutex,
    };
    use scheduling::DynamicBatching;
    use testing::model_parts::{config, instance};
    use vocabulary::Error;

    use super::*;
    use crate::{Executor, ExecutorParts};

    type Ends = Arc<Mutex<Vec<&'static str>>>;

    /// Records when it is dropped.
    struct DropRecorder(&'static str, Ends);

    impl Drop for DropRecorder {
        fn drop(&mut self) {
            self.1.lock().push(self.0);
        }
    }

    impl BackendModel for DropRecorder {
        fn instance(&self, _: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
            if spec.name == "broken" {
                return Err(Error::internal("cannot build"));
            }
            Ok(BuiltInstance::Movable(Box::new(DropRecorder("instance", self.1.clone()))))
        }
    }

    impl BackendInstance for DropRecorder {
        fn execute(&mut self, _: Batch) {}
    }

    impl BatchingStrategy for DropRecorder {
        fn begin(&self) -> Box<dyn BatchCandidate> {
            Box::new(DropRecorder("batch", self.1.clone()))
        }
    }

    impl BatchCandidate for DropRecorder {
        fn include(&mut self, _: &Request) -> bool {
            true
        }
    }

    fn start(scheduling: Scheduling, name: &str) -> (Result<Arc<Executor>, Error>, Ends) {
        let ends = Ends::default();
        let parts = ExecutorParts::for_test(
            config(scheduling),
            DropRecorder("model", ends.clone()),
            vec![instance(name)],
        );
        let strategy = DropRecorder("strategy", ends.clone());
        let model = Executor::start(ExecutorParts { strategy: Some(Box::new(strategy)), ..parts });
        (model, ends)
    }

    #[test]
    fn a_strategy_ends_before_the_instances_and_they_before_the_model() {
        for scheduling in [Scheduling::Unbatched, Scheduling::Dynamic(DynamicBatching::default())] {
            let (model, ends) = start(scheduling, "i");
            let model = model.unwrap();
            model.clone().close();
            assert_eq!(*ends.lock(), ["strategy", "instance", "model"]);
            model.clone().close();
        }
    }

    #[test]
    fn a_strategy_ends_before_a_model_that_could_not_be_built() {
        let (model, ends) = start(Scheduling::Dynamic(DynamicBatching::default()), "broken");
        assert!(model.is_err());
        assert_eq!(*ends.lock(), ["strategy", "model"]);
    }
}
