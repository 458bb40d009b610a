//! Which backend would run a model.
use std::{collections::BTreeMap, sync::Arc};

use inference::{
    backend::{Backend, ModelSource},
    nearest,
};
use vocabulary::Error;

use crate::CheckOptions;

/// The backend of a model.
pub(crate) enum BackendChoice {
    /// It is built into the server.
    BuiltIn(Arc<dyn Backend>),
    /// It is in a library, which a check does not open.
    Library,
}

impl BackendChoice {
    /// Chooses as the server does when it loads the model (`Loader::backend` of the engine).
    ///
    /// # Errors
    /// No backend has the name.
    pub(crate) fn of(options: &CheckOptions, source: &ModelSource) -> Result<Self, Error> {
        let settings = |backend: &str| settings_of(options, backend);
        let finder = options.plugins.finder.as_ref();
        if let Some(finder) = finder
            && finder.has_library(source, &settings, true)?
        {
            return Ok(Self::Library);
        }
        for backend in &options.plugins.backends {
            if backend.runs(source, &settings)? {
                return Ok(Self::BuiltIn(backend.clone()));
            }
        }
        let name = &source.declared.backend;
        match finder {
            Some(finder) if finder.has_library(source, &settings, false)? => Ok(Self::Library),
            Some(_) | None => Err(Error::invalid(format!(
                "unable to find backend library for backend '{name}', try specifying runtime on the model configuration."
            ))),
        }
    }
}

/// The built-in backend that runs a model, with its settings in `source`.
pub(crate) fn built_in(options: &CheckOptions, source: &mut ModelSource) -> Option<Arc<dyn Backend>> {
    match BackendChoice::of(options, source) {
        Ok(BackendChoice::BuiltIn(backend)) => {
            source.settings = settings_of(options, backend.settings_name());
            Some(backend)
        }
        Ok(BackendChoice::Library) | Err(_) => None,
    }
}

/// The name of a backend that a name probably means.
pub(crate) fn near_backend(options: &CheckOptions, name: &str) -> Option<String> {
    let known = options.plugins.backends.iter().map(|backend| backend.name().to_owned());
    nearest(name, known).filter(|near| near != name)
}

/// The settings for all backends, overridden by those for this backend.
pub(crate) fn settings_of(options: &CheckOptions, backend: &str) -> BTreeMap<String, String> {
    let of = |wanted: Option<&str>| {
        let settings =
            options.backend_settings.iter().filter(move |setting| setting.backend.as_deref() == wanted);
        settings.map(|setting| (setting.key.clone(), setting.value.clone())).collect::<Vec<_>>()
    };
    of(None).into_iter().chain(of(Some(backend))).collect()
}
