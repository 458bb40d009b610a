//! Performs the actions of the lifecycle. What takes time runs beside the task and comes back as an event.
use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::join_all;
use inference::agent::AgentAction;
use lifecycle::{
    CommandId, Generation, LifecycleAction, LoadedVersionId, LogLevel, ModelKey, ModelLocation, VersionStatus,
};
use vocabulary::{Error, Name, log_target::MULTILINE};

use super::{Event, Job, RepositoryTask, WaitingCaller};
use crate::models::{
    blocking::{self, ListingPurpose, LoadPlace},
    loaded_version::LoadedVersion,
    plan::LoadBase,
};

impl RepositoryTask {
    /// Publishes what has been decided, then performs what follows.
    pub(super) fn perform(&mut self, mut actions: Vec<LifecycleAction>) {
        let mut changed = self.lifecycle.take_changed();
        if self.is_stopping() {
            self.show(&changed);
        } else {
            // Copies know each other before ensembles and the table lead requests to them.
            let mut replaced = self.connect_copies(&actions);
            // Before the table, so that no request finds an ensemble and members that do not fit.
            let of_ensembles = self.bind_ensembles(&mut changed);
            replaced.extend(self.connect_copies(&of_ensembles));
            actions.extend(of_ensembles);
            self.show(&changed);
            self.published.store(Arc::new(self.table.clone()));
            // After the table, where these copies find the ones to which they leave requests.
            replaced.iter().for_each(|copy| copy.model().succession().leave_new_sequences());
            self.table_changed.notify_waiters();
        }
        actions.into_iter().for_each(|action| self.perform_one(action));
        self.wait_for_agents();
        self.start_jobs();
    }

    /// Enters into the table what has become of these models.
    fn show(&mut self, changed: &BTreeSet<ModelKey>) {
        for key in changed {
            self.table.set(key, self.lifecycle.model(key), &self.copies);
        }
    }

    /// Gives copies the executors that they take over, and tells them of those whose sequences they do not have, before
    /// requests can reach them. Returns the latter.
    fn connect_copies(&self, actions: &[LifecycleAction]) -> Vec<Arc<LoadedVersion>> {
        let mut replaced = Vec::new();
        for action in actions {
            let LifecycleAction::Retire { generation, versions, .. } = action else { continue };
            for &version in versions {
                let id = LoadedVersionId { generation: *generation, version };
                let Some(old) = self.copies.get(id) else { continue };
                let successors = self.lifecycle.successors(id);
                let serving: Vec<_> = successors.iter().filter_map(|new| self.copies.get(*new)).collect();
                // The sequences of an executor that goes over to another copy stay where they are.
                if !serving.iter().any(|new| new.take_over(old)) {
                    // Requests without a version may come to any of these.
                    serving.iter().for_each(|new| new.follow(old));
                    replaced.extend((!serving.is_empty()).then(|| old.clone()));
                }
            }
        }
        replaced
    }

    fn perform_one(&mut self, action: LifecycleAction) {
        match action {
            LifecycleAction::List { command } => {
                let listing = self.list(ListingPurpose::Start);
                self.events.spawn(async move { Event::Listed { command, listing: Box::new(listing.await) } });
            }
            LifecycleAction::Find { name } => {
                let (repositories, loader) = (self.repositories.clone(), self.loader.clone());
                let (serving, wait) = (self.serving(&name), self.downloads.wait_of(&name));
                let found = blocking::find(repositories, loader, name.clone(), serving, wait);
                self.events.spawn(async move { Event::Found { name, models: found.await } });
            }
            LifecycleAction::Plan { key, generation, place, given } => {
                let given = given.and_then(|command| self.open.get(&command));
                let given = given.map(|command| command.given.clone()).unwrap_or_default();
                let place = place.map_or(LoadPlace::Given, |place| self.locate(&place));
                let wait = self.downloads.wait_of(&key.name);
                self.jobs.push_back(Job::Plan { key, generation, place, given, wait });
            }
            LifecycleAction::Load { copy, base, .. } => {
                let base = base.and_then(|base| {
                    let (loaded, files) =
                        (self.copies.get(base)?.clone(), self.copied_files.get(&base).cloned());
                    Some(LoadBase { loaded, plan: self.loads.get(&base.generation)?.plan.clone(), files })
                });
                // A load has its plan since it was planned.
                if let Some(load) = self.loads.get(&copy.generation) {
                    let (plan, wait) = (load.plan.clone(), load.wait.clone());
                    self.jobs.push_back(Job::Load { plan, copy, base, wait });
                }
            }
            LifecycleAction::Check { generation, place, .. } => self.check(generation, place),
            LifecycleAction::NotifyLoaded { generation } => {
                let agents = self.loads.get(&generation).and_then(|load| load.agents.as_ref());
                self.untold.extend(agents.map(|agents| agents.notify(AgentAction::LoadComplete)));
            }
            LifecycleAction::NotifyFailed { generation } => {
                self.forget(generation, AgentAction::LoadFail);
            }
            LifecycleAction::Retire { generation, versions, unloads } => {
                self.retire(generation, &versions, unloads);
            }
            LifecycleAction::End { generation } => {
                self.forget(generation, AgentAction::UnloadComplete);
            }
            LifecycleAction::Answer { command, result } => self.answer(command, result),
            LifecycleAction::Log { level, text } => match level {
                LogLevel::Error => log::error!(target: MULTILINE, "{text}"),
                LogLevel::Warning => log::warn!("{text}"),
                LogLevel::Info => log::info!("{text}"),
            },
        }
    }

