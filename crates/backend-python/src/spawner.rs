//! The thread that starts processes.
//!
//! A worker asks the system to end it when the thread that started it ends. So one thread starts all workers, and lives as
//! long as the backend: the threads of loads and instances come and go.
use std::{
    io,
    process::{Child, Command},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use inference::lock::Mutex;
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

/// Starts processes on a thread of its own. Dropping it ends the processes that still run.
#[derive(Debug)]
pub(crate) struct Spawner {
    started: Mutex<Option<SpawnerThread>>,
}

#[derive(Debug)]
struct SpawnerThread {
    orders: mpsc::Sender<SpawnOrder>,
    thread: JoinHandle<()>,
}

struct SpawnOrder {
    command: Command,
    answer: mpsc::Sender<io::Result<Child>>,
}

impl Spawner {
    /// Starts no thread before the first process.
    pub(crate) fn new() -> Self {
        Self { started: Mutex::new(None) }
    }

    /// Starts a process.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let orders = {
            let mut started = self.started.lock();
            match &*started {
                Some(started) => started.orders.clone(),
                None => started.insert(SpawnerThread::start()?).orders.clone(),
            }
        };
        let (answer, answered) = mpsc::channel();
        let ended = |_| io::Error::other("the thread that starts processes has ended");
        // The thread holds the order only while it starts the process, which takes milliseconds.
        orders.send(SpawnOrder { command, answer }).map_err(|_| ended(()))?;
        answered.recv().map_err(|_| ended(()))?
    }
}

impl SpawnerThread {
    fn start() -> io::Result<Self> {
        let (orders, ordered) = mpsc::channel::<SpawnOrder>();
        let work = move || {
            for SpawnOrder { mut command, answer } in ordered {
                // Fails only if the caller has panicked.
                let _ = answer.send(with_huge_pages(|| command.spawn()));
            }
        };
        let thread = thread::Builder::new().name("python-spawner".into()).spawn(work)?;
        Ok(Self { orders, thread })
    }
}

/// Starts a process that may ask for huge pages, as NumPy does for large arrays. A process inherits that it may not, and
/// the server does without them.
fn with_huge_pages<T>(start: impl FnOnce() -> T) -> T {
    // Errors mean that the kernel has no huge pages.
    let is_without = transparent_huge_pages_are_disabled().unwrap_or(false);
    if is_without {
        let _ = disable_transparent_huge_pages(false);
    }
    let started = start();
    if is_without {
        let _ = disable_transparent_huge_pages(true);
    }
    started
}

impl Drop for Spawner {
    fn drop(&mut self) {
        if let Some(SpawnerThread { orders, thread }) = self.started.get_mut().take() {
            drop(orders);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_starts_may_have_huge_pages_where_this_one_does_without() {
        let are_disabled = || transparent_huge_pages_are_disabled().unwrap();
        let before = are_disabled();
        for without in [true, false] {
            disable_transparent_huge_pages(without).unwrap();
            assert!(!with_huge_pages(are_disabled));
            assert_eq!(are_disabled(), without);
        }
        disable_transparent_huge_pages(before).unwrap();
    }

    #[test]
    fn processes_start_and_a_missing_program_is_an_error() {
        let spawner = Spawner::new();
        assert!(spawner.spawn(Command::new("true")).unwrap().wait().unwrap().success());
        assert_eq!(spawner.spawn(Command::new("/nothing/here")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
