//! Listings in control mode `poll`: what each model of a listing leads to.
use std::collections::BTreeSet;

use scheduling::Timestamp;
use vocabulary::Name;

use super::Lifecycle;
use crate::{
    actions::LifecycleAction,
    files::DirectoryStamp,
    keys::ModelKey,
    listing::{FoundModel, ListedState, ModelListing, PollDecision},
    operation::{Operation, OperationKind, OperationWaiter},
};

/// What a listing shows of a model.
struct ListedModel {
    found: Option<FoundModel>,
    /// The repository in which the model was last.
    repository: Option<DirectoryStamp>,
    /// That repository cannot be read now.
    is_unreadable: bool,
}

impl Lifecycle {
    /// A listing of the repositories in control mode `poll`.
    pub fn polled(
        &mut self,
        listing: ModelListing,
        now: Timestamp,
    ) -> (Vec<LifecycleAction>, Option<Timestamp>) {
        let mut next: Option<Timestamp> = None;
        if self.is_stopping || !self.options.polls {
            return (Vec::new(), next);
        }
        let ModelListing { models, repositories, unreadable } = listing;
        let absent: Vec<_> = self.models.keys().filter(|key| !models.contains_key(key)).cloned().collect();
        let found = models.into_iter().map(|(key, found)| (key, Some(found)));
        for (key, found) in found.chain(absent.into_iter().map(|key| (key, None))) {
            let is_unreadable = self.is_in(&key, &unreadable);
            let repository = self.repository(&key).and_then(|name| repositories.get(name)).copied();
            let seen = ListedModel { found, repository, is_unreadable };
            if let Some(again) = self.poll_model(&key, seen, now) {
                next = Some(next.map_or(again, |next| next.min(again)));
            }
        }
        (self.take_actions(now), next)
    }

    /// Decides about one model of a listing. Returns when the next listing must come, if this one does not decide.
    fn poll_model(&mut self, key: &ModelKey, listed: ListedModel, now: Timestamp) -> Option<Timestamp> {
        let ListedModel { found, repository, is_unreadable } = listed;
        if self.queues.get(&key.name).is_some_and(|queue| !queue.is_idle()) {
            return None;
        }
        let retry_times = self.retry_times();
        if self.models.get(key).is_none() {
            self.models.get_or_add(key);
        }
        let model = self.models.get(key)?;
        let seen = match &found {
            Some(found) if found.is_incomplete => return None,
            Some(found) if found.places.len() > 1 => ListedState::Twice,
            Some(found) => ListedState::Files(found.files.clone()),
            None => ListedState::Absent(repository),
        };
        match (&seen, &found) {
            (ListedState::Files(files), Some(found)) if model.is_as(files, &found.faulty) => {
                if model.awaits_members || model.has_absent(|number| files.has_version(number)) {
                    let model = self.models.get_mut(key)?;
                    model.awaits_members = false;
                    model.forget_absent(|number| files.has_version(number));
                }
                self.models.listing_mut(key)?.unchanged();
                return None;
            }
            (ListedState::Twice, _) if !model.serves() && model.problem.is_some() => return None,
            // What cannot be read is not gone.
            (ListedState::Absent(_), _) if is_unreadable => return None,
            (ListedState::Absent(_), _) if !model.serves() && model.is_at_rest() => {
                self.models.remove(key);
                self.retry_ensembles_of_others(key);
                return None;
            }
            _ => {}
        }
        match self.models.listing_mut(key)?.changed(&seen, now, retry_times) {
            PollDecision::WaitUntil(again) => Some(again),
            PollDecision::Act => {
                let kind = match (&seen, found) {
                    (ListedState::Files(_), Some(found)) => {
                        OperationKind::LoadFound { key: key.clone(), found }
                    }
                    _ => {
                        OperationKind::UnloadListed { key: key.clone(), is_twice: seen == ListedState::Twice }
                    }
                };
                self.enqueue(&key.name, Operation { waiter: OperationWaiter::Nobody, kind }, now);
                None
            }
        }
    }

    /// The repository in which a model was last.
    fn repository(&self, key: &ModelKey) -> Option<&Name> {
        self.models.get(key)?.listing.repository.as_ref()
    }

    /// Whether a model was last in one of these repositories.
    fn is_in(&self, key: &ModelKey, repositories: &BTreeSet<Name>) -> bool {
        self.repository(key).is_some_and(|repository| repositories.contains(repository))
    }
}
