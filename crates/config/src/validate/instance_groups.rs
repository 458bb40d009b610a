//! The rules of `instance_group`, after every group has its defaults.
use proto::{ModelConfig, ModelInstanceGroup, model_instance_group::Kind};
use vocabulary::ErrorCode;

use super::super::{ConfigErrors, rule};
use crate::complete::{CompletionContext, is_ensemble, is_gpu};

/// The smallest CUDA compute capability, as the error about GPUs prints it.
const MIN_COMPUTE_CAPABILITY: &str = "6.000000";

/// The most instances of a model. Each has a thread with a stack, and what its backend needs.
const MOST_INSTANCES: u64 = 1024;

/// Kinds, devices and profiles (model_config_utils.cc, ValidateInstanceGroup).
pub(in super::super) fn check_instance_groups(
    config: &ModelConfig,
    environment: &CompletionContext,
    errors: &mut ConfigErrors,
) {
    errors.begin(rule::INSTANCE_GROUP);
    if is_ensemble(config) {
        return;
    }
    if config.instance_group.is_empty() {
        let text = format!("must specify one or more 'instance group's for {}", config.name);
        errors.invalid("instance_group", text);
    }
    instances_have_a_bound(config, errors);
    for (position, group) in config.instance_group.iter().enumerate() {
        let field = format!("instance_group[{position}]");
        let head = format!("instance group {} of model {}", group.name, config.name);
        match Kind::try_from(group.kind) {
            Ok(Kind::Auto) => {
                errors.push(ErrorCode::Internal, &field, format!("{head} has unexpected kind KIND_AUTO"));
            }
            Ok(kind @ (Kind::Model | Kind::Cpu)) if !group.gpus.is_empty() => {
                let kind = kind.as_str_name();
                errors.invalid(&field, format!("{head} has kind {kind} but specifies one or more GPUs"));
            }
            Ok(Kind::Model | Kind::Cpu) => {}
            Ok(Kind::Gpu) => {
                if let Some(what) = gpu_problem(group, environment) {
                    errors.invalid(&field, format!("{head} {what}"));
                }
            }
            Err(_) => errors.invalid(&field, format!("{head} has unknown kind {}", group.kind)),
        }
        if let Some(what) = profile_problem(config, group) {
            errors.invalid(&field, format!("{head} and platform {}{what}", config.platform));
        }
    }
}

/// Triton has no bound, and ends when the machine has no more threads or memory.
fn instances_have_a_bound(config: &ModelConfig, errors: &mut ConfigErrors) {
    let devices = |group: &ModelInstanceGroup| u64::try_from(group.gpus.len()).unwrap_or(u64::MAX).max(1);
    let of_group =
        |group: &ModelInstanceGroup| u64::try_from(group.count).unwrap_or(0).saturating_mul(devices(group));
    let instances = config.instance_group.iter().map(of_group).fold(0, u64::saturating_add);
    if instances > MOST_INSTANCES {
        let largest = config.instance_group.iter().enumerate().max_by_key(|(_, group)| group.count);
        let position = largest.map_or(0, |(position, _)| position);
        let model = &config.name;
        let text = format!(
            "model '{model}' has {instances} instances, more than the {MOST_INSTANCES} that it may have"
        );
        errors.invalid(&format!("instance_group[{position}].count"), text);
    }
}

fn gpu_problem(group: &ModelInstanceGroup, environment: &CompletionContext) -> Option<String> {
    if environment.gpu_count == 0 {
        return Some("has kind KIND_GPU but server does not support GPUs".to_owned());
    }
    if group.gpus.is_empty() {
        return Some("has kind KIND_GPU but specifies no GPUs".to_owned());
    }
    let wrong = group.gpus.iter().find(|gpu| !is_gpu(**gpu, environment))?;
    let known: Vec<_> = (0..environment.gpu_count).map(|gpu| gpu.to_string()).collect();
    Some(format!(
        "specifies invalid or unsupported gpu id {wrong}. GPUs with at least the minimum required CUDA compute \
         compatibility of {MIN_COMPUTE_CAPABILITY} are: {}",
        known.join(", ")
    ))
}

/// The end of the error sentence. For other platforms it lacks a space, as in Triton.
fn profile_problem(config: &ModelConfig, group: &ModelInstanceGroup) -> Option<String> {
    if config.platform != "tensorrt_plan" {
        let given = !group.profile.is_empty();
        return given
            .then(|| "specifies profile field which is only supported for TensorRT models".to_owned());
    }
    let wrong = group.profile.iter().find(|profile| profile.parse::<u32>().is_err())?;
    Some(format!(
        " specifies invalid profile {wrong}. The field should contain the string representation of a non-negative \
         integer."
    ))
}
