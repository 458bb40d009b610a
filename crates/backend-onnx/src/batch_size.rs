//! Completes the batch size of a configuration that sets none.
use config::KEEP_BATCH_PARAMETER as KEEP_BATCH;
use proto::model_config::SchedulingChoice;
use vocabulary::Error;

use crate::{
    ort::{Signature, ValueInfo, ValueKind},
    probe::Rows,
};

/// Sets `max_batch_size` and dynamic batching where the graph allows batches and the configuration leaves them open.
///
/// # Errors
/// INVALID_ARGUMENT if the graph cannot batch as configured.
pub(crate) fn complete_batching(
    config: &mut proto::ModelConfig,
    signature: &Signature,
    default_max_batch_size: i32,
    probe: impl FnOnce() -> Rows,
) -> Result<(), Error> {
    let open_first =
        |slot: &ValueInfo| matches!(&slot.kind, ValueKind::Tensor(_, dims) if dims.first() == Some(&-1));
    let can_batch = signature.inputs.iter().chain(&signature.outputs).all(open_first);
    if !can_batch {
        return if config.max_batch_size == 0 {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "autofill failed for model '{}': model does not support batching while non-zero max_batch_size is \
                 specified",
                config.name
            )))
        };
    }
    if config.max_batch_size == 0 {
        let keep = config.parameters.get(KEEP_BATCH);
        if keep.is_some_and(|keep| keep.string_value.eq_ignore_ascii_case("no")) {
            return Ok(());
        }
        if default_max_batch_size > 1 && !may_join(config, probe) {
            config.max_batch_size = has_dims_of_rows(config, signature).into();
            return Ok(());
        }
        config.max_batch_size = default_max_batch_size;
        log::warn!(
            "max_batch_size of model '{}' is set to {default_max_batch_size}: the model can batch and its configuration \
             gives no size; give one there, 0 to serve it without batching",
            config.name
        );
    }
    if config.max_batch_size > 1 && config.scheduling_choice.is_none() {
        config.scheduling_choice =
            Some(SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default()));
    }
    Ok(())
}

/// Whether requests may share a run, as far as a probe can determine. A configuration with a scheduler, or with batch
/// inputs, already asks for batches, and needs no probe.
fn may_join(config: &proto::ModelConfig, probe: impl FnOnce() -> Rows) -> bool {
    let is_plain = config.scheduling_choice.is_none()
        && config.batch_input.is_empty()
        && config.batch_output.is_empty()
        && !config.input.iter().any(|input| input.allow_ragged_batch);
    if !is_plain {
        return true;
    }
    match probe() {
        Rows::Independent => true,
        Rows::Unknown(reason) => {
            log::info!(
                "the rows of model '{}' are taken to be independent; no probe could tell: {reason}",
                config.name
            );
            true
        }
        Rows::Mixed(difference) => {
            log::warn!(
                "model '{}' is served without batching: its graph has an open first dimension, but {difference}; \
                 max_batch_size in its configuration has it batched all the same",
                config.name
            );
            false
        }
    }
}

/// Whether the dims of an input or an output in the configuration leave out the graph's first dimension.
fn has_dims_of_rows(config: &proto::ModelConfig, signature: &Signature) -> bool {
    let inputs = config.input.iter().map(|input| (&input.name, &input.dims));
    let outputs = config.output.iter().map(|output| (&output.name, &output.dims));
    let slots = || signature.inputs.iter().chain(&signature.outputs);
    inputs.chain(outputs).any(|(name, dims)| {
        let slot = slots().find(|slot| slot.name == **name);
        !dims.is_empty()
            && slot.is_some_and(
                |slot| matches!(&slot.kind, ValueKind::Tensor(_, shape) if shape.len() == dims.len() + 1),
            )
    })
}
