//! How each output of a response is wanted: as JSON, as binary data, or as its best classes.
use std::num::NonZeroU64;

use inference::{Error, Name, Tensor, config::ModelConfig};
use smallvec::SmallVec;

use super::classification;

/// Where the elements of an output go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Into the `data` member of the JSON part.
    #[default]
    Json,
    /// Behind the JSON part, or into `raw_output_contents`.
    Binary,
}

/// How one output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedOutput {
    /// Where its elements go.
    pub placement: Placement,
    /// Give this many best classes instead of the elements.
    pub classes: Option<NonZeroU64>,
}

/// How the outputs of a response are wanted.
#[derive(Debug, Clone, Default)]
pub struct RequestedOutputs {
    named: SmallVec<[(Name, RequestedOutput); 2]>,
    /// For outputs that the request did not list.
    pub default: Placement,
}

impl RequestedOutputs {
    /// No output listed, all of them in `placement`.
    pub fn all(placement: Placement) -> Self {
        Self { named: SmallVec::new(), default: placement }
    }

    /// Notes how the output of that name is wanted.
    pub fn add(&mut self, output: Name, requested: RequestedOutput) {
        self.named.push((output, requested));
    }

    /// How the output of that name is wanted.
    pub fn of(&self, output: &str) -> RequestedOutput {
        let named = self.named.iter().find(|(name, _)| name == output);
        named.map_or(RequestedOutput { placement: self.default, classes: None }, |(_, requested)| *requested)
    }

    /// Replaces the outputs of a model with this configuration that are wanted as classes.
    ///
    /// # Errors
    /// As [`RequestedOutputs::classify`].
    pub fn classify_for(&self, config: &ModelConfig, outputs: &mut [Tensor]) -> Result<(), Error> {
        let labels = |name: &str| config.output(name).map_or(&[][..], |output| &output.labels);
        self.classify(outputs, config.max_batch_size.is_some(), labels)
    }

    /// Replaces the outputs that are wanted as classes. `batched` tells whether the model has a batch dimension,
    /// `labels` gives the labels of an output.
    ///
    /// # Errors
    /// INVALID_ARG for outputs that have no order, see [`classification::classify`].
    pub fn classify<'m>(
        &self,
        outputs: &mut [Tensor],
        batched: bool,
        labels: impl Fn(&str) -> &'m [String],
    ) -> Result<(), Error> {
        if self.named.iter().all(|(_, requested)| requested.classes.is_none()) {
            return Ok(());
        }
        for output in outputs {
            if let Some(classes) = self.of(output.name()).classes {
                *output = classification::classify(output, classes, batched, labels(output.name()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_output_does_not_follow_the_default() {
        let mut requested_outputs = RequestedOutputs::all(Placement::Binary);
        requested_outputs.add("OUT".into(), RequestedOutput::default());
        assert_eq!(requested_outputs.of("OUT").placement, Placement::Json);
        assert_eq!(requested_outputs.of("OTHER").placement, Placement::Binary);
    }
}
