//! The requested form of each output of a response: JSON, binary data, its best classes, or a region of shared memory.
use std::{num::NonZeroU64, sync::Arc};

use config::ModelConfig;
use inference::OutputPlacement;
use smallvec::SmallVec;
use vocabulary::{Error, Name, NameIndex, Tensor};

use super::{classification, shared_memory::RequestRegions};
use crate::long_write::{BRIEF, LongWrite};

/// The part of the response that contains the elements of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The `data` member of the JSON part.
    #[default]
    Json,
    /// The bytes after the JSON part, or `raw_output_contents`.
    Binary,
    /// A region of shared memory. The response does not contain the elements.
    Region,
}

/// The requested form of one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedOutput {
    /// The part of the response that contains its elements.
    pub placement: Placement,
    /// The response contains this many best classes instead of the elements.
    pub classes: Option<NonZeroU64>,
}

/// The most bytes of elements that are written on a network thread. Their text has several times their length.
const BRIEF_ELEMENTS: usize = BRIEF / 4;

/// The requested form of the outputs of a response.
#[derive(Debug, Clone, Default)]
pub struct RequestedOutputs {
    named: SmallVec<[(Name, RequestedOutput); 2]>,
    named_index: NameIndex,
    /// The placement of outputs that the request does not list.
    pub default: Placement,
    /// The shared memory of the request, if it uses any.
    regions: Option<Box<RequestRegions>>,
}

impl RequestedOutputs {
    /// A request that lists no output. All outputs have this placement.
    pub fn all(placement: Placement) -> Self {
        Self { default: placement, ..Self::default() }
    }

    /// Records the requested form of the output with this name.
    pub fn add(&mut self, output: Name, requested: RequestedOutput) {
        self.named.push((output, requested));
    }

    /// The requested form of the output with this name.
    pub fn of(&self, output: &str) -> RequestedOutput {
        let place = self.named_index.place(output, self.named.iter().map(|(name, _)| name));
        place.map_or(RequestedOutput { placement: self.default, classes: None }, |place| self.named[place].1)
    }

    /// The shared memory of the request, for changing it.
    pub fn regions(&mut self) -> &mut RequestRegions {
        self.regions.get_or_insert_default()
    }

    /// The placement of outputs for the backend, if some may be written in place.
    pub fn placement(&self) -> Option<Arc<dyn OutputPlacement>> {
        self.regions.as_ref()?.placement()
    }

    /// Gives the outputs of a response the requested form: replaces outputs that are requested as classes, and moves
    /// outputs to their regions. The model has this configuration. `long` is for work that is long.
    ///
    /// # Errors
    /// As [`RequestedOutputs::classify`] and [`RequestRegions::finish`].
    pub fn finish_for(
        &self,
        config: &ModelConfig,
        outputs: &mut [Tensor],
        long: Option<&mut LongWrite<'_>>,
    ) -> Result<(), Error> {
        let labels = |name: &str| config.output(name).map_or(&[][..], |output| &output.labels);
        self.classify(outputs, config.max_batch_size.is_some(), labels, long)?;
        match &self.regions {
            Some(regions) => regions.finish(outputs),
            None => Ok(()),
        }
    }

    /// Whether it takes long to write the outputs of a response in the requested form.
    pub fn is_long(&self, outputs: &[Tensor]) -> bool {
        let written = |output: &&Tensor| {
            let requested = self.of(output.name());
            requested.placement == Placement::Json || requested.classes.is_some()
        };
        let bytes = outputs.iter().filter(written).map(Tensor::byte_size);
        bytes.fold(0, usize::saturating_add) > BRIEF_ELEMENTS
    }

    /// Replaces the outputs that are requested as classes. `batched` tells whether the model has a batch dimension.
    /// `labels` returns the labels of an output.
    ///
    /// # Errors
    /// INVALID_ARG for datatypes without numbers (BOOL, FP16, BF16, BYTES) and for rows of more than a million elements; what
    /// [`LongWrite::make_room`] refuses.
    pub fn classify<'m>(
        &self,
        outputs: &mut [Tensor],
        batched: bool,
        labels: impl Fn(&str) -> &'m [String],
        mut long: Option<&mut LongWrite<'_>>,
    ) -> Result<(), Error> {
        if self.named.iter().all(|(_, requested)| requested.classes.is_none()) {
            return Ok(());
        }
        for output in outputs {
            if let Some(classes) = self.of(output.name()).classes {
                *output = classification::classify(
                    output,
                    classes,
                    batched,
                    labels(output.name()),
                    long.as_deref_mut(),
                )?;
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
