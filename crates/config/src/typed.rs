//! Converts the protobuf form, whose rules were checked, into the typed form.
pub(super) mod caching;
mod dynamic;
mod ensemble;
mod instances;
pub(super) mod memory;
mod sequence;
mod tensors;
mod warmup;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use proto::{
    model_config::SchedulingChoice, model_metrics::metric_control::MetricOptions,
    model_optimization_policy::ModelPriority,
};
use vocabulary::{DataType, LabelName, Name, NameIndex, Shape, element_count};

use super::{Accelerator, ConfigErrors, ModelConfig, Scheduling, VersionPolicy, rule};

/// Converts a configuration that passed all rules. Also returns the warnings.
///
/// # Errors
/// Values that no rule of Triton forbids but that have no meaning: numbers without a name, names with NUL, sizes
/// larger than any memory, GPUs.
pub(super) fn typed(config: &proto::ModelConfig) -> Result<(ModelConfig, Vec<String>), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    errors.begin(rule::VALUE);
    let mut conversion = ConfigConversion { errors, warnings: Vec::new(), model: &config.name };
    let typed = conversion.model(config);
    conversion.errors.into_result()?;
    Ok((typed, conversion.warnings))
}

/// Converts the configuration part by part. If a part cannot be converted, it adds a problem and uses an arbitrary
/// value.
struct ConfigConversion<'a> {
    errors: ConfigErrors,
    warnings: Vec<String>,
    model: &'a str,
}

