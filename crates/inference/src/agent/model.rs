//! A model as its repository agent sees it, and the rules for what the agent may do with it.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use vocabulary::{Error, Name};

use super::action::AgentAction;

/// Creates and removes the directories that agents request.
pub trait Directories: Send + Sync {
    /// Creates an empty directory for exclusive use.
    ///
    /// # Errors
    /// INTERNAL if the directory cannot be created.
    fn make(&self) -> Result<PathBuf, Error>;

    /// Removes a directory and its content.
    ///
    /// # Errors
    /// INTERNAL if part of it cannot be removed.
    fn remove(&self, directory: &Path) -> Result<(), Error>;
}

/// The kind of storage for the files of a model (`TRITONREPOAGENT_ArtifactType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArtifactType {
    /// A directory of this machine.
    Filesystem,
    /// A bucket in a cloud.
    RemoteFilesystem,
}

/// A model as its agent sees it (`TRITONREPOAGENT_AgentModel`).
///
/// The model removes a directory that the agent has acquired when the agent releases it, or when the model is
/// dropped.
pub struct AgentModel {
    parameters: Vec<(Name, Name)>,
    config: proto::ModelConfig,
    /// Empty if an agent has set an empty location.
    location: PathBuf,
    acquired: Option<PathBuf>,
    /// The last action on the model.
    last: Option<AgentAction>,
    directories: Arc<dyn Directories>,
}

impl AgentModel {
    /// A model at `location`, before the first action. `config` is the configuration that the server read there.
    /// `parameters` are those of the agent.
    pub fn new(
        location: PathBuf,
        config: proto::ModelConfig,
        parameters: Vec<(Name, Name)>,
        directories: Arc<dyn Directories>,
    ) -> Self {
        Self { parameters, config, location, acquired: None, last: None, directories }
    }

    /// The parameters that the configuration gives to the agent: names and values.
    pub fn parameters(&self) -> &[(Name, Name)] {
        &self.parameters
    }

    /// The name and the value of one parameter.
    ///
    /// # Errors
    /// INVALID_ARG if `index` is out of range.
    pub fn parameter(&self, index: usize) -> Result<(&Name, &Name), Error> {
        let (name, value) = self
            .parameters
            .get(index)
            .ok_or_else(|| Error::invalid("index out of range for model parameters"))?;
        Ok((name, value))
    }

    /// The configuration that the server read at the model's location before this agent ran. Empty if there was none.
    pub fn config(&self) -> &proto::ModelConfig {
        &self.config
    }

    /// The location of the model: in its repository, or where an agent has put it. The agent must not change these
    /// files.
    ///
    /// # Errors
    /// INTERNAL if an agent has set an empty location.
    pub fn location(&self) -> Result<&Path, Error> {
        if self.location.as_os_str().is_empty() {
            return Err(Error::internal("Model repository location is not set"));
        }
        Ok(&self.location)
    }

    /// Returns a directory that the agent may fill. The first call creates it, empty. Later calls return the same
    /// directory until the agent releases it.
    ///
    /// # Errors
    /// INVALID_ARG for storage that is not on this machine; INTERNAL if the directory cannot be created.
    pub fn acquire(&mut self, artifact: ArtifactType) -> Result<&Path, Error> {
        if artifact != ArtifactType::Filesystem {
            return Err(Error::invalid(
                "Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'",
            ));
        }
        let directory = match self.acquired.take() {
            Some(directory) => directory,
            None => self.directories.make()?,
        };
        Ok(self.acquired.insert(directory))
    }

    /// Removes the acquired directory. Files that cannot be removed stay, and the model logs this.
    ///
    /// # Errors
    /// UNAVAILABLE if there is no acquired directory.
    pub fn release(&mut self) -> Result<(), Error> {
        let directory =
            self.acquired.take().ok_or_else(|| Error::unavailable("No mutable location to be deleted"))?;
        if let Err(error) = self.directories.remove(&directory) {
            let directory = directory.display();
            log::error!("Failed to delete previously acquired location '{directory}': {}", error.with_code());
        }
        Ok(())
    }

    /// Sets another location of the model: the acquired directory, or a directory of the agent.
    ///
    /// # Errors
    /// INVALID_ARG unless the last action is LOAD; UNSUPPORTED for a location that is not on this machine.
    pub fn relocate(&mut self, artifact: ArtifactType, location: PathBuf) -> Result<(), Error> {
        if self.last != Some(AgentAction::Load) {
            let current = self.last.map_or("not set", AgentAction::as_str);
            return Err(Error::invalid(format!(
                "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is {current}"
            )));
        }
        match artifact {
            ArtifactType::Filesystem => self.location = location,
            ArtifactType::RemoteFilesystem => {
                return Err(Error::unsupported(format!(
                    "'{}' is remote, and remote locations are not supported by this version of nereid",
                    location.display()
                )));
            }
        }
        Ok(())
    }

    /// Records an action on the model. The caller then calls the agent.
    ///
    /// # Errors
    /// INTERNAL if the action cannot follow the last one.
    pub fn happens(&mut self, action: AgentAction) -> Result<(), Error> {
        if !action.may_follow(self.last) {
            return Err(Error::internal(match self.last {
                None => format!("Unexpected lifecycle start state {action}"),
                Some(last) => format!("Unexpected lifecycle state transition from {last} to {action}"),
            }));
        }
        self.last = Some(action);
        Ok(())
    }

