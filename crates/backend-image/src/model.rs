//! The backend and its models. A model has no files, only a configuration.
use std::sync::Arc;

use config::{ConfigErrors, KnownConfigNames, ModelConfig, rule};
use inference::backend::{
    Backend, BackendModel, BuiltInstance, InstanceDevice, InstanceSpec, ModelInspection, ModelSource,
};
use vocabulary::Error;

use crate::{
    instance::PictureInstance,
    parameters,
    settings::{BACKEND_NAME, PictureSettings},
};

/// The built-in backend for pictures.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageBackend;

impl ImageBackend {
    /// The backend's name in configurations.
    pub const NAME: &str = BACKEND_NAME;
}

impl Backend for ImageBackend {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn known_names(&self) -> Option<KnownConfigNames> {
        Some(parameters::KNOWN_NAMES)
    }

    fn inspect(&self, _: &ModelSource) -> Result<Option<Box<dyn ModelInspection>>, Error> {
        Ok(Some(Box::new(PictureModel)))
    }

    fn open(&self, _: &ModelSource) -> Result<Box<dyn BackendModel>, Error> {
        Ok(Box::new(PictureModel))
    }
}

struct PictureModel;

impl ModelInspection for PictureModel {
    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        errors.begin(rule::PARAMETER);
        if let Err(refusal) = PictureSettings::of(config) {
            errors.invalid(&refusal.field, refusal.text);
        }
    }
}

impl BackendModel for PictureModel {
    fn instance(&self, config: &Arc<ModelConfig>, spec: &InstanceSpec) -> Result<BuiltInstance, Error> {
        if let InstanceDevice::Gpu(ordinal) = spec.device {
            let text =
                format!("instance '{}' wants GPU {ordinal}, but pictures are decoded on the CPU", spec.name);
            return Err(Error::unsupported(text));
        }
        let settings = PictureSettings::of(config)?;
        // To decode a picture takes milliseconds. The thread of the instance must do it, never a network thread.
        Ok(BuiltInstance::ThreadBound(Box::new(PictureInstance::new(settings))))
    }
}
