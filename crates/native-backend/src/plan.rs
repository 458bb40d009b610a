//! The inputs and outputs of every run, decided once when an instance is built.
use std::num::NonZeroU32;

use config::{
    BatchInputKind, ControlInput, FlagValues, ModelConfig, OutputSpec, Scheduling, SequenceControl, StateSpec,
};
use vocabulary::{DataType, Error, Name, Shape};

use crate::{GraphValue, LibraryFailure, Signature, ValueKind};

/// Feeds and fetches of an instance. Invariant: every slot is a position in the signature that the plan was made from,
/// and the fetches are in the order of their slots.
pub(crate) struct ExecutionPlan {
    /// Model name, for errors.
    pub(crate) model: Name,
    /// Its version, for errors.
    version: i64,
    /// Largest number of rows; `None`: tensors have no batch dimension.
    pub(crate) max_rows: Option<NonZeroU32>,
    /// The inputs of a run.
    pub(crate) feeds: Vec<FeedPlan>,
    /// The outputs of a run.
    pub(crate) fetches: Vec<FetchPlan>,
}

/// One input of the graph.
pub(crate) struct FeedPlan {
    /// Position among the signature's feeds.
    pub(crate) slot: usize,
    /// Its name.
    pub(crate) name: Name,
    /// Its element type.
    pub(crate) datatype: DataType,
    /// The source of its elements.
    pub(crate) source: FeedSource,
    /// Index of the state in the configuration, if the input receives a state.
    pub(crate) state: Option<usize>,
}

/// The source of the elements of an input.
pub(crate) enum FeedSource {
    /// The requests' inputs, one after the other along the batch dimension.
    Rows,
    /// The requests' inputs without their shapes, as one row of elements.
    Ragged,
    /// The request's input as a tensor without dimensions.
    Scalar,
    /// The composition of the batch.
    Batch(BatchInputKind, Name),
}

/// One output of the graph.
pub(crate) struct FetchPlan {
    /// Position among the signature's outputs.
    pub(crate) slot: usize,
    /// Its name.
    pub(crate) name: Name,
    /// The part for clients; `None` if clients do not receive the output.
    pub(crate) answer: Option<AnswerPlan>,
    /// The part for sequences; `None` if the output is not a state.
    pub(crate) state: Option<StatePlan>,
    /// Whether the output reports which requests of an iterative model are done.
    pub(crate) tells_who_is_done: bool,
    /// The output has no dimensions in the graph.
    pub(crate) scalar: bool,
}

/// What clients receive of an output.
pub(crate) struct AnswerPlan {
    /// The output in the configuration.
    pub(crate) spec: OutputSpec,
    /// The input whose shape decides how the output is scattered to the requests.
    pub(crate) scatter: Option<Name>,
}

/// What sequences keep of an output.
pub(crate) struct StatePlan {
    /// Position among the states of the configuration.
    pub(crate) index: usize,
    /// The dims in the configuration, without the batch dimension.
    pub(crate) dims: Shape,
}

impl ExecutionPlan {
    /// The plan of a configuration that agrees with the signature. `done` is the position of the output that reports
    /// which requests of an iterative model are done.
    pub(crate) fn new(
        config: &ModelConfig,
        version: i64,
        signature: &Signature,
        done: Option<usize>,
    ) -> Self {
        Self {
            model: config.name.clone(),
            version,
            max_rows: config.request_limit(),
            feeds: feeds(config, signature),
            fetches: fetches(config, signature, done),
        }
    }

    /// The error of requests whose run the library has refused.
    pub(crate) fn failed_run(&self, failure: &LibraryFailure) -> Error {
        let Self { model, version, .. } = self;
        Error::internal(format!("{failure} (model '{model}', version {version})"))
    }

    /// Inputs that receive states of sequences.
    pub(crate) fn state_feeds(&self) -> impl Iterator<Item = &FeedPlan> {
        self.feeds.iter().filter(|feed| feed.state.is_some())
    }
}

