//! Checks model repositories without loading them.
//!
//! The crate reads models as the server does, with the functions of `engine::layout`, and judges them by the rules of
//! `inference::config`. Backends tell what their files say (`Backend::inspect`). Nothing is opened by a runtime, no
//! library is loaded, and no port is used. [`check_repositories`] reports every problem of every model at once.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend_choice;
mod effective;
mod ensembles;
mod finding;
mod initial;
mod interpreter;
mod model;
mod python;
mod reference;
mod render;
mod repositories;
mod rules;
mod unread_files;

use engine::{BackendSetting, Plugins};

pub use effective::{EffectiveConfig, effective_config};
pub use finding::{CheckReport, Finding, Severity};
pub use initial::initial_config;
pub use reference::configuration_reference;
pub use render::{json, sarif, text};
pub use repositories::check_repositories;
pub use rules::all_rules;

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
    pub agent_directory: std::path::PathBuf,
}

impl CheckOptions {
    fn source_checks(&self) -> python::SourceChecks {
        python::SourceChecks {
            completes: !self.must_be_complete,
            runs_own_interpreters: self.runs_own_interpreters,
        }
    }
}
