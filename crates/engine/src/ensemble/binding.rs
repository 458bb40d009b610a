//! The members of an ensemble, as they are at one moment.
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::{EnsembleScheduling, FittedEnsemble, ModelConfig, OutputSpec, fit_members};
use inference::OutputSelection;
use scheduling::EnsembleGraph;
use smallvec::SmallVec;
use vocabulary::{Error, Name, Shape};

use crate::{account::ModelPin, model::Model};

/// Keeps members from ending.
pub(super) type Pins = SmallVec<[ModelPin; 8]>;

/// A model that becomes a member of an ensemble.
pub(crate) struct EnsembleMember {
    pub(crate) model: Arc<Model>,
    /// Its own members as they are now, if it is an ensemble.
    pub(crate) nested: Option<Arc<ArcSwap<MemberBinding>>>,
}

/// The members of an ensemble and how its tensors connect them.
pub(crate) struct MemberBinding {
    pub(super) graph: Arc<EnsembleGraph>,
    pub(super) steps: Vec<BoundStep>,
    /// For each output of the ensemble.
    pub(super) outputs: Vec<OutputSpec>,
    /// Whether a step keeps the order of the requests of a sequence.
    pub(super) keeps_order: bool,
}

/// A step of an ensemble, with its member.
pub(super) struct BoundStep {
    pub(super) member: Arc<Model>,
    /// The members of the member as they are now, if it is an ensemble.
    nested: Option<Arc<ArcSwap<MemberBinding>>>,
    /// The version that the configuration asks for.
    pub(super) version: Option<i64>,
    pub(super) inputs: Vec<BoundInput>,
    /// The names of the outputs that the ensemble uses.
    pub(super) outputs: Vec<Name>,
    pub(super) selection: OutputSelection,
    /// The member has sequences, or a member of it has. So their requests must come in their order.
    pub(super) keeps_order: bool,
    /// A request may start the step several times.
    pub(super) is_repeated: bool,
}

/// An input of a member.
pub(super) struct BoundInput {
    pub(super) name: Name,
    pub(super) dims: Shape,
}

impl MemberBinding {
    /// Connects an ensemble with its members, one for each step. Also returns what follows from that.
    ///
    /// # Errors
    /// INVALID_ARG if a member does not fit.
    pub(super) fn new(
        config: &ModelConfig,
        scheduling: &EnsembleScheduling,
        members: Vec<EnsembleMember>,
    ) -> Result<(Self, FittedEnsemble), Error> {
        let configs: Vec<_> = members.iter().map(|member| member.model.config()).collect();
        let fitted = fit_members(config, scheduling, &configs)?;
        let repeated = fitted.graph.repeated_steps();
        let steps =
            scheduling.steps.iter().zip(members).zip(repeated).map(|((step, member), is_repeated)| {
                let EnsembleMember { model: member, nested } = member;
                let inputs = step.inputs.iter().filter_map(|mapped| {
                    let spec = member.config().input(&mapped.name)?;
                    Some(BoundInput { name: spec.name.clone(), dims: spec.dims.clone() })
                });
                let outputs: Vec<_> = step.outputs.iter().map(|mapped| mapped.name.clone()).collect();
                let is_all = outputs.len() == member.config().outputs.len();
                let selection =
                    if is_all { OutputSelection::All } else { OutputSelection::from(outputs.clone()) };
                let keeps_order = member.config().has_sequences;
                let inputs = inputs.collect();
                BoundStep {
                    version: step.version,
                    inputs,
                    outputs,
                    selection,
                    keeps_order,
                    is_repeated,
                    member,
                    nested,
                }
            });
        let steps: Vec<_> = steps.collect();
        let keeps_order = steps.iter().any(|step| step.keeps_order);
        let graph = Arc::new(fitted.graph.clone());
        let binding = Self { graph, steps, outputs: config.outputs.clone(), keeps_order };
        Ok((binding, fitted))
    }

    /// The members, one for each step.
    pub(super) fn members(&self) -> impl Iterator<Item = &Model> {
        self.steps.iter().map(|step| &*step.member)
    }

    /// Whether these are the members.
    pub(super) fn is_to(&self, members: &[EnsembleMember]) -> bool {
        self.steps.len() == members.len()
            && self.steps.iter().zip(members).all(|(step, member)| Arc::ptr_eq(&step.member, &member.model))
    }

    /// Keeps all members, and the members of those, from ending.
    ///
    /// # Errors
    /// A member has been replaced or unloaded.
    pub(super) fn pin(&self) -> Result<Pins, Error> {
        let mut pins = Pins::new();
        self.pin_into(&mut pins)?;
        Ok(pins)
    }

    fn pin_into(&self, pins: &mut Pins) -> Result<(), Error> {
        for (index, step) in self.steps.iter().enumerate() {
            // A member of several steps is pinned once.
            if self.steps[..index].iter().any(|earlier| Arc::ptr_eq(&earlier.member, &step.member)) {
                continue;
            }
            let pin = step.member.account().open().pin();
            pins.push(pin.ok_or_else(|| {
                let name = step.member.name();
                Error::not_found(format!("Request for unknown model: '{name}' is not found"))
            })?);
            if let Some(nested) = &step.nested {
                nested.load_full().pin_into(pins)?;
            }
        }
        Ok(())
    }
}
