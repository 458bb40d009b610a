//! Runs batches: the rows of all requests together, and the answer of each from its own rows.
use std::{ops::Range, sync::Arc, thread};

use forest::{Forest, PredictionScratch};
use inference::{
    OutputSelection, Request, Response,
    backend::{BackendInstance, Batch, Execution},
};
use vocabulary::{DataType, Error, FailureReason, Name, Shape, Tensor};

use crate::answer::{ForestAnswer, le_bytes};

/// Fewer rows are not worth a thread: to start one takes as long as about ten rows.
const LEAST_ROWS_OF_THREAD: usize = 256;

/// An instance keeps its buffers for the next batch, unless they are larger than this.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// What an instance needs of the configuration.
#[derive(Debug)]
pub(crate) struct ForestInstancePlan {
    pub(crate) model: Name,
    pub(crate) input: Name,
    pub(crate) output: PlannedOutput,
    pub(crate) answer: ForestAnswer,
    /// The output with the Shapley values, if the configuration has it.
    pub(crate) shap: Option<PlannedOutput>,
    /// Whether tensors have a batch dimension.
    pub(crate) is_batched: bool,
    /// The most threads of a batch.
    pub(crate) threads: usize,
}

/// An output and its shape without the rows.
#[derive(Debug)]
pub(crate) struct PlannedOutput {
    pub(crate) name: Name,
    /// In the form that clients see.
    pub(crate) dims: Shape,
}

/// One executable copy of a model. The forest is shared.
pub(crate) struct ForestInstance {
    forest: Arc<Forest>,
    plan: ForestInstancePlan,
    /// The rows of a batch, one after the other.
    rows: Vec<f32>,
    predictions: Vec<f32>,
    scratch: PredictionScratch,
}

/// A request, and where its rows are among those of the batch.
struct PlacedRequest {
    execution: Execution,
    rows: Range<usize>,
}

impl ForestInstance {
    pub(crate) fn new(forest: Arc<Forest>, plan: ForestInstancePlan) -> Self {
        Self {
            forest,
            plan,
            rows: Vec::new(),
            predictions: Vec::new(),
            scratch: PredictionScratch::default(),
        }
    }

    /// Appends the rows of a request. Returns their places.
    fn gather(&mut self, request: &Request) -> Result<Range<usize>, Error> {
        let ForestInstancePlan { model, input, .. } = &self.plan;
        let Some(tensor) = request.input(input) else {
            return Err(Error::invalid(format!("input '{input}' for model '{model}' is missing")));
        };
        let features = self.forest.features();
        let first = self.rows.len() / features;
        let data = tensor.host()?;
        let bytes = data.contiguous();
        self.rows.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        debug_assert_eq!(self.rows.len() % features, 0, "the server has checked the shape");
        Ok(first..self.rows.len() / features)
    }

