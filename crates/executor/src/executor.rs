//! The executor of a model version: what it is made of, its start and its end.
use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use config::{ModelConfig, Scheduling};
use host::{InstancePlan, now};
use inference::{
    ModelCounters, RequestValidator, WarmupFiles,
    backend::BackendModel,
    batching::BatchingStrategy,
    lock::{Condvar, LockRank, Mutex},
    rejection::RejectionErrors,
};
use scheduling::{DynamicBatcher, Scheduler, SequenceBatcher, Unbatched};
use tokio::sync::Notify;
use vocabulary::Error;

use super::{
    backend_fault::BackendFault,
    backend_handle::BackendModelHandle,
    batching_thread::BatchingThread,
    custom_batch_filter::CustomBatchFilter,
    driver::{Driver, Policy},
    instance::{InstanceBuilder, build_all},
    instance_list::Instances,
    resource_claims::ResourceClaims,
    response_orders::ResponseOrders,
    sequence_inputs::Sequences,
    warmup::WarmUp,
};
use crate::{
    engine_threads::EngineThreads,
    limiter::{GrantListener, Limiter},
    notified::notified_until,
};

mod backend_calls;
mod events;
pub(super) mod instance_update;
mod run;
mod take_snapshot;

/// Executes the requests of one model version on its instances.
pub struct Executor {
    version: i64,
    config: Arc<ModelConfig>,
    counters: Arc<ModelCounters>,
    orders: ResponseOrders,
    driver: Mutex<Driver>,
    /// Signalled after the executor has begun to close, when an instance has become idle.
    idle: Condvar,
    closing: AtomicBool,
    /// Notified after the last sequence has ended, if a task waits for that.
    without_sequences: Notify,
    fault: BackendFault,
    instances: Instances,
    validator: Arc<RequestValidator>,
    backend_handle: BackendModelHandle,
    rejection_errors: RejectionErrors,
    /// What the executor adds to the requests of sequences, for models that have sequences.
    sequences: Option<Sequences>,
    threads: EngineThreads,
    /// Steps the driver if a plug-in decides which requests share a batch.
    batching: Option<BatchingThread>,
}

/// What an executor is built from.
pub struct ExecutorParts {
    /// The version of the model.
    pub version: i64,
    /// Its configuration.
    pub config: Arc<ModelConfig>,
    /// Checks the samples for warm-up.
    pub validator: Arc<RequestValidator>,
    /// What the executor counts.
    pub counters: Arc<ModelCounters>,
    /// The files of the samples for warm-up.
    pub warmup_files: WarmupFiles,
    /// The model, opened by its backend.
    pub backend: Box<dyn BackendModel>,
    /// The instances to build.
    pub instances: Vec<InstancePlan>,
    /// Decides which requests share a batch, if the model has a strategy of its own.
    pub strategy: Option<Box<dyn BatchingStrategy>>,
    /// The threads of the engine.
    pub threads: EngineThreads,
    /// Grants the resources that the instances need. `None`: they need none.
    pub limiter: Option<Arc<Limiter>>,
    /// Counts the executors of the server whose backends have panicked.
    pub faults: Arc<AtomicUsize>,
}