    /// The actions that the server must still report to the agent, if the model does nothing else.
    pub fn owed(&self) -> &'static [AgentAction] {
        self.last.map_or(&[], AgentAction::owed)
    }
}

impl Drop for AgentModel {
    fn drop(&mut self) {
        if self.acquired.is_some() {
            // `release` fails only if no directory exists. It logs every other problem.
            let _ = self.release();
        }
    }
}

#[cfg(test)]
mod tests {

    use vocabulary::ErrorCode;

    use super::*;
    use crate::lock::Mutex;

    /// Imaginary directories: the test only counts what was created and removed.
    #[derive(Default)]
    struct Imagined(Mutex<Vec<String>>);

    impl Directories for Imagined {
        fn make(&self) -> Result<PathBuf, Error> {
            let mut told = self.0.lock();
            let name = format!("/d{}", told.len());
            told.push(format!("made {name}"));
            Ok(name.into())
        }

        fn remove(&self, directory: &Path) -> Result<(), Error> {
            self.0.lock().push(format!("removed {}", directory.display()));
            Err(Error::internal("it is only logged if this fails"))
        }
    }

    fn model() -> (AgentModel, Arc<Imagined>) {
        let directories = Arc::<Imagined>::default();
        let parameters = vec![("a".into(), "1".into()), ("b".into(), "2".into())];
        let config = proto::ModelConfig { name: "m".to_owned(), ..Default::default() };
        (AgentModel::new("/models/m".into(), config, parameters, directories.clone()), directories)
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.unwrap_err().with_code()
    }

    /// A model after these actions.
    fn after(actions: &[AgentAction]) -> AgentModel {
        let mut model = model().0;
        actions.iter().for_each(|&action| model.happens(action).unwrap());
        model
    }

    use AgentAction::{Load, LoadComplete, LoadFail, Unload, UnloadComplete};

    const WAYS: [&[AgentAction]; 6] = [
        &[],
        &[Load],
        &[Load, LoadFail],
        &[Load, LoadComplete],
        &[Load, LoadComplete, Unload],
        &[Load, LoadComplete, Unload, UnloadComplete],
    ];

    #[test]
    fn actions_happen_in_their_order_only() {
        for way in WAYS {
            for action in [Load, LoadComplete, LoadFail, Unload, UnloadComplete] {
                let lawful = WAYS.iter().any(|other| **other == [way, &[action]].concat());
                let happened = after(way).happens(action);
                let text = match way.last() {
                    None => format!("Internal: Unexpected lifecycle start state {action}"),
                    Some(last) => {
                        format!("Internal: Unexpected lifecycle state transition from {last} to {action}")
                    }
                };
                assert_eq!(
                    happened.map_err(|error| error.with_code()),
                    if lawful { Ok(()) } else { Err(text) }
                );
            }
        }
    }

    #[test]
    fn the_owed_actions_lead_to_a_final_state() {
        for way in WAYS {
            let mut model = after(way);
            model.owed().iter().for_each(|&action| model.happens(action).unwrap());
            assert_eq!(model.owed(), [], "{way:?}");
        }
    }

    #[test]
    fn a_model_is_relocated_only_before_it_is_loaded() {
        for way in WAYS {
            let mut model = after(way);
            let relocated = model.relocate(ArtifactType::Filesystem, "/elsewhere".into());
            if way == [Load] {
                assert_eq!((relocated, model.location()), (Ok(()), Ok(Path::new("/elsewhere"))));
                continue;
            }
            let current = way.last().map_or("not set".to_owned(), ToString::to_string);
            assert_eq!(
                refused(relocated),
                format!(
                    "Invalid argument: location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action \
                     type is {current}"
                )
            );
            assert_eq!(model.location(), Ok(Path::new("/models/m")));
        }
    }

    #[test]
    fn a_model_cannot_be_relocated_to_object_storage() {
        let error = after(&[Load]).relocate(ArtifactType::RemoteFilesystem, "s3://b/m".into()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
    }

    #[test]
    fn a_model_that_lies_nowhere_is_an_error() {
        let mut model = after(&[Load]);
        model.relocate(ArtifactType::Filesystem, PathBuf::new()).unwrap();
        assert_eq!(refused(model.location()), "Internal: Model repository location is not set");
    }

    #[test]
    fn a_directory_is_the_same_until_it_is_released() {
        let (mut model, directories) = model();
        assert_eq!(refused(model.release()), "Unavailable: No mutable location to be deleted");
        for _ in 0..2 {
            assert_eq!(model.acquire(ArtifactType::Filesystem), Ok(Path::new("/d0")));
        }
        assert_eq!(model.release(), Ok(()));
        assert!(model.release().is_err());
        assert_eq!(model.acquire(ArtifactType::Filesystem), Ok(Path::new("/d2")));
        drop(model);
        assert_eq!(*directories.0.lock(), ["made /d0", "removed /d0", "made /d2", "removed /d2"]);
    }

    #[test]
    fn a_directory_in_object_storage_is_refused() {
        let (mut model, directories) = model();
        assert_eq!(
            refused(model.acquire(ArtifactType::RemoteFilesystem)),
            "Invalid argument: Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'"
        );
        drop(model);
        assert!(directories.0.lock().is_empty());
    }

    #[test]
    fn parameters_are_numbered() {
        let (model, _) = model();
        assert_eq!(model.parameters().len(), 2);
        assert_eq!(model.parameter(1), Ok((&"b".into(), &"2".into())));
        assert_eq!(refused(model.parameter(2)), "Invalid argument: index out of range for model parameters");
    }
}
