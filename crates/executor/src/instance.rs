//! Instance threads. Each builds one instance, runs the work from its work slot, and drops the instance.
use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use config::ModelConfig;
use host::{GroupThread, InstancePlan, ThreadGroup};
use inference::{
    backend::{BackendInstance, BackendModel, BuiltInstance, Execution, InstanceSpec},
    sync::{Condvar, Mutex},
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

/// Holds the next work of one instance thread. It holds at most one batch, because an instance gets the next one only when
/// it is idle. If the driver were wrong, a second message would wait, and would not replace the first one.
#[derive(Default)]
pub(super) struct InstanceMailbox {
    messages: Mutex<VecDeque<InstanceMessage>>,
    arrived: Condvar,
}

/// A message to an instance thread.
pub(super) enum InstanceMessage {
    /// Run a batch.
    Work(Assignment),
    /// Drop an instance that has panicked on another thread.
    Discard(MovableInstance),
    /// Drop the instance and end. The message returns an instance that the driver held.
    Shutdown(Option<MovableInstance>),
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
}

/// An instance that is built, and whose thread waits for the model it belongs to.
pub(super) struct StartedInstance {
    /// `None` for an instance that only its own thread may run.
    pub(super) movable: Option<MovableInstance>,
    attachment_sender: mpsc::Sender<Attachment>,
    thread: GroupThread,
}

/// Runs a batch on the thread of an instance. The second argument is the instance, if only this thread may run it.
pub(super) type RunWork = Arc<dyn Fn(Assignment, &mut Option<Box<dyn BackendInstance>>) + Send + Sync>;

/// What runs the work of an instance, and where the work comes from.
type Attachment = (RunWork, Arc<InstanceMailbox>);

impl StartedInstance {
    /// Lets the thread run the work of `work_slot`. Returns the thread.
    pub(super) fn attach(self, run: RunWork, work_slot: Arc<InstanceMailbox>) -> GroupThread {
        // Fails only if the thread has panicked. The join reports that.
        let _ = self.attachment_sender.send((run, work_slot));
        self.thread
    }

    /// Drops the instance on its thread, and waits for the thread's end. Blocks.
    pub(super) fn discard(self) {
        drop((self.attachment_sender, self.movable));
        self.thread.join();
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
    all.into_iter().for_each(|built| builder.threads.adopt(built.thread));
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
        Ok(movable) => Ok(StartedInstance {
            movable,
            attachment_sender: starting.attachment_sender,
            thread: starting.thread,
        }),
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
        let thread_bound = match builder.build(&placed) {
            Ok(BuiltInstance::Movable(movable)) => {
                let _ = report.send(Ok(Some(movable)));
                None
            }
            Ok(BuiltInstance::ThreadBound(thread_bound)) => {
                let _ = report.send(Ok(None));
                Some(thread_bound)
            }
            Err(error) => {
                // Dropped first: the thread that receives the error then holds the last reference to the backend's
                // model, and drops it.
                drop(builder);
                let _ = report.send(Err(error));
                return;
            }
        };
        // Fails if another instance of the model could not be built. The instance then gets no executor.
        if let Ok((run, work_slot)) = attachments.recv() {
            work(&run, &work_slot, thread_bound);
        }
    })?;
    Ok(Starting { ready, attachment_sender, thread })
}

/// The stack size that C++ backends expect. Rust's default is smaller.
const STACK_BYTES: usize = 8 << 20;

/// Drops an instance that has panicked, which answers the requests that it may still hold. A second panic adds no
/// information.
pub(super) fn discard<I>(instance: I) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(instance)));
}

/// What an instance thread does after it has built its instance.
fn work(run: &RunWork, work_slot: &InstanceMailbox, mut thread_bound: Option<Box<dyn BackendInstance>>) {
    loop {
        match work_slot.take() {
            InstanceMessage::Shutdown(movable) => return drop(movable),
            InstanceMessage::Discard(movable) => discard(movable),
            InstanceMessage::Work(first) => run(first, &mut thread_bound),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_second_message_waits_and_replaces_nothing() {
        let work_slot = InstanceMailbox::default();
        let batch = ScheduledBatch { instance: 7, rows: Vec::new(), end: scheduling::CutReason::Unbatched };
        work_slot.put(InstanceMessage::Work(Assignment { batch, movable: None }));
        work_slot.put(InstanceMessage::Shutdown(None));
        assert!(matches!(work_slot.take(), InstanceMessage::Work(first) if first.batch.instance == 7));
        assert!(matches!(work_slot.take(), InstanceMessage::Shutdown(None)));
    }
}
