//! What will be loaded for a model: its configuration and its versions.
use std::{collections::BTreeSet, sync::Arc};

use config::DeclaredConfig;
use inference::repository::LocalModelFiles;
use lifecycle::{ConfigIdentity, PlannedModel};
use proto::model_config::SchedulingChoice;
use repository::{agents::Agents, private_directory::PrivateDirectory, remote::PlanSource};
use vocabulary::Name;

use crate::models::loaded_version::LoadedVersion;

/// The plan of one model, and what must stay until the last copy of the load has ended.
pub(super) struct Planned {
    pub(super) plan: LoadPlan,
    pub(super) agents: Option<Agents>,
    pub(super) files: KeptFiles,
}

/// Files that stay until the last copy of a load has ended, and until its agents have ended.
#[derive(Default)]
pub(super) struct KeptFiles {
    /// What the load request has brought.
    pub(super) _given: Option<PrivateDirectory>,
    /// What agents work on, if the model is in an object store.
    pub(super) _copy: Option<Arc<dyn LocalModelFiles>>,
}

/// What the loader will load for one model.
pub(super) struct LoadPlan {
    pub(super) name: Name,
    pub(super) namespace: Option<Name>,
    pub(super) source: PlanSource,
    pub(super) declared: DeclaredConfig,
    pub(super) versions: Vec<i64>,
}

/// A copy that serves, and the plan that it was built by. The files of its version are still the same.
pub(super) struct LoadBase {
    pub(super) loaded: Arc<LoadedVersion>,
    pub(super) plan: Arc<LoadPlan>,
    /// The files that the copy has of its own.
    pub(super) files: Option<Arc<dyn LocalModelFiles>>,
}

impl LoadPlan {
    /// Whether a copy by this plan differs from the other copy in its instances only.
    pub(super) fn is_update_of(&self, base: &LoadBase) -> bool {
        !self.is_ensemble() && base.loaded.is_sound() && self.differs_in_instances_only(&base.plan)
    }

    pub(super) fn is_ensemble(&self) -> bool {
        matches!(self.declared.config.scheduling_choice, Some(SchedulingChoice::EnsembleScheduling(_)))
    }

    /// The names of the models that an ensemble uses.
    fn members(&self) -> BTreeSet<Name> {
        match &self.declared.config.scheduling_choice {
            Some(SchedulingChoice::EnsembleScheduling(ensemble)) => {
                ensemble.step.iter().map(|step| Name::new(&step.model_name)).collect()
            }
            Some(SchedulingChoice::DynamicBatching(_) | SchedulingChoice::SequenceBatching(_)) | None => {
                BTreeSet::new()
            }
        }
    }

    fn differs_in_instances_only(&self, other: &Self) -> bool {
        let rest = |plan: &Self| proto::ModelConfig {
            instance_group: Vec::new(),
            version_policy: None,
            ..plan.declared.config.clone()
        };
        self.source.is_same_place(&other.source) && rest(self) == rest(other)
    }

    /// What the lifecycle must know of the plan.
    pub(super) fn shown(&self) -> PlannedModel {
        // The selected versions show what the version policy means.
        let config = proto::ModelConfig { version_policy: None, ..self.declared.config.clone() };
        let config = ConfigIdentity { model: proto::json::to_json(&config).into_bytes() };
        PlannedModel { versions: self.versions.clone(), config, members: self.members() }
    }
}