impl ConfigConversion<'_> {
    fn wrong(&mut self, field: &str, what: &str) {
        self.errors.invalid(field, format!("'{field}' of model '{}' {what}", self.model));
    }

    fn model(&mut self, config: &proto::ModelConfig) -> ModelConfig {
        let policy = config.optimization.as_ref();
        let accelerators = policy.and_then(|policy| policy.execution_accelerators.as_ref());
        let parameters = config.parameters.iter();
        ModelConfig {
            name: self.name("name", &config.name),
            platform: config.platform.clone(),
            backend: config.backend.clone(),
            max_batch_size: NonZeroU32::new(self.size("max_batch_size", config.max_batch_size)),
            max_request_rows: None,
            inputs: self.inputs(config),
            outputs: self.outputs(config),
            input_index: NameIndex::default(),
            output_index: NameIndex::default(),
            batch_inputs: self.batch_inputs(config),
            batch_outputs: self.batch_outputs(config),
            scheduling: self.scheduling(config),
            instance_groups: self.instance_groups(config),
            version_policy: VersionPolicy::of(config),
            default_model_filename: config.default_model_filename.clone(),
            parameters: parameters.map(|(key, value)| (key.clone(), value.string_value.clone())).collect(),
            metric_tags: self.metric_tags(config),
            histogram_buckets: histogram_buckets(config),
            graph_level: policy.and_then(|policy| policy.graph.as_ref()).map(|graph| graph.level),
            low_priority: policy.is_some_and(|policy| policy.priority() == ModelPriority::PriorityMin),
            cpu_accelerators: accelerators
                .iter()
                .flat_map(|accelerators| &accelerators.cpu_execution_accelerator)
                .map(|asked| Accelerator { name: asked.name.clone(), parameters: asked.parameters.clone() })
                .collect(),
            op_library_filenames: config
                .model_operations
                .iter()
                .flat_map(|operations| operations.op_library_filename.clone())
                .collect(),
            decoupled: config.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled),
            has_sequences: matches!(config.scheduling_choice, Some(SchedulingChoice::SequenceBatching(_))),
            most_unread_responses: self.positive_parameter(config, MOST_UNREAD_RESPONSES),
            memory: self.memory_rank(config),
            response_cache: self.response_caching(config),
            warmups: self.warmups(config),
        }
    }

    /// The labels of the tags: their keys with an underscore before them.
    fn metric_tags(&mut self, config: &proto::ModelConfig) -> BTreeMap<LabelName, String> {
        let mut labels = BTreeMap::new();
        for (key, value) in &config.metric_tags {
            match LabelName::new(format!("_{key}")) {
                Ok(name) if !key.is_empty() => _ = labels.insert(name, value.clone()),
                _ => self.wrong(
                    "metric_tags",
                    &format!(
                        "has the key '{key}', but a key has ASCII letters, digits and underscores, and begins with no \
                         underscore: it becomes the name of a label"
                    ),
                ),
            }
        }
        labels
    }

    /// The value of a parameter that must be a number from 1.
    fn positive_parameter(&mut self, config: &proto::ModelConfig, name: &str) -> Option<NonZeroUsize> {
        let value = &config.parameters.get(name)?.string_value;
        let number = value.parse().ok();
        if number.is_none() {
            let what = format!("has the value '{value}', which is no number from 1");
            self.wrong(&format!("parameters.{name}"), &what);
        }
        number
    }

    /// The value of a parameter that must be `true` or `false`. Without it, false.
    fn truth(&mut self, config: &proto::ModelConfig, name: &str) -> bool {
        match config.parameters.get(name).map(|value| value.string_value.as_str()) {
            None | Some("false") => false,
            Some("true") => true,
            Some(value) => {
                let what = format!("has the value '{value}', which is neither 'true' nor 'false'");
                self.wrong(&format!("parameters.{name}"), &what);
                false
            }
        }
    }

    fn scheduling(&mut self, config: &proto::ModelConfig) -> Scheduling {
        match &config.scheduling_choice {
            None => Scheduling::Unbatched,
            Some(SchedulingChoice::DynamicBatching(batching)) => {
                Scheduling::Dynamic(self.dynamic_batching(config, batching))
            }
            Some(SchedulingChoice::SequenceBatching(batching)) => {
                Scheduling::Sequence(self.sequence_scheduling(config, batching))
            }
            Some(SchedulingChoice::EnsembleScheduling(ensemble)) => {
                Scheduling::Ensemble(Arc::new(self.ensemble_scheduling(config, ensemble)))
            }
        }
    }

    fn datatype(&mut self, field: &str, number: i32) -> DataType {
        let name =
            proto::DataType::try_from(number).map(|datatype| datatype.as_str_name()).unwrap_or_default();
        DataType::ALL.into_iter().find(|datatype| datatype.config_name() == name).unwrap_or_else(|| {
            let what =
                if number == 0 { "must be given".to_owned() } else { format!("has no value {number}") };
            self.wrong(field, &what);
            DataType::Bytes
        })
    }

    fn name(&mut self, field: &str, name: &str) -> Name {
        if name.contains('\0') {
            self.wrong(field, "contains a NUL character");
        }
        Name::new(name)
    }

    /// A name that must not be empty, where no rule with its own text demands this.
    fn given_name(&mut self, field: &str, name: &str) -> Name {
        if name.is_empty() {
            self.wrong(field, "must be given");
        }
        self.name(field, name)
    }

    fn size(&mut self, field: &str, size: i32) -> u32 {
        u32::try_from(size).unwrap_or_else(|_| {
            self.wrong(field, "must not be negative");
            0
        })
    }

    /// The dims of a tensor that the server creates; -1 counts as 1. The dims must be possible, and their byte count
    /// must not overflow.
    fn made_dims(&mut self, field: &str, dims: &[i64], datatype: DataType) -> Shape {
        if dims.iter().any(|dim| *dim < -1) {
            self.wrong(field, "must not be negative, except -1 for a variable-size dimension");
        } else {
            let smallest: Shape = dims.iter().map(|dim| dim.abs()).collect();
            let bytes = element_count(&smallest)
                .ok()
                .and_then(|count| usize::try_from(count).ok())
                .and_then(|count| count.checked_mul(datatype.byte_size().unwrap_or(4)));
            if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
                self.wrong(field, "has more elements than fit in memory");
            }
        }
        dims.into()
    }
}

/// The bounds of histograms by the name of their family.
fn histogram_buckets(config: &proto::ModelConfig) -> BTreeMap<String, Vec<f64>> {
    let controls = config.model_metrics.iter().flat_map(|metrics| &metrics.metric_control);
    let buckets = controls.filter_map(|control| {
        let family = control.metric_identifier.as_ref()?.family.clone();
        let MetricOptions::HistogramOptions(options) = control.metric_options.as_ref()?;
        Some((family, options.buckets.clone()))
    });
    buckets.collect()
}

/// The parameter of [`ModelConfig::most_unread_responses`]. Clients can slow down a model with it, which is useful for
/// large streams to few clients.
pub(super) const MOST_UNREAD_RESPONSES: &str = "MAX_UNREAD_RESPONSES";

#[cfg(test)]
mod tests;
