//! Instance threads: each builds one instance, runs what is put into its mailbox, and drops the instance.
use std::{
    io,
    sync::{Arc, mpsc},
    thread,
};

use inference::{
    Error,
    backend::{BackendInstance, BackendModel, Instance, InstanceSpec},
    config::ModelConfig,
};
use parking_lot::{Condvar, Mutex};
use rustix::process::setpriority_process;
use scheduling::InstanceId;

use super::{Model, driver::Assignment, warmup::WarmUp};
use crate::host_policy::Placed;

/// An instance that any one thread at a time may run.
pub(super) type Mobile = Box<dyn BackendInstance + Send>;

/// Where one instance thread finds its work. At most one thing lies in it: an instance gets the next batch only when it
/// is idle.
#[derive(Default)]
pub(super) struct Mailbox {
    mail: Mutex<Option<Mail>>,
    arrived: Condvar,
}

/// What an instance thread is told.
pub(super) enum Mail {
    /// Run a batch.
    Work(Assignment),
    /// Drop the instance, which is given back if it lay elsewhere, and end.
    Leave(Option<Mobile>),
}

impl Mailbox {
    pub(super) fn put(&self, mail: Mail) {
        let before = self.mail.lock().replace(mail);
        debug_assert!(before.is_none(), "an instance gets one thing at a time");
        self.arrived.notify_one();
    }

    fn take(&self) -> Mail {
        let mut mail = self.mail.lock();
        loop {
            match mail.take() {
                Some(mail) => return mail,
                None => self.arrived.wait(&mut mail),
            }
        }
    }
}

/// An instance that has been built and waits to be told which model it belongs to.
pub(super) struct Built {
    /// `None` for an instance that stays on its thread.
    pub(super) mobile: Option<Mobile>,
    employ: mpsc::Sender<Arc<Model>>,
    thread: thread::JoinHandle<()>,
}

impl Built {
    /// Lets the thread work for `model`. Gives back what joins the thread.
    pub(super) fn employ(self, model: &Arc<Model>) -> thread::JoinHandle<()> {
        // Refused only if the thread has died, which joining will tell.
        let _ = self.employ.send(model.clone());
        self.thread
    }
}

/// What every instance of a model is made of.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) backend: Arc<dyn BackendModel>,
    pub(super) config: Arc<ModelConfig>,
    pub(super) warm_up: Arc<WarmUp>,
}

impl Recipe {
    /// Builds an instance on the thread that asks, where the instance's host policy wants it, and warms it up if it will
    /// have work.
    fn build(&self, placed: &Placed) -> Result<Instance, Error> {
        let spec = placed.bind_this_thread()?;
        if self.config.low_priority {
            give_way(&spec)?;
        }
        let instance = self.build_here(&spec)?;
        Ok(match instance {
            // Other threads do not run where the policy says, or as the priority says.
            Instance::Movable(mobile) if placed.is_bound() || self.config.low_priority => {
                Instance::ThreadBound(mobile)
            }
            instance => instance,
        })
    }

    fn build_here(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let mut instance = self.backend.instance(&self.config, spec)?;
        if !spec.passive {
            match &mut instance {
                Instance::Movable(mobile) => self.warm_up.run(&spec.name, &mut **mobile)?,
                Instance::ThreadBound(pinned) => self.warm_up.run(&spec.name, &mut **pinned)?,
            }
        }
        Ok(instance)
    }
}

/// Lets the calling thread, and those it starts, have only the processor time that others leave.
fn give_way(spec: &InstanceSpec) -> Result<(), Error> {
    // On Linux the priority of "this process" is the calling thread's.
    setpriority_process(None, LOWEST_PRIORITY).map_err(|error| {
        Error::internal(format!("failed to lower the priority of instance '{}': {error}", spec.name))
    })
}

/// As a nice level.
const LOWEST_PRIORITY: i32 = 19;

/// Builds all instances of a model, each on its own thread, side by side if the backend can.
///
/// # Errors
/// The first error of an instance, once all have been tried; those that were built are dropped on their threads.
pub(super) fn build_all(recipe: &Recipe, instances: &[Placed]) -> Result<Vec<Built>, Error> {
    let starting = instances.iter().enumerate().map(|(id, placed)| (placed, start(id, recipe, placed)));
    let built: Vec<_> = if recipe.backend.builds_in_parallel() {
        let starting: Vec<_> = starting.collect();
        starting.into_iter().map(await_built).collect()
    } else {
        starting.map(await_built).collect()
    };
    built.into_iter().collect()
}

/// Waits until an instance has been built.
fn await_built((placed, starting): (&Placed, io::Result<Starting>)) -> Result<Built, Error> {
    let name = &placed.spec.name;
    let starting = starting.map_err(|error| {
        Error::internal(format!("failed to start the thread of instance '{name}': {error}"))
    })?;
    let mobile = starting.ready.recv().unwrap_or_else(|_| {
        Err(Error::internal(format!("the backend panicked while building instance '{name}'")))
    })?;
    Ok(Built { mobile, employ: starting.employ, thread: starting.thread })
}

struct Starting {
    ready: mpsc::Receiver<Result<Option<Mobile>, Error>>,
    employ: mpsc::Sender<Arc<Model>>,
    thread: thread::JoinHandle<()>,
}

fn start(id: InstanceId, recipe: &Recipe, placed: &Placed) -> io::Result<Starting> {
    let (report, ready) = mpsc::channel();
    let (employ, employer) = mpsc::channel::<Arc<Model>>();
    let (recipe, placed) = (recipe.clone(), placed.clone());
    let name = placed.spec.name.to_string();
    let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
        let pinned = match recipe.build(&placed) {
            Ok(Instance::Movable(mobile)) => {
                let _ = report.send(Ok(Some(mobile)));
                None
            }
            Ok(Instance::ThreadBound(pinned)) => {
                let _ = report.send(Ok(None));
                Some(pinned)
            }
            Err(error) => {
                // First, so that whoever hears of the error and gives the model up is the last to have it.
                drop(recipe);
                let _ = report.send(Err(error));
                return;
            }
        };
        // Nobody employs the instance if a sibling could not be built.
        if let Ok(model) = employer.recv() {
            work(&model, id, pinned);
        }
    })?;
    Ok(Starting { ready, employ, thread })
}

/// As much as C++ backends are used to; Rust's default is smaller.
const STACK_BYTES: usize = 8 << 20;

/// The life of an instance thread after its instance was built.
fn work(model: &Arc<Model>, id: InstanceId, mut pinned: Option<Box<dyn BackendInstance>>) {
    loop {
        match model.mailbox(id).take() {
            Mail::Leave(mobile) => return drop(mobile),
            Mail::Work(first) => {
                let mut next = Some(first);
                while let Some(assignment) = next {
                    next = model.run(assignment, &mut pinned);
                }
            }
        }
    }
}
