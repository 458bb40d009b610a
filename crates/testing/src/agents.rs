//! Repository agents built from closures, with a record of their notifications.
use std::{collections::BTreeMap, path::Path, sync::Arc};

use inference::{
    agent::{AgentAction, AgentFinder, AgentModel, ModelAgent, RepositoryAgent, not_found},
    lock::Mutex,
};
use vocabulary::Error;

type Act = dyn Fn(&mut AgentModel, AgentAction) -> Result<(), Error> + Send + Sync;

/// Agents by their names. Clones share the record.
#[derive(Clone, Default)]
pub struct Agents {
    agents: BTreeMap<String, Arc<Act>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Agents {
    /// Adds an agent, with the closure that handles its notifications.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        act: impl Fn(&mut AgentModel, AgentAction) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.agents.insert(name.to_owned(), Arc::new(act));
        self
    }

    /// Adds an agent that does nothing.
    #[must_use]
    pub fn with_idle(self, name: &str) -> Self {
        self.with(name, |_, _| Ok(()))
    }

    /// The notifications so far, as `<agent> LOAD`, and `<agent> leaves` for the last call.
    pub fn notifications(&self) -> Vec<String> {
        self.told.lock().clone()
    }
}

impl AgentFinder for Agents {
    fn find(&self, name: &str) -> Result<Arc<dyn RepositoryAgent>, Error> {
        let act = self.agents.get(name).ok_or_else(|| not_found(name, Path::new("/native")))?.clone();
        Ok(Arc::new(Agent { name: name.to_owned(), act, told: self.told.clone() }))
    }

    fn has(&self, name: &str) -> bool {
        self.agents.contains_key(name)
    }
}

#[derive(Clone)]
struct Agent {
    name: String,
    act: Arc<Act>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    fn note(&self, what: &str) {
        self.told.lock().push(format!("{} {what}", self.name));
    }
}

impl RepositoryAgent for Agent {
    fn attach(&self, _: &mut AgentModel) -> Result<Box<dyn ModelAgent>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl ModelAgent for Agent {
    fn act(&mut self, model: &mut AgentModel, action: AgentAction) -> Result<(), Error> {
        let name = action.as_str();
        self.note(name.strip_prefix("TRITONREPOAGENT_ACTION_").unwrap_or(name));
        (self.act)(model, action)
    }

    fn leave(&mut self, _: &mut AgentModel) {
        self.note("leaves");
    }
}