    /// The copies that serve under a name.
    fn serving(&self, name: &Name) -> Vec<(ModelKey, Arc<LoadedVersion>)> {
        let models = self.lifecycle.named(name);
        let copies = models.flat_map(|(key, model)| model.versions().map(move |(_, status)| (key, status)));
        let serving = copies.filter_map(|(key, status)| {
            let VersionStatus::Ready(copy) = status else { return None };
            Some((key.clone(), self.copies.get(copy)?.clone()))
        });
        serving.collect()
    }

    /// Where the files of a place are read from.
    fn locate(&self, place: &ModelLocation) -> LoadPlace {
        match self.repositories.remote_of(&place.repository) {
            None => LoadPlace::Directory(place.directory.clone()),
            Some(source) => {
                let directory = place.directory.file_name().unwrap_or_default();
                LoadPlace::Remote {
                    source: source.clone(),
                    directory: directory.to_string_lossy().into_owned(),
                }
            }
        }
    }

    /// Looks at the files of a model whose copies have been built.
    fn check(&mut self, generation: Generation, place: Arc<ModelLocation>) {
        let loader = self.loader.clone();
        match self.locate(&place) {
            LoadPlace::Given | LoadPlace::Directory(_) => {
                let checked = blocking::check(loader, place);
                self.events.spawn(async move { Event::Checked { generation, files: checked.await } });
            }
            LoadPlace::Remote { source, directory } => {
                let before = self.lifecycle.files_of(generation).cloned();
                let wait = self.store_waits.wait();
                let checked = blocking::check_remote(loader, source, directory, before, wait);
                self.events.spawn(async move { Event::Checked { generation, files: checked.await } });
            }
        }
    }

    /// Forgets a load whose copies have ended, after its agents have been notified.
    fn forget(&mut self, generation: Generation, action: AgentAction) {
        let load = self.loads.remove(&generation);
        if let Some(agents) = load.and_then(|load| load.agents) {
            self.untold.push(agents.finish(action));
        }
    }

    /// Answers a command when the agents have been notified of all that came before.
    fn answer(&mut self, command: CommandId, result: Result<(), Error>) {
        let Some(WaitingCaller { done, .. }) = self.open.remove(&command) else { return };
        let untold = std::mem::take(&mut self.untold);
        if untold.is_empty() {
            // The caller may have gone.
            let _ = done.send(result);
            return;
        }
        self.endings.spawn(async move {
            join_all(untold).await;
            let _ = done.send(result);
            Event::Told
        });
    }

    /// Waits beside everything else for agents that no command waits for.
    fn wait_for_agents(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if !untold.is_empty() {
            self.endings.spawn(async move {
                join_all(untold).await;
                Event::Told
            });
        }
    }

    fn retire(&mut self, generation: Generation, versions: &[i64], unloads: bool) {
        let agents = self.loads.get(&generation).and_then(|load| load.agents.as_ref());
        let told = agents.filter(|_| unloads).map(|agents| agents.notify(AgentAction::Unload));
        let copy = |&version: &i64| {
            let id = LoadedVersionId { generation, version };
            Some((id, self.copies.get(id)?.clone()))
        };
        let copies: Vec<_> = versions.iter().filter_map(copy).collect();
        if copies.is_empty() {
            return;
        }
        let retirement = self.retirement.clone();
        self.endings.spawn(async move {
            if let Some(told) = told {
                // The thread of the agents answers, or it has ended.
                let _ = told.await;
            }
            let ids = copies.iter().map(|(id, _)| *id).collect();
            join_all(copies.into_iter().map(|(_, copy)| retirement.clone().end(copy))).await;
            Event::Retired(ids)
        });
    }

    /// Begins waiting work while load threads are free.
    fn start_jobs(&mut self) {
        while self.running_jobs < self.load_threads
            && let Some(job) = self.jobs.pop_front()
        {
            self.running_jobs += 1;
            let loader = self.loader.clone();
            match job {
                Job::Plan { key, generation, place, given, wait } => {
                    let planned = blocking::plan(loader, key, place, given, wait.clone());
                    self.events.spawn(async move {
                        Event::Planned { generation, wait, result: planned.await.map(Box::new) }
                    });
                }
                Job::Load { plan, copy, base, wait } => {
                    let loaded = blocking::load(loader, plan, copy.version, base, wait);
                    self.events.spawn(async move { Event::Loaded { copy, result: loaded.await } });
                }
            }
        }
    }
}
