//! A graph in memory: a signature, and a function that computes all outputs from the inputs.
use std::{ops::Range, sync::Arc};

use inference::lock::Mutex;
use native_backend::{
    ExpectedOutput, Feed, FeedValue, Graph, GraphOutput, GraphValue, LibraryFailure, RunOutputs, Signature,
};
use testing::batches::{float_bytes, strings};
use vocabulary::{DataType, Shape};

/// What a run was given of an input.
#[derive(Debug, Clone)]
pub(crate) struct GivenInput {
    pub(crate) slot: usize,
    pub(crate) shape: Shape,
    /// The elements; none for strings.
    pub(crate) bytes: Vec<u8>,
    pub(crate) strings: Vec<Vec<u8>>,
    /// The address of elements in memory of the server.
    pub(crate) address: usize,
    pub(crate) is_foreign: bool,
}

impl GivenInput {
    pub(crate) fn floats(&self) -> Vec<f32> {
        self.bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }
}

/// An output of a run.
pub(crate) struct MadeOutput {
    datatype: DataType,
    shape: Shape,
    bytes: Vec<u8>,
    strings: Vec<Vec<u8>>,
}

impl MadeOutput {
    pub(crate) fn numbers(datatype: DataType, shape: &[i64], bytes: Vec<u8>) -> Self {
        Self { datatype, shape: shape.into(), bytes, strings: Vec::new() }
    }

    pub(crate) fn floats(shape: &[i64], values: &[f32]) -> Self {
        Self::numbers(DataType::Fp32, shape, float_bytes(values))
    }

    pub(crate) fn strings(shape: &[i64], strings: Vec<Vec<u8>>) -> Self {
        Self { datatype: DataType::Bytes, shape: shape.into(), bytes: Vec::new(), strings }
    }
}

impl AsRef<[u8]> for MadeOutput {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl GraphOutput for MadeOutput {
    fn datatype(&self) -> DataType {
        self.datatype
    }

    fn shape(&self) -> &[i64] {
        &self.shape
    }

    fn strings_len(&self) -> Result<usize, LibraryFailure> {
        Ok(self.strings.iter().map(|string| 4 + string.len()).sum())
    }

    fn append_strings(&self, positions: Range<usize>, target: &mut Vec<u8>) -> Result<(), LibraryFailure> {
        let parts: Vec<&[u8]> = self.strings[positions].iter().map(Vec::as_slice).collect();
        target.extend(strings(&parts));
        Ok(())
    }
}

/// Computes all outputs of a graph from its inputs, both in the order of the signature.
pub(crate) type Compute = fn(&[GivenInput]) -> Result<Vec<MadeOutput>, LibraryFailure>;

/// A graph that notes what its runs were given.
#[derive(Clone)]
pub(crate) struct MemoryGraph {
    pub(crate) signature: Signature,
    pub(crate) compute: Compute,
    /// Whether it writes outputs to their places.
    pub(crate) uses_places: bool,
    pub(crate) runs: Arc<Mutex<Vec<Vec<GivenInput>>>>,
}

impl MemoryGraph {
    /// A graph of tensors: names, datatypes and dims.
    pub(crate) fn new(
        inputs: &[(&str, DataType, &[i64])],
        outputs: &[(&str, DataType, &[i64])],
        compute: Compute,
    ) -> Self {
        let values = |of: &[(&str, DataType, &[i64])]| {
            of.iter()
                .map(|(name, datatype, dims)| GraphValue::tensor(name, (*datatype).into(), dims))
                .collect()
        };
        let signature =
            Signature { inputs: values(inputs), outputs: values(outputs), ..Signature::default() };
        Self { signature, compute, uses_places: true, runs: Arc::default() }
    }

    /// `Y = -X`, FP32. A number that is not finite fails the run.
    pub(crate) fn negation(dims: &[i64]) -> Self {
        let slot = [("X", DataType::Fp32, dims)];
        Self::new(&slot, &[("Y", DataType::Fp32, dims)], |inputs| {
            let values = inputs[0].floats();
            if !values.iter().all(|value| value.is_finite()) {
                return Err(failure("a number is not finite"));
            }
            let negated: Vec<f32> = values.iter().map(|value| -value).collect();
            Ok(vec![MadeOutput::floats(&inputs[0].shape, &negated)])
        })
    }
}

pub(crate) fn failure(message: &str) -> LibraryFailure {
    LibraryFailure { library: "memory graph", code: 3, message: message.to_owned() }
}

impl Graph for MemoryGraph {
    type Output = MadeOutput;
    type Strings = Vec<Vec<u8>>;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn strings(&self, shape: &[i64]) -> Result<Vec<Vec<u8>>, LibraryFailure> {
        let count: i64 = shape.iter().product();
        Ok(vec![Vec::new(); usize::try_from(count).unwrap()])
    }

    fn run(
        &mut self,
        feeds: &[Feed<'_, Vec<Vec<u8>>>],
        wanted: &[usize],
        places: &[Option<ExpectedOutput>],
    ) -> Result<RunOutputs<MadeOutput>, LibraryFailure> {
        assert_eq!(wanted.len(), places.len());
        let mut inputs: Vec<GivenInput> = feeds.iter().map(given).collect();
        inputs.sort_by_key(|input| input.slot);
        self.runs.lock().push(inputs.clone());
        let mut made: Vec<_> = (self.compute)(&inputs)?.into_iter().map(Some).collect();
        let outputs = wanted.iter().zip(places).map(|(&slot, place)| {
            let output = made[slot].take().unwrap();
            let Some(place) = place.as_ref().filter(|_| self.uses_places) else { return Ok(Some(output)) };
            if (place.datatype, &place.shape) != (output.datatype, &output.shape) {
                return Err(failure("an output has another shape than its place"));
            }
            assert!(place.memory.write(&output.bytes.into()).unwrap());
            Ok(None)
        });
        outputs.collect()
    }
}

fn given(feed: &Feed<'_, Vec<Vec<u8>>>) -> GivenInput {
    let slot = feed.slot;
    let numbers = |shape: &Shape, bytes: Vec<u8>, address, is_foreign| GivenInput {
        slot,
        shape: shape.clone(),
        bytes,
        strings: Vec::new(),
        address,
        is_foreign,
    };
    match &feed.value {
        FeedValue::Host { datatype, shape, bytes } => {
            assert!(native_backend::is_aligned(*datatype, bytes));
            assert_eq!(native_backend::byte_count(*datatype, shape), Some(bytes.len()));
            numbers(shape, bytes.to_vec(), bytes.as_ptr().addr(), false)
        }
        FeedValue::Foreign { datatype, shape, memory } => {
            assert!(native_backend::can_be_used(*datatype, shape, memory));
            numbers(shape, memory.read().unwrap(), 0, true)
        }
        FeedValue::Strings { shape, strings } => GivenInput {
            slot,
            shape: shape.clone(),
            bytes: Vec::new(),
            strings: strings.clone(),
            address: 0,
            is_foreign: false,
        },
    }
}
