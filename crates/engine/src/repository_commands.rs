//! What operators do with the models of an engine: the repository extension of KServe, and the polls.
use std::{collections::BTreeMap, path::PathBuf};

use repository::LoadParameters;
use vocabulary::{Error, MAX_STORED_NAME, Name, check_length};

use crate::{
    models::Repository, on_demand::OnDemandModels, options::ModelControl, readiness::ReadinessPolicy,
};

/// The commands of operators for the models of an engine. The control mode decides which are allowed.
#[derive(Clone, Copy)]
pub struct RepositoryCommands<'e> {
    repository: &'e Repository,
    on_demand: Option<&'e OnDemandModels>,
    readiness: &'e ReadinessPolicy,
    control: &'e ModelControl,
}

impl<'e> RepositoryCommands<'e> {
    pub(crate) fn new(
        repository: &'e Repository,
        on_demand: Option<&'e OnDemandModels>,
        readiness: &'e ReadinessPolicy,
        control: &'e ModelControl,
    ) -> Self {
        Self { repository, on_demand, readiness, control }
    }

    /// Loads or reloads a model, with its files in a repository or with what the caller gives. Returns when it is ready
    /// or has failed. If it has failed, the model serves what it served before.
    ///
    /// # Errors
    /// Why the model cannot be loaded. UNAVAILABLE if the control mode is not `explicit`. UNSUPPORTED if `given` brings
    /// something and the engine refuses that (`LoadPolicy::refuse_overrides`).
    pub async fn load(self, name: &str, given: LoadParameters) -> Result<(), Error> {
        self.is_explicit()?;
        check_name(name)?;
        match self.on_demand {
            Some(on_demand) => on_demand.load(name, given).await,
            None => self.repository.load(name, given).await,
        }
    }

    /// Unloads a model, whether it is loaded or not. Returns when it accepts no more requests; those that it has
    /// accepted go on.
    ///
    /// # Errors
    /// UNAVAILABLE if the control mode is not `explicit`, or if the server is stopping.
    pub async fn unload(self, name: &str) -> Result<(), Error> {
        self.unload_model(name, false).await
    }

    /// As [`unload`](Self::unload), and unloads the members of an ensemble too, except for those that were loaded by their
    /// own names or that other models need.
    ///
    /// # Errors
    /// As [`unload`](Self::unload).
    pub async fn unload_with_dependents(self, name: &str) -> Result<(), Error> {
        self.unload_model(name, true).await
    }

    async fn unload_model(self, name: &str, with_dependents: bool) -> Result<(), Error> {
        self.is_explicit()?;
        check_length("the name of the model", name, MAX_STORED_NAME)?;
        match self.on_demand {
            Some(on_demand) => on_demand.unload(name, with_dependents).await?,
            None => self.repository.unload(name, with_dependents).await?,
        }
        self.readiness.unloaded(name);
        Ok(())
    }

    /// Returns when no version of a model serves or ends, and none is being loaded: after an [`unload`](Self::unload) it has
    /// given back what it held.
    pub async fn model_ended(self, name: &str) {
        self.repository.until(|table| !table.is_in_use(name)).await;
    }

    /// Adds a model repository. `mapped` has the names of directories by the names of their models.
    ///
    /// # Errors
    /// UNSUPPORTED if the control mode is not `explicit`; ALREADY_EXISTS or INVALID_ARG for the path; the error of
    /// an object store.
    pub async fn register(self, path: PathBuf, mapped: BTreeMap<Name, String>) -> Result<(), Error> {
        self.may_change_repositories("registration")?;
        self.repository.register(path, mapped).await
    }

    /// Removes a model repository. Its models stay loaded.
    ///
    /// # Errors
    /// UNSUPPORTED if the control mode is not `explicit`; INVALID_ARG for a path that is not known.
    pub async fn unregister(self, path: PathBuf) -> Result<(), Error> {
        self.may_change_repositories("unregistration")?;
        self.repository.unregister(path).await
    }

    /// Looks for changes in the repositories now.
    ///
    /// # Errors
    /// UNAVAILABLE if the control mode is not `poll`.
    pub async fn poll(self) -> Result<(), Error> {
        match self.control {
            ModelControl::Poll(_) => self.repository.poll().await,
            ModelControl::None | ModelControl::Explicit(_) => Err(Error::unavailable("polling is disabled")),
        }
    }

    fn is_explicit(self) -> Result<(), Error> {
        match self.control {
            ModelControl::Explicit(_) => Ok(()),
            ModelControl::None | ModelControl::Poll(_) => Err(not_explicit()),
        }
    }

    fn may_change_repositories(self, what: &str) -> Result<(), Error> {
        self.is_explicit().map_err(|_| {
            Error::unsupported(format!(
                "repository {what} is not allowed if model control mode is not EXPLICIT"
            ))
        })
    }
}

fn not_explicit() -> Error {
    Error::unavailable(
        "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it \
         (--model-control-mode=explicit)",
    )
}

/// Refuses names that are no directory of a repository. As in Triton, space around a name does not hide what it is.
fn check_name(name: &str) -> Result<(), Error> {
    let trimmed = name.trim();
    if trimmed.is_empty() {
        return Err(Error::invalid("Model name cannot be empty. Please enter a valid name to deploy."));
    }
    check_length("the name of the model", name, MAX_STORED_NAME)?;
    if matches!(trimmed, "." | "..") || name.contains(['/', '\0']) {
        return Err(Error::invalid(format!(
            "invalid model name '{name}', model name must not contain path traversal characters"
        )));
    }
    Ok(())
}
