//! A model version that can be used: its configuration, its queue, its instances.
//!
//! A request that comes in is checked, queued and, if a batch is due, handed to an instance, all on the caller's
//! thread. Short executions of instances that may change threads run right there too: a hand-over to a sleeping
//! thread and back costs tens of microseconds, more than many a model computes.
use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use inference::{
    Error, ExecutionTimes, Name, Observe, Outcome, ReportedTimes, Request, ResponseReport, ResponseStream,
    Timeline, Timestamp,
    backend::{BackendModel, Execution},
    batching::BatchingStrategy,
    config::{ModelConfig, ResolvedConfig, Scheduling},
    response_channel,
};
use parking_lot::{Condvar, Mutex};
use scheduling::{DynamicBatcher, InstanceId, Rejected, Scheduler, SequenceBatcher, Unbatched};

use crate::{
    clock::{TimerThread, now},
    host_policy::Placed,
    limiter::{GrantListener, Limiter},
    observe::{ModelStatistics, Record},
};

mod assemble;
mod backend_handle;
mod cache;
mod check;
mod driver;
mod instance;
mod order;
mod rejection;
mod resource_claims;
mod run;
mod strategy;
mod warmup;

use assemble::Sequences;
use backend_handle::BackendModelHandle;
use cache::CacheLookup;
pub(crate) use cache::Cached;
use check::RequestValidator;
use driver::{Driver, Policy};
use instance::{InstanceBuilder, MovableInstance, WorkSlot, WorkerMessage, build_all};
use order::Orders;
use rejection::RejectionErrors;
pub use rejection::id_prefix;
use resource_claims::ResourceClaims;
use strategy::CustomBatchFilter;
use warmup::WarmUp;

/// One served version of a model. Whoever holds it may use it, even if the repository has moved on meanwhile.
pub struct Model {
    version: i64,
    config: Arc<ModelConfig>,
    shown: proto::ModelConfig,
    validator: RequestValidator,
    record: Record,
    driver: Mutex<Driver>,
    /// Signalled, once the model drains, when something has ended.
    ended: Condvar,
    /// One total order with `in_flight`: who ends the last request sees the model drain, or who closes it sees no request.
    draining: AtomicBool,
    /// From acceptance to last word (S-W41).
    in_flight: AtomicUsize,
    fault: OnceLock<Error>,
    /// One per instance, passive ones at the end.
    work_slots: Box<[WorkSlot]>,
    /// Passive instances that need not stay on their threads: kept, and never run.
    passive: Mutex<Vec<Option<MovableInstance>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    backend_handle: BackendModelHandle,
    orders: Orders,
    rejection_errors: RejectionErrors,
    /// What requests of sequences get with them, for models that have sequences.
    sequences: Option<Sequences>,
    /// The server's response cache, if it has one and the model may use it.
    cached: Option<Cached>,
    clock: TimerThread,
    /// A plug-in has a say in who shares a batch; it is asked whenever the driver is visited.
    batches_by_plugin: bool,
    load_duration: Duration,
    me: Weak<Self>,
}

/// What a model version is made of.
pub(crate) struct ModelParts {
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    /// The model's directory.
    pub(crate) directory: PathBuf,
    pub(crate) backend: Box<dyn BackendModel>,
    pub(crate) instances: Vec<Placed>,
    /// Who may share a batch, if the model has its own ideas of that.
    pub(crate) strategy: Option<Box<dyn BatchingStrategy>>,
    pub(crate) clock: TimerThread,
    /// What models share resources by, if they do; each instance needs what its place in `limits` says.
    pub(crate) limiter: Option<Arc<Limiter>>,
    pub(crate) cached: Option<Cached>,
    /// When loading began.
    pub(crate) since: Timestamp,
}

