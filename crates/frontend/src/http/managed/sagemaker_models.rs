//! The models of a multi-model endpoint. The platform loads and unloads them by hashes.
use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use engine::Engine;
use http::StatusCode;
use inference::lock::Mutex;
use repository::LoadParameters;
use tokio::time::timeout;
use vocabulary::{Error, ErrorCode, Name};

use super::model_url::{self, UploadedModel, UrlRefusal};

/// How long an unload waits for the model's last requests. As Triton: sagemaker_server.cc.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(350);

/// The longest hash and the longest name of a model, in bytes: both are stored as long as the model is loaded.
const MAX_NAME: usize = 1024;

/// The models, by the hash that the platform gave them.
pub(super) struct SageMakerModels {
    engine: Engine,
    /// `/opt/ml/models`
    root: PathBuf,
    known: Mutex<BTreeMap<String, KnownModel>>,
}

#[derive(Debug, Clone)]
enum KnownModel {
    /// It is being loaded or unloaded.
    Changing,
    Loaded(PlatformModel),
}

/// A model that the platform has loaded.
#[derive(Debug, Clone)]
pub(super) struct PlatformModel {
    /// The name that the server knows it by.
    pub(super) name: String,
    /// The directory of its repository.
    pub(super) repository: PathBuf,
}

/// Why a model was not loaded or unloaded. `text` is `None` if the client gets no reason.
#[derive(Debug)]
pub(super) struct ModelRefusal {
    pub(super) status: StatusCode,
    pub(super) text: Option<String>,
}

impl ModelRefusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: Some(text.into()) }
    }

    fn not_loaded() -> Self {
        Self { status: StatusCode::NOT_FOUND, text: None }
    }
}

impl From<Error> for ModelRefusal {
    fn from(error: Error) -> Self {
        let status = match error.code {
            ErrorCode::AlreadyExists => StatusCode::CONFLICT,
            _ => failure_status(&error.message),
        };
        Self::new(status, error.message)
    }
}

impl From<UrlRefusal> for ModelRefusal {
    fn from(refusal: UrlRefusal) -> Self {
        match refusal {
            UrlRefusal::System => Self { status: StatusCode::BAD_REQUEST, text: None },
            UrlRefusal::Text(text) => Self::new(StatusCode::BAD_REQUEST, text),
        }
    }
}

/// The status of a failure by its text: the platform unloads other models after 507.
pub(super) fn failure_status(text: &str) -> StatusCode {
    const NO_MEMORY: [&str; 6] = [
        "out of memory",
        "out_of_memory",
        "outofmemory",
        "memoryerror",
        "cublas_status_alloc_failed",
        "bad_alloc",
    ];
    let text = text.to_ascii_lowercase();
    if NO_MEMORY.iter().any(|sign| text.contains(sign)) {
        StatusCode::INSUFFICIENT_STORAGE
    } else {
        StatusCode::BAD_REQUEST
    }
}

impl SageMakerModels {
    pub(super) fn new(engine: Engine, root: PathBuf) -> Arc<Self> {
        Arc::new(Self { engine, root, known: Mutex::default() })
    }

    /// The model with that hash, if it is loaded.
    pub(super) fn find(&self, hash: &str) -> Option<PlatformModel> {
        match self.known.lock().get(hash)? {
            KnownModel::Changing => None,
            KnownModel::Loaded(model) => Some(model.clone()),
        }
    }

    /// All models by their hashes. `None` for a model that is being loaded or unloaded.
    pub(super) fn list(&self) -> Vec<(String, Option<PlatformModel>)> {
        let known = self.known.lock();
        let model = |(hash, model): (&String, &KnownModel)| match model {
            KnownModel::Changing => (hash.clone(), None),
            KnownModel::Loaded(model) => (hash.clone(), Some(model.clone())),
        };
        known.iter().map(model).collect()
    }

