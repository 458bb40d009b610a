//! The protobuf form, its rules checked, as the typed form.
use std::{
    num::{NonZero, NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use proto::{
    ModelDynamicBatching, ModelInstanceGroup, ModelQueuePolicy, ModelTensorReshape,
    batch_input::Kind as BatchKind, model_config::SchedulingChoice, model_instance_group::Kind,
    model_queue_policy::TimeoutAction as Action,
};
use scheduling::{DynamicBatching, QueuePolicy, TimeoutAction};

use super::{
    Accelerator, BatchInput, BatchInputKind, BatchOutput, ConfigErrors, InputSpec, InstanceGroup,
    InstanceKind, ModelConfig, OutputSpec, Scheduling, VersionPolicy,
};
use crate::{DataType, ErrorCode, Name, Shape};

/// Converts a configuration that passed all rules.
///
/// # Errors
/// Values that no rule of Triton forbids and that have no meaning: numbers that name nothing, names with NUL, GPUs.
pub(super) fn typed(config: &proto::ModelConfig) -> Result<ModelConfig, ConfigErrors> {
    let mut conversion = Conversion { errors: ConfigErrors::default(), model: &config.name };
    let typed = conversion.model(config);
    conversion.errors.into_result()?;
    Ok(typed)
}

/// Converts part by part; what cannot be converted leaves a problem, and any value in its place.
struct Conversion<'a> {
    errors: ConfigErrors,
    model: &'a str,
}

impl Conversion<'_> {
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
            inputs: self.inputs(config),
            outputs: self.outputs(config),
            batch_inputs: self.batch_inputs(config),
            batch_outputs: self.batch_outputs(config),
            scheduling: self.scheduling(config),
            instance_groups: self.instance_groups(config),
            version_policy: VersionPolicy::of(config),
            default_model_filename: config.default_model_filename.clone(),
            parameters: parameters.map(|(key, value)| (key.clone(), value.string_value.clone())).collect(),
            metric_tags: config.metric_tags.clone(),
            graph_level: policy.and_then(|policy| policy.graph.as_ref()).map(|graph| graph.level),
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
            response_cache: config.response_cache.as_ref().is_some_and(|cache| cache.enable),
        }
    }

    fn inputs(&mut self, config: &proto::ModelConfig) -> Vec<InputSpec> {
        let mut inputs = Vec::with_capacity(config.input.len());
        for (position, input) in config.input.iter().enumerate() {
            if proto::model_input::Format::try_from(input.format).is_err() {
                self.wrong(&format!("input[{position}].format"), &format!("has no value {}", input.format));
            }
            inputs.push(InputSpec {
                name: self.name(&format!("input[{position}].name"), &input.name),
                datatype: self.datatype(&format!("input[{position}].data_type"), input.data_type),
                dims: input.dims.iter().copied().collect(),
                reshape: shape(input.reshape.as_ref()),
                optional: input.optional,
                allow_ragged_batch: input.allow_ragged_batch,
                is_shape_tensor: input.is_shape_tensor,
            });
        }
        inputs
    }

    fn outputs(&mut self, config: &proto::ModelConfig) -> Vec<OutputSpec> {
        let mut outputs = Vec::with_capacity(config.output.len());
        for (position, output) in config.output.iter().enumerate() {
            outputs.push(OutputSpec {
                name: self.name(&format!("output[{position}].name"), &output.name),
                datatype: self.datatype(&format!("output[{position}].data_type"), output.data_type),
                dims: output.dims.iter().copied().collect(),
                reshape: shape(output.reshape.as_ref()),
                label_filename: Some(output.label_filename.clone()).filter(|path| !path.is_empty()),
                labels: Arc::default(),
                is_shape_tensor: output.is_shape_tensor,
            });
        }
        outputs
    }

    fn batch_inputs(&mut self, config: &proto::ModelConfig) -> Vec<BatchInput> {
        let mut batch_inputs = Vec::with_capacity(config.batch_input.len());
        for (position, input) in config.batch_input.iter().enumerate() {
            let field = format!("batch_input[{position}]");
            batch_inputs.push(BatchInput {
                kind: match input.kind() {
                    BatchKind::BatchElementCount => BatchInputKind::ElementCount,
                    BatchKind::BatchAccumulatedElementCount => BatchInputKind::AccumulatedElementCount,
                    BatchKind::BatchAccumulatedElementCountWithZero => {
                        BatchInputKind::AccumulatedElementCountWithZero
                    }
                    BatchKind::BatchMaxElementCountAsShape => BatchInputKind::MaxElementCountAsShape,
                    BatchKind::BatchItemShape => BatchInputKind::ItemShape,
                    BatchKind::BatchItemShapeFlatten => BatchInputKind::ItemShapeFlatten,
                },
                target_names: input.target_name.iter().map(|name| self.name(&field, name)).collect(),
                datatype: self.datatype(&field, input.data_type),
                source_input: self.source(&field, &input.source_input),
            });
        }
        batch_inputs
    }

    fn batch_outputs(&mut self, config: &proto::ModelConfig) -> Vec<BatchOutput> {
        let mut batch_outputs = Vec::with_capacity(config.batch_output.len());
        for (position, output) in config.batch_output.iter().enumerate() {
            let field = format!("batch_output[{position}]");
            batch_outputs.push(BatchOutput {
                target_names: output.target_name.iter().map(|name| self.name(&field, name)).collect(),
                source_input: self.source(&field, &output.source_input),
            });
        }
        batch_outputs
    }

    fn source(&mut self, field: &str, names: &[String]) -> Name {
        debug_assert_eq!(names.len(), 1, "a rule demands one source");
        names.first().map(|name| self.name(field, name)).unwrap_or_default()
    }

    fn scheduling(&mut self, config: &proto::ModelConfig) -> Scheduling {
        match &config.scheduling_choice {
            None => Scheduling::Unbatched,
            Some(SchedulingChoice::DynamicBatching(batching)) => {
                Scheduling::Dynamic(self.dynamic_batching(config, batching))
            }
            Some(SchedulingChoice::SequenceBatching(_) | SchedulingChoice::EnsembleScheduling(_)) => {
                debug_assert!(false, "unsupported choices were refused");
                Scheduling::Unbatched
            }
        }
    }

    fn dynamic_batching(
        &mut self,
        config: &proto::ModelConfig,
        batching: &ModelDynamicBatching,
    ) -> DynamicBatching {
        let sizes = batching.preferred_batch_size.iter();
        let mut policy = |policy: &ModelQueuePolicy| self.queue_policy(policy);
        let default_queue_policy =
            batching.default_queue_policy.as_ref().map(&mut policy).unwrap_or_default();
        let policies = batching.priority_queue_policy.iter();
        let priority_queue_policies = policies.map(|(level, own)| (*level, policy(own))).collect();
        let field = "dynamic_batching.preferred_batch_size";
        DynamicBatching {
            max_batch_size: self.size("max_batch_size", config.max_batch_size),
            preferred_batch_sizes: sizes.map(|size| self.size(field, *size)).collect(),
            max_queue_delay: Duration::from_micros(batching.max_queue_delay_microseconds),
            preserve_ordering: batching.preserve_ordering,
            priority_levels: batching.priority_levels,
            default_priority_level: batching.default_priority_level,
            default_queue_policy,
            priority_queue_policies,
            ..DynamicBatching::default()
        }
    }

    fn queue_policy(&mut self, policy: &ModelQueuePolicy) -> QueuePolicy {
        let timeout_action = match Action::try_from(policy.timeout_action) {
            Ok(Action::Reject) => TimeoutAction::Reject,
            Ok(Action::Delay) => TimeoutAction::Delay,
            Err(_) => {
                self.wrong("timeout_action", &format!("has no value {}", policy.timeout_action));
                TimeoutAction::default()
            }
        };
        let timeout = Some(policy.default_timeout_microseconds).filter(|timeout| *timeout > 0);
        let size = usize::try_from(policy.max_queue_size).unwrap_or(usize::MAX);
        QueuePolicy {
            default_timeout: timeout.map(Duration::from_micros),
            timeout_action,
            allow_timeout_override: policy.allow_timeout_override,
            max_queue_size: NonZero::new(size),
        }
    }

    fn instance_groups(&mut self, config: &proto::ModelConfig) -> Vec<InstanceGroup> {
        let groups = config.instance_group.iter().enumerate();
        groups.filter_map(|(position, group)| self.instance_group(position, group)).collect()
    }

    fn instance_group(&mut self, position: usize, group: &ModelInstanceGroup) -> Option<InstanceGroup> {
        let kind = match group.kind() {
            Kind::Cpu | Kind::Auto => InstanceKind::Cpu,
            Kind::Model => InstanceKind::Model,
            Kind::Gpu => {
                let text = format!(
                    "'KIND_GPU' of instance group '{}' of model '{}' is not supported by this version of nereid",
                    group.name, self.model
                );
                self.errors.push(ErrorCode::Unsupported, &format!("instance_group[{position}].kind"), text);
                return None;
            }
        };
        let field = format!("instance_group[{position}]");
        let count = usize::try_from(group.count).ok().and_then(NonZeroUsize::new);
        if count.is_none() {
            self.wrong(&format!("{field}.count"), "must be positive");
        }
        Some(InstanceGroup { name: self.name(&format!("{field}.name"), &group.name), kind, count: count? })
    }

    fn datatype(&mut self, field: &str, number: i32) -> DataType {
        let name =
            proto::DataType::try_from(number).map(|datatype| datatype.as_str_name()).unwrap_or_default();
        DataType::ALL.into_iter().find(|datatype| datatype.config_name() == name).unwrap_or_else(|| {
            self.wrong(field, &format!("has no value {number}"));
            DataType::Bytes
        })
    }

    fn name(&mut self, field: &str, name: &str) -> Name {
        if name.contains('\0') {
            self.wrong(field, "contains a NUL character");
        }
        Name::new(name)
    }

    fn size(&mut self, field: &str, size: i32) -> u32 {
        u32::try_from(size).unwrap_or_else(|_| {
            self.wrong(field, "must not be negative");
            0
        })
    }
}

fn shape(reshape: Option<&ModelTensorReshape>) -> Option<Shape> {
    reshape.map(|reshape| reshape.shape.iter().copied().collect())
}
