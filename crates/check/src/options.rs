//! What a check must know of the server.
use std::path::PathBuf;

use inference::{BackendSetting, Plugins};

use crate::python::SourceChecks;

/// The options of a server that determine whether it can serve a model.
#[derive(Clone, Default)]
pub struct CheckOptions {
    /// The plug-ins of the server. Only their files are looked at.
    pub plugins: Plugins,
    /// The settings of the backends, those of the server first.
    pub backend_settings: Vec<BackendSetting>,
    /// Configurations must be complete (`--disable-auto-complete-config`).
    pub must_be_complete: bool,
    /// `configs/<name>.pbtxt` takes precedence (`--model-config-name`).
    pub config_name: Option<String>,
    /// Groups that ask for GPUs run on the CPU (`--gpu-instances-on-cpu`).
    pub gpu_groups_on_cpu: bool,
    /// The server has a response cache (`--cache-config`).
    pub has_cache: bool,
    /// Models of different repositories may have the same name (`--model-namespacing`).
    pub namespacing: bool,
    /// No interpreter of models in Python is started. So their source code is not looked at.
    pub skips_interpreters: bool,
    /// The interpreters that models name themselves are started, too. They may be any programs.
    pub runs_own_interpreters: bool,
    /// The directory of repository agents.
    pub agent_directory: PathBuf,
}

impl CheckOptions {
    pub(crate) fn source_checks(&self) -> SourceChecks {
        SourceChecks { completes: !self.must_be_complete, runs_own_interpreters: self.runs_own_interpreters }
    }
}