impl AnswerPlan {
    /// The configured shape, after a leading -1 if there is a batch dimension.
    pub(crate) fn full_dims(&self, batched: bool) -> Shape {
        batched.then_some(-1).into_iter().chain(self.spec.dims.iter().copied()).collect()
    }
}

/// Controls and states of a sequence model; empty for other models.
pub(crate) fn sequence_inputs(config: &ModelConfig) -> (&[ControlInput], &[StateSpec]) {
    match &config.scheduling {
        Scheduling::Sequence(sequence) => (&sequence.controls, &sequence.states),
        Scheduling::Unbatched | Scheduling::Dynamic(_) | Scheduling::Ensemble(_) => (&[], &[]),
    }
}

/// The element type of a control input.
pub fn control_datatype(control: &SequenceControl) -> DataType {
    match control {
        SequenceControl::Start(values) | SequenceControl::End(values) | SequenceControl::Ready(values) => {
            match values {
                FlagValues::Int32(_) => DataType::Int32,
                FlagValues::Fp32(_) => DataType::Fp32,
                FlagValues::Bool(_) => DataType::Bool,
            }
        }
        SequenceControl::CorrelationId(datatype) => *datatype,
    }
}

fn feeds(config: &ModelConfig, signature: &Signature) -> Vec<FeedPlan> {
    let slots: Vec<&GraphValue> = signature.feeds().collect();
    let mut feeds = Vec::new();
    let mut feed = |name: &Name, datatype, source: Option<FeedSource>, state| {
        let Some(slot) = slots.iter().position(|slot| slot.name == *name) else { return };
        let of_rows = || if rank(slots[slot]) == 0 { FeedSource::Scalar } else { FeedSource::Rows };
        let source = source.unwrap_or_else(of_rows);
        feeds.push(FeedPlan { slot, name: name.clone(), datatype, source, state });
    };
    for input in &config.inputs {
        let source = input.allow_ragged_batch.then_some(FeedSource::Ragged);
        feed(&input.name, input.datatype, source, None);
    }
    for input in &config.batch_inputs {
        for target in &input.target_names {
            let source = FeedSource::Batch(input.kind, input.source_input.clone());
            feed(target, input.datatype, Some(source), None);
        }
    }
    let (controls, states) = sequence_inputs(config);
    for input in controls {
        feed(&input.name, control_datatype(&input.control), None, None);
    }
    for (index, state) in states.iter().enumerate() {
        feed(&state.input_name, state.datatype, None, Some(index));
    }
    feeds
}

fn fetches(config: &ModelConfig, signature: &Signature, done: Option<usize>) -> Vec<FetchPlan> {
    let (_, states) = sequence_inputs(config);
    let fetch = |(slot, of): (usize, &GraphValue)| {
        let answer = config.output(&of.name).map(|spec| {
            let scattered =
                config.batch_outputs.iter().find(|scattered| scattered.target_names.contains(&spec.name));
            let scatter = scattered.map(|scattered| scattered.source_input.clone());
            AnswerPlan { spec: spec.clone(), scatter }
        });
        let index = states.iter().position(|state| state.output_name == of.name);
        let state = index.map(|index| StatePlan { index, dims: states[index].dims.clone() });
        let tells_who_is_done = done == Some(slot);
        let is_asked_for = answer.is_some() || state.is_some() || tells_who_is_done;
        let (name, scalar) = (of.name.clone(), rank(of) == 0);
        is_asked_for.then_some(FetchPlan { slot, name, answer, state, tells_who_is_done, scalar })
    };
    let fetches: Vec<FetchPlan> = signature.outputs.iter().enumerate().filter_map(fetch).collect();
    debug_assert_eq!(
        fetches.iter().filter(|fetch| fetch.answer.is_some()).count(),
        config.outputs.len(),
        "the configuration has been validated"
    );
    fetches
}

fn rank(slot: &GraphValue) -> usize {
    match &slot.kind {
        ValueKind::Tensor(_, shape) => shape.len(),
        ValueKind::Other(_) => 0,
    }
}
