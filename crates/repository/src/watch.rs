//! Notifications of the file system about changes in the repositories.
//!
//! A notification is only a hint: the next look comes earlier. Some changes give none: what links lead to, what another
//! machine writes, what is written into a directory before it is watched. The period of the polling finds them.
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::lock::{LockRank, Mutex};
use lifecycle::is_by_product;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

/// Watches the directories of the repositories.
pub struct FileWatcher {
    shared: Arc<WatcherState>,
    /// `None` before the first call, and if the system has refused one.
    watcher: Mutex<Option<RecommendedWatcher>>,
}

/// What the thread of the notifications changes.
#[derive(Default)]
struct WatcherState {
    changed: Notify,
    /// The directories that are watched. It is not locked while the system's watches change.
    roots: Mutex<BTreeMap<PathBuf, Root>>,
}

/// A directory that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Root {
    /// Device and number.
    identity: (u64, u64),
    /// Also all directories below it.
    is_recursive: bool,
}

impl Root {
    /// A repository, or the directory in which it is missing. `None` if that is missing, too.
    fn of(repository: &Path) -> Option<(PathBuf, Self)> {
        let identity =
            |directory: &Path| fs::metadata(directory).map(|found| (found.dev(), found.ino())).ok();
        if let Some(identity) = identity(repository) {
            return Some((repository.to_path_buf(), Self { identity, is_recursive: true }));
        }
        let parent = repository.parent()?;
        Some((parent.to_path_buf(), Self { identity: identity(parent)?, is_recursive: false }))
    }
}

impl Default for FileWatcher {
    /// Watches nothing yet.
    fn default() -> Self {
        Self { shared: Arc::default(), watcher: Mutex::ranked(LockRank::FileWatches, None) }
    }
}

impl FileWatcher {
    /// Returns when something may have changed since the last return.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Watches these directories and all below them, and nothing else. A directory that was replaced is watched anew.
    /// Instead of a missing one, the directory above it is watched. Returns why some cannot be watched. Blocks.
    pub fn watch<'a>(&self, directories: impl Iterator<Item = &'a Path>) -> Vec<String> {
        let mut wanted = BTreeMap::new();
        for (directory, root) in directories.filter_map(Root::of) {
            let known = wanted.entry(directory).or_insert(root);
            known.is_recursive |= root.is_recursive;
        }
        let mut watcher = self.watcher.lock();
        let watcher = match &mut *watcher {
            Some(watcher) => watcher,
            None if wanted.is_empty() => return Vec::new(),
            none => match self.start() {
                Ok(started) => none.insert(started),
                Err(error) => {
                    return vec![not_watched(
                        "the file system does not notify the server of changes",
                        &error,
                    )];
                }
            },
        };
        let watched = self.shared.roots.lock().clone();
        for (directory, root) in &watched {
            if wanted.get(directory) != Some(root) {
                self.shared.roots.lock().remove(directory);
                // A directory that is gone has no watch any more.
                let _ = watcher.unwatch(directory);
            }
        }
        let mut problems = Vec::new();
        for (directory, root) in wanted {
            if watched.get(&directory) == Some(&root) {
                continue;
            }
            // It may be removed while the watches of its parts are made.
            self.shared.roots.lock().insert(directory.clone(), root);
            let mode = if root.is_recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            if let Err(error) = watcher.watch(&directory, mode) {
                self.shared.roots.lock().remove(&directory);
                let place = directory.display();
                let what = format!("the file system does not notify the server of changes in '{place}'");
                problems.push(not_watched(&what, &error));
            }
        }
        problems
    }

    fn start(&self) -> notify::Result<RecommendedWatcher> {
        let shared = self.shared.clone();
        notify::recommended_watcher(move |event| shared.told(&event))
    }
}

fn not_watched(what: &str, error: &notify::Error) -> String {
    format!("{what}; the server finds them when it looks (--repository-poll-secs): {error}")
}

impl WatcherState {
    /// On the thread of the notifications.
    fn told(&self, event: &notify::Result<Event>) {
        // Something was lost: look.
        let Ok(event) = event else { return self.changed.notify_one() };
        if matches!(event.kind, EventKind::Remove(_)) {
            // The system has forgotten the watch of a repository that was removed.
            self.roots.lock().retain(|directory, _| !event.paths.contains(directory));
        }
        if event.need_rescan() || may_be_a_change(event) {
            self.changed.notify_one();
        }
    }
}

/// Whether files may differ after this event. The server's own reading causes events, too.
fn may_be_a_change(event: &Event) -> bool {
    let is_written = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    };
    let is_by_product =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_by_product(&name.to_string_lossy()));
    is_written && !event.paths.iter().all(is_by_product)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// How long a test waits for a notification before it fails.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn is_told(watcher: &FileWatcher) -> bool {
        timeout(PATIENCE, watcher.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn files_that_are_written_and_directories_that_are_replaced_are_told() {
        let root = tempfile::tempdir().unwrap();
        let repository = root.path().join("models");
        fs::create_dir_all(repository.join("m/1")).unwrap();
        let watcher = FileWatcher::default();
        let watch = || assert_eq!(watcher.watch([&*repository].into_iter()), [""; 0]);
        watch();
        fs::write(repository.join("m/1/model.onnx"), "x").unwrap();
        assert!(is_told(&watcher).await, "a new file");
        for _ in 0..3 {
            fs::remove_dir_all(&repository).unwrap();
            // Notifications of the removal may come before and after the next call.
            assert!(is_told(&watcher).await, "the repository is removed");
            watch();
            fs::create_dir(&repository).unwrap();
            assert!(is_told(&watcher).await, "the repository is there again");
            watch();
            fs::write(repository.join("file"), "x").unwrap();
            assert!(is_told(&watcher).await, "a file in the new directory");
        }
    }

    #[test]
    fn a_repository_that_does_not_exist_is_no_problem_of_the_watcher() {
        let watcher = FileWatcher::default();
        assert_eq!(watcher.watch([Path::new("/there/is/none")].into_iter()), [""; 0]);
        assert_eq!(watcher.watch(std::iter::empty()), [""; 0]);
    }

    #[test]
    fn what_the_server_reads_itself_and_what_editors_leave_is_no_change() {
        let event = |kind, path: &str| may_be_a_change(&Event::new(kind).add_path(path.into()));
        let write = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(event(write, "m/1/model.py"));
        assert!(!event(write, "m/1/.model.py.swp"));
        assert!(!event(EventKind::Access(AccessKind::Open(AccessMode::Any)), "m/1/model.py"));
        assert!(!event(EventKind::Access(AccessKind::Close(AccessMode::Read)), "m/1/model.py"));
    }
}
