//! Backends in the backend directory that have the name of a built-in one.
use std::path::Path;

use inference::backend::{BackendSettings, Implementation, ModelSource};
use vocabulary::Error;

/// The file of a backend that is written in Python.
const SOURCE: &str = "model.py";

/// Whether a backend of the backend directory runs a model instead of a built-in one: the operator has chosen that, or has
/// chosen nothing and the directory has a backend of the name that the configuration has. A built-in backend that
/// always goes first asks [`ModelSource::implementation`] only. Blocks.
///
/// # Errors
/// INVALID_ARG if the setting `implementation` has a value that is not allowed.
pub fn is_left_to_directory(source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
    if let Some(chosen) = source.implementation(settings)? {
        return Ok(chosen == Implementation::Triton);
    }
    let (name, runtime) = (&source.declared.backend, &source.declared.runtime);
    let settings = settings(name);
    let directory = Path::new(settings.get("backend-directory").map_or("", String::as_str)).join(name);
    let has = |file: &str| directory.join(file).is_file();
    Ok(if runtime.is_empty() { has(&format!("libtriton_{name}.so")) || has(SOURCE) } else { has(runtime) })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, sync::Arc};

    use super::*;

    #[test]
    fn a_backend_of_the_directory_goes_first_unless_a_setting_says_otherwise() {
        let root = tempfile::tempdir().unwrap();
        let is_left = |runtime: &str, implementation: Option<&str>| {
            let declared = proto::ModelConfig {
                backend: "x".to_owned(),
                runtime: runtime.to_owned(),
                ..Default::default()
            };
            let source = ModelSource {
                name: "m".into(),
                version: 1,
                version_directory: "m/1".into(),
                model_directory: "m".into(),
                declared: Arc::new(declared),
                settings: BTreeMap::new(),
                inferer: None,
                host_policies: Arc::default(),
            };
            let directory = ("backend-directory".to_owned(), root.path().display().to_string());
            let own = implementation.map(|value| ("implementation".to_owned(), value.to_owned()));
            let settings: BTreeMap<_, _> = [directory].into_iter().chain(own).collect();
            let of = |name: &str| if name == "x" { settings.clone() } else { BTreeMap::new() };
            is_left_to_directory(&source, &of).unwrap()
        };
        assert!(!is_left("", None) && is_left("", Some("triton")));
        fs::create_dir(root.path().join("x")).unwrap();
        fs::write(root.path().join("x/model.py"), "").unwrap();
        assert!(is_left("", None) && !is_left("libtriton_x.so", None) && !is_left("", Some("built-in")));
        fs::write(root.path().join("x/libtriton_x.so"), "").unwrap();
        fs::remove_file(root.path().join("x/model.py")).unwrap();
        assert!(is_left("", None) && is_left("libtriton_x.so", None) && !is_left("", Some("built-in")));
    }
}
