//! Warm-up: the samples of the configuration, which an instance runs before the first client's request.
//!
//! Samples pass the same checks as requests of clients. Each sample runs in one execution on the thread that has built the instance.
//! It passes neither the scheduler nor the statistics. An error fails the load.
use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use config::ModelConfig;
use host::{configurable_bytes, now};
use inference::{
    ExecutionTimes, RequestValidator, ResponseStream, Timeline, Unobserved, UnreadPolicy, WarmupFiles,
    WarmupSample,
    backend::{BackendInstance, Batch, Execution},
    response_channel,
};
use vocabulary::{Error, Name};

use super::sequence_inputs::Sequences;

/// The samples of a model. Any of its instances can run them.
pub(super) struct WarmUp {
    model: Name,
    samples: Vec<WarmupSample>,
    /// For models with implicit state: the state of the first request of a sequence.
    sequences: Option<Sequences>,
}

impl WarmUp {
    /// Builds the requests.
    ///
    /// # Errors
    /// Those of [`WarmupSample::build_all`], and those of the first values of the states.
    pub(super) fn prepare(
        config: &ModelConfig,
        validator: &RequestValidator,
        files: &WarmupFiles,
    ) -> Result<Self, Error> {
        let samples = WarmupSample::build_all(config, validator, files, configurable_bytes())?;
        Ok(Self { model: config.name.clone(), samples, sequences: Sequences::new(config, 1)? })
    }

    /// Runs all samples. Returns when each request has been answered and released.
    ///
    /// # Errors
    /// INVALID_ARG with the errors of the first sample that failed.
    pub(super) fn run(&self, name: &str, instance: &mut dyn BackendInstance) -> Result<(), Error> {
        for sample in &self.samples {
            for iteration in 1..=sample.count {
                log::debug!(
                    "model '{}' instance {name} is running warmup sample '{}' for iteration {iteration}",
                    self.model,
                    sample.name
                );
                self.run_once(sample, instance)?;
            }
        }
        Ok(())
    }

    fn run_once(&self, sample: &WarmupSample, instance: &mut dyn BackendInstance) -> Result<(), Error> {
        let (executions, streams): (Vec<_>, Vec<_>) = (0..sample.rows)
            .map(|_| {
                let timeline = Timeline::new(now(), 1);
                let (responder, stream) =
                    response_channel(timeline, Arc::new(Unobserved), UnreadPolicy::unlimited());
                let state = self.sequences.as_ref().and_then(Sequences::fresh);
                (Execution::new(sample.request.share(), responder).with_state(state), stream)
            })
            .unzip();
        let execution_times = Arc::new(ExecutionTimes::start(sample.rows, now));
        instance.execute(Batch { executions, execution_times });
        let errors: String =
            streams.into_iter().flat_map(answers).map(|error| format!("{error}; ")).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!("failed to run warmup sample '{}': {errors}", sample.name)))
    }
}

/// Waits until a request has ended, and returns its errors. Blocks: a backend may answer later.
fn answers(mut stream: ResponseStream) -> Vec<Error> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut errors = Vec::new();
    loop {
        match stream.poll_item(&mut context) {
            Poll::Ready(Some(item)) => errors.extend(item.result.err()),
            Poll::Ready(None) => return errors,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests;
