//! A model version that can be used: its configuration, its queue, its instances.
//!
//! A request that comes in is checked, queued and, if a batch is due, handed to an instance, all on the caller's
//! thread. Short executions of instances that may change threads run right there too: a hand-over to a sleeping
//! thread and back costs tens of microseconds, more than many a model computes.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use inference::{
    Error, ErrorCode, FailureReason, Moment, Name, Observe, Outcome, Request, ResponseStream, Timeline,
    backend::{BackendInstance, BackendModel, Batch, Execution, InstanceSpec},
    config::{ModelConfig, ResolvedConfig, Scheduling},
    corridor,
};
use parking_lot::{Condvar, Mutex};
use scheduling::{DynamicBatcher, InstanceId, Rejected, Scheduler, Unbatched};

use crate::{
    clock::{AlarmClock, Sleeper, now},
    observe::{ModelStatistics, Record},
};

mod check;
mod driver;
mod instance;
mod order;

use check::Rules;
use driver::{Assignment, Driver, Duties, id_prefix, rejection_error};
use instance::{Mail, Mailbox, build_all};
use order::Order;

/// One served version of a model. Whoever holds it may use it, even if the repository has moved on meanwhile.
pub struct Model {
    version: i64,
    config: Arc<ModelConfig>,
    shown: proto::ModelConfig,
    rules: Rules,
    record: Record,
    driver: Mutex<Driver>,
    /// Signalled, once the model drains, when something has ended.
    ended: Condvar,
    /// One total order with `in_flight`: who ends the last request sees the model drain, or who closes it sees no request.
    draining: AtomicBool,
    /// From acceptance to last word (S-W41).
    in_flight: AtomicUsize,
    fault: OnceLock<Error>,
    mailboxes: Box<[Mailbox]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    order: Option<Arc<Order>>,
    clock: AlarmClock,
    load_duration: Duration,
    me: Weak<Self>,
}

/// What a model version is made of.
pub(crate) struct Parts {
    pub(crate) version: i64,
    pub(crate) config: ResolvedConfig,
    pub(crate) backend: Box<dyn BackendModel>,
    pub(crate) instances: Vec<InstanceSpec>,
    pub(crate) clock: AlarmClock,
    /// When loading began.
    pub(crate) since: Moment,
}

