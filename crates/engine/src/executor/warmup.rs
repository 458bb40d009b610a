//! Warm-up: the samples of the configuration, which an instance runs before the first client's request.
//!
//! Samples pass the same checks as requests of clients. Each sample runs in one execution on the instance's own thread.
//! It passes neither the scheduler nor the statistics. An error fails the load.
use std::{
    path::Path,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use bytes::Bytes;
use inference::{
    DataType, Error, ExecutionTimes, Flow, Name, Request, RequestInputs, RequestValidator, ResponseStream,
    Shape, Tensor, TensorData, Timeline, Unobserved,
    backend::{BackendInstance, Batch, Execution},
    config::{ModelConfig, Warmup, WarmupData, WarmupInput},
    element_count, id_prefix, response_channel,
};

use super::sequence_inputs::{Sequences, tensor_bytes, zeros};
use crate::{clock::now, limits::require_memory, regular_file};

/// The samples of a model. Any of its instances can run them.
pub(super) struct WarmUp {
    model: Name,
    samples: Vec<WarmUpSample>,
    /// For models with implicit state: the state of the first request of a sequence.
    sequences: Option<Sequences>,
}

/// As Triton: a sample of n rows is n requests of one row, in one execution.
struct WarmUpSample {
    name: Name,
    count: u32,
    request: Request,
    rows: u32,
}

impl WarmUp {
    /// Builds the requests. Their files are in `warmup/` of the model's `directory`.
    ///
    /// INVALID_ARG for a sample that is not a valid request or takes more memory than there is, or whose file is too
    /// short; INTERNAL for a file that cannot be read, and for memory that the process does not get.
    pub(super) fn prepare(
        config: &ModelConfig,
        validator: &RequestValidator,
        directory: &Path,
    ) -> Result<Self, Error> {
        let directory = directory.join("warmup");
        let mut samples = Vec::new();
        for warmup in &config.warmups {
            if warmup.batch_size == 0 {
                log::debug!("Skipping batch 0 warmup sample '{}'", warmup.name);
                continue;
            }
            let what = format!("warmup sample '{}' of model '{}'", warmup.name, config.name);
            require_memory(&what, batch_bytes(warmup))?;
            let request = request(config, validator, warmup, &directory)?;
            let (name, count, rows) = (warmup.name.clone(), warmup.count.get(), warmup.batch_size);
            samples.push(WarmUpSample { name, count, request, rows });
        }
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

    fn run_once(&self, sample: &WarmUpSample, instance: &mut dyn BackendInstance) -> Result<(), Error> {
        let (executions, streams): (Vec<_>, Vec<_>) = (0..sample.rows)
            .map(|_| {
                let timeline = Timeline::new(now(), 1);
                let (responder, stream) = response_channel(timeline, Arc::new(Unobserved), Flow::unlimited());
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

/// Builds the requests of all samples, to find out whether they can be built.
///
/// # Errors
/// As when the model is loaded.
pub(crate) fn prepare_warmups(
    config: &ModelConfig,
    validator: &RequestValidator,
    directory: &Path,
) -> Result<(), Error> {
    WarmUp::prepare(config, validator, directory).map(drop)
}

/// Makes the first values of the states of a sequence, to find out whether they can be made.
///
/// # Errors
/// As when the model is loaded.
pub(crate) fn prepare_states(config: &ModelConfig) -> Result<(), Error> {
    Sequences::new(config, 1).map(drop)
}

/// What a request costs beside its tensors, at most.
const BYTES_OF_A_REQUEST: u128 = 4096;

/// The bytes of a batch of a sample: its tensors, and its requests.
fn batch_bytes(warmup: &Warmup) -> u128 {
    let tensors = warmup.inputs.iter().map(|input| tensor_bytes(input.datatype, &input.dims));
    let request = BYTES_OF_A_REQUEST.saturating_add(tensors.fold(0, u128::saturating_add));
    request.saturating_mul(u128::from(warmup.batch_size))
}

/// Builds one request of a sample.
fn request(
    config: &ModelConfig,
    validator: &RequestValidator,
    warmup: &Warmup,
    directory: &Path,
) -> Result<Request, Error> {
    let (mut inputs, mut extra) = (Vec::new(), Vec::new());
    for input in &warmup.inputs {
        let batch = config.max_batch_size.map(|_| 1);
        let shape: Shape = batch.into_iter().chain(input.dims.iter().copied()).collect();
        let data = data(input, &shape, directory)?;
        let tensor = Tensor::new(input.name.clone(), input.datatype, shape, data);
        // An input that the configuration does not list is a control input.
        if config.input(&input.name).is_some() { &mut inputs } else { &mut extra }.push(tensor);
    }
    let mut request = Request { inputs: RequestInputs::Tensors(inputs), ..Request::default() };
    validator.check(config, &mut request)?;
    if let RequestInputs::Tensors(inputs) = &mut request.inputs {
        inputs.extend(extra);
    }
    Ok(request)
}

fn data(input: &WarmupInput, shape: &[i64], directory: &Path) -> Result<TensorData, Error> {
    let file = match &input.data {
        WarmupData::Zero => return Ok(zeros(input.datatype, shape)),
        // Random lengths would not form valid strings. As Triton: zeros.
        WarmupData::Random if input.datatype == DataType::Bytes => return Ok(zeros(input.datatype, shape)),
        WarmupData::Random => {
            let bytes = usize::try_from(tensor_bytes(input.datatype, shape));
            return Ok(noise(bytes.unwrap_or_default()).into());
        }
        WarmupData::File(file) => file,
    };
    let path = directory.join(file);
    let unreadable =
        |error| Error::internal(format!("failed to open text file for read {}: {error}", path.display()));
    let content = Bytes::from(regular_file::read(&path).map_err(unreadable)?);
    let Some(element) = input.datatype.byte_size() else { return Ok(content.into()) };
    let elements = element_count(shape).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let expected = elements * element;
    if content.len() < expected {
        return Err(Error::invalid(format!(
            "{}warmup setting expects {expected} bytes, but the data provided from {file}only has {} bytes",
            id_prefix(""),
            content.len()
        )));
    }
    Ok(content.slice(..expected).into())
}

/// Pseudorandom bytes, the same in each call: a load that fails must fail again.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        // The generator is xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(next());
    }
    bytes.truncate(len);
    bytes
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
