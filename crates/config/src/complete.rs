//! Fills in the defaults of a configuration.
use std::num::NonZeroU32;

use proto::{
    ModelInstanceGroup, ModelVersionPolicy,
    model_config::SchedulingChoice,
    model_instance_group::Kind,
    model_optimization_policy::PinnedMemoryBuffer,
    model_sequence_batching::StrategyChoice,
    model_version_policy::{Latest, PolicyChoice},
};

/// What the configuration of a model does not say itself: properties of the machine and the backend.
#[derive(Debug, Clone, Default)]
pub struct CompletionContext {
    /// Usable GPUs, numbered from 0.
    pub gpu_count: u32,
    /// The backend's instance groups for a model without instance groups, the best first.
    pub preferred_groups: Vec<ModelInstanceGroup>,
    /// Groups that ask for GPUs run on the processor if there is no GPU.
    pub gpu_groups_on_cpu: bool,
    /// How many rows a request may have, if those are more than the `max_batch_size` that the backend has chosen itself.
    pub request_rows: Option<NonZeroU32>,
}

/// Default of `max_sequence_idle_microseconds`.
const SEQUENCE_IDLE_US: u64 = 1_000_000;

/// Fills in the defaults that do not depend on the machine. A second call changes nothing.
///
/// As Triton: model_config_utils.cc, NormalizeModelConfig.
pub(super) fn normalise(config: &mut proto::ModelConfig) {
    config.version_policy.get_or_insert(ModelVersionPolicy {
        policy_choice: Some(PolicyChoice::Latest(Latest { num_versions: 1 })),
    });
    let full_batch = Some(config.max_batch_size).filter(|size| *size > 0);
    match &mut config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(batching)) if batching.preferred_batch_size.is_empty() => {
            batching.preferred_batch_size.extend(full_batch);
        }
        Some(SchedulingChoice::SequenceBatching(batching)) => {
            if batching.max_sequence_idle_microseconds == 0 {
                batching.max_sequence_idle_microseconds = SEQUENCE_IDLE_US;
            }
            if let Some(StrategyChoice::Oldest(oldest)) = &mut batching.strategy_choice
                && oldest.preferred_batch_size.is_empty()
            {
                oldest.preferred_batch_size.extend(full_batch);
            }
        }
        Some(SchedulingChoice::DynamicBatching(_) | SchedulingChoice::EnsembleScheduling(_)) | None => {}
    }
    if !is_ensemble(config) {
        let optimization = config.optimization.get_or_insert_default();
        optimization.input_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
        optimization.output_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
    }
}

/// Adds the default instance groups, and completes the name, kind, count and devices of each group.
///
/// As Triton: model_config_utils.cc, NormalizeInstanceGroup.
pub(super) fn complete_instance_groups(config: &mut proto::ModelConfig, environment: &CompletionContext) {
    if is_ensemble(config) {
        return;
    }
    if config.instance_group.is_empty() {
        let has_gpu = environment.gpu_count > 0;
        let usable = |group: &&ModelInstanceGroup| has_gpu || group.kind() != Kind::Gpu;
        let preferred = environment.preferred_groups.iter().find(usable);
        let (kind, count, gpus) =
            preferred.map(|group| (group.kind, group.count, group.gpus.clone())).unwrap_or_default();
        let name = config.name.clone();
        config.instance_group.push(ModelInstanceGroup { name, kind, count, gpus, ..Default::default() });
    }
    let two_on_cpu = ["onnxruntime", "tensorflow"].contains(&config.backend.as_str());
    for (position, group) in config.instance_group.iter_mut().enumerate() {
        if group.name.is_empty() {
            group.name = format!("{}_{position}", config.name);
        }
        if environment.gpu_groups_on_cpu
            && environment.gpu_count == 0
            && matches!(group.kind(), Kind::Gpu | Kind::Auto)
        {
            group.set_kind(Kind::Cpu);
            group.gpus.clear();
        }
        if group.kind == Kind::Auto as i32 {
            let usable = environment.gpu_count > 0 && group.gpus.iter().all(|gpu| is_gpu(*gpu, environment));
            group.set_kind(if usable { Kind::Gpu } else { Kind::Cpu });
        }
        if group.count < 1 {
            let same_kind =
                environment.preferred_groups.iter().filter(|preferred| preferred.kind == group.kind);
            let preferred = same_kind.map(|preferred| preferred.count).find(|count| *count > 0);
            let usual = if two_on_cpu && group.kind() == Kind::Cpu { 2 } else { 1 };
            group.count = preferred.unwrap_or(usual);
        }
        if group.kind() == Kind::Gpu && group.gpus.is_empty() {
            group.gpus = (0..i32::try_from(environment.gpu_count).unwrap_or(i32::MAX)).collect();
        }
    }
}

/// Whether the GPU with that number can be used.
pub(super) fn is_gpu(number: i32, environment: &CompletionContext) -> bool {
    u32::try_from(number).is_ok_and(|number| number < environment.gpu_count)
}

