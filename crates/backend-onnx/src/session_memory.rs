//! What is known of the memory that a session holds.
//!
//! The allocator of a session tells how much it has. That contains weights that were put into another layout when the
//! session was made, and later intermediate results. Weights that stay as they are in the file are elsewhere, and the
//! runtime does not tell their size. It is estimated: what the files have more than the allocator of a new session.
use std::{
    fs,
    path::Path,
    sync::{Arc, Weak},
};

use crate::ort::{AllocatedMemory, Session};

/// The memory of one session.
#[derive(Clone)]
pub(crate) struct SessionMemory {
    session: Weak<Session>,
    /// Estimated bytes of weights outside of the allocator.
    elsewhere: u64,
}

impl SessionMemory {
    /// The memory of a session that has been made from files of that size and has not run.
    pub(crate) fn of(session: &Arc<Session>, files_bytes: u64) -> Self {
        let elsewhere = weights_elsewhere(session.allocated_memory(), files_bytes);
        Self { session: Arc::downgrade(session), elsewhere }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.session.strong_count() > 0
    }

    /// The bytes that the session holds; 0 if it has ended.
    pub(crate) fn bytes(&self) -> u64 {
        let Some(session) = self.session.upgrade() else { return 0 };
        let allocated = session.allocated_memory().map_or(0, |memory| memory.taken);
        allocated.saturating_add(self.elsewhere)
    }
}

fn weights_elsewhere(allocated: Option<AllocatedMemory>, files_bytes: u64) -> u64 {
    files_bytes.saturating_sub(allocated.map_or(0, |memory| memory.in_use))
}

/// The bytes of the files that a session reads itself: the graph, and, if it maps external data, the other files in the
/// directory.
pub(crate) fn files_bytes(graph: &Path, maps_external_data: bool) -> u64 {
    if !maps_external_data {
        return fs::metadata(graph).map_or(0, |graph| graph.len());
    }
    let entries = graph.parent().and_then(|directory| fs::read_dir(directory).ok());
    let files = entries.into_iter().flatten().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    files.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_in_another_layout_are_counted_once() {
        let allocated = |in_use| Some(AllocatedMemory { in_use, taken: in_use + 50 });
        assert_eq!(weights_elsewhere(allocated(0), 1000), 1000);
        assert_eq!(weights_elsewhere(allocated(600), 1000), 400);
        assert_eq!(weights_elsewhere(allocated(1008), 1000), 0);
        assert_eq!(weights_elsewhere(None, 1000), 1000);
    }

    #[test]
    fn the_files_beside_the_graph_count_if_they_are_mapped() {
        let directory = tempfile::tempdir().unwrap();
        for (name, size) in [("model.onnx", 10), ("weights.bin", 1000)] {
            fs::write(directory.path().join(name), vec![0; size]).unwrap();
        }
        fs::create_dir(directory.path().join("more")).unwrap();
        let graph = directory.path().join("model.onnx");
        assert_eq!((files_bytes(&graph, true), files_bytes(&graph, false)), (1010, 10));
        assert_eq!(files_bytes(Path::new("no/such/model.onnx"), true), 0);
    }
}