impl Model {
    /// Builds all instances; the version can be used when this returns. Blocks.
    ///
    /// # Errors
    /// The first error of an instance.
    pub(crate) fn start(parts: Parts) -> Result<Arc<Self>, Error> {
        let Parts { version, config: ResolvedConfig { typed, shown }, backend, instances, clock, since } =
            parts;
        let config = Arc::new(typed);
        let mut built = build_all(&Arc::from(backend), &config, &instances)?;
        let resting = built.iter_mut().map(|built| built.mobile.take()).collect();
        let scheduler: Box<dyn Scheduler<Execution>> = match &config.scheduling {
            Scheduling::Unbatched => Box::new(Unbatched::new()),
            Scheduling::Dynamic(dynamic) => Box::new(DynamicBatcher::new(dynamic.clone())),
        };
        let ordered = matches!(&config.scheduling, Scheduling::Dynamic(dynamic) if dynamic.preserve_ordering);
        let model = Arc::new_cyclic(|me| Self {
            version,
            shown,
            rules: Rules::new(&config),
            record: Record::default(),
            driver: Mutex::new(Driver::new(scheduler, resting)),
            ended: Condvar::new(),
            draining: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            fault: OnceLock::new(),
            mailboxes: instances.iter().map(|_| Mailbox::default()).collect(),
            threads: Mutex::default(),
            order: ordered.then(Arc::default),
            clock,
            load_duration: now() - since,
            me: me.clone(),
            config,
        });
        *model.threads.lock() = built.into_iter().map(|built| built.employ(&model)).collect();
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
    /// slow client. Does not block. A brief execution may happen before this returns.
    ///
    /// # Errors
    /// The request contradicts the configuration (INVALID_ARG), its queue is full, the server is stopping or the model
    /// has died (UNAVAILABLE). The request is then over.
    pub fn infer(self: &Arc<Self>, mut request: Request, capacity: usize) -> Result<ResponseStream, Error> {
        if let Some(fault) = self.fault() {
            return Err(Error::unavailable(fault.message.clone()));
        }
        let arrived = now();
        let meta = self.rules.check(&self.config, &mut request)?;
        let (responder, stream) =
            corridor(Timeline::new(arrived, meta.batch_size.max(1)), self.clone(), capacity);
        self.in_flight.fetch_add(1, Ordering::AcqRel);

        let mut driver = self.driver.lock();
        let at = now();
        if let Err(Rejected { payload, reason }) = driver.enqueue(at, meta, Execution { request, responder })
        {
            drop(driver);
            let error = rejection_error(reason, &payload.request.id);
            payload.responder.fail(error.clone());
            return Err(error);
        }
        stream.timeline().queued(at);
        let duties = driver.settle(at, self.order.as_ref());
        drop(driver);
        if let Some(here) = self.fulfil(duties, |assignment, brief| brief && self.may_run_here(assignment)) {
            self.run_here(here, at);
        }
        Ok(stream)
    }

    /// Whether a batch may run on the thread of the caller who completed it.
    fn may_run_here(&self, assignment: &Assignment) -> bool {
        // A decoupled model may block on a slow client; large tensors take long whatever the last ones took.
        assignment.mobile.is_some() && !self.config.decoupled && input_bytes(&assignment.batch) <= BRIEF_BYTES
    }

    /// Runs a batch, and those that become due for the same instance meanwhile, for a short time.
    fn run_here(&self, first: Assignment, since: Moment) {
        let mut next = Some(first);
        while let Some(assignment) = next {
            let instance = assignment.instance;
            next = self.run(assignment, &mut None);
            let stays = |next: &mut Assignment| !self.may_run_here(next) || now() - since > BRIEF_TIME;
            if let Some(late) = next.take_if(stays) {
                self.mailboxes[instance].put(Mail::Work(late));
            }
        }
    }

    /// Runs a batch on this thread. Gives back the next one for the same instance, if one is due.
    fn run(
        &self,
        assignment: Assignment,
        pinned: &mut Option<Box<dyn BackendInstance>>,
    ) -> Option<Assignment> {
        let Assignment { instance, mut batch, mut mobile } = assignment;
        let start = now();
        batch.executions.retain_mut(|execution| !answer_if_cancelled(execution));
        let has_work = !batch.executions.is_empty();
        if has_work {
            let outcome = catch_unwind(AssertUnwindSafe(|| match (&mut mobile, pinned.as_mut()) {
                (Some(mobile), _) => mobile.execute(batch),
                (None, Some(pinned)) => pinned.execute(batch),
                (None, None) => unreachable!("an instance lies on its thread or comes with its work"),
            }));
            if let Err(panic) = outcome {
                self.die(panic.as_ref());
                // Its state is unknown and it is not used again; but it may hold requests that want an answer, which
                // dropping it gives. A second panic tells nothing new.
                let _ = catch_unwind(AssertUnwindSafe(|| drop((mobile, pinned.take()))));
                return None;
            }
        }
        let end = now();
        let nanos = u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX);
        let mut driver = self.driver.lock();
        driver.finished(instance, mobile, has_work.then_some(nanos));
        let duties = driver.settle(end, self.order.as_ref());
        drop(driver);
        self.tell_if_draining();
        self.fulfil(duties, |assignment, _| assignment.instance == instance)
    }

    /// Does what a visit to the driver asked for, but keeps the first batch that `keep` wants.
    fn fulfil(&self, duties: Duties, keep: impl Fn(&Assignment, bool) -> bool) -> Option<Assignment> {
        self.refuse(duties.rejected);
        if let Some(at) = duties.alarm {
            self.clock.call(at, self.me.clone());
        }
        let mut kept = None;
        for assignment in duties.assignments {
            if kept.is_none() && keep(&assignment, duties.brief) {
                kept = Some(assignment);
            } else {
                self.mailboxes[assignment.instance].put(Mail::Work(assignment));
            }
        }
        kept
    }

