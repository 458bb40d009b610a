//! Looks at the repositories, and tells what they have.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use lifecycle::ModelKey;
use tokio::time::Instant;
use vocabulary::{Error, Name};

use super::{Event, RepositoryTask};
use crate::{
    model_state::IndexEntry,
    models::{
        blocking::{self, ExistingModel, ListingPurpose, RepositoryListing},
        command::Done,
    },
};

impl RepositoryTask {
    /// Looks for changes.
    pub(super) fn poll(&mut self) {
        if let Some(polling) = &mut self.polling {
            polling.begin(Instant::now());
            let is_periodic = polling.follows_notifications();
            let purpose = if is_periodic { ListingPurpose::Poll } else { ListingPurpose::OnDemand };
            let listing = self.list(purpose);
            self.events.spawn(async move { Event::Polled(Box::new(listing.await)) });
        }
    }

    /// Lists the repositories. From then on, the file system notifies the task of changes.
    pub(super) fn list(&self, purpose: ListingPurpose) -> impl Future<Output = RepositoryListing> + use<> {
        let (repositories, loader) = (self.repositories.clone(), self.loader.clone());
        blocking::list(repositories, loader, self.watcher.clone(), purpose, self.store_waits.wait())
    }

    /// Looks for a repository that is to be added.
    pub(super) fn seek(
        &mut self,
        path: &Path,
        mapped: BTreeMap<Name, String>,
        done: Done<Result<(), Error>>,
    ) {
        let found = self.repositories.source(path).and_then(|(name, source)| {
            self.repositories.check_new(&name)?;
            Ok((name, source))
        });
        match found {
            Err(error) => drop(done.send(Err(error))),
            Ok((name, source)) => {
                let wait = self.store_waits.wait();
                self.events.spawn(async move {
                    let result = wait.of(source.check()).await.and_then(|found| found);
                    Event::Sought { name, source, mapped, result, done }
                });
            }
        }
    }

    /// Logs what is wrong with the repositories, once until it has changed.
    pub(super) fn tell_problems(&mut self, problems: Vec<String>, failures: &[Error]) {
        let failures = failures.iter().filter(|_| self.polling.is_some());
        let failures = failures.map(|error| format!("the models of a repository stay as they are: {error}"));
        let now: BTreeSet<_> = problems.into_iter().chain(failures).collect();
        now.difference(&self.told).for_each(|problem| log::warn!("{problem}"));
        self.told = now;
    }

    /// Answers a request for the index, now that the repositories have been read.
    pub(super) fn answer_index(
        &mut self,
        models: Option<&BTreeMap<ModelKey, ExistingModel>>,
        ready_only: bool,
        done: Done<Vec<IndexEntry>>,
    ) {
        if let Some(models) = models {
            self.lifecycle.exist(|key, version| {
                let has_version =
                    |model: &ExistingModel| version.is_none_or(|version| model.versions.contains(&version));
                models.get(key).is_some_and(has_version)
            });
        }
        // What the caller learns counts for readiness, too.
        self.perform(Vec::new());
        // The caller may have gone.
        let _ = done.send(self.show_index(models, ready_only));
    }

    fn show_index(
        &self,
        models: Option<&BTreeMap<ModelKey, ExistingModel>>,
        ready_only: bool,
    ) -> Vec<IndexEntry> {
        let mut lines = self.table.index(ready_only);
        if !ready_only {
            let unknown = models.into_iter().flatten().filter(|(key, _)| !self.table.has(key));
            lines.extend(unknown.map(|(key, model)| match model.directories {
                0 | 1 => IndexEntry::unknown(key),
                _ => IndexEntry::not_unique(key),
            }));
            lines.sort_by(|one, other| {
                (&one.name, &one.namespace, one.version).cmp(&(&other.name, &other.namespace, other.version))
            });
        }
        lines
    }
}
