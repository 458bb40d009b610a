//! Reads files again when they change, on a thread of its own: certificates and API keys.
//!
//! A file counts as changed if its metadata has changed: another inode, length, time of writing or time of change. A link
//! counts as the file behind it, so replaced links (Kubernetes) are noticed, too.
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use inference::lock::Mutex;
use vocabulary::{Error, FileIdentity};

/// Something that is made from files.
pub trait Reload: Send + Sync {
    /// Reads the files again if they have changed. Blocks while it reads.
    fn reload_if_changed(&self);
}

/// A value that is made from files, and made again when they change.
pub(crate) struct FileBacked<T> {
    /// What the files contain, for the log.
    what: String,
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
    current: ArcSwap<T>,
    /// The files when they were last read.
    seen: Mutex<Vec<Option<FileIdentity>>>,
}

impl<T> FileBacked<T> {
    /// Makes the value with `read`. `what` names it in the log.
    ///
    /// # Errors
    /// The error of `read`.
    pub(crate) fn load(
        what: String,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // Read before the files: a change that comes meanwhile is noticed later.
        let seen = identities(&files);
        let current = ArcSwap::from_pointee(read()?);
        Ok(Self { what, files, read: Box::new(read), current, seen: Mutex::new(seen) })
    }

    /// The value from the last files that could be used.
    pub(crate) fn current(&self) -> Guard<Arc<T>> {
        self.current.load()
    }
}

impl<T: Send + Sync> Reload for FileBacked<T> {
    /// If the new files cannot be used, the value stays as it is, and the log has the reason once.
    fn reload_if_changed(&self) {
        let found = identities(&self.files);
        if std::mem::replace(&mut *self.seen.lock(), found.clone()) == found {
            return;
        }
        match (self.read)() {
            Ok(value) => {
                self.current.store(Arc::new(value));
                log::info!("{} were read again", self.what);
            }
            Err(error) => log::error!("{} stay as they were: {}", self.what, error.message),
        }
    }
}

fn identities(files: &[PathBuf]) -> Vec<Option<FileIdentity>> {
    files.iter().map(|file| fs::metadata(file).ok().map(FileIdentity::from)).collect()
}

/// The thread that looks for changed files. It ends when this handle is dropped.
#[derive(Debug)]
pub struct ReloadThread {
    requests: SyncSender<()>,
}

impl ReloadThread {
    /// Starts the thread. It looks once in each `interval`, and when it is told. Without an interval only when it is
    /// told.
    ///
    /// # Errors
    /// The system permits no more threads.
    pub fn start(items: Vec<Arc<dyn Reload>>, interval: Option<Duration>) -> Result<Self, Error> {
        let (requests, inbox) = sync_channel(1);
        let look = move || {
            loop {
                let received = match interval {
                    Some(interval) => inbox.recv_timeout(interval),
                    None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                if received == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                items.iter().for_each(|item| item.reload_if_changed());
            }
        };
        let failed =
            |error| Error::internal(format!("failed to start the thread for changed files: {error}"));
        thread::Builder::new().name("file-reload".to_owned()).spawn(look).map_err(failed)?;
        Ok(Self { requests })
    }

    /// Tells the thread to look now. Does not wait.
    pub fn look_now(&self) {
        // If the channel is full, the thread will look anyway.
        let _ = self.requests.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc};

    use super::*;

    fn number(path: &Path) -> Result<FileBacked<u32>, Error> {
        let file = path.to_owned();
        FileBacked::load("the numbers".to_owned(), vec![path.to_owned()], move || {
            let text = fs::read_to_string(&file).map_err(|error| Error::internal(error.to_string()))?;
            text.trim().parse().map_err(|_| Error::invalid("no number"))
        })
    }

    /// Writes another file and renames it.
    fn replace(path: &Path, text: &str) {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, path).unwrap();
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        assert!(number(&path).is_err());
        fs::write(&path, "1").unwrap();
        let value = number(&path).unwrap();
        for (text, expected) in [("2", 2), ("x", 2), ("", 2), ("7", 7)] {
            replace(&path, text);
            assert_ne!(**value.current(), 7);
            value.reload_if_changed();
            assert_eq!(**value.current(), expected, "{text}");
        }
        fs::remove_file(&path).unwrap();
        value.reload_if_changed();
        assert_eq!(**value.current(), 7);
        fs::write(&path, "8").unwrap();
        value.reload_if_changed();
        assert_eq!(**value.current(), 8);
    }

    #[test]
    fn a_link_to_another_file_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (name, text) in [("a", "1"), ("b", "2")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("number"), text).unwrap();
        }
        std::os::unix::fs::symlink(at("a"), at("data")).unwrap();
        let value = number(&at("data").join("number")).unwrap();
        std::os::unix::fs::symlink(at("b"), at("new")).unwrap();
        fs::rename(at("new"), at("data")).unwrap();
        value.reload_if_changed();
        assert_eq!(**value.current(), 2);
    }

    struct Looked(mpsc::Sender<()>);

    impl Reload for Looked {
        fn reload_if_changed(&self) {
            self.0.send(()).unwrap();
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn the_thread_looks_when_it_is_told_and_ends_with_its_handle() {
        let (looked, looks) = mpsc::channel();
        let thread = ReloadThread::start(vec![Arc::new(Looked(looked))], None).unwrap();
        thread.look_now();
        looks.recv_timeout(TIMEOUT).unwrap();
        drop(thread);
        assert_eq!(looks.recv_timeout(TIMEOUT), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn the_thread_looks_in_each_interval() {
        let (looked, looks) = mpsc::channel();
        let interval = Some(Duration::from_millis(1));
        let _thread = ReloadThread::start(vec![Arc::new(Looked(looked))], interval).unwrap();
        for _ in 0..3 {
            looks.recv_timeout(TIMEOUT).unwrap();
        }
    }
}
