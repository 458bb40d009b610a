//! What the repositories tell of models before they are loaded: their sizes, and what their configurations ask for.
use std::{collections::BTreeMap, sync::Arc};

use config::{MemoryRank, VersionPolicy, select_versions};
use lifecycle::ModelNeeds;
use proto::model_config::SchedulingChoice;
use repository::{remote::StoreWait, repositories::Repositories};
use vocabulary::{Error, Name};

use super::{
    blocking::{self, ListingPurpose, RepositoryListing},
    load::VersionLoader,
};

/// A model that a repository has.
#[derive(Debug, Clone, Default)]
pub(crate) struct SurveyedModel {
    pub(crate) needs: ModelNeeds,
    /// The configuration says that the model is decoupled.
    pub(crate) is_decoupled: bool,
}

/// Looks at all models, or at that of one name. Models that several repositories have are left out.
///
/// # Errors
/// A repository that cannot be read.
pub(super) async fn survey(
    repositories: Repositories,
    loader: Arc<VersionLoader>,
    only: Option<Name>,
    wait: StoreWait,
) -> Result<BTreeMap<Name, SurveyedModel>, Error> {
    let found = match only {
        Some(name) => blocking::find(repositories, loader.clone(), name, Vec::new(), wait).await?,
        None => {
            let listing = blocking::list(repositories, loader.clone(), None, ListingPurpose::Start, wait);
            let RepositoryListing { models, failures, .. } = listing.await;
            if let Some(failure) = failures.into_iter().next() {
                return Err(failure);
            }
            models.models.into_iter().collect()
        }
    };
    let read = move || {
        let models = found.into_iter().filter_map(|(key, found)| {
            let [place] = found.places.as_slice() else { return None };
            // Configurations in object stores are not fetched before a load. One that cannot be read is refused then.
            let config = loader.configs().read(&place.directory, &place.directory);
            let config = config.map(|given| given.config).unwrap_or_default();
            let versions = select_versions(&VersionPolicy::of(&config), &found.files.versions());
            Some((key.name, surveyed(&config, found.files.byte_size(&versions))))
        });
        models.collect()
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|panic| Error::internal(format!("the repositories could not be read: {panic}")))
}

/// What a configuration asks for, with files of so many bytes.
fn surveyed(config: &proto::ModelConfig, file_bytes: u64) -> SurveyedModel {
    let MemoryRank { is_pinned, priority } = MemoryRank::of(config);
    let members = match &config.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(scheduling)) => {
            scheduling.step.iter().map(|step| Name::new(&step.model_name)).collect()
        }
        _ => Vec::new(),
    };
    SurveyedModel {
        needs: ModelNeeds { file_bytes, is_pinned, priority, members },
        is_decoupled: config.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled),
    }
}
