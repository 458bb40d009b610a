//! Completes the batch size of a configuration that sets none.
use std::{collections::BTreeMap, num::NonZeroU32};

use config::KEEP_BATCH_PARAMETER as KEEP_BATCH;
use proto::model_config::SchedulingChoice;
use vocabulary::{Error, shape_text};

use crate::{GraphValue, OtherKind, Rows, Signature, ValueKind, parameters::integer};

/// `max_batch_size` of models that can batch and set none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultBatchSize {
    /// The rows of a batch; 0 or 1: models are not batched.
    pub rows: i32,
    /// How many rows single requests may have instead.
    pub request_rows: Option<NonZeroU32>,
}

/// How many rows a request may have if nobody has set `max_batch_size`.
const MAX_REQUEST_ROWS: &str = "max-request-rows";

impl DefaultBatchSize {
    /// What the settings of a backend say, or else 4 rows.
    ///
    /// # Errors
    /// A value that is not a number.
    pub fn of(settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let rows = settings.get("default-max-batch-size").map_or(Ok(4), |text| integer(text))?;
        let request_rows = settings.get(MAX_REQUEST_ROWS).map_or(Ok(0), |text| integer(text))?;
        Ok(Self {
            rows: i32::try_from(rows.max(0)).unwrap_or(i32::MAX),
            request_rows: NonZeroU32::new(u32::try_from(request_rows.max(0)).unwrap_or(u32::MAX)),
        })
    }
}

/// Sets `max_batch_size` and dynamic batching where the graph allows batches and the configuration leaves them open.
/// Returns how many rows single requests may have instead.
///
/// # Errors
/// INVALID_ARGUMENT if the graph cannot batch as configured.
pub(crate) fn complete_batching(
    config: &mut proto::ModelConfig,
    signature: &Signature,
    default: DefaultBatchSize,
    probe: impl FnOnce() -> Rows,
) -> Result<Option<NonZeroU32>, Error> {
    let open_first =
        |slot: &&GraphValue| matches!(&slot.kind, ValueKind::Tensor(_, dims) if dims.first() == Some(&-1));
    let fixed = signature.inputs.iter().chain(&signature.outputs).find(|slot| !open_first(slot));
    if let Some(fixed) = fixed {
        return if config.max_batch_size == 0 { Ok(None) } else { Err(cannot_batch(&config.name, fixed)) };
    }
    let mut request_rows = None;
    if config.max_batch_size == 0 {
        let keep = config.parameters.get(KEEP_BATCH);
        if keep.is_some_and(|keep| keep.string_value.eq_ignore_ascii_case("no")) {
            return Ok(None);
        }
        if default.rows > 1 && !may_join(config, probe) {
            config.max_batch_size = has_dims_of_rows(config, signature).into();
            return Ok(None);
        }
        config.max_batch_size = default.rows;
        let is_free = matches!(config.scheduling_choice, None | Some(SchedulingChoice::DynamicBatching(_)));
        request_rows = default.request_rows.filter(|_| is_free);
    }
    if config.max_batch_size > 1 && config.scheduling_choice.is_none() {
        config.scheduling_choice =
            Some(SchedulingChoice::DynamicBatching(proto::ModelDynamicBatching::default()));
    }
    Ok(request_rows)
}

/// As Triton: onnxruntime.cc, AutoCompleteConfig. What is in the way, and the remedy, follow its text.
fn cannot_batch(model: &str, fixed: &GraphValue) -> Error {
    let name = &fixed.name;
    let why = match &fixed.kind {
        ValueKind::Tensor(_, shape) => {
            format!("'{name}' has shape {}, and its first dimension is not open", shape_text(shape))
        }
        ValueKind::Other(OtherKind { name: kind, .. }) => format!("'{name}' is of type {kind}"),
    };
    Error::invalid(format!(
        "autofill failed for model '{model}': model does not support batching while non-zero max_batch_size is specified: \
         {why}. Set max_batch_size to 0"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_default_batch_size_is_four_and_never_negative() {
        let size = |rows, most| Ok(DefaultBatchSize { rows, request_rows: NonZeroU32::new(most) });
        assert_eq!(DefaultBatchSize::of(&map(&[])), size(4, 0));
        assert_eq!(DefaultBatchSize::of(&map(&[("default-max-batch-size", "8")])), size(8, 0));
        assert_eq!(DefaultBatchSize::of(&map(&[("default-max-batch-size", "-3")])), size(0, 0));
        assert_eq!(DefaultBatchSize::of(&map(&[("max-request-rows", "1024")])), size(4, 1024));
        assert_eq!(DefaultBatchSize::of(&map(&[("max-request-rows", "-1")])), size(4, 0));
        let error = DefaultBatchSize::of(&map(&[("default-max-batch-size", "many")])).unwrap_err();
        assert_eq!(error.message, "failed to convert 'many' to integral number");
    }
}
