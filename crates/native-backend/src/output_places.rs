//! Where a run writes its outputs: into memory that the sender of the request offers, if that is possible.
//!
//! The library needs the shape of such an output before the run. The shapes of most graphs follow from the shapes of their
//! inputs. So an instance remembers the shapes of its last run, and expects them again if the shapes of the inputs are the
//! same. If a run shows that the shapes depend on the contents, the instance never expects them again.
use inference::backend::Execution;
use smallvec::SmallVec;
use vocabulary::{DataType, Shape, Tensor};

use crate::{
    ExpectedOutput,
    in_place::{byte_count, can_be_used},
    plan::FetchPlan,
};

/// What an instance knows of the shapes of its outputs.
#[derive(Debug, Default)]
pub(crate) struct OutputShapes {
    last: Option<LastRun>,
    /// The shapes of the outputs do not follow from those of the inputs.
    are_unknowable: bool,
}

#[derive(Debug)]
struct LastRun {
    inputs: SmallVec<[Shape; 4]>,
    /// By the slot of the output.
    outputs: SmallVec<[(usize, DataType, Shape); 4]>,
}

/// For each output of a run, what is expected of it.
pub(crate) type ExpectedOutputs = SmallVec<[Option<ExpectedOutput>; 4]>;

impl OutputShapes {
    /// The outputs that the run of a request alone will write to the memory that comes with it.
    pub(crate) fn expected(&self, execution: &Execution, fetches: &[&FetchPlan]) -> ExpectedOutputs {
        let none = || fetches.iter().map(|_| None).collect();
        let Some(last) = self.last.as_ref().filter(|_| !self.are_unknowable) else { return none() };
        if !input_shapes(execution).eq(last.inputs.iter().map(|shape| &shape[..])) {
            return none();
        }
        let expected = |fetch: &&FetchPlan| {
            // States stay in memory of the server.
            if fetch.state.is_some() || fetch.tells_who_is_done || !execution.request.wants(&fetch.name) {
                return None;
            }
            let memory = execution.request.output_memory(&fetch.name)?;
            let (_, datatype, shape) = last.outputs.iter().find(|(slot, ..)| *slot == fetch.slot)?;
            let memory = memory.first(byte_count(*datatype, shape)?)?;
            can_be_used(*datatype, shape, &memory).then(|| ExpectedOutput {
                datatype: *datatype,
                shape: shape.clone(),
                memory,
            })
        };
        fetches.iter().map(expected).collect()
    }

    /// Remembers the shapes of a run of a request alone.
    pub(crate) fn remember(
        &mut self,
        execution: &Execution,
        outputs: impl Iterator<Item = (usize, DataType, Shape)>,
    ) {
        let inputs = input_shapes(execution).map(Shape::from_slice).collect();
        self.last = Some(LastRun { inputs, outputs: outputs.collect() });
    }

    /// A run has shown that the shapes of outputs do not follow from those of the inputs.
    pub(crate) fn give_up(&mut self) {
        *self = Self { last: None, are_unknowable: true };
    }

    /// Whether remembering is of use.
    pub(crate) fn are_wanted(&self, execution: &Execution) -> bool {
        let placement = execution.request.output_placement.as_ref();
        !self.are_unknowable && placement.is_some_and(|placement| placement.offers_memory())
    }
}

fn input_shapes(execution: &Execution) -> impl Iterator<Item = &[i64]> {
    execution.request.tensors().iter().map(Tensor::shape)
}
