//! The commands to the repository task.
use std::{collections::BTreeMap, path::PathBuf};

use repository::LoadParameters;
use tokio::sync::oneshot;
use vocabulary::{Error, Name};

use super::survey::SurveyedModel;
use crate::model_state::IndexEntry;

/// Where a command is answered.
pub(super) type Done<T> = oneshot::Sender<T>;

/// A command to the repository task.
pub(super) enum Command {
    /// Load every model of every repository.
    LoadAll { done: Done<Result<(), Error>> },
    /// Load or reload a model.
    Load { name: Name, given: LoadParameters, done: Done<Result<(), Error>> },
    /// Unload a model. `dependents`: the members of an ensemble too.
    Unload { name: Name, dependents: bool, done: Done<Result<(), Error>> },
    /// Refuse all commands that change models, those that have not been answered too.
    RefuseCommands { done: Done<()> },
    /// Do not wait for loads any more. Answers whether work was left behind.
    AbandonLoads { done: Done<bool> },
    /// End every model that has been built.
    UnloadAll { done: Done<()> },
    /// List the models, those of the repositories that were never loaded too.
    Index { ready_only: bool, done: Done<Vec<IndexEntry>> },
    /// Look at the models of the repositories, or at those of one name, without loading them.
    Survey { only: Option<Name>, done: Done<Result<BTreeMap<Name, SurveyedModel>, Error>> },
    /// Add a repository.
    Register { path: PathBuf, mapped: BTreeMap<Name, String>, done: Done<Result<(), Error>> },
    /// Remove a repository.
    Unregister { path: PathBuf, done: Done<Result<(), Error>> },
    /// Look for changes now, if the repositories are polled.
    Poll { done: Done<Result<(), Error>> },
}
