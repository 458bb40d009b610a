//! What operators and clients want.
use vocabulary::Name;

/// Where the configuration and the files of a load come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelOrigin {
    /// The model's directory in a repository.
    Repository,
    /// The configuration was given with the command; the files are in the repository.
    GivenConfig,
    /// The configuration and all files were given with the command.
    GivenFiles,
}

/// What an operator or a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleCommand {
    /// Load every model of every repository.
    LoadAll,
    /// Load or reload a model.
    Load {
        /// The model's name.
        name: Name,
        /// Where its configuration and its files come from.
        origin: ModelOrigin,
    },
    /// Unload a model.
    Unload {
        /// The model's name.
        name: Name,
        /// Also unload the members of the model that nothing else needs and that were not loaded by their own names,
        /// and the members of these.
        dependents: bool,
    },
}
