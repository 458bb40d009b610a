//! The settings of `--backend-config`: the settings that the server adds, and warnings about settings that no backend
//! reads.
use std::{path::Path, sync::Arc};

use backend_forest::ForestBackend;
use backend_onnx::OnnxBackend;
use backend_openvino::OpenVinoBackend;
use config::unknown_setting;
use inference::{backend::Backend, did_you_mean, nearest};

use crate::options::{BackendSetting, ResolvedOptions};

const DEFAULT_MAX_BATCH_SIZE: &str = "default-max-batch-size";

/// How many rows a request may have if nobody has set the size of batches of its model.
pub(crate) const REQUEST_ROWS: u32 = 1024;

/// The settings for the engine. Those of the server come first, so that operators may say otherwise.
pub(crate) fn all(options: &ResolvedOptions) -> Vec<BackendSetting> {
    let own = [
        ("auto-complete-config", options.repository.auto_complete.to_string()),
        ("backend-directory", options.backends.directory.display().to_string()),
        (DEFAULT_MAX_BATCH_SIZE, "4".to_owned()),
    ];
    let own = own.map(|(key, value)| BackendSetting { backend: None, key: key.to_owned(), value });
    let configured = options.backends.settings.iter().cloned();
    let sizes = sizes_of_backends(&options.backends.settings);
    own.into_iter().chain(sizes).chain(configured).collect()
}

/// The rows that requests may have, each unless the operator sets the size of the backend's batches.
fn sizes_of_backends(configured: &[BackendSetting]) -> impl Iterator<Item = BackendSetting> {
    let sizes = [
        (OnnxBackend::NAME, REQUEST_ROWS),
        (OpenVinoBackend::NAME, REQUEST_ROWS),
        (ForestBackend::NAME, ForestBackend::DEFAULT_MAX_BATCH_SIZE),
    ];
    let is_free = |(backend, _): &(&str, u32)| {
        !configured.iter().any(|setting| {
            setting.key == DEFAULT_MAX_BATCH_SIZE
                && setting.backend.as_deref().is_none_or(|name| name == *backend)
        })
    };
    sizes.into_iter().filter(is_free).map(|(backend, rows)| BackendSetting {
        backend: Some(backend.to_owned()),
        key: "max-request-rows".to_owned(),
        value: rows.to_string(),
    })
}

/// Logs the default batch size that backends get. Scripts search for this text of Triton.
pub(crate) fn log_default_batch_size(configured: &[BackendSetting]) {
    let is_it =
        |setting: &&BackendSetting| setting.backend.is_none() && setting.key == DEFAULT_MAX_BATCH_SIZE;
    match configured.iter().rfind(is_it) {
        None => log::debug!("Adding default backend config setting: {DEFAULT_MAX_BATCH_SIZE},4"),
        Some(BackendSetting { value, .. }) => {
            log::debug!("Found overwritten default setting: {DEFAULT_MAX_BATCH_SIZE},{value}");
        }
    }
}

/// Warnings about settings that no backend reads. `backends` are the built-in backends and the loaded ones. `directory`
/// may contain further backends.
pub(crate) fn misspelt(
    configured: &[BackendSetting],
    backends: &[Arc<dyn Backend>],
    directory: &Path,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for BackendSetting { backend, key, .. } in configured {
        let Some(name) = backend else { continue };
        match backends.iter().find(|known| known.settings_name() == name) {
            Some(known) => {
                warnings.extend(known.known_names().and_then(|names| unknown_setting(name, key, names)));
            }
            None if directory.join(name).is_dir() => {}
            None => {
                let near = nearest(name, backends.iter().map(|known| known.settings_name()));
                let near = did_you_mean(near);
                warnings.push(format!(
                    "--backend-config={name},{key} has no effect: there is no backend '{name}'{near}"
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use backend_onnx::OnnxBackend;
    use native_backend::LibrarySearch;

    use super::*;

    #[test]
    fn unused_settings_are_reported_with_the_probably_intended_name() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("mine")).unwrap();
        let nowhere = LibrarySearch { named: None, program_directory: None, python_prefixes: Vec::new() };
        let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(OnnxBackend::new(nowhere))];
        let setting = |backend: &str, key: &str| BackendSetting {
            backend: Some(backend.to_owned()),
            key: key.to_owned(),
            value: "1".to_owned(),
        };
        let warned = |backend, key| misspelt(&[setting(backend, key)], &backends, directory.path()).concat();
        assert_eq!(warned("onnxruntime", "default-max-batch-size"), "");
        assert_eq!(warned("mine", "anything"), "");
        assert_eq!(
            warned("onnxruntim", "x"),
            "--backend-config=onnxruntim,x has no effect: there is no backend 'onnxruntim', did you mean 'onnxruntime'?"
        );
        assert!(warned("frob", "x").ends_with("there is no backend 'frob'"));
        assert!(
            warned("onnxruntime", "default-max-batchsize")
                .ends_with("did you mean 'default-max-batch-size'?")
        );
        let of_all = BackendSetting { backend: None, ..setting("", "whatever") };
        assert!(misspelt(&[of_all], &backends, directory.path()).is_empty());
    }
}
