//! The rules that depend neither on the backend nor on the machine.
use proto::nearest;
use proto::{ModelConfig, model_config::SchedulingChoice, model_metrics::metric_control::MetricOptions};
use vocabulary::ErrorCode;

use super::{
    super::{
        ConfigErrors,
        complete::is_ensemble,
        model_files::MODEL_FORMATS,
        rule,
        typed::caching::{caches_decoupled, is_cached},
    },
    ensemble, priorities, sequence,
};

/// The rules that depend neither on the backend nor on the machine (model_config_utils.cc, ValidateModelConfig).
pub(in super::super) fn check_structure(config: &ModelConfig, errors: &mut ConfigErrors) {
    name_is_given(config, errors);
    backend_fits_platform(config, errors);
    max_batch_size_is_not_negative(config, errors);
    version_policy_is_given(config, errors);
    match &config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(batching)) => priorities::check(config, batching, errors),
        Some(SchedulingChoice::SequenceBatching(batching)) => sequence::check(config, batching, errors),
        Some(SchedulingChoice::EnsembleScheduling(ensemble)) => ensemble::check(config, ensemble, errors),
        None => {}
    }
    ensemble_is_scheduled(config, errors);
    decoupled_is_not_cached(config, errors);
    metrics_are_complete(config, errors);
}

/// The name of the model must equal the name of its directory.
pub(in super::super) fn directory_has_the_name(
    config: &ModelConfig,
    directory: &str,
    errors: &mut ConfigErrors,
) {
    errors.begin(rule::MODEL_NAME);
    if config.name != directory {
        let model = &config.name;
        errors.invalid(
            "name",
            format!(
                "unexpected directory name '{directory}' for model '{model}', directory name must equal model name"
            ),
        );
    }
}

fn name_is_given(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::MODEL_NAME);
    if config.name.is_empty() {
        errors.invalid("name", "model configuration must specify 'name'");
    }
}

fn backend_fits_platform(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::PLATFORM);
    let ModelConfig { name, platform, backend, .. } = config;
    if backend.is_empty() {
        if !is_ensemble(config) {
            let platforms = MODEL_FORMATS.iter().map(|format| format.platform);
            let platforms = platforms.filter(|known| !known.is_empty()).chain(["ensemble"]);
            let near = nearest(platform, platforms).map(str::to_owned);
            let text = format!("unexpected platform type '{platform}' for {name}");
            errors.push_meaning(ErrorCode::InvalidArgument, "platform", text, near);
        }
        return;
    }
    if is_ensemble(config) {
        let text =
            format!("Ensemble model '{name}' must have platform type 'ensemble' and empty backend type");
        errors.invalid("backend", text);
        return;
    }
    let formats = MODEL_FORMATS.iter().filter(|format| *backend == format.backend);
    let platforms: Vec<_> = formats.map(|format| format.platform).filter(|known| !known.is_empty()).collect();
    if !platforms.is_empty() && !platforms.contains(&platform.as_str()) {
        let text = format!("unexpected 'platform' and 'backend' pair, got:{platform}, {backend}");
        let near = nearest(platform, platforms.iter().copied()).or(platforms.first().copied());
        errors.push_meaning(ErrorCode::InvalidArgument, "platform", text, near.map(str::to_owned));
    }
}

fn max_batch_size_is_not_negative(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::MAX_BATCH_SIZE);
    if config.max_batch_size < 0 {
        let text = format!("'max_batch_size' must be non-negative value for {}", config.name);
        errors.invalid("max_batch_size", text);
    }
}

fn version_policy_is_given(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::VERSION_POLICY);
    if config.version_policy.is_none() {
        errors.invalid("version_policy", format!("must specify 'version policy' for {}", config.name));
    }
}

fn ensemble_is_scheduled(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::ENSEMBLE);
    let scheduled = matches!(config.scheduling_choice, Some(SchedulingChoice::EnsembleScheduling(_)));
    if is_ensemble(config) && !scheduled {
        let text = format!(
            "ensemble scheduling must be set for ensemble {} whose platform is ensemble",
            config.name
        );
        errors.invalid("ensemble_scheduling", text);
    }
}

fn decoupled_is_not_cached(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::RESPONSE_CACHE);
    let decoupled = config.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled);
    if decoupled && is_cached(config) && !caches_decoupled(config) {
        let text = format!(
            "Response Cache does not currently support model {} with 'decoupled' transaction policy. Please \
             disable the response cache.",
            config.name
        );
        errors.invalid("response_cache", text);
    }
}

fn metrics_are_complete(config: &ModelConfig, errors: &mut ConfigErrors) {
    errors.begin(rule::MODEL_METRICS);
    let controls = config.model_metrics.iter().flat_map(|metrics| &metrics.metric_control);
    for (position, control) in controls.enumerate() {
        let field = format!("model_metrics.metric_control[{position}]");
        match &control.metric_identifier {
            None => errors.invalid(&field, "metric control must specify 'metric_identifier'"),
            Some(identifier) if identifier.family.is_empty() => {
                errors.invalid(&field, "metric identifier must specify non-empty 'family'");
            }
            Some(_) => {}
        }
        match &control.metric_options {
            None => errors.invalid(&field, "metric control must specify 'histogram_options'"),
            Some(MetricOptions::HistogramOptions(options)) if options.buckets.is_empty() => {
                errors.invalid(&field, "histogram options must specify non-empty 'buckets'");
            }
            Some(MetricOptions::HistogramOptions(options))
                if !options.buckets.is_sorted_by(|one, next| one < next) =>
            {
                errors.invalid(&field, "histogram options must specify ascending 'buckets'");
            }
            Some(MetricOptions::HistogramOptions(_)) => {}
        }
    }
}