impl Model {
    /// Builds all instances; the version can be used when this returns. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn start(parts: ModelParts) -> Result<Arc<Self>, Error> {
        let ModelParts {
            version,
            config,
            directory,
            backend,
            mut instances,
            strategy,
            clock,
            limiter,
            cached,
            since,
        } = parts;
        let ResolvedConfig { typed, shown, .. } = config;
        let config = Arc::new(typed);
        let validator = RequestValidator::new(&config);
        let warm_up = Arc::new(WarmUp::prepare(&config, &validator, &directory)?);
        instances.sort_by_key(|placed| placed.spec.passive);
        let active = instances.iter().filter(|placed| !placed.spec.passive).count();
        let resource_claims = ResourceClaims::register(limiter, &config)?;
        let builder = InstanceBuilder { backend: Arc::from(backend), config: config.clone(), warm_up };
        let batches_by_plugin = strategy.is_some();
        // Before the instances, after which it would be dropped if one of them failed.
        let policy = policy(&config, active, strategy.map(Arc::from));
        let mut built = build_all(&builder, &instances)?;
        let mut idle_instances: Vec<_> = built.iter_mut().map(|built| built.movable.take()).collect();
        let passive = idle_instances.split_off(active);
        let sequences = Sequences::new(&config, active);
        let model = Arc::new_cyclic(|me| Self {
            version,
            shown,
            validator,
            record: Record::default(),
            driver: Mutex::new(Driver::new(policy, idle_instances, resource_claims)),
            ended: Condvar::new(),
            draining: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            fault: OnceLock::new(),
            work_slots: instances.iter().map(|_| WorkSlot::default()).collect(),
            passive: Mutex::new(passive),
            threads: Mutex::default(),
            backend_handle: BackendModelHandle::new(builder.backend),
            orders: Orders::of(&config.scheduling, active),
            rejection_errors: RejectionErrors { model: config.name.clone(), sequences: sequences.is_some() },
            sequences,
            cached,
            clock,
            batches_by_plugin,
            load_duration: now() - since,
            me: me.clone(),
            config,
        });
        let claims: Weak<dyn GrantListener> = Arc::downgrade(&(model.clone() as Arc<dyn GrantListener>));
        model.driver.lock().set_owner(&claims);
        *model.threads.lock() = built.into_iter().map(|built| built.spawn(&model)).collect();
        Ok(model)
    }

    /// The model's name.
    pub fn name(&self) -> &Name {
        &self.config.name
    }

    /// The version's number.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The configuration the server works with.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The configuration clients are shown.
    pub fn shown(&self) -> &proto::ModelConfig {
        &self.shown
    }

    /// Accepts a request; the answer, good or bad, comes on the stream. At most `capacity` responses wait there for a
    /// slow client. A brief execution may happen before this returns. Does not block, except in the response cache of a
    /// model that has one.
    ///
    /// # Errors
    /// The request contradicts the configuration (INVALID_ARG), its queue is full, the server is stopping or the model
    /// has died (UNAVAILABLE). The request is then over.
    pub fn infer(self: &Arc<Self>, mut request: Request, capacity: usize) -> Result<ResponseStream, Error> {
        if let Some(fault) = self.fault() {
            return Err(Error::unavailable(fault.message.clone()));
        }
        let arrived = now();
        let meta = self.validator.check(&self.config, &mut request)?;
        let timeline = Timeline::new(arrived, meta.batch_size.max(1));
        let miss = match self.look_up(&request) {
            Some(CacheLookup::Hit(response, lookup)) => {
                return Ok(self.answer_from_cache(response, &lookup, timeline, capacity));
            }
            Some(CacheLookup::Miss(miss)) => Some(miss),
            None => None,
        };
        let (responder, stream) = response_channel(timeline, self.clone(), capacity);
        let came = miss.map(|miss| self.keep_answer(miss, &responder));
        self.in_flight.fetch_add(1, Ordering::AcqRel);

        let mut driver = self.driver.lock();
        let at = now();
        if let Err(Rejected { payload, reason }) =
            driver.enqueue(at, meta, Execution::new(request, responder))
        {
            drop(driver);
            let error = self.rejection_errors.error(reason, &payload.request);
            payload.responder.fail(error.clone());
            return Err(error);
        }
        stream.timeline().queued(came.unwrap_or(at));
        let actions = driver.step(at, &self.orders);
        drop(driver);
        if let Some(here) = self.perform(actions, |assignment, brief| brief && self.may_run_here(assignment))
        {
            self.run_here(here, at);
        }
        Ok(stream)
    }

    /// What [`Model::infer`] would refuse a request for before it enters the queue.
    ///
    /// # Errors
    /// The request contradicts the configuration (INVALID_ARG).
    pub fn check(&self, mut request: Request) -> Result<(), Error> {
        self.validator.check(&self.config, &mut request).map(drop)
    }

    /// Why the version cannot be used any more, if so.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        ModelStatistics {
            responses: self.record.responses(),
            memory_usage: self.backend_handle.memory_usage(),
            ..self.record.read(self.name(), self.version)
        }
    }

    /// Requests that wait for an instance.
    pub(crate) fn pending(&self) -> usize {
        self.driver.lock().pending()
    }

    /// Requests that were accepted and have not had their last word.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn load_duration(&self) -> Duration {
        self.load_duration
    }

    /// Takes no new requests; those that were accepted go on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.with_driver(|driver| {
            driver.drain();
            Vec::new()
        });
    }

    /// Drains, waits until the last request has ended, and ends the instances on their threads and then the backend's
    /// model. Blocks.
    pub(crate) fn close(&self) {
        self.drain();
        let mut driver = self.driver.lock();
        while self.in_flight() > 0 || !driver.is_idle() {
            self.ended.wait(&mut driver);
        }
        let mut idle_instances = driver.release_idle_instances();
        let released = (driver.release_policy(), driver.release_resource_claims());
        drop(driver);
        drop(released);
        idle_instances.append(&mut self.passive.lock());
        for (work_slot, movable) in self.work_slots.iter().zip(idle_instances) {
            work_slot.put(WorkerMessage::Shutdown(movable));
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A thread that has panicked has told so already.
            let _ = thread.join();
        }
        self.backend_handle.end();
    }

    fn work_slot(&self, instance: InstanceId) -> &WorkSlot {
        &self.work_slots[instance]
    }

    /// Whether no new requests are taken.
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    fn notify_if_draining(&self) {
        if self.is_draining() {
            drop(self.driver.lock());
            self.ended.notify_all();
        }
    }
}

