//! A model version in Python: its configuration, its instances and their readiness.
use std::{
    num::NonZeroU32,
    sync::{Arc, Weak},
};

use config::ModelConfig;
use inference::{
    backend::{BackendModel, BuiltInstance, InstanceSpec, MemoryUsage},
    lock::Mutex,
};
use vocabulary::{Error, FailureReason, MemoryKind};

use crate::{
    instance::PythonInstance,
    instance_queue::{InstanceQueue, unhealthy},
    model_context::ModelContext,
    wakeup_fd::WakeupFd,
    wire::frames::WorkerFrameKind,
    worker::{CommandFailure, Worker, command_frame},
};

/// See the module documentation.
pub(crate) struct PythonModel {
    context: Arc<ModelContext>,
    /// The worker that has completed the configuration. The first instance takes it.
    spare: Mutex<Option<Worker>>,
    /// The configuration that instances get, as JSON.
    config_json: Mutex<String>,
    queues: Mutex<Vec<Weak<InstanceQueue>>>,
}

impl PythonModel {
    pub(crate) fn new(context: Arc<ModelContext>) -> Self {
        Self { context, spare: Mutex::default(), config_json: Mutex::default(), queues: Mutex::default() }
    }

    /// Triton's name for the worker that completes a configuration.
    fn spare_name(&self) -> String {
        format!("{}_0", self.context.name)
    }
}

impl BackendModel for PythonModel {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        let name = self.spare_name();
        let alarm =
            WakeupFd::new().map_err(|errno| Error::internal(format!("failed to start '{name}': {errno}")))?;
        let mut worker = Worker::launch(&self.context, &name, &Arc::new(alarm))?;
        let json = proto::json::to_json(config);
        let completed = worker.command(command_frame(WorkerFrameKind::Complete, &[&json]), None, || false);
        let completed = completed.map_err(|failure| match failure {
            CommandFailure::Refused(text) => Error::internal(text).because(FailureReason::Backend),
            CommandFailure::Ended
            | CommandFailure::Late
            | CommandFailure::Unwanted
            | CommandFailure::Stopped => unhealthy(&name),
        })?;
        if !completed.is_empty() {
            *config = proto::json::parse(&completed)
                .map_err(|error| {
                    Error::internal(format!(
                        "the configuration that auto_complete_config of model '{}' returns is wrong: {error}",
                        self.context.name
                    ))
                })?
                .config;
        }
        *self.spare.lock() = Some(worker);
        Ok(None)
    }

    fn configured(&self, config: &proto::ModelConfig) {
        *self.config_json.lock() = proto::json::to_json(config);
    }

    fn memory_usage(&self) -> Vec<MemoryUsage> {
        let byte_size = self.context.process_memory.bytes();
        vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }]
    }

    fn process_restarts(&self) -> Option<u64> {
        Some(self.context.restart_counter.value())
    }

    fn copies_foreign_memory(&self) -> bool {
        true
    }

    fn reports_readiness(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<(), Error> {
        let queues: Vec<_> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            queue.ready()?;
        }
        Ok(())
    }

    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        let spare = self.spare.lock().take();
        let json = self.config_json.lock().clone();
        let instance = PythonInstance::start(&self.context, spare, (config, &json), spec)?;
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(instance.queue()));
        Ok(BuiltInstance::Movable(Box::new(instance)))
    }
}
