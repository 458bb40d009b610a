//! The repository agents of a model: who is told what, in which order.
//!
//! LOAD and UNLOAD go from the first agent of the configuration to the last, the others from the last to the first. Each
//! finds the model where the one before it has put it; the files are read where the last one has.
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::{
    Error, Name,
    agent::{AgentAction, AgentModel, Directories, ModelAgent, RepositoryAgent},
};

/// The agents of one model, at least one. What they still have to hear they hear when this is dropped, which may block.
pub(super) struct Agents {
    attached: Vec<AttachedAgent>,
}

/// An agent that looks after the model.
struct AttachedAgent {
    agent: Box<dyn ModelAgent>,
    model: AgentModel,
    /// Kept as long as it looks after a model.
    _repository_agent: Arc<dyn RepositoryAgent>,
}

impl Agents {
    /// Tells the agents of a configuration, which was read from `directory`, that the model is going to be loaded.
    /// `find` knows agents by their names, `read_config` the configuration that lies in a directory. Gives also where the
    /// last agent has put the model; nothing for a configuration without agents. Blocks.
    ///
    /// # Errors
    /// Of the first agent that is not there or refuses; those before it have been told that the load has failed.
    pub(super) fn load(
        config: &proto::ModelConfig,
        directory: &Path,
        find: impl Fn(&str) -> Result<Arc<dyn RepositoryAgent>, Error>,
        read_config: impl Fn(&Path) -> proto::ModelConfig,
    ) -> Result<Option<(Self, PathBuf)>, Error> {
        let asked_for = config.model_repository_agents.iter().flat_map(|agents| &agents.agents);
        let mut agents = Self { attached: Vec::new() };
        for asked in asked_for {
            let (location, config) = match agents.attached.last() {
                None => (directory.to_path_buf(), config.clone()),
                Some(before) => {
                    let location = before.model.location()?;
                    (location.to_path_buf(), read_config(location))
                }
            };
            let parameters = asked.parameters.iter();
            let parameters = parameters.map(|(name, value)| (Name::new(name), Name::new(value))).collect();
            let model = AgentModel::new(location, config, parameters, Arc::new(Temporary));
            let mut attached = AttachedAgent::begin(find(&asked.name)?, model)?;
            attached.act(AgentAction::Load)?;
            agents.attached.push(attached);
        }
        let Some(last) = agents.attached.last() else { return Ok(None) };
        let location = last.model.location()?.to_path_buf();
        Ok(Some((agents, location)))
    }

    /// Tells all agents what happens to the model after its LOAD. What they say is logged and changes nothing, not even
    /// what the others are told. Blocks.
    pub(super) fn notify(&mut self, action: AgentAction) {
        let tell = |attached: &mut AttachedAgent| attached.act_or_log(action);
        match action {
            AgentAction::Load | AgentAction::Unload => self.attached.iter_mut().for_each(tell),
            AgentAction::LoadComplete | AgentAction::LoadFail | AgentAction::UnloadComplete => {
                self.attached.iter_mut().rev().for_each(tell);
            }
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        while let Some(last) = self.attached.pop() {
            drop(last);
        }
    }
}

impl AttachedAgent {
    fn begin(agent: Arc<dyn RepositoryAgent>, mut model: AgentModel) -> Result<Self, Error> {
        let attached = catch_panic(|| agent.attach(&mut model))??;
        Ok(Self { agent: attached, model, _repository_agent: agent })
    }

    fn act(&mut self, action: AgentAction) -> Result<(), Error> {
        self.model.happens(action)?;
        catch_panic(|| self.agent.act(&mut self.model, action))?
    }

    fn act_or_log(&mut self, action: AgentAction) {
        if let Err(error) = self.act(action) {
            log::error!("Agent model returns error on {action}: {}", error.with_code());
        }
    }
}

impl Drop for AttachedAgent {
    fn drop(&mut self) {
        self.model.owed().iter().for_each(|&action| self.act_or_log(action));
        if let Err(error) = catch_panic(|| self.agent.leave(&mut self.model)) {
            log::error!("Agent model returns error at its end: {}", error.with_code());
        }
    }
}

/// Whatever an agent does, the others are told and it hears the rest.
fn catch_panic<T>(ask: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(|_| Error::internal("the repository agent panicked"))
}

/// Directories below that for temporary files, which only this user may look into.
struct Temporary;

impl Directories for Temporary {
    fn make(&self) -> Result<PathBuf, Error> {
        tempfile::Builder::new()
            .prefix("nereid-model-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .map(tempfile::TempDir::keep)
            .map_err(|error| Error::internal(format!("failed to create a temporary directory: {error}")))
    }

    fn remove(&self, directory: &Path) -> Result<(), Error> {
        fs::remove_dir_all(directory).map_err(|error| Error::internal(error.to_string()))
    }
}