    /// Loads a model from the files at `url`. The server knows it as `name`. The load goes on if the client disconnects.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn load(
        self: &Arc<Self>,
        hash: String,
        name: String,
        url: &str,
    ) -> Result<(), ModelRefusal> {
        for (what, text) in [("the hash", &hash), ("the name", &name)] {
            if text.len() > MAX_NAME {
                let refusal =
                    format!("{what} of a model has {} bytes, at most {MAX_NAME} are allowed", text.len());
                return Err(ModelRefusal::new(StatusCode::BAD_REQUEST, refusal));
            }
        }
        let directory = model_url::directory(&self.root, url)?;
        match self.known.lock().entry(hash.clone()) {
            Entry::Occupied(_) => {
                return Err(ModelRefusal::new(
                    StatusCode::CONFLICT,
                    format!("model '{hash}' is already loaded"),
                ));
            }
            Entry::Vacant(vacant) => vacant.insert(KnownModel::Changing),
        };
        let models = self.clone();
        let loading = tokio::spawn(async move {
            let loaded = models.load_from(directory, &name).await;
            let mut known = models.known.lock();
            match loaded {
                Ok(repository) => {
                    known.insert(hash, KnownModel::Loaded(PlatformModel { name, repository }));
                    Ok(())
                }
                Err(refusal) => {
                    known.remove(&hash);
                    Err(refusal)
                }
            }
        });
        loading.await.unwrap_or_else(|_| Err(Error::internal("the load has ended abnormally").into()))
    }

    /// Returns the repository of the loaded model.
    async fn load_from(&self, directory: PathBuf, name: &str) -> Result<PathBuf, ModelRefusal> {
        let finding = tokio::task::spawn_blocking(move || model_url::find(&directory));
        let place = finding.await.map_err(|_| Error::internal("the search for the model has failed"))??;
        let UploadedModel { repository, directory } = place;
        let mapped = BTreeMap::from([(Name::new(name), directory)]);
        self.engine.repository().register(repository.clone(), mapped).await?;
        match self.engine.repository().load(name, LoadParameters::default()).await {
            Ok(()) => Ok(repository),
            Err(error) => {
                self.forget_repository(&repository).await;
                Err(error.into())
            }
        }
    }

    async fn forget_repository(&self, repository: &Path) {
        if let Err(error) = self.engine.repository().unregister(repository.to_owned()).await {
            log::warn!("failed to forget the repository '{}': {}", repository.display(), error.message);
        }
    }

    /// Unloads a model and its dependents. Returns when its last request has ended. The unload goes on if the client
    /// disconnects.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn unload(self: &Arc<Self>, hash: &str) -> Result<(), ModelRefusal> {
        let model = {
            let mut known = self.known.lock();
            match known.get_mut(hash) {
                None | Some(KnownModel::Changing) => return Err(ModelRefusal::not_loaded()),
                Some(entry @ KnownModel::Loaded(_)) => std::mem::replace(entry, KnownModel::Changing),
            }
        };
        let KnownModel::Loaded(model) = model else { return Err(ModelRefusal::not_loaded()) };
        let (models, hash) = (self.clone(), hash.to_owned());
        let unloading = tokio::spawn(async move {
            let unloaded = models.engine.repository().unload_with_dependents(&model.name).await;
            let mut known = match unloaded {
                Ok(()) => {
                    models.wait_for_end(&model.name).await;
                    models.forget_repository(&model.repository).await;
                    models.known.lock()
                }
                Err(error) => {
                    models.known.lock().insert(hash, KnownModel::Loaded(model));
                    return Err(error.into());
                }
            };
            known.remove(&hash);
            Ok(())
        });
        unloading.await.unwrap_or_else(|_| Err(Error::internal("the unload has ended abnormally").into()))
    }

    async fn wait_for_end(&self, name: &str) {
        if timeout(UNLOAD_TIMEOUT, self.engine.repository().model_ended(name)).await.is_err() {
            log::warn!(
                "model '{name}' still has requests {} seconds after its unload",
                UNLOAD_TIMEOUT.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_for_lack_of_memory_has_its_own_status() {
        for text in ["CUDA out of memory", "CUDA_OUT_OF_MEMORY", "MemoryError: x", "std::bad_alloc"] {
            assert_eq!(failure_status(text), 507, "{text}");
        }
        assert_eq!(failure_status("failed to load 'm'"), 400);
    }
}