    /// Predicts for all rows.
    fn predict(&mut self) -> Result<(), Error> {
        let (features, outputs) = (self.forest.features(), self.forest.outputs());
        let rows = self.rows.len() / features;
        self.predictions.clear();
        self.predictions.resize(rows * outputs, 0.0);
        let threads = self.plan.threads.min(rows / LEAST_ROWS_OF_THREAD);
        if threads <= 1 {
            let predicted = self.forest.predict(&self.rows, &mut self.predictions, &mut self.scratch);
            return predicted.map_err(|error| internal(&error));
        }
        let share = rows.div_ceil(threads);
        let shares = self.rows.chunks(share * features).zip(self.predictions.chunks_mut(share * outputs));
        let forest = &self.forest;
        thread::scope(|scope| {
            let run = |(rows, predictions): (&[f32], &mut [f32])| {
                forest.predict(rows, predictions, &mut PredictionScratch::default())
            };
            let started: Vec<_> = shares.map(|share| scope.spawn(move || run(share))).collect();
            started.into_iter().try_for_each(|thread| match thread.join() {
                Ok(predicted) => predicted.map_err(|error| internal(&error)),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Frees what a large batch has needed.
    fn free_large_buffers(&mut self) {
        if size_of::<f32>() * self.rows.capacity().max(self.predictions.capacity()) > MOST_KEPT_BYTES {
            (self.rows, self.predictions) = (Vec::new(), Vec::new());
            self.scratch = PredictionScratch::default();
        }
    }

    fn response(&self, request: &Request, rows: Range<usize>) -> Result<Response, Error> {
        let mut outputs = Vec::with_capacity(1);
        let ForestInstancePlan { output, answer, shap, .. } = &self.plan;
        if request.wants(&output.name) {
            let width = self.forest.outputs();
            let bytes = answer.bytes(&self.predictions[rows.start * width..rows.end * width]);
            outputs.push(self.tensor(request, output, rows.len(), bytes));
        }
        if let Some(shap) = shap.as_ref().filter(|shap| request.wants(&shap.name)) {
            let width = self.forest.features();
            let bytes = self.shap(&self.rows[rows.start * width..rows.end * width])?;
            outputs.push(self.tensor(request, shap, rows.len(), bytes));
        }
        Ok(Response::of(outputs))
    }

    fn shap(&self, rows: &[f32]) -> Result<Vec<u8>, Error> {
        let mut values = vec![0.0; crate::fit::shap_len(&self.forest)];
        let mut bytes = Vec::with_capacity(rows.len() / self.forest.features() * values.len() * 4);
        for row in rows.chunks_exact(self.forest.features()) {
            self.forest.shap(row, &mut values).map_err(|error| internal(&error))?;
            bytes.extend(le_bytes(values.iter().copied()));
        }
        Ok(bytes)
    }

    /// An output of a request. As Triton's backend, it leaves out dims of 1 behind the rows.
    fn tensor(&self, request: &Request, output: &PlannedOutput, rows: usize, bytes: Vec<u8>) -> Tensor {
        let ForestInstancePlan { input, is_batched, .. } = &self.plan;
        let has_rows = *is_batched || request.input(input).is_some_and(|tensor| tensor.shape().len() > 1);
        let shape: Shape = if has_rows {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            let dims = output.dims.iter().copied().filter(|&dim| dim > 1 || dim == 0);
            std::iter::once(rows).chain(dims).collect()
        } else {
            output.dims.clone()
        };
        Tensor::new(output.name.clone(), DataType::Fp32, shape, bytes)
    }
}

impl BackendInstance for ForestInstance {
    fn execute(&mut self, batch: Batch) {
        let Batch { executions, execution_times } = batch;
        self.rows.clear();
        let mut placed = Vec::with_capacity(executions.len());
        for execution in executions {
            if execution.request.outputs == OutputSelection::Nothing {
                execution.complete(Response::default());
            } else if execution.responder.is_cancelled() {
                execution.cancel();
            } else {
                match self.gather(&execution.request) {
                    Ok(rows) => placed.push(PlacedRequest { execution, rows }),
                    Err(error) => execution.fail(error),
                }
            }
        }
        execution_times.compute_started();
        let predicted = self.predict();
        execution_times.compute_ended();
        for PlacedRequest { execution, rows } in placed {
            let response = predicted.clone().and_then(|()| self.response(&execution.request, rows));
            match response {
                Ok(response) => execution.complete(response),
                Err(error) => execution.fail(error.because(FailureReason::Backend)),
            }
        }
        self.free_large_buffers();
    }
}

fn internal(error: &forest::ForestError) -> Error {
    Error::internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use forest::{ForestFormat, ReadOptions};

    use super::*;

    fn instance() -> ForestInstance {
        let file = include_bytes!("../../forest/tests/goldens/xgboost_pruned.json");
        let forest = Forest::read(ForestFormat::XgboostJson, file, ReadOptions::default()).unwrap();
        let output = PlannedOutput { name: "output__0".into(), dims: Shape::from_slice(&[1]) };
        let plan = ForestInstancePlan {
            model: "m".into(),
            input: "input__0".into(),
            output,
            answer: ForestAnswer::Predictions(1),
            shap: None,
            is_batched: true,
            threads: 2,
        };
        ForestInstance::new(Arc::new(forest), plan)
    }

    #[test]
    fn only_a_large_batch_leaves_no_buffers() {
        let mut instance = instance();
        let features = instance.forest.features();
        for (rows, keeps) in [(3, true), (MOST_KEPT_BYTES, false)] {
            instance.rows = vec![0.5; rows * features];
            instance.predict().unwrap();
            assert!(instance.predictions.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()));
            instance.free_large_buffers();
            assert_eq!(instance.rows.capacity() + instance.predictions.capacity() > 0, keeps);
        }
    }
}
