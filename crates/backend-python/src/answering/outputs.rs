//! From the responses of a worker to those of the server.
//!
//! What a worker says of its tensors is compared with the configuration, with itself, and with the memory that the worker
//! can have, before a byte is read.
use bytes::Bytes;
use config::ModelConfig;
use inference::{OutputSelection, Response, backend::SequenceState};
use rustix::io::Errno;
use smallvec::SmallVec;
use vocabulary::{Error, FailureReason, Tensor, TensorData, element_count};

use crate::{
    output_rules::OutputRules,
    session::{area::failed, worker_session::WorkerSession},
    wire::messages::{WireData, WireResponse, WireTensor, parameters_of_json},
};

/// Reads the bytes of a worker's tensors.
pub(crate) struct TensorReader<'a> {
    pub(crate) session: &'a WorkerSession,
}

impl TensorReader<'_> {
    /// The tensors with their bytes. The worker may reuse its memory afterwards, whether this succeeds or not.
    ///
    /// # Errors
    /// A tensor is damaged.
    pub(crate) fn read<'a>(
        &self,
        tensors: impl Iterator<Item = &'a WireTensor<'a>> + Clone,
    ) -> Result<Vec<Tensor>, Error> {
        let mut read_inputs = ReadInputs::new();
        let read = self
            .check_sizes(tensors.clone())
            .and_then(|()| tensors.clone().map(|tensor| self.tensor(tensor, &mut read_inputs)).collect());
        self.give_back(tensors);
        read
    }

    /// Compares the sizes that the worker tells with the shapes, and all of them with the limits of the areas. Tensors of
    /// the worker's area do not overlap, so together they are no larger than the area.
    fn check_sizes<'a>(&self, tensors: impl Iterator<Item = &'a WireTensor<'a>>) -> Result<(), Error> {
        let limit = self.session.outputs.limit();
        let mut of_worker = 0_usize;
        for tensor in tensors {
            let byte_size = tensor.data.byte_size();
            let expected = tensor.datatype.byte_size().map(|size| {
                // A shape without dimensions is a single element for Python.
                let count = if tensor.shape.is_empty() { Ok(1) } else { element_count(&tensor.shape) };
                count.ok().and_then(|count| usize::try_from(count).ok()?.checked_mul(size))
            });
            if expected.is_some_and(|expected| expected != Some(byte_size)) {
                return Err(Error::internal(format!(
                    "output '{}' has {byte_size} bytes, which do not fit its shape {:?}",
                    tensor.name,
                    &tensor.shape[..]
                )));
            }
            let WireData::Area { is_of_worker, .. } = tensor.data else { continue };
            if is_of_worker {
                of_worker = of_worker.saturating_add(byte_size);
            }
            if of_worker.max(byte_size) > limit {
                return Err(Error::internal(format!(
                    "output '{}' has {byte_size} bytes, and a response cannot have more than {limit} bytes in the memory \
                     that the model shares with the server (setting 'shared-memory-limit-bytes')",
                    tensor.name
                )));
            }
        }
        Ok(())
    }

    /// Lets the worker reuse the memory of tensors.
    pub(crate) fn give_back<'a>(&self, tensors: impl Iterator<Item = &'a WireTensor<'a>>) {
        let mut numbers = SmallVec::<[u64; 4]>::new();
        let mut bytes = 0;
        for tensor in tensors {
            if let WireData::Area { number, byte_size, .. } = tensor.data {
                numbers.push(number);
                bytes = byte_size.saturating_add(bytes);
            }
        }
        if !numbers.is_empty() {
            self.session.give_back(&numbers, bytes >= LARGE_BYTES);
        }
    }

    fn tensor(&self, tensor: &WireTensor<'_>, inputs: &mut ReadInputs) -> Result<Tensor, Error> {
        let bytes = match tensor.data {
            WireData::Inline(bytes) => Ok(bytes.to_vec().into()),
            WireData::Area { is_of_worker: true, offset, byte_size, .. } => {
                self.session.outputs.read(offset, byte_size).map(Bytes::from)
            }
            WireData::Area { is_of_worker: false, offset, byte_size, .. } => {
                self.input(offset, byte_size, inputs)
            }
        };
        let bytes = bytes.map_err(failed)?;
        Ok(Tensor::new(tensor.name.into(), tensor.datatype, tensor.shape.clone(), TensorData::from(bytes)))
    }

    /// The bytes of a range of the server's area. A response may have an input several times, which is read once.
    fn input(&self, offset: usize, byte_size: usize, inputs: &mut ReadInputs) -> Result<Bytes, Errno> {
        let known = inputs.iter().find(|(start, bytes)| *start == offset && bytes.len() == byte_size);
        if let Some((_, bytes)) = known {
            return Ok(bytes.clone());
        }
        let area = &self.session.inputs;
        let read = inputs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if read.saturating_add(byte_size) > area.limit() {
            return Err(Errno::OVERFLOW);
        }
        // Only the thread that reads what the worker sends frees ranges that the worker has, and this is that thread.
        if !self.session.outbox().inputs.is_used(offset, byte_size) {
            return Err(Errno::FAULT);
        }
        let bytes = Bytes::from(area.read(offset, byte_size)?);
        inputs.push((offset, bytes.clone()));
        Ok(bytes)
    }
}

