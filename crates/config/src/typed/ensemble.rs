//! The steps of an ensemble.
use std::{collections::BTreeMap, num::NonZeroU32};

use super::{
    super::{EnsembleScheduling, EnsembleStep, MappedTensor},
    ConfigConversion,
};

/// The parameter of [`EnsembleScheduling::max_intermediate_bytes`].
const MAX_INTERMEDIATE_BYTES: &str = "MAX_INTERMEDIATE_BYTES";

impl ConfigConversion<'_> {
    pub(super) fn ensemble_scheduling(
        &mut self,
        config: &proto::ModelConfig,
        ensemble: &proto::ModelEnsembling,
    ) -> EnsembleScheduling {
        let mut steps = Vec::with_capacity(ensemble.step.len());
        for (position, step) in ensemble.step.iter().enumerate() {
            let field = format!("ensemble_scheduling.step[{position}]");
            steps.push(EnsembleStep {
                model: self.name(&format!("{field}.model_name"), &step.model_name),
                version: (step.model_version != -1).then_some(step.model_version),
                inputs: self.mapped(&format!("{field}.input_map"), &step.input_map),
                outputs: self.mapped(&format!("{field}.output_map"), &step.output_map),
            });
        }
        EnsembleScheduling {
            steps,
            max_inflight_requests: NonZeroU32::new(ensemble.max_inflight_requests),
            max_intermediate_bytes: self.positive_parameter(config, MAX_INTERMEDIATE_BYTES),
        }
    }

    fn mapped(&mut self, field: &str, map: &BTreeMap<String, String>) -> Vec<MappedTensor> {
        let mapped = |(name, tensor): (&String, &String)| MappedTensor {
            name: self.given_name(field, name),
            tensor: self.given_name(field, tensor),
        };
        map.iter().map(mapped).collect()
    }
}
