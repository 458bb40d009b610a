//! A session as a graph that native instances run.
use std::{ops::Range, sync::Arc};

use native_backend::{
    ExpectedOutput, Feed, FeedValue, Graph, GraphOutput, LibraryFailure, RunOutputs, Signature, StringTensor,
};
use smallvec::SmallVec;
use vocabulary::DataType;

use crate::ort::{
    InputValue, OrtError, OutputPlace, OutputValue, RunInput, RunOptions, RunTensor, Runtime, Session,
    Strings,
};

/// A session, and the settings of its runs.
pub(crate) struct OnnxGraph {
    /// Other instances may run it at the same time.
    session: Arc<Session>,
    run_options: Option<RunOptions>,
}

impl OnnxGraph {
    /// The graph of a session that runs with those settings.
    pub(crate) fn new(session: Arc<Session>, run_options: Option<RunOptions>) -> Self {
        Self { session, run_options }
    }
}

impl Graph for OnnxGraph {
    type Output = OutputValue;
    type Strings = Strings;

    fn signature(&self) -> &Signature {
        self.session.signature()
    }

    fn strings(&self, shape: &[i64]) -> Result<Strings, LibraryFailure> {
        Ok(Strings::new(self.session.runtime(), shape)?)
    }

    fn run(
        &mut self,
        feeds: &[Feed<'_, Strings>],
        wanted: &[usize],
        places: &[Option<ExpectedOutput>],
    ) -> Result<RunOutputs<OutputValue>, LibraryFailure> {
        let runtime = self.session.runtime();
        // Loops, because collecting results costs a hundred instructions for each list.
        let mut inputs: SmallVec<[RunInput<'_>; 4]> = SmallVec::new();
        for feed in feeds {
            inputs.push(RunInput { slot: feed.slot, tensor: run_tensor(runtime, feed)? });
        }
        let mut output_places: SmallVec<[Option<OutputPlace<'_>>; 4]> = SmallVec::new();
        for place in places {
            output_places.push(place.as_ref().map(|place| output_place(runtime, place)).transpose()?);
        }
        Ok(self.session.run(self.run_options.as_ref(), &inputs, wanted, &output_places)?)
    }
}

fn run_tensor<'a>(runtime: &'a Runtime, feed: &'a Feed<'_, Strings>) -> Result<RunTensor<'a>, OrtError> {
    match &feed.value {
        FeedValue::Host { datatype, shape, bytes } => {
            InputValue::over(runtime, *datatype, shape, bytes).map(RunTensor::Numbers)
        }
        FeedValue::Foreign { datatype, shape, memory } => {
            InputValue::over_foreign(runtime, *datatype, shape, memory).map(RunTensor::Numbers)
        }
        FeedValue::Strings { strings, .. } => Ok(RunTensor::Strings(strings)),
    }
}

fn output_place<'a>(runtime: &'a Runtime, place: &'a ExpectedOutput) -> Result<OutputPlace<'a>, OrtError> {
    OutputPlace::over(runtime, place.datatype, &place.shape, &place.memory)
}

impl StringTensor for Strings {
    fn string(&mut self, index: usize, len: usize) -> Result<&mut [u8], LibraryFailure> {
        Ok(self.resized(index, len)?)
    }
}

impl GraphOutput for OutputValue {
    fn datatype(&self) -> DataType {
        self.datatype()
    }

    fn shape(&self) -> &[i64] {
        self.shape()
    }

    fn strings_len(&self) -> Result<usize, LibraryFailure> {
        Ok(self.strings_len()?)
    }

    fn append_strings(&self, positions: Range<usize>, target: &mut Vec<u8>) -> Result<(), LibraryFailure> {
        Ok(self.append_strings(positions, target)?)
    }
}

impl From<OrtError> for LibraryFailure {
    fn from(OrtError { code, message }: OrtError) -> Self {
        Self { library: "onnx runtime", code, message }
    }
}
