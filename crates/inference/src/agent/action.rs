//! The actions on a model that its repository agent hears of, and their order.
use std::fmt;

/// An action on a model (`TRITONREPOAGENT_ActionType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentAction {
    /// The server is about to load the model. Only during this action may an agent replace the files of the model.
    Load,
    /// The server has loaded the model.
    LoadComplete,
    /// The server has failed to load the model.
    LoadFail,
    /// The server is about to unload the model.
    Unload,
    /// The server has unloaded the model.
    UnloadComplete,
}

impl AgentAction {
    /// The name in logs and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "TRITONREPOAGENT_ACTION_LOAD",
            Self::LoadComplete => "TRITONREPOAGENT_ACTION_LOAD_COMPLETE",
            Self::LoadFail => "TRITONREPOAGENT_ACTION_LOAD_FAIL",
            Self::Unload => "TRITONREPOAGENT_ACTION_UNLOAD",
            Self::UnloadComplete => "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE",
        }
    }

    /// The actions that the server must still report after this one, if the model does nothing else.
    pub const fn owed(self) -> &'static [Self] {
        match self {
            Self::Load => &[Self::LoadFail],
            Self::LoadComplete => &[Self::Unload, Self::UnloadComplete],
            Self::Unload => &[Self::UnloadComplete],
            Self::LoadFail | Self::UnloadComplete => &[],
        }
    }

    /// Whether this action may follow `before`.
    pub(super) const fn may_follow(self, before: Option<Self>) -> bool {
        matches!(
            (before, self),
            (None, Self::Load)
                | (Some(Self::Load), Self::LoadComplete | Self::LoadFail)
                | (Some(Self::LoadComplete), Self::Unload)
                | (Some(Self::Unload), Self::UnloadComplete)
        )
    }
}

impl fmt::Display for AgentAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
