//! Instances and what runs them. Each is built on a thread of its own. One that only its own thread may run stays there, and
//! the thread takes its work from a mailbox. Any other one has no thread while it is idle: what network threads do not run
//! themselves, the threads that all models share do.
use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use config::ModelConfig;
use host::{GroupThread, InstancePlan, PoolWork, ThreadGroup};
use inference::{
    backend::{BackendInstance, BackendModel, BuiltInstance, Execution, InstanceSpec},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use rustix::process::setpriority_process;
use scheduling::ScheduledBatch;
use vocabulary::Error;

use super::warmup::WarmUp;

/// An instance that any thread may run, one at a time.
pub(super) type MovableInstance = Box<dyn BackendInstance + Send>;

/// A batch and its instance.
pub(super) struct Assignment {
    pub(super) batch: ScheduledBatch<Box<Execution>>,
    /// The instance itself, unless only its own thread may run it.
    pub(super) movable: Option<MovableInstance>,
}

/// Runs batches that have waited for a thread.
pub(super) trait RunsBatches: Send + Sync {
    /// Runs a batch, and then the batches that become due for the same instance. The last argument is the instance, if
    /// only this thread may run it.
    fn run_own(self: Arc<Self>, first: Assignment, thread_bound: &mut Option<Box<dyn BackendInstance>>);
}

/// What the threads that all models share do for an instance.
pub(crate) enum InstanceWork {
    /// Run a batch.
    Run(Arc<dyn RunsBatches>, Assignment),
    /// Drop an instance that has panicked on another thread.
    Discard(MovableInstance),
    /// Drop an instance that has left.
    End(MovableInstance, Arc<InstanceMailbox>),
}

impl PoolWork for InstanceWork {
    fn perform(self) {
        match self {
            Self::Run(runner, first) => runner.run_own(first, &mut None),
            Self::Discard(movable) => discard(movable),
            Self::End(movable, mailbox) => {
                // Its end is told, also if it panics.
                discard(movable);
                mailbox.end();
            }
        }
    }
}

/// Holds the next work of an instance that has its own thread. It holds at most one batch, because an instance gets the
/// next one only when it is idle. If the driver were wrong, a second message would wait, and would not replace the first
/// one.
#[derive(Default)]
pub(super) struct InstanceMailbox {
    messages: Mutex<VecDeque<InstanceMessage>>,
    arrived: Condvar,
    /// An instance without its own thread has been dropped. It is asked for with other locks held.
    has_ended: AtomicBool,
    ended: Condvar,
}

/// A message to an instance thread.
pub(super) enum InstanceMessage {
    /// Run a batch.
    Work(Assignment),
    /// Drop the instance and end.
    Shutdown,
}

impl InstanceMailbox {
    pub(super) fn put(&self, message: InstanceMessage) {
        let is_work = matches!(message, InstanceMessage::Work(_));
        let waiting = {
            let mut messages = self.messages.lock();
            messages.push_back(message);
            messages.len()
        };
        self.arrived.notify_one();
        if waiting > 1 && is_work {
            log::error!("an instance has {waiting} messages at a time; all are taken, one after the other");
        }
    }

    pub(super) fn take(&self) -> InstanceMessage {
        let mut messages = self.messages.lock();
        loop {
            match messages.pop_front() {
                Some(message) => return message,
                None => self.arrived.wait(&mut messages),
            }
        }
    }

    /// An instance without its own thread has ended.
    pub(super) fn end(&self) {
        self.has_ended.store(true, SeqCst);
        // A thread that waits has either seen the mark or gets the signal.
        drop(self.messages.lock());
        self.ended.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    fn wait_for_end(&self) {
        let mut messages = self.messages.lock();
        while !self.has_ended() {
            self.ended.wait(&mut messages);
        }
    }
}

/// Where an instance is run, and how its end is noticed.
pub(super) enum InstanceHome {
    /// Its own thread.
    Own(GroupThread),
    /// The threads that all models share.
    Shared(Arc<InstanceMailbox>),
}

impl InstanceHome {
    /// Whether the instance has been dropped.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Own(thread) => thread.has_ended(),
            Self::Shared(mailbox) => mailbox.has_ended(),
        }
    }

    /// Waits until the instance has been dropped. Blocks.
    pub(super) fn join(self) {
        match self {
            Self::Own(thread) => thread.join(),
            Self::Shared(mailbox) => mailbox.wait_for_end(),
        }
    }

    /// Lets the end of the engine wait for it.
    pub(super) fn adopt(self, threads: &ThreadGroup) {
        match self {
            Self::Own(thread) => threads.adopt(thread),
            // The shared threads do what waits before they end.
            Self::Shared(_) => {}
        }
    }
}

