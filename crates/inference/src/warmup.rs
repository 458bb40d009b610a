//! The requests of samples for warm-up. They pass the same checks as requests of clients.
use std::fmt;

use bytes::Bytes;
use config::{ModelConfig, Warmup, WarmupData, WarmupInput};
use vocabulary::{DataType, Error, Name, Shape, Tensor, element_count, require_memory};

use crate::{Request, RequestInputs, RequestValidator, id_prefix};

/// Reads the files that samples name, when a sample is built that needs them.
pub struct WarmupFiles(Box<ReadFile>);

/// Returns the content of a file that has that name in the configuration.
type ReadFile = dyn Fn(&str) -> Result<Bytes, Error> + Send + Sync;

impl WarmupFiles {
    /// Files whose content `read` returns, by the names in the configuration.
    pub fn new(read: impl Fn(&str) -> Result<Bytes, Error> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }
}

impl fmt::Debug for WarmupFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarmupFiles").finish_non_exhaustive()
    }
}

/// A sample that can run. As Triton: a sample of n rows is n requests of one row, in one execution.
#[derive(Debug)]
pub struct WarmupSample {
    /// For logs and errors; may be empty.
    pub name: Name,
    /// How often the execution runs.
    pub count: u32,
    /// The number of requests in the execution.
    pub rows: u32,
    /// Each of them.
    pub request: Request,
}

impl WarmupSample {
    /// Builds the samples of a configuration, except for those that it skips. One execution of a sample may take `bound`
    /// bytes.
    ///
    /// # Errors
    /// INVALID_ARG for a sample that is not a valid request or takes more memory than it may, or whose file is too
    /// short; INTERNAL for memory that the process does not get. The error of a file that cannot be read.
    pub fn build_all(
        config: &ModelConfig,
        validator: &RequestValidator,
        files: &WarmupFiles,
        bound: usize,
    ) -> Result<Vec<Self>, Error> {
        let mut samples = Vec::new();
        for warmup in &config.warmups {
            if warmup.batch_size == 0 {
                log::debug!("Skipping batch 0 warmup sample '{}'", warmup.name);
                continue;
            }
            let what = format!("warmup sample '{}' of model '{}'", warmup.name, config.name);
            require_memory(&what, batch_bytes(warmup), bound)?;
            let request = request(config, validator, warmup, files)?;
            let (name, count, rows) = (warmup.name.clone(), warmup.count.get(), warmup.batch_size);
            samples.push(Self { name, count, rows, request });
        }
        Ok(samples)
    }
}

/// What a request costs beside its tensors, at most.
const BYTES_OF_A_REQUEST: u128 = 4096;

/// The bytes of a batch of a sample: its tensors, and its requests.
fn batch_bytes(warmup: &Warmup) -> u128 {
    let tensors = warmup.inputs.iter().map(|input| Tensor::zeros_size(input.datatype, &input.dims));
    let request = BYTES_OF_A_REQUEST.saturating_add(tensors.fold(0, u128::saturating_add));
    request.saturating_mul(u128::from(warmup.batch_size))
}

/// Builds one request of a sample.
fn request(
    config: &ModelConfig,
    validator: &RequestValidator,
    warmup: &Warmup,
    files: &WarmupFiles,
) -> Result<Request, Error> {
    let (mut inputs, mut extra) = (Vec::new(), Vec::new());
    for input in &warmup.inputs {
        let batch = config.max_batch_size.map(|_| 1);
        let shape: Shape = batch.into_iter().chain(input.dims.iter().copied()).collect();
        let tensor = tensor(input, shape, files)?;
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

fn tensor(input: &WarmupInput, shape: Shape, files: &WarmupFiles) -> Result<Tensor, Error> {
    let WarmupInput { name, datatype, data, .. } = input;
    let (name, datatype) = (name.clone(), *datatype);
    let content = match data {
        WarmupData::Zero => return Ok(Tensor::zeros(name, datatype, shape)),
        // Random lengths would not form valid strings. As Triton: zeros.
        WarmupData::Random if datatype == DataType::Bytes => return Ok(Tensor::zeros(name, datatype, shape)),
        WarmupData::Random => {
            let bytes = usize::try_from(Tensor::zeros_size(datatype, &shape)).unwrap_or_default();
            return Ok(Tensor::new(name, datatype, shape, noise(bytes)));
        }
        WarmupData::File(file) => content_of(file, datatype, &shape, files)?,
    };
    Ok(Tensor::new(name, datatype, shape, content))
}

/// As much of a file as the elements need. For BYTES the whole file.
fn content_of(file: &str, datatype: DataType, shape: &[i64], files: &WarmupFiles) -> Result<Bytes, Error> {
    let content = (files.0)(file)?;
    let Some(element) = datatype.byte_size() else { return Ok(content) };
    let elements = element_count(shape).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let expected = elements * element;
    if content.len() < expected {
        return Err(Error::invalid(format!(
            "{}warmup setting expects {expected} bytes, but the data provided from {file}only has {} bytes",
            id_prefix(""),
            content.len()
        )));
    }
    Ok(content.slice(..expected))
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