impl Executor {
    /// Builds and warms up all instances. The executor can execute requests when this returns. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub fn start(parts: ExecutorParts) -> Result<Arc<Self>, Error> {
        let ExecutorParts { version, config, validator, counters, warmup_files, .. } = parts;
        let ExecutorParts { backend, mut instances, strategy, threads, limiter, faults, .. } = parts;
        let warm_up = Arc::new(WarmUp::prepare(&config, &validator, &warmup_files)?);
        instances.sort_by_key(|placed| placed.spec.passive);
        let active = instances.iter().filter(|placed| !placed.spec.passive).count();
        let sequences = Sequences::new(&config, active)?;
        let resource_claims = ResourceClaims::register(limiter, &config)?;
        let builder = InstanceBuilder {
            backend: Arc::from(backend),
            config: config.clone(),
            warm_up,
            threads: threads.group.clone(),
        };
        let batches_by_plugin = strategy.is_some() && matches!(config.scheduling, Scheduling::Dynamic(_));
        let batching = batches_by_plugin.then(|| BatchingThread::start(&threads.group, &config.name));
        let batching = batching.transpose().map_err(|error| {
            Error::internal(format!("failed to start the thread that forms batches: {error}"))
        })?;
        // Made before the instances: otherwise it would be dropped after them if one of them failed.
        let policy = policy(&config, active, strategy);
        let mut built = build_all(&builder, &instances)?;
        let mut idle_instances: Vec<_> = built.iter_mut().map(|built| built.movable.take()).collect();
        let passive = idle_instances.split_off(active);
        let executor = Arc::new(Self {
            version,
            counters,
            orders: ResponseOrders::of(&config.scheduling, active),
            driver: Mutex::ranked(
                LockRank::Driver,
                Driver::new(now(), policy, idle_instances, resource_claims),
            ),
            idle: Condvar::new(),
            closing: AtomicBool::new(false),
            without_sequences: Notify::new(),
            fault: BackendFault::counted_in(faults),
            instances: Instances::new(active, threads.instances.clone()),
            validator,
            backend_handle: BackendModelHandle::new(builder.backend),
            rejection_errors: RejectionErrors::of(&config),
            sequences,
            threads,
            batching,
            config,
        });
        let claims: Weak<dyn GrantListener> = Arc::downgrade(&(executor.clone() as Arc<dyn GrantListener>));
        executor.driver.lock().resource_claims().belongs_to(&claims);
        executor.instances.begin(&executor.runner(), built, &instances, passive);
        Ok(executor)
    }

    /// Returns when no sequence may still get requests.
    pub async fn sequences_ended(&self) {
        notified_until(&self.without_sequences, || self.driver.lock().has_no_sequence()).await;
    }

    /// Waits until no instance runs, ends the instances on their threads, and then drops the backend's model. Blocks.
    /// All requests have ended before.
    fn end(&self) {
        self.closing.store(true, Ordering::SeqCst);
        let mut driver = self.driver.lock();
        self.idle.wait_while(&mut driver, |driver| !driver.instances().are_all_idle());
        let mut released = driver.close();
        drop(driver);
        self.batching.iter().for_each(BatchingThread::end);
        self.without_sequences.notify_waiters();
        let instances = std::mem::take(&mut released.instances);
        drop(released);
        // The memory of a state may belong to its instance, so that it is freed before.
        self.sequences.iter().for_each(Sequences::free_all_states);
        for home in self.instances.end(instances) {
            home.join();
        }
        self.backend_handle.end();
    }

    /// Signals `idle`, if the executor closes, after an instance has become idle or has panicked.
    fn notify_if_closing(&self) {
        if self.closing.load(Ordering::SeqCst) {
            drop(self.driver.lock());
            self.idle.notify_all();
        }
    }
}

/// The policy for a configuration. Only the dynamic batcher uses the strategy.
fn policy(config: &ModelConfig, instances: usize, mut strategy: Option<Box<dyn BatchingStrategy>>) -> Policy {
    let scheduler = match &config.scheduling {
        // An ensemble has no executor.
        Scheduling::Unbatched | Scheduling::Ensemble(_) => Scheduler::Unbatched(Unbatched::new()),
        Scheduling::Dynamic(dynamic) => {
            let batcher = DynamicBatcher::new(dynamic.clone());
            Scheduler::Dynamic(match strategy.take() {
                Some(strategy) => {
                    batcher.with_filter(Box::new(CustomBatchFilter::new(strategy, config.name.clone())))
                }
                None => batcher,
            })
        }
        Scheduling::Sequence(sequence) => {
            Scheduler::Sequence(SequenceBatcher::new(sequence.batching.clone(), instances))
        }
    };
    Policy { scheduler, unused_strategy: strategy }
}
