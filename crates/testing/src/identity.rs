//! A backend that returns its inputs, with the delay or the failure that the model's configuration sets.
use std::{sync::Arc, thread, time::Duration};

use config::ModelConfig;
use inference::{
    Request, Response,
    backend::{
        Backend, BackendInstance, BackendModel, Batch, BuiltInstance, InstanceSpec, ModelInspection,
        ModelSource,
    },
};
use vocabulary::{Error, FailureReason, Tensor};

use crate::Gate;

/// The backend `identity`: output n has the bytes and the shape of input n.
///
/// Parameters of a model's configuration change the behaviour:
/// - `delay_us`: the duration of an execution in microseconds, whatever its batch,
/// - `failure`: every request fails with that text,
/// - `instance`: `pinned` (thread-bound, the default) or `mobile` (movable).
pub struct Identity {
    gate: Arc<Gate>,
}

impl Identity {
    /// A backend whose executions wait at `gate`. Each execution counts as one caller.
    pub fn behind(gate: Arc<Gate>) -> Self {
        Self { gate }
    }

    /// The text of a configuration for a model of this backend: `IN` to `OUT`, INT32 of any length. `rest` is appended.
    pub fn config(rest: &str) -> String {
        format!(
            "backend: \"identity\"\n\
             input [{{name: \"IN\" data_type: TYPE_INT32 dims: [-1]}}]\n\
             output [{{name: \"OUT\" data_type: TYPE_INT32 dims: [-1]}}]\n\
             instance_group [{{kind: KIND_CPU}}]\n{rest}"
        )
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::behind(Gate::opened())
    }
}

impl Backend for Identity {
    fn name(&self) -> &str {
        "identity"
    }

    fn inspect(&self, _: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        Ok(Some(Box::new(NothingToRead)))
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(Model { gate: self.gate.clone() }))
    }
}

/// The backend reads no files.
struct NothingToRead;

impl ModelInspection for NothingToRead {}

struct Model {
    gate: Arc<Gate>,
}

impl BackendModel for Model {
    fn instance(&self, config: &Arc<ModelConfig>, _: &InstanceSpec) -> Result<BuiltInstance, Error> {
        let delay = config.parameters.get("delay_us").map_or(Ok(0), |text| text.parse());
        let runner = Box::new(Runner {
            delay: Duration::from_micros(
                delay.map_err(|_| Error::invalid("parameter 'delay_us' is not a number"))?,
            ),
            failure: config.parameters.get("failure").cloned(),
            config: config.clone(),
            gate: self.gate.clone(),
        });
        match config.parameters.get("instance").map_or("pinned", String::as_str) {
            "pinned" => Ok(BuiltInstance::ThreadBound(runner)),
            "mobile" => Ok(BuiltInstance::Movable(runner)),
            other => Err(Error::invalid(format!(
                "parameter 'instance' is '{other}', neither 'pinned' nor 'mobile'"
            ))),
        }
    }
}

struct Runner {
    config: Arc<ModelConfig>,
    delay: Duration,
    failure: Option<String>,
    gate: Arc<Gate>,
}

impl BackendInstance for Runner {
    fn execute(&mut self, batch: Batch) {
        batch.execution_times.compute_started();
        self.gate.pass();
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        batch.execution_times.compute_ended();
        for execution in batch.executions {
            match &self.failure {
                None => execution.responder.complete(echo(&self.config, &execution.request)),
                Some(text) => {
                    let error = Error::internal(text.clone()).because(FailureReason::Backend);
                    execution.responder.fail(error);
                }
            }
        }
    }
}

/// The inputs, first to first, under the names of the requested outputs.
pub(crate) fn echo(config: &ModelConfig, request: &Request) -> Response {
    let pairs = config.inputs.iter().zip(&config.outputs);
    let echoed = pairs.filter(|(_, output)| request.wants(&output.name)).filter_map(|(input, output)| {
        let tensor = request.input(&input.name)?;
        let (name, memory) = (output.name.clone(), tensor.memory().clone());
        Some(Tensor::new(name, output.datatype, tensor.shape().into(), memory))
    });
    Response::of(echoed.collect())
}
