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
use scheduling::{BatchFilter, BatchFilterState};

/// A strategy, as the batcher knows it.
pub(super) struct CustomBatchFilter {
    pub(super) strategy: Arc<dyn BatchingStrategy>,
    pub(super) model: Name,
}

impl BatchFilter<Execution> for CustomBatchFilter {
    fn begin(&self) -> Box<dyn BatchFilterState<Execution>> {
        let batch = catch_panic(&self.model, || self.strategy.begin());
        Box::new(CustomBatchFilterState { batch, model: self.model.clone() })
    }
}

/// A batch in the making; without one of the strategy's own, because that panicked, nobody joins it.
struct CustomBatchFilterState {
    batch: Option<Box<dyn PendingBatch>>,
    model: Name,
}

impl BatchFilterState<Execution> for CustomBatchFilterState {
    fn join(&mut self, execution: &Execution) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        catch_panic(&self.model, || batch.include(&execution.request)).unwrap_or(false)
    }
}

/// A panic here would strike whoever has news for the model, in the middle of a visit: it ends a batch and no more.
fn catch_panic<A>(model: &Name, ask: impl FnOnce() -> A) -> Option<A> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    if answer.is_err() {
        log::error!("the batching strategy of model '{model}' panicked");
    }
    answer.ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use inference::{
        ByteBudget, Error, Request, Timestamp, UnreadBudget,
        backend::{BackendInstance, BackendModel, Batch, Device, Instance, InstanceSpec},
        config::{ModelConfig, ResolvedConfig, Scheduling},
    };
    use parking_lot::Mutex;
    use scheduling::DynamicBatching;

    use super::*;
    use crate::{
        clock::TimerThread,
        model::{Model, ModelParts, tests::config},
    };

    type Ends = Arc<Mutex<Vec<&'static str>>>;

    /// Notes its end.
    struct Witness(&'static str, Ends);

    impl Drop for Witness {
        fn drop(&mut self) {
            self.1.lock().push(self.0);
        }
    }

    impl BackendModel for Witness {
        fn instance(&self, _: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<Instance, Error> {
            if spec.name == "broken" {
                return Err(Error::internal("cannot build"));
            }
            Ok(Instance::Movable(Box::new(Witness("instance", self.1.clone()))))
        }
    }

    impl BackendInstance for Witness {
        fn execute(&mut self, _: Batch) {}
    }

    impl BatchingStrategy for Witness {
        fn begin(&self) -> Box<dyn PendingBatch> {
            Box::new(Witness("batch", self.1.clone()))
        }
    }

    impl PendingBatch for Witness {
        fn include(&mut self, _: &Request) -> bool {
            true
        }
    }

    fn start(scheduling: Scheduling, instance: &str) -> (Result<Arc<Model>, Error>, Ends) {
        let ends = Ends::default();
        let spec = InstanceSpec {
            name: instance.into(),
            device: Device::Cpu,
            threads: std::num::NonZeroUsize::MIN,
            passive: false,
        };
        let model = Model::start(ModelParts {
            version: 1,
            directory: PathBuf::new(),
            config: ResolvedConfig {
                typed: config(scheduling),
                shown: proto::ModelConfig::default(),
                warnings: vec![],
            },
            backend: Box::new(Witness("model", ends.clone())),
            instances: vec![spec.into()],
            strategy: Some(Box::new(Witness("strategy", ends.clone()))),
            clock: TimerThread::start().unwrap(),
            limiter: None,
            cached: None,
            inflight: ByteBudget::new(usize::MAX),
            unread: UnreadBudget::unlimited(),
            since: Timestamp::default(),
        });
        (model, ends)
    }

    #[test]
    fn a_strategy_ends_before_the_instances_and_they_before_the_model() {
        for scheduling in [Scheduling::Unbatched, Scheduling::Dynamic(DynamicBatching::default())] {
            let (model, ends) = start(scheduling, "i");
            let model = model.unwrap();
            model.close();
            assert_eq!(*ends.lock(), ["strategy", "instance", "model"]);
            model.close();
        }
    }

    #[test]
    fn a_strategy_ends_before_a_model_that_could_not_be_built() {
        let (model, ends) = start(Scheduling::Dynamic(DynamicBatching::default()), "broken");
        assert!(model.is_err());
        assert_eq!(*ends.lock(), ["strategy", "model"]);
    }
}