/// Whether the platform declares the model an ensemble.
pub(super) fn is_ensemble(config: &proto::ModelConfig) -> bool {
    config.platform == "ensemble"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> proto::ModelConfig {
        proto::text::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}\n{error}")).config
    }

    const PINNED: &str =
        "optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }";

    #[test]
    fn absent_fields_get_their_defaults() {
        let latest = "version_policy { latest { num_versions: 1 } }";
        for (text, wanted) in [
            ("", format!("{latest} {PINNED}")),
            ("version_policy { all {} }", format!("version_policy {{ all {{}} }} {PINNED}")),
            ("platform: 'ensemble'", format!("platform: 'ensemble' {latest}")),
            (
                "optimization { input_pinned_memory { enable: false } }",
                format!(
                    "{latest} optimization {{ input_pinned_memory {{}} output_pinned_memory {{ enable: true }} }}"
                ),
            ),
            (
                "max_batch_size: 8 dynamic_batching {}",
                format!("{latest} {PINNED} max_batch_size: 8 dynamic_batching {{ preferred_batch_size: 8 }}"),
            ),
            (
                "max_batch_size: 8 dynamic_batching { preferred_batch_size: 2 }",
                format!("{latest} {PINNED} max_batch_size: 8 dynamic_batching {{ preferred_batch_size: 2 }}"),
            ),
            ("dynamic_batching {}", format!("{latest} {PINNED} dynamic_batching {{}}")),
            (
                "max_batch_size: 8 sequence_batching { oldest {} }",
                format!(
                    "{latest} {PINNED} max_batch_size: 8 sequence_batching {{
                     max_sequence_idle_microseconds: 1000000 oldest {{ preferred_batch_size: 8 }} }}"
                ),
            ),
            (
                "sequence_batching { max_sequence_idle_microseconds: 5 oldest {} }",
                format!(
                    "{latest} {PINNED} sequence_batching {{ max_sequence_idle_microseconds: 5 oldest {{}} }}"
                ),
            ),
        ] {
            let mut normalised = config(text);
            normalise(&mut normalised);
            assert_eq!(normalised, config(&wanted), "{text}");
            normalise(&mut normalised);
            assert_eq!(normalised, config(&wanted), "{text}, the second time");
        }
    }

    /// Name, kind and count of each group, in one text.
    fn groups(text: &str, environment: &CompletionContext) -> String {
        let mut config = config(&format!("name: 'm' {text}"));
        complete_instance_groups(&mut config, environment);
        let groups = config.instance_group.iter().map(|group| {
            let kind = group.kind().as_str_name().trim_start_matches("KIND_");
            let gpus: String = group.gpus.iter().map(|gpu| format!(" {gpu}")).collect();
            format!("{} {kind} {}{gpus}", group.name, group.count)
        });
        groups.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn groups_without_a_gpu_are_on_the_processor() {
        for (text, wanted) in [
            ("backend: 'python'", "m CPU 1"),
            ("backend: 'onnxruntime'", "m CPU 2"),
            ("backend: 'tensorflow'", "m CPU 2"),
            ("backend: 'onnxruntime' instance_group {} instance_group { count: 3 }", "m_0 CPU 2, m_1 CPU 3"),
            ("instance_group { name: 'a' } instance_group {}", "a CPU 1, m_1 CPU 1"),
            ("instance_group { count: 0 } instance_group { count: -3 }", "m_0 CPU 1, m_1 CPU 1"),
            ("backend: 'onnxruntime' instance_group { kind: KIND_MODEL }", "m_0 MODEL 1"),
            ("instance_group { kind: KIND_AUTO gpus: 0 }", "m_0 CPU 1 0"),
            ("instance_group { kind: KIND_GPU }", "m_0 GPU 1"),
            ("platform: 'ensemble'", ""),
        ] {
            assert_eq!(groups(text, &CompletionContext::default()), wanted, "{text}");
        }
    }

    #[test]
    fn groups_with_two_gpus_use_them() {
        let environment = CompletionContext { gpu_count: 2, ..CompletionContext::default() };
        for (text, wanted) in [
            ("backend: 'onnxruntime'", "m GPU 1 0 1"),
            ("instance_group { kind: KIND_AUTO gpus: 1 }", "m_0 GPU 1 1"),
            ("instance_group { kind: KIND_AUTO gpus: [ 1, 2 ] }", "m_0 CPU 1 1 2"),
            ("instance_group { kind: KIND_AUTO gpus: -1 }", "m_0 CPU 1 -1"),
            ("instance_group { kind: KIND_GPU gpus: 0 count: 2 }", "m_0 GPU 2 0"),
        ] {
            assert_eq!(groups(text, &environment), wanted, "{text}");
        }
    }

    #[test]
    fn groups_that_ask_for_a_gpu_can_be_put_on_the_processor() {
        let environment = CompletionContext { gpu_groups_on_cpu: true, ..CompletionContext::default() };
        for (text, wanted) in [
            ("instance_group { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] }", "m_0 CPU 2"),
            ("instance_group { kind: KIND_AUTO gpus: 0 }", "m_0 CPU 1"),
            ("instance_group { kind: KIND_CPU gpus: 0 }", "m_0 CPU 1 0"),
            ("instance_group { kind: KIND_MODEL }", "m_0 MODEL 1"),
        ] {
            assert_eq!(groups(text, &environment), wanted, "{text}");
        }
        let with_gpu = CompletionContext { gpu_count: 1, ..environment };
        assert_eq!(groups("instance_group { kind: KIND_GPU }", &with_gpu), "m_0 GPU 1 0");
    }

    #[test]
    fn a_backend_may_have_preferences() {
        let preferred_groups =
            config("instance_group { kind: KIND_GPU count: 4 } instance_group { kind: KIND_CPU count: 3 }");
        let environment = CompletionContext {
            preferred_groups: preferred_groups.instance_group,
            ..CompletionContext::default()
        };
        assert_eq!(groups("backend: 'onnxruntime'", &environment), "m CPU 3");
        assert_eq!(
            groups("instance_group {} instance_group { kind: KIND_MODEL }", &environment),
            "m_0 CPU 3, m_1 MODEL 1"
        );
        assert_eq!(groups("", &CompletionContext { gpu_count: 1, ..environment }), "m GPU 4 0");
    }
}
