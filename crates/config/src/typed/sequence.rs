//! `sequence_batching`: the settings for the scheduler, controls, and implicit state.
use std::time::Duration;

use bytes::Bytes;
use proto::{
    ModelSequenceBatching,
    model_sequence_batching::{
        Control as ProtoControl, State, StrategyChoice, StrategyOldest, control::Kind,
        initial_state::StateData,
    },
};
use scheduling::{DirectStrategy, OldestStrategy, SequenceBatching, SequenceStrategy};

use super::{
    super::{ControlInput, FlagValues, InitialState, SequenceControl, SequenceScheduling, StateSpec},
    ConfigConversion,
};

impl ConfigConversion<'_> {
    pub(super) fn sequence_scheduling(
        &mut self,
        config: &proto::ModelConfig,
        batching: &ModelSequenceBatching,
    ) -> SequenceScheduling {
        let strategy = match &batching.strategy_choice {
            Some(StrategyChoice::Oldest(oldest)) => SequenceStrategy::Oldest(self.oldest(oldest)),
            Some(StrategyChoice::Direct(direct)) => SequenceStrategy::Direct(DirectStrategy {
                max_queue_delay: Duration::from_micros(direct.max_queue_delay_microseconds),
                minimum_slot_utilization: direct.minimum_slot_utilization,
            }),
            None => SequenceStrategy::Direct(DirectStrategy::default()),
        };
        SequenceScheduling {
            batching: SequenceBatching {
                strategy,
                max_batch_size: self.size("max_batch_size", config.max_batch_size),
                max_sequence_idle: Duration::from_micros(batching.max_sequence_idle_microseconds),
                iterative: batching.iterative_sequence,
                ..SequenceBatching::default()
            },
            controls: self.controls(batching),
            states: self.states(config, batching),
        }
    }

    fn oldest(&mut self, oldest: &StrategyOldest) -> OldestStrategy {
        let field = "sequence_batching.oldest.preferred_batch_size";
        let sizes = oldest.preferred_batch_size.iter();
        OldestStrategy {
            // As Triton: a negative number counts as none.
            max_candidate_sequences: u32::try_from(oldest.max_candidate_sequences).unwrap_or(0),
            preferred_batch_sizes: sizes.map(|size| self.size(field, *size)).collect(),
            max_queue_delay: Duration::from_micros(oldest.max_queue_delay_microseconds),
            preserve_ordering: oldest.preserve_ordering,
        }
    }

    fn controls(&mut self, batching: &ModelSequenceBatching) -> Vec<ControlInput> {
        let mut controls = Vec::new();
        for (position, input) in batching.control_input.iter().enumerate() {
            let field = format!("sequence_batching.control_input[{position}]");
            let name = self.name(&format!("{field}.name"), &input.name);
            for control in &input.control {
                let control = self.control(&field, control);
                controls.extend(control.map(|control| ControlInput { name: name.clone(), control }));
            }
        }
        controls
    }

    fn control(&mut self, field: &str, control: &ProtoControl) -> Option<SequenceControl> {
        let Ok(kind) = Kind::try_from(control.kind) else {
            self.wrong(&format!("{field}.control.kind"), &format!("has no value {}", control.kind));
            return None;
        };
        match kind {
            Kind::ControlSequenceStart => false_true(control).map(SequenceControl::Start),
            Kind::ControlSequenceEnd => false_true(control).map(SequenceControl::End),
            Kind::ControlSequenceReady => false_true(control).map(SequenceControl::Ready),
            Kind::ControlSequenceCorrid => {
                let datatype = self.datatype(&format!("{field}.control.data_type"), control.data_type);
                Some(SequenceControl::CorrelationId(datatype))
            }
        }
    }

    /// The states but for those that repeat a name: Triton ignores them as well (sequence_state.cc, Initialize), in
    /// whatever order a hash gives; here the first one in the configuration counts.
    fn states(&mut self, config: &proto::ModelConfig, batching: &ModelSequenceBatching) -> Vec<StateSpec> {
        let mut states: Vec<StateSpec> = Vec::with_capacity(batching.state.len());
        for (position, state) in batching.state.iter().enumerate() {
            let spec = self.state(&format!("sequence_batching.state[{position}]"), config, state);
            let repeated = if states.iter().any(|other| other.input_name == spec.input_name) {
                "input_name"
            } else if states.iter().any(|other| other.output_name == spec.output_name) {
                "output_name"
            } else {
                states.push(spec);
                continue;
            };
            self.warnings.push(format!(
                "model '{}': ignore state {position}, input '{}' and output '{}': its '{repeated}' is that of a state \
                 before it",
                self.model, spec.input_name, spec.output_name
            ));
        }
        states
    }

    fn state(&mut self, field: &str, config: &proto::ModelConfig, state: &State) -> StateSpec {
        let datatype = self.datatype(&format!("{field}.data_type"), state.data_type);
        let dims_field = format!("{field}.dims");
        if state.dims.is_empty() && config.max_batch_size == 0 {
            self.wrong(&dims_field, "must be given for a model without a batch dimension");
        }
        debug_assert!(state.initial_state.len() <= 1, "a rule demands at most one");
        let initial = state.initial_state.first().map(|initial| InitialState {
            dims: self.made_dims(&format!("{field}.initial_state.dims"), &initial.dims, datatype),
            file: match &initial.state_data {
                Some(StateData::DataFile(file)) => Some(file.clone()),
                Some(StateData::ZeroData(_)) | None => None,
            },
            data: Bytes::new(),
        });
        StateSpec {
            input_name: self.given_name(&format!("{field}.input_name"), &state.input_name),
            output_name: self.given_name(&format!("{field}.output_name"), &state.output_name),
            datatype,
            dims: self.made_dims(&dims_field, &state.dims, datatype),
            initial,
            uses_same_buffer: state.use_same_buffer_for_input_output,
            uses_growable_memory: state.use_growable_memory,
        }
    }
}

/// The only pair that the control sets. The rules require one of two values.
fn false_true(control: &ProtoControl) -> Option<FlagValues> {
    let int32 = || <[i32; 2]>::try_from(&control.int32_false_true[..]).ok().map(FlagValues::Int32);
    let fp32 = || <[f32; 2]>::try_from(&control.fp32_false_true[..]).ok().map(FlagValues::Fp32);
    let bool = || <[bool; 2]>::try_from(&control.bool_false_true[..]).ok().map(FlagValues::Bool);
    let values = int32().or_else(fp32).or_else(bool);
    debug_assert!(values.is_some(), "a rule demands a pair");
    values
}