/// Gives an output the shape that clients see. An output that contradicts its configured `reshape` stays as it is.
fn reshape(output: &mut Tensor, config: &ModelConfig) {
    let spec = config.outputs.iter().find(|spec| spec.name == *output.name() && spec.reshape.is_some());
    let Some(shape) = spec.map(|spec| config.client_shape(spec, output.shape())) else { return };
    if element_count(&shape).ok() == element_count(output.shape()).ok() {
        output.reshape(shape);
    }
}

/// The ranges of the server's area that were read for one response, by their offsets.
type ReadInputs = SmallVec<[(usize, Bytes); 1]>;

/// A worker learns at once that the server has read outputs of this size.
const LARGE_BYTES: usize = 1 << 20;

/// The response that a client gets: the outputs that it wants. Outputs that the state of the sequence remembers become
/// the next state.
///
/// # Errors
/// The model's error, or what is wrong with the response.
pub(crate) fn response(
    wire: &WireResponse<'_>,
    reader: &TensorReader<'_>,
    (wanted, state): (&OutputSelection, Option<&SequenceState>),
    (config, rules): (&ModelConfig, &OutputRules),
) -> Result<Response, Error> {
    if let Some(error) = &wire.error {
        reader.give_back(wire.outputs.iter());
        return Err(error.clone());
    }
    let is_of_client = |name: &str| wanted.includes(name) && config.output(name).is_some();
    let is_of_state = |name: &str| state.is_some_and(|state| state.has_state(name));
    let is_wanted = |tensor: &&WireTensor<'_>| is_of_client(tensor.name) || is_of_state(tensor.name);
    let unwanted = wire.outputs.iter().filter(|tensor| !is_wanted(tensor));
    reader.give_back(unwanted);
    let outputs = wire.outputs.iter().filter(is_wanted);
    outputs.clone().try_for_each(|tensor| rules.check(tensor, config)).inspect_err(|_| {
        reader.give_back(wire.outputs.iter().filter(is_wanted));
    })?;
    let mut outputs = reader.read(outputs).map_err(|error| error.because(FailureReason::Backend))?;
    let parameters = parameters_of_json(wire.parameters)
        .map_err(|damage| Error::internal(damage.0).because(FailureReason::Backend))?;
    if let Some(state) = state {
        let mut values = outputs.iter().filter(|output| is_of_state(output.name()));
        values.try_for_each(|value| state.update(value.name(), value))?;
        outputs.retain(|output| is_of_client(output.name()));
    }
    outputs.iter_mut().for_each(|output| reshape(output, config));
    Ok(Response { outputs, parameters })
}
