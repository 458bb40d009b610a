//! Loads and unloads models for backends.
use std::sync::Weak;

use bytes::Bytes;
use inference::{ModelChangeDone, ModelCommands};
use repository::LoadParameters;
use tokio::runtime::Handle;
use vocabulary::Error;

use super::{Engine, EngineInner};

/// Performs commands of backends as those of clients. Does not keep the engine alive.
pub(super) struct EngineModelLoader {
    pub(super) engine: Weak<EngineInner>,
    pub(super) runtime: Handle,
}

impl EngineModelLoader {
    fn perform<F>(&self, command: impl FnOnce(Engine) -> F, done: ModelChangeDone)
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        match self.engine.upgrade() {
            Some(shared) => {
                let command = command(Engine { shared });
                self.runtime.spawn(async move { done(command.await) });
            }
            None => done(Err(Error::unavailable("the server has ended"))),
        }
    }
}

impl ModelCommands for EngineModelLoader {
    fn load(&self, model: &str, config: Option<String>, files: Vec<(String, Bytes)>, done: ModelChangeDone) {
        let (model, given) = (model.to_owned(), LoadParameters { config, files });
        self.perform(|engine| async move { engine.repository().load(&model, given).await }, done);
    }

    fn unload(&self, model: &str, dependents: bool, done: ModelChangeDone) {
        let model = model.to_owned();
        let unload = |engine: Engine| async move {
            if dependents {
                engine.repository().unload_with_dependents(&model).await
            } else {
                engine.repository().unload(&model).await
            }
        };
        self.perform(unload, done);
    }
}