/// An instance that is built. If it has its own thread, that waits for the model it belongs to.
pub(super) struct StartedInstance {
    /// `None` for an instance that only its own thread may run.
    pub(super) movable: Option<MovableInstance>,
    own_thread: Option<OwnThread>,
}

struct OwnThread {
    attachment_sender: mpsc::Sender<Attachment>,
    thread: GroupThread,
}

/// What runs the work of an instance, and where the work comes from.
type Attachment = (Arc<dyn RunsBatches>, Arc<InstanceMailbox>);

impl StartedInstance {
    /// Lets the instance's own thread, if it has one, run the work of `mailbox`.
    pub(super) fn attach(self, runner: Arc<dyn RunsBatches>, mailbox: Arc<InstanceMailbox>) -> InstanceHome {
        match self.own_thread {
            Some(OwnThread { attachment_sender, thread }) => {
                // Fails only if the thread has panicked. The join reports that.
                let _ = attachment_sender.send((runner, mailbox));
                InstanceHome::Own(thread)
            }
            None => InstanceHome::Shared(mailbox),
        }
    }

    /// Drops the instance: on its own thread if it has one, for whose end this waits. Blocks.
    pub(super) fn discard(self) {
        discard(self.movable);
        if let Some(OwnThread { attachment_sender, thread }) = self.own_thread {
            drop(attachment_sender);
            thread.join();
        }
    }
}

/// What every instance of a model is built from.
#[derive(Clone)]
pub(super) struct InstanceBuilder {
    pub(super) backend: Arc<dyn BackendModel>,
    pub(super) config: Arc<ModelConfig>,
    pub(super) warm_up: Arc<WarmUp>,
    /// Waits for the threads of instances that get no executor. Executors wait for their threads themselves.
    pub(super) threads: ThreadGroup,
}

impl InstanceBuilder {
    /// Builds an instance on the calling thread, on the processors of the instance's host policy, and warms it up
    /// unless it is passive.
    fn build(&self, placed: &InstancePlan) -> Result<BuiltInstance, Error> {
        let spec = placed.bind_this_thread()?;
        if self.config.low_priority {
            lower_priority(&spec)?;
        }
        let instance = self.build_here(&spec)?;
        Ok(match instance {
            // Other threads have neither the processors of the policy nor the low priority.
            BuiltInstance::Movable(movable) if placed.is_bound() || self.config.low_priority => {
                BuiltInstance::ThreadBound(movable)
            }
            instance => instance,
        })
    }

    fn build_here(&self, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        let mut instance = self.backend.instance(&self.config, spec)?;
        if !spec.passive {
            match &mut instance {
                BuiltInstance::Movable(movable) => self.warm_up.run(&spec.name, &mut **movable)?,
                BuiltInstance::ThreadBound(thread_bound) => {
                    self.warm_up.run(&spec.name, &mut **thread_bound)?;
                }
            }
        }
        Ok(instance)
    }
}

/// Gives the calling thread, and the threads that it starts, the lowest priority.
fn lower_priority(spec: &InstanceSpec) -> Result<(), Error> {
    // On Linux the priority of "this process" is that of the calling thread.
    setpriority_process(None, LOWEST_PRIORITY).map_err(|error| {
        Error::internal(format!("failed to lower the priority of instance '{}': {error}", spec.name))
    })
}

/// The lowest priority, as a nice level.
const LOWEST_PRIORITY: i32 = 19;

