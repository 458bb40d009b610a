//! The repository agents of a model: which agent is notified of which action, in which order.
//!
//! LOAD and UNLOAD go from the first agent of the configuration to the last, the other actions from the last to the
//! first. Each agent finds the model where the previous one has put it. The server reads the files where the last agent
//! has put them.
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::{
    agent::{AgentAction, AgentModel, Directories, ModelAgent, RepositoryAgent},
    lock::Mutex,
};
use vocabulary::{Error, Name};

use super::private_directory::PrivateDirectory;

/// The agents of one model, at least one. Drop notifies them of the actions that are still due, which may block.
pub struct Agents {
    attached: Vec<AttachedAgent>,
}

/// An agent that is attached to the model.
struct AttachedAgent {
    agent: Box<dyn ModelAgent>,
    model: AgentModel,
    /// Held while the agent is attached to a model.
    _repository_agent: Arc<dyn RepositoryAgent>,
}

impl Agents {
    /// Notifies the agents of a configuration, which was read from `directory`, that the model will be loaded. `find`
    /// finds agents by name, and `read_config` reads the configuration in a directory. Also returns where the last
    /// agent has put the model. `None` for a configuration without agents. Blocks.
    ///
    /// # Errors
    /// The error of the first agent that is missing or refuses. The agents before it have been notified that the load
    /// has failed.
    pub fn load(
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
            let model = AgentModel::new(location, config, parameters, Arc::new(Temporary::default()));
            let mut attached = AttachedAgent::begin(find(&asked.name)?, model)?;
            attached.act(AgentAction::Load)?;
            agents.attached.push(attached);
        }
        let Some(last) = agents.attached.last() else { return Ok(None) };
        let location = last.model.location()?.to_path_buf();
        Ok(Some((agents, location)))
    }

    /// Notifies all agents of an action after LOAD. Their errors are logged and have no other effect: the other agents
    /// are notified all the same. Blocks.
    pub fn notify(&mut self, action: AgentAction) {
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

/// Turns a panic of an agent into an error, so that the other agents, and this one later, are still notified.
fn catch_panic<T>(ask: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(|_| Error::internal("the repository agent panicked"))
}

/// Makes temporary directories. Those that the agent has not removed are removed with this.
#[derive(Default)]
struct Temporary(Mutex<Vec<PrivateDirectory>>);

impl Directories for Temporary {
    fn make(&self) -> Result<PathBuf, Error> {
        let directory = PrivateDirectory::new()?;
        let path = directory.path().to_owned();
        self.0.lock().push(directory);
        Ok(path)
    }

    fn remove(&self, directory: &Path) -> Result<(), Error> {
        let made = {
            let mut made = self.0.lock();
            made.iter().position(|made| made.path() == directory).map(|position| made.swap_remove(position))
        };
        match made {
            Some(made) => made.remove(),
            None => {
                Err(Error::internal(format!("'{}' is not a directory of this agent", directory.display())))
            }
        }
    }
}
