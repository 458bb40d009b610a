//! The rules of `model_warmup` that do not depend on files.
use proto::ModelConfig;

use super::super::{ConfigErrors, rule};

/// As Triton: backend_model_instance.cc, GenerateWarmupData. A sample of batch size 0 is skipped, and its rules do
/// not apply.
pub(in super::super) fn check_warmups(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::WARMUP);
    // A sample that is too large crashes Triton.
    let largest = u32::try_from(config.max_batch_size).unwrap_or(0).max(1);
    for (position, warmup) in
        config.model_warmup.iter().enumerate().filter(|(_, warmup)| warmup.batch_size > 0)
    {
        let (sample, size) = (&warmup.name, warmup.batch_size);
        if size > largest {
            let text = format!("warmup sample '{sample}' batch size {size} exceeds maximum {largest}");
            errors.invalid(&format!("model_warmup[{position}].batch_size"), text);
        }
        let field = &format!("model_warmup[{position}].inputs");
        for (name, input) in &warmup.inputs {
            if input.dims.contains(&-1) {
                let text = format!(
                    "warmup setting expects all variable-size dimensions are specified for input '{name}'"
                );
                errors.invalid(field, text);
            }
            if input.input_data_type.is_none() {
                let text = format!(
                    "[request id: <id_unknown>] warmup setting expects input '{name}' to have input_data_type set"
                );
                errors.invalid(field, text);
            }
        }
    }
}
