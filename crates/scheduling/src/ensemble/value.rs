//! The values of tensors, and the rule of conditional steps.
use super::GraphStep;

/// What a step gives for a tensor in one response. `V` is cheap to clone: a reference to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorValue<V> {
    /// A value with elements.
    Given(V),
    /// A value without elements.
    Empty(V),
    /// The response leaves the output out.
    Absent,
}

/// What is known about one iteration of a tensor when it is settled.
#[derive(Debug, Clone)]
pub(super) enum SettledValue<V> {
    Given(V),
    Empty(V),
    /// A step left the value out.
    Absent,
    /// The client left the value out.
    NotSent,
    /// No step will give the value. Nothing that needs the value can run.
    Missing,
}

impl<V> SettledValue<V> {
    pub(super) fn into_value(self) -> Option<V> {
        match self {
            Self::Given(value) | Self::Empty(value) => Some(value),
            Self::Absent | Self::NotSent | Self::Missing => None,
        }
    }

    pub(super) fn has_value(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Empty(_))
    }
}

impl<V> From<TensorValue<V>> for SettledValue<V> {
    fn from(value: TensorValue<V>) -> Self {
        match value {
            TensorValue::Given(value) => Self::Given(value),
            TensorValue::Empty(value) => Self::Empty(value),
            TensorValue::Absent => Self::Absent,
        }
    }
}

/// Whether a step is skipped for these values of its inputs, because earlier steps gave it nothing to work on.
///
/// All inputs must be optional and without elements, and a step must be the reason for at least one of them. A step thus
/// still runs if the client left out all inputs, or if it has a required input.
pub(super) fn is_skipped<V>(step: &GraphStep, values: &[SettledValue<V>]) -> bool {
    let mut is_caused_by_step = false;
    for (input, value) in step.inputs.iter().zip(values) {
        match value {
            _ if !input.is_optional => return false,
            SettledValue::Given(_) => return false,
            SettledValue::Empty(_) | SettledValue::Absent => is_caused_by_step = true,
            SettledValue::NotSent | SettledValue::Missing => {}
        }
    }
    is_caused_by_step
}
