//! What the server logs when the models are loaded: backends, models with their states, and options. In a log of JSON each
//! is a record of its own, otherwise they are tables.
use std::sync::Arc;

use assembly::logging::LogFormat;
use engine::{ControlMode, Engine, RateLimitResource, ReadinessRule};
use inference::backend::{Backend, first_of_each_name};
use vocabulary::log_target::MULTILINE;

use crate::{
    options::{ResolvedOptions, TRITON_VERSION},
    table::TextTable,
};

/// Writes the tables to the log.
pub(crate) fn log(engine: &Engine, options: &ResolvedOptions, backends: &[Arc<dyn Backend>]) {
    let (backends, models) = (backend_table(options, backends), model_table(engine));
    let settings = option_table(engine, options);
    if options.logging.levels.format == LogFormat::Json {
        for [backend, path, config] in backends.rows() {
            log::info!(backend:%, path:%, config:%; "backend");
        }
        for [model, version, status] in models.rows() {
            log::info!(model:%, version:%, status:%; "model");
        }
        for [option, value] in settings.rows() {
            log::info!(option:%, value:%; "option");
        }
        return;
    }
    log::info!(target: MULTILINE, "\n{backends}");
    log::info!(target: MULTILINE, "\n{models}");
    log::info!(target: MULTILINE, "\n{settings}");
}

fn backend_table(options: &ResolvedOptions, backends: &[Arc<dyn Backend>]) -> TextTable<3> {
    let mut table = TextTable::new(["Backend", "Path", "Config"]);
    for backend in first_of_each_name(backends) {
        let settings = &options.backends.settings;
        let own = settings
            .iter()
            .filter(|setting| setting.backend.as_deref().is_none_or(|name| name == backend.settings_name()));
        let config: serde_json::Map<_, _> =
            own.map(|setting| (setting.key.clone(), setting.value.clone().into())).collect();
        let config = serde_json::json!({ "cmdline": config }).to_string();
        table.push([backend.name().to_owned(), backend.location(), config]);
    }
    table
}

fn model_table(engine: &Engine) -> TextTable<3> {
    let mut table = TextTable::new(["Model", "Version", "Status"]);
    for entry in engine.known_models(false) {
        let state = entry.state.map_or("", |state| state.as_str());
        let status =
            if entry.reason.is_empty() { state.to_owned() } else { format!("{state}: {}", entry.reason) };
        let version = entry.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
        table.push([entry.name.to_string(), version, status]);
    }
    table
}

fn option_table(engine: &Engine, options: &ResolvedOptions) -> TextTable<2> {
    let mut table = TextTable::new(["Option", "Value"]);
    let mut row = |option: &str, value: String| table.push([option.to_owned(), value]);
    row("server_id", options.server.id.clone());
    row("server_version", TRITON_VERSION.to_owned());
    row("server_extensions", engine.server().extensions.join(" "));
    for (index, path) in options.repository.paths.iter().enumerate() {
        row(&format!("model_repository_path[{index}]"), path.clone());
    }
    let mode = match options.repository.control_mode {
        ControlMode::None => "MODE_NONE",
        ControlMode::Poll => "MODE_POLL",
        ControlMode::Explicit => "MODE_EXPLICIT",
    };
    row("model_control_mode", mode.to_owned());
    for (index, model) in options.repository.startup_models.iter().enumerate() {
        row(&format!("startup_models_{index}"), model.clone());
    }
    row("strict_model_config", u8::from(!options.repository.auto_complete).to_string());
    row("model_config_name", options.repository.config_name.clone().unwrap_or_default());
    row("rate_limit", if options.rate_limit.is_some() { "EXEC_COUNT" } else { "OFF" }.to_owned());
    for (index, resource) in options.rate_limit.iter().flatten().enumerate() {
        row(&format!("rate_limit_resource[{index}]"), resource_cell(resource));
    }
    row("pinned_memory_pool_byte_size", options.memory.pinned_pool_byte_size.to_string());
    for (device, size) in &options.memory.cuda_pool_byte_sizes {
        row(&format!("cuda_memory_pool_byte_size{{{device}}}"), size.to_string());
    }
    let capability = format!("{:.1}", options.memory.min_supported_compute_capability);
    row("min_supported_compute_capability", capability);
    row("strict_readiness", u8::from(options.server.readiness != ReadinessRule::NoModel).to_string());
    row("exit_timeout", options.server.exit_timeout.as_secs().to_string());
    row("cache_enabled", u8::from(options.cache.is_some()).to_string());
    table
}

/// The resource as JSON. The name comes first.
fn resource_cell(RateLimitResource { name, count, device }: &RateLimitResource) -> String {
    let name = serde_json::Value::from(name.as_str());
    let device = device.map_or_else(String::new, |device| format!(r#","device":{device}"#));
    format!(r#"{{"name":{name},"count":{count}{device}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_shown_with_its_device_if_it_has_one() {
        let resource = |device| RateLimitResource { name: "R\"1".to_owned(), count: 3, device };
        assert_eq!(resource_cell(&resource(None)), r#"{"name":"R\"1","count":3}"#);
        assert_eq!(resource_cell(&resource(Some(0))), r#"{"name":"R\"1","count":3,"device":0}"#);
    }
}
