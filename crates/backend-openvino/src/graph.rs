//! A request of a compiled model as a graph that native instances run.
use std::sync::Arc;

use native_backend::{
    ExpectedOutput, Feed, FeedValue, Graph, GraphOutput, LibraryFailure, RunOutputs, Signature,
};
use smallvec::{SmallVec, smallvec};
use vocabulary::DataType;

use crate::{
    compilation::GraphCompilation,
    ov::{InferRequest, OpenVino, OutputTarget, OvError, OvInput, RunOutput, RunPlace},
};

/// A request, and what makes another one if the model of the request is broken.
pub(crate) struct OpenVinoGraph {
    request: InferRequest,
    signature: Arc<Signature>,
    compilation: GraphCompilation,
}

impl OpenVinoGraph {
    /// Compiles the graph, unless another instance has done so for all.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn new(compilation: GraphCompilation, signature: Arc<Signature>) -> Result<Self, OvError> {
        Ok(Self { request: compilation.request()?, signature, compilation })
    }
}

impl Graph for OpenVinoGraph {
    type Output = RunOutput;
    type Strings = Vec<Vec<u8>>;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn strings(&self, shape: &[i64]) -> Result<Self::Strings, LibraryFailure> {
        let count = shape.iter().try_fold(1, |count: usize, &dim| count.checked_mul(dim.try_into().ok()?));
        let count =
            count.ok_or_else(|| LibraryFailure::of_server(format!("no strings of shape {shape:?}")))?;
        Ok(vec![Vec::new(); count])
    }

    fn run(
        &mut self,
        feeds: &[Feed<'_, Self::Strings>],
        wanted: &[usize],
        places: &[Option<ExpectedOutput>],
    ) -> Result<RunOutputs<RunOutput>, LibraryFailure> {
        if self.request.model().is_broken() {
            self.request = self.compilation.request()?;
        }
        let model = self.request.model().clone();
        let (openvino, ports) = (model.openvino(), model.ports());
        // The feeds are in the order of the configuration, and there may be thousands.
        let mut by_slot: SmallVec<[Option<&Feed<'_, _>>; 8]> = smallvec![None; self.signature.inputs.len()];
        for feed in feeds {
            by_slot[feed.slot] = Some(feed);
        }
        let mut inputs: SmallVec<[OvInput<'_>; 4]> = SmallVec::new();
        for (value, feed) in self.signature.inputs.iter().zip(by_slot) {
            let feed = feed.ok_or_else(|| {
                OvError::invalid_argument(format!("a run needs the input '{}'", value.name))
            })?;
            inputs.push(run_input(openvino, feed)?);
        }
        let mut targets: SmallVec<[OutputTarget<'_>; 4]> = SmallVec::new();
        for slot in 0..ports.outputs.len() {
            targets.push(match wanted.binary_search(&slot) {
                Ok(position) => target(openvino, places.get(position).and_then(Option::as_ref))?,
                Err(_) => OutputTarget::Unread,
            });
        }
        let mut outputs = self.request.run(&inputs, &targets)?.into_iter();
        let output = |&slot: &usize| match targets[slot] {
            OutputTarget::New => outputs.next(),
            OutputTarget::Place(_) | OutputTarget::Unread => None,
        };
        Ok(wanted.iter().map(output).collect())
    }
}

fn run_input<'a>(openvino: &'a OpenVino, feed: &'a Feed<'_, Vec<Vec<u8>>>) -> Result<OvInput<'a>, OvError> {
    match &feed.value {
        FeedValue::Host { datatype, shape, bytes } => OvInput::over(openvino, *datatype, shape, bytes),
        FeedValue::Foreign { datatype, shape, memory } => {
            let input = OvInput::over_foreign(openvino, *datatype, shape, memory)?;
            input.ok_or_else(|| OvError::invalid_argument("foreign memory that cannot be used in place"))
        }
        FeedValue::Strings { shape, strings } => {
            let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            OvInput::strings(openvino, shape, &strings)
        }
    }
}

fn target<'a>(
    openvino: &'a OpenVino,
    place: Option<&'a ExpectedOutput>,
) -> Result<OutputTarget<'a>, OvError> {
    let Some(ExpectedOutput { datatype, shape, memory }) = place else { return Ok(OutputTarget::New) };
    let place = RunPlace::over_foreign(openvino, *datatype, shape, memory)?;
    Ok(place.map_or(OutputTarget::New, OutputTarget::Place))
}

impl GraphOutput for RunOutput {
    fn datatype(&self) -> DataType {
        self.datatype()
    }

    fn shape(&self) -> &[i64] {
        self.shape()
    }
}

impl From<OvError> for LibraryFailure {
    fn from(OvError { code, message }: OvError) -> Self {
        Self { library: "openvino", code, message }
    }
}
