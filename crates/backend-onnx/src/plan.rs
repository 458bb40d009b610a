//! What each run is fed and asked for, decided once when an instance is built.
use std::num::NonZeroU32;

use inference::{
    DataType, Name, Shape,
    config::{BatchInputKind, ModelConfig, OutputSpec},
};

use crate::ort::{Signature, Slot, SlotKind};

/// Feeds and fetches of an instance. Invariant: every slot is a position in the signature it was made from, and
/// fetches are in the order of their slots.
pub(crate) struct Plan {
    /// Model name, for errors.
    pub(crate) model: Name,
    /// Largest number of rows; `None`: tensors have no batch dimension.
    pub(crate) max_rows: Option<NonZeroU32>,
    /// What goes in.
    pub(crate) feeds: Vec<FeedPlan>,
    /// What comes out.
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
    /// Where its elements come from.
    pub(crate) source: FeedSource,
}

/// Where the elements of an input come from.
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
    /// As the configuration has it.
    pub(crate) spec: OutputSpec,
    /// The graph gives it no dimensions.
    pub(crate) scalar: bool,
    /// The input by whose shape it is scattered to the requests.
    pub(crate) scatter: Option<Name>,
}

impl Plan {
    /// The plan of a configuration that agrees with the signature.
    pub(crate) fn new(config: &ModelConfig, signature: &Signature) -> Self {
        let slots: Vec<&Slot> = signature.feeds().collect();
        let slot_of = |name: &Name| slots.iter().position(|slot| slot.name == *name);
        let mut feeds = Vec::new();
        for input in &config.inputs {
            let Some(slot) = slot_of(&input.name) else { continue };
            let source = if input.allow_ragged_batch {
                FeedSource::Ragged
            } else if rank(slots[slot]) == 0 {
                FeedSource::Scalar
            } else {
                FeedSource::Rows
            };
            feeds.push(FeedPlan { slot, name: input.name.clone(), datatype: input.datatype, source });
        }
        for input in &config.batch_inputs {
            for target in &input.target_names {
                let Some(slot) = slot_of(target) else { continue };
                let source = FeedSource::Batch(input.kind, input.source_input.clone());
                feeds.push(FeedPlan { slot, name: target.clone(), datatype: input.datatype, source });
            }
        }
        let mut fetches: Vec<FetchPlan> = config
            .outputs
            .iter()
            .filter_map(|spec| {
                let slot = signature.outputs.iter().position(|slot| slot.name == spec.name)?;
                let scattered =
                    config.batch_outputs.iter().find(|scattered| scattered.target_names.contains(&spec.name));
                Some(FetchPlan {
                    slot,
                    spec: spec.clone(),
                    scalar: rank(&signature.outputs[slot]) == 0,
                    scatter: scattered.map(|scattered| scattered.source_input.clone()),
                })
            })
            .collect();
        fetches.sort_by_key(|fetch| fetch.slot);
        debug_assert_eq!(fetches.len(), config.outputs.len(), "the configuration has been validated");
        Self { model: config.name.clone(), max_rows: config.max_batch_size, feeds, fetches }
    }
}

impl FetchPlan {
    /// The configured shape with a leading -1 for the batch dimension if there is one.
    pub(crate) fn full_dims(&self, batched: bool) -> Shape {
        batched.then_some(-1).into_iter().chain(self.spec.dims.iter().copied()).collect()
    }
}

fn rank(slot: &Slot) -> usize {
    match &slot.kind {
        SlotKind::Tensor(_, shape) => shape.len(),
        SlotKind::Other(_) => 0,
    }
}
