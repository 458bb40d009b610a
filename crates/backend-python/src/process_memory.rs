//! The memory of the processes of a model, as the system counts it.
use std::{
    collections::BTreeSet,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use inference::lock::Mutex;

/// What was measured counts for so long: metrics and statistics may be asked for often.
const FRESH: Duration = Duration::from_millis(500);

/// A process with more descendants than this is not followed further.
const MOST_PROCESSES: usize = 1000;

/// The processes of a model, and what they had when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    processes: Mutex<BTreeSet<u32>>,
    measured: Mutex<Option<(Instant, u64)>>,
}

/// A process that counts until this is dropped.
pub(crate) struct CountedProcess {
    memory: Arc<ProcessMemory>,
    process: u32,
}

impl ProcessMemory {
    /// Counts a process, and those that it starts.
    pub(crate) fn count(self: &Arc<Self>, process: u32) -> CountedProcess {
        self.processes.lock().insert(process);
        *self.measured.lock() = None;
        CountedProcess { memory: self.clone(), process }
    }

    /// The bytes of memory that the processes have for themselves or share with the server, without the files that they
    /// have mapped.
    pub(crate) fn bytes(&self) -> u64 {
        let measured = *self.measured.lock();
        if let Some((at, bytes)) = measured
            && at.elapsed() < FRESH
        {
            return bytes;
        }
        let processes = self.processes.lock().clone();
        let bytes = with_descendants(processes).into_iter().map(bytes_of).sum();
        *self.measured.lock() = Some((Instant::now(), bytes));
        bytes
    }
}

impl Drop for CountedProcess {
    fn drop(&mut self) {
        self.memory.processes.lock().remove(&self.process);
        *self.memory.measured.lock() = None;
    }
}

/// Processes and those that they have started.
fn with_descendants(mut processes: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut open: Vec<_> = processes.iter().copied().collect();
    while let Some(process) = open.pop() {
        if processes.len() >= MOST_PROCESSES {
            break;
        }
        // A process that has ended has none.
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
            open.extend(children.filter(|child| processes.insert(*child)));
        }
    }
    processes
}

/// The bytes of one process; 0 if it has ended.
fn bytes_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    bytes_in(&status)
}

/// Reads the content of `/proc/<pid>/status`.
fn bytes_in(status: &str) -> u64 {
    let own = |line: &&str| line.starts_with("RssAnon:") || line.starts_with("RssShmem:");
    let kibibytes = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    status.lines().filter(own).filter_map(kibibytes).sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn own_and_shared_memory_counts_and_mapped_files_do_not() {
        let status =
            "Name:\ta\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t  500 kB\nRssShmem:\t    7 kB\n";
        assert_eq!(bytes_in(status), 107 * 1024);
        assert_eq!(bytes_in(""), 0);
    }

    #[test]
    fn a_process_counts_with_what_it_starts_until_it_is_forgotten() {
        let script = "exec 3<&0; cat <&3 & echo; wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The shell has started the other process when it has written a line.
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line)
            .unwrap();
        assert_eq!(with_descendants(BTreeSet::from([shell.id()])).len(), 2);
        let memory = Arc::new(ProcessMemory::default());
        let counted = memory.count(shell.id());
        assert!(memory.bytes() > bytes_of(shell.id()));
        drop(counted);
        assert_eq!(memory.bytes(), 0);
        // Both end with their input.
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