/// Builds all instances of a model, each on its own thread, in parallel if the backend can.
///
/// # Errors
/// The first error of an instance, after all have been tried. The built instances are dropped on their threads.
pub(super) fn build_all(
    builder: &InstanceBuilder,
    instances: &[InstancePlan],
) -> Result<Vec<StartedInstance>, Error> {
    let starting = instances.iter().map(|placed| (placed, start(builder, placed)));
    let built: Vec<_> = if builder.backend.builds_in_parallel() {
        let starting: Vec<_> = starting.collect();
        starting.into_iter().map(|starting| await_built(builder, starting)).collect()
    } else {
        starting.map(|starting| await_built(builder, starting)).collect()
    };
    let mut all = Vec::new();
    let mut failure = None;
    for result in built {
        match result {
            Ok(built) => all.push(built),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(failure) = failure else { return Ok(all) };
    for StartedInstance { movable, own_thread } in all {
        discard(movable);
        own_thread.into_iter().for_each(|own| builder.threads.adopt(own.thread));
    }
    Err(failure)
}

/// Waits until an instance is built.
fn await_built(
    builder: &InstanceBuilder,
    (placed, starting): (&InstancePlan, io::Result<Starting>),
) -> Result<StartedInstance, Error> {
    let name = &placed.spec.name;
    let starting = starting.map_err(|error| {
        Error::internal(format!("failed to start the thread of instance '{name}': {error}"))
    })?;
    let built = starting.ready.recv().unwrap_or_else(|_| {
        Err(Error::internal(format!("the backend panicked while building instance '{name}'")))
    });
    match built {
        Ok(None) => {
            let Starting { attachment_sender, thread, .. } = starting;
            Ok(StartedInstance { movable: None, own_thread: Some(OwnThread { attachment_sender, thread }) })
        }
        Ok(Some(movable)) => {
            builder.threads.adopt(starting.thread);
            Ok(StartedInstance { movable: Some(movable), own_thread: None })
        }
        Err(error) => {
            builder.threads.adopt(starting.thread);
            Err(error)
        }
    }
}

struct Starting {
    ready: mpsc::Receiver<Result<Option<MovableInstance>, Error>>,
    attachment_sender: mpsc::Sender<Attachment>,
    thread: GroupThread,
}

fn start(builder: &InstanceBuilder, placed: &InstancePlan) -> io::Result<Starting> {
    let (report, ready) = mpsc::channel();
    let (attachment_sender, attachments) = mpsc::channel::<Attachment>();
    let (builder, placed) = (builder.clone(), placed.clone());
    let name = placed.spec.name.to_string();
    let threads = builder.threads.clone();
    let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
    let thread = threads.start(thread, move || {
        let built = builder.build(&placed);
        // Dropped first: the thread that receives the result then holds the last reference to the backend's model, and
        // drops it.
        drop(builder);
        let thread_bound = match built {
            Ok(BuiltInstance::ThreadBound(thread_bound)) => thread_bound,
            Ok(BuiltInstance::Movable(movable)) => return drop(report.send(Ok(Some(movable)))),
            Err(error) => return drop(report.send(Err(error))),
        };
        let _ = report.send(Ok(None));
        // Fails if another instance of the model could not be built. The instance then gets no executor.
        if let Ok((runner, mailbox)) = attachments.recv() {
            work(&runner, &mailbox, Some(thread_bound));
        }
    })?;
    Ok(Starting { ready, attachment_sender, thread })
}

/// The stack size that C++ backends expect. Rust's default is smaller.
pub(super) const STACK_BYTES: usize = 8 << 20;

/// Drops an instance that has panicked, which answers the requests that it may still hold. A second panic adds no
/// information.
pub(super) fn discard<I>(instance: I) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(instance)));
}

/// What the thread of an instance does after it has built the instance.
fn work(
    runner: &Arc<dyn RunsBatches>,
    mailbox: &InstanceMailbox,
    mut thread_bound: Option<Box<dyn BackendInstance>>,
) {
    loop {
        match mailbox.take() {
            InstanceMessage::Shutdown => return,
            InstanceMessage::Work(first) => runner.clone().run_own(first, &mut thread_bound),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_second_message_waits_and_replaces_nothing() {
        let mailbox = InstanceMailbox::default();
        let batch = ScheduledBatch { instance: 7, rows: Vec::new(), end: scheduling::CutReason::Unbatched };
        mailbox.put(InstanceMessage::Work(Assignment { batch, movable: None }));
        mailbox.put(InstanceMessage::Shutdown);
        assert!(matches!(mailbox.take(), InstanceMessage::Work(first) if first.batch.instance == 7));
        assert!(matches!(mailbox.take(), InstanceMessage::Shutdown));
    }
}