    fn refuse(&self, rejected: Vec<Rejected<Execution>>) {
        for Rejected { payload, reason } in rejected {
            let error = self.fault().cloned().unwrap_or_else(|| rejection_error(reason, &payload.request.id));
            payload.responder.fail(error);
        }
    }

    /// A visit that may find work for any instance.
    fn visit(&self, news: impl FnOnce(&mut Driver) -> Vec<Rejected<Execution>>) {
        let mut driver = self.driver.lock();
        let rejected = news(&mut driver);
        let duties = driver.settle(now(), self.order.as_ref());
        drop(driver);
        self.refuse(rejected);
        self.fulfil(duties, |_, _| false);
    }

    /// The backend has panicked: nothing runs here any more, and what waits is answered.
    fn die(&self, panic: &(dyn std::any::Any + Send)) {
        let words = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!(
            "the backend of model '{}' version {} panicked: {}",
            self.name(),
            self.version,
            words.unwrap_or("for an unknown reason")
        );
        log::error!("{message}");
        let fault = Error::internal(message).because(FailureReason::Backend);
        let _ = self.fault.set(fault);
        let waiting = {
            let mut driver = self.driver.lock();
            driver.lost();
            driver.give_up()
        };
        self.refuse(waiting);
        self.tell_if_draining();
    }

    /// Why the version cannot be used any more, if so.
    pub(crate) fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        self.record.read(self.name(), self.version)
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
        self.visit(|driver| {
            driver.drain();
            Vec::new()
        });
    }

    /// Drains, waits until the last request has ended, and ends the instances on their threads. Blocks.
    pub(crate) fn close(&self) {
        self.drain();
        let mut driver = self.driver.lock();
        while self.in_flight() > 0 || !driver.is_idle() {
            self.ended.wait(&mut driver);
        }
        let resting = driver.release_resting();
        drop(driver);
        for (mailbox, mobile) in self.mailboxes.iter().zip(resting) {
            mailbox.put(Mail::Leave(mobile));
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A thread that has panicked has told so already.
            let _ = thread.join();
        }
    }

    fn mailbox(&self, instance: InstanceId) -> &Mailbox {
        &self.mailboxes[instance]
    }

    fn tell_if_draining(&self) {
        if self.draining.load(Ordering::SeqCst) {
            drop(self.driver.lock());
            self.ended.notify_all();
        }
    }
}

/// Inputs up to this size are run where their request arrives.
const BRIEF_BYTES: usize = 64 << 10;
/// How long a caller's thread runs batches of others after its own.
const BRIEF_TIME: Duration = Duration::from_micros(100);

fn input_bytes(batch: &Batch) -> usize {
    batch
        .executions
        .iter()
        .flat_map(|execution| execution.request.tensors())
        .map(|tensor| tensor.data().len())
        .sum()
}

/// The last look before a batch runs. True if there was nobody left to run the request for.
fn answer_if_cancelled(execution: &mut Execution) -> bool {
    let cancelled = execution.responder.is_cancelled();
    if cancelled {
        let error = Error::new(ErrorCode::Cancelled, "Request cancelled").because(FailureReason::Cancelled);
        execution.responder.clone().fail(error);
    }
    cancelled
}

impl Observe for Model {
    fn ended(&self, timeline: &Timeline, outcome: Outcome<'_>) {
        self.record.request_ended(timeline, outcome, now());
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.tell_if_draining();
    }

    fn cancelled(&self) {
        self.visit(Driver::sweep);
    }
}

impl Sleeper for Model {
    fn wake(self: Arc<Self>) {
        self.visit(|driver| {
            driver.woken();
            Vec::new()
        });
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

#[cfg(test)]
mod tests;