/// The policy that a configuration asks for. Only the dynamic batcher asks the strategy.
fn policy(config: &ModelConfig, instances: usize, strategy: Option<Arc<dyn BatchingStrategy>>) -> Policy {
    let scheduler: Box<dyn Scheduler<Execution>> = match &config.scheduling {
        Scheduling::Unbatched => Box::new(Unbatched::new()),
        Scheduling::Dynamic(dynamic) => {
            let batcher = DynamicBatcher::new(dynamic.clone());
            Box::new(match strategy.clone() {
                Some(strategy) => batcher
                    .with_batch_filter(Box::new(CustomBatchFilter { strategy, model: config.name.clone() })),
                None => batcher,
            })
        }
        Scheduling::Sequence(sequence) => {
            Box::new(SequenceBatcher::new(sequence.batching.clone(), instances))
        }
    };
    Policy { scheduler, strategy }
}

impl Observe for Model {
    fn ended(&self, timeline: &Timeline, outcome: Outcome<'_>) {
        self.record.request_ended(timeline, outcome, now());
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.notify_if_draining();
    }

    fn cancelled(&self) {
        self.with_driver(Driver::sweep);
    }

    fn reported(&self, timeline: &Timeline, counted: Timestamp, times: ReportedTimes) {
        self.record.revise_request(timeline, counted, times);
    }

    fn batch_reported(&self, execution_times: &ExecutionTimes, counted: Timestamp, times: ReportedTimes) {
        self.record.revise_batch(execution_times, counted, times);
    }

    fn response_reported(&self, index: u64, report: ResponseReport) {
        self.record.response(index, report);
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", self.name())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests;
#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
mod tests;
