//! How the loader makes a plan: it reads the configuration, notifies the agents, and chooses the versions.
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use config::{
    DeclaredConfig, FileEntry, GivenConfig, ModelLayout, absent_versions, no_version_available,
    select_versions,
};
use inference::agent::{self, RepositoryAgent};
use lifecycle::{ModelKey, NoVersionCause};
use proto::model_instance_group::Kind;
use repository::{
    LoadParameters,
    agents::Agents,
    config_file::PlanError,
    given::write_files,
    layout,
    private_directory::PrivateDirectory,
    remote::{PlanSource, RemoteModel},
    scan,
};
use vocabulary::{Error, Name};

use super::{VersionLoader, report};
use crate::models::plan::{KeptFiles, LoadPlan, Planned};

impl VersionLoader {
    /// Reads a model's configuration, notifies its agents, and chooses its versions. `directory` is the model's
    /// directory in a repository, and `brought` is what a load request brings. May block as long as the agents do.
    ///
    /// # Errors
    /// A configuration that breaks a rule, an agent that refuses, or no version to serve.
    pub(in crate::models) fn plan(
        &self,
        ModelKey { name, namespace }: &ModelKey,
        directory: Option<&Path>,
        brought: &LoadParameters,
    ) -> Result<Planned, PlanError> {
        let files = if brought.files.is_empty() { None } else { Some(write_files(&brought.files)?) };
        let Some(directory) = files.as_ref().map(PrivateDirectory::path).or(directory) else {
            return Err(Error::internal("the model has no directory").into());
        };
        let given = self.given(name, directory, directory, brought)?;
        let (agents, elsewhere) = self.agents(&given.config, directory)?.unzip();
        let directory = elsewhere.unwrap_or_else(|| directory.to_path_buf());
        let (versions, ignored) = layout::versions(&directory)?;
        ignored.iter().for_each(|warning| log::warn!("{warning}"));
        if versions.is_empty() {
            log::warn!("{}", scan::without_versions(&directory, &directory));
        }
        let (declared, versions) = self.select(name, given, versions)?;
        let source = PlanSource::Directory(directory);
        let plan = LoadPlan { name: name.clone(), namespace: namespace.clone(), source, declared, versions };
        Ok(Planned { plan, agents, files: KeptFiles { _given: files, _copy: None } })
    }

    /// As [`plan`](Self::plan), for a model in an object store. `shared` has copies of the files that belong to no
    /// version. `None` if the configuration has agents: they need all files in a directory.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub(in crate::models) fn plan_remote(
        &self,
        ModelKey { name, namespace }: &ModelKey,
        model: &RemoteModel,
        shared: &Path,
        brought: &LoadParameters,
    ) -> Result<Option<LoadPlan>, PlanError> {
        let shown = model.url();
        let given = self.given(name, shared, &shown, brought)?;
        if has_agents(&given.config) {
            return Ok(None);
        }
        let versions = model.versions();
        if versions.is_empty() {
            log::warn!("{}", scan::without_versions(shared, &shown));
        }
        let (declared, versions) = self.select(name, given, versions)?;
        let source = PlanSource::Remote(model.clone());
        let (name, namespace) = (name.clone(), namespace.clone());
        Ok(Some(LoadPlan { name, namespace, source, declared, versions }))
    }

    /// The configuration of a model in a directory, which errors show as `shown`.
    fn given(
        &self,
        name: &Name,
        directory: &Path,
        shown: &Path,
        brought: &LoadParameters,
    ) -> Result<GivenConfig, PlanError> {
        let mut given = self.configs.given(directory, shown, brought)?;
        let is_mapped = brought.files.is_empty() && directory.file_name() != Some(OsStr::new(&**name));
        if is_mapped && !given.config.name.is_empty() {
            // The repository was registered with another name for the directory. It counts instead.
            given.config.name = name.to_string();
        }
        Ok(given)
    }

    /// What a configuration declares, and the versions that it selects.
    fn select(
        &self,
        name: &Name,
        given: GivenConfig,
        versions: BTreeMap<i64, Vec<FileEntry>>,
    ) -> Result<(DeclaredConfig, Vec<i64>), PlanError> {
        let existing: Vec<_> = versions.keys().copied().collect();
        let layout = ModelLayout { name: name.to_string(), versions };
        let declared =
            given.declare(&layout, self.configs.completion()).map_err(|errors| report(name, errors))?;
        if self.policy.gpu_groups_on_cpu {
            tell_moved_groups(name, &declared.config);
        }
        let policy = declared.version_policy();
        absent_versions(&policy, &existing, name).iter().for_each(|warning| log::warn!("{warning}"));
        let versions = select_versions(&policy, &existing);
        if versions.is_empty() {
            return Err(PlanError { cause: NoVersionCause::NoneSelected, error: no_version_available(name) });
        }
        Ok((declared, versions))
    }

    /// The agents that a configuration names, after they were notified that the model will be loaded, and where they
    /// have put the model.
    fn agents(
        &self,
        config: &proto::ModelConfig,
        directory: &Path,
    ) -> Result<Option<(Agents, PathBuf)>, Error> {
        let find = |name: &str| -> Result<Arc<dyn RepositoryAgent>, Error> {
            match &self.plugins.agents {
                Some(agents) => agents.find(name),
                None => Err(agent::not_found(name, &self.agent_directory)),
            }
        };
        // As Triton: a configuration that cannot be read counts as empty.
        let read = |directory: &Path| {
            self.configs.read(directory, directory).map(|given| given.config).unwrap_or_default()
        };
        Agents::load(config, directory, find, read)
    }
}

fn has_agents(config: &proto::ModelConfig) -> bool {
    config.model_repository_agents.as_ref().is_some_and(|agents| !agents.agents.is_empty())
}

/// Logs the instance groups that run on the CPU although they ask for GPUs.
fn tell_moved_groups(model: &Name, config: &proto::ModelConfig) {
    let groups = config.instance_group.iter().enumerate();
    for (position, group) in groups.filter(|(_, group)| group.kind() == Kind::Gpu) {
        let name = if group.name.is_empty() { format!("{model}_{position}") } else { group.name.clone() };
        log::warn!(
            "instance group '{name}' of model '{model}' asks for GPUs; its instances run on the CPU \
             (--gpu-instances-on-cpu)"
        );
    }
}
