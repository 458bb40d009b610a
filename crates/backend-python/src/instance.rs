//! An instance of a model in Python, as the engine runs it.
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use config::{ModelConfig, Scheduling};
use inference::backend::{BackendInstance, Batch, InstanceDevice, InstanceSpec};
use vocabulary::{Error, FailureReason};

use crate::{
    answering::reading::SessionReader,
    instance_queue::{AddedBatch, InstanceQueue, unhealthy},
    model_code::ModelCode,
    model_context::ModelContext,
    pace::ExecutionPace,
    restart::RestartPolicy,
    supervisor::Supervisor,
    wakeup_fd::WakeupFd,
    wire::frames::WorkerFrameKind,
    worker::{CommandFailure, Worker, command_frame},
};

/// An instance and the thread that serves its worker. Dropping it waits until all that it was given has ended, and
/// finalizes the model.
pub(crate) struct PythonInstance {
    queue: Arc<InstanceQueue>,
    thread: Option<JoinHandle<()>>,
}

impl PythonInstance {
    /// Initializes the model in a worker. `spare` is a worker of the model that has no instance yet.
    ///
    /// # Errors
    /// The worker does not start, or the model does not initialize itself.
    pub(crate) fn start(
        model: &Arc<ModelContext>,
        spare: Option<Worker>,
        (config, config_json): (&Arc<ModelConfig>, &str),
        spec: &InstanceSpec,
    ) -> Result<Self, Error> {
        let instance = spec.name.to_string();
        let mut worker = match spare {
            Some(worker) => worker,
            None => {
                let alarm = WakeupFd::new()
                    .map_err(|errno| Error::internal(format!("failed to start '{instance}': {errno}")))?;
                Worker::launch(model, &instance, &Arc::new(alarm))?
            }
        };
        let arguments = arguments(model, config_json, spec);
        let frame = command_frame(WorkerFrameKind::Initialize, &[&arguments]);
        let execution_kind = worker.command(frame, None, || false).map_err(|failure| match failure {
            CommandFailure::Refused(text) => Error::internal(text).because(FailureReason::Backend),
            CommandFailure::Ended
            | CommandFailure::Late
            | CommandFailure::Unwanted
            | CommandFailure::Stopped => unhealthy(&instance),
        })?;
        let pace = pace(model, config, &execution_kind);
        let alarm = worker.session.alarm().clone();
        let queue = InstanceQueue::new(&instance, config.clone(), worker.session.clone(), alarm, pace);
        let queue = Arc::new(queue);
        let supervisor = Supervisor {
            instance: instance.clone(),
            model: model.clone(),
            queue: queue.clone(),
            arguments,
            restarts: RestartPolicy::default(),
        };
        let thread = thread::Builder::new().name(instance.clone()).spawn(move || supervisor.run(worker));
        let thread = thread.map_err(|error| {
            Error::internal(format!("failed to start the thread of instance '{instance}': {error}"))
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// What tells whether the instance has a worker.
    pub(crate) fn queue(&self) -> &Arc<InstanceQueue> {
        &self.queue
    }
}

/// The arguments of `initialize`, as JSON. All values are texts.
fn arguments(model: &ModelContext, config_json: &str, spec: &InstanceSpec) -> String {
    let (kind, device) = match spec.device {
        InstanceDevice::Cpu => ("CPU", 0),
        InstanceDevice::Gpu(device) => ("GPU", device),
        InstanceDevice::Model => ("MODEL", 0),
    };
    let mut arguments = serde_json::json!({
        "model_config": config_json,
        "model_instance_kind": kind,
        "model_instance_device_id": device.to_string(),
        "model_instance_name": spec.name.as_str(),
        "model_repository": model.model_directory.to_string_lossy(),
        "model_version": model.version.to_string(),
        "model_name": model.name.as_str(),
    });
    // Models of users get what Triton gives them.
    if matches!(model.code, ModelCode::Modules(_)) {
        arguments["model_instance_threads"] = spec.threads.to_string().into();
    }
    arguments.to_string()
}

/// A model works ahead if nobody decides about its batches: neither a batcher nor the rate limiter.
fn pace(model: &ModelContext, config: &ModelConfig, execution_kind: &str) -> ExecutionPace {
    let is_unbatched = matches!(config.scheduling, Scheduling::Unbatched);
    let is_limited = config.instance_groups.iter().any(|group| !group.rate_limiter.resources.is_empty());
    let concurrent = match (execution_kind, model.parameters.concurrent_executions) {
        ("async", Some(concurrent)) => concurrent,
        (_, Some(_)) => {
            log::warn!(
                "parameter 'MAX_CONCURRENT_EXECUTIONS' of model '{}' has no effect: its function execute is no coroutine",
                model.name
            );
            1
        }
        (_, None) => 1,
    };
    // A coroutine may wait for long, whatever its executions took.
    ExecutionPace::new(is_unbatched && !is_limited && execution_kind != "async", concurrent)
}

impl BackendInstance for PythonInstance {
    /// Gives a batch to the worker, or lets it wait. Blocks until the instance may take another one, unless `is_brief` was
    /// true: then this takes a fraction of a millisecond at most.
    fn execute(&mut self, batch: Batch) {
        let queue = &*self.queue;
        let AddedBatch { due, reads, waits } = queue.add(batch);
        match due {
            Some((session, calls)) if reads => {
                SessionReader { session: &session, queue }.send_and_read(calls);
            }
            Some((session, calls)) => queue.send(&session, calls),
            None => {}
        }
        // A worker that ends meanwhile concerns the next batch: this thread may be one of the network.
        if waits {
            queue.wait_for_room();
        }
    }

    fn is_brief(&self) -> Option<bool> {
        // Whoever waits for the worker must not be a network thread.
        Some(!self.queue.would_wait())
    }
}

impl Drop for PythonInstance {
    fn drop(&mut self) {
        self.queue.leave();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has already logged the panic.
            let _ = thread.join();
        }
    }
}
