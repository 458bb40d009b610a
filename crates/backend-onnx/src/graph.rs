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
        let input = |feed| run_input(runtime, feed);
        let inputs = feeds.iter().map(input).collect::<Result<SmallVec<[RunInput<'_>; 4]>, _>>()?;
        let place = |place| output_place(runtime, place);
        let places = places.iter().map(place).collect::<Result<SmallVec<[_; 4]>, _>>()?;
        Ok(self.session.run(self.run_options.as_ref(), &inputs, wanted, &places)?)
    }
}

fn run_input<'a>(runtime: &'a Runtime, feed: &'a Feed<'_, Strings>) -> Result<RunInput<'a>, OrtError> {
    let tensor = match &feed.value {
        FeedValue::Host { datatype, shape, bytes } => {
            RunTensor::Numbers(InputValue::over(runtime, *datatype, shape, bytes)?)
        }
        FeedValue::Foreign { datatype, shape, memory } => {
            RunTensor::Numbers(InputValue::over_foreign(runtime, *datatype, shape, memory)?)
        }
        FeedValue::Strings(strings) => RunTensor::Strings(strings),
    };
    Ok(RunInput { slot: feed.slot, tensor })
}

fn output_place<'a>(
    runtime: &'a Runtime,
    place: &'a Option<ExpectedOutput>,
) -> Result<Option<OutputPlace<'a>>, OrtError> {
    let Some(ExpectedOutput { datatype, shape, memory }) = place else { return Ok(None) };
    OutputPlace::over(runtime, *datatype, shape, memory).map(Some)
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
