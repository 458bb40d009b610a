//! Where the server hands over traces for files.
use std::{path::PathBuf, sync::Arc, time::Duration};

use vocabulary::Error;

use super::{
    queue::{FileMessage, FileQueue},
    thread::FileThread,
};
use crate::{metrics::TraceCounters, record::FinishedTrace};

/// Hands traces to the thread that writes files.
pub(crate) struct FileExporter {
    shared: Arc<FileQueue>,
}

impl FileExporter {
    /// Starts the thread. It holds at most about `held_bytes` of text.
    ///
    /// # Errors
    /// INTERNAL: the thread cannot be started.
    pub(crate) fn start(
        path: PathBuf,
        held_bytes: usize,
        counters: Arc<TraceCounters>,
    ) -> Result<Self, Error> {
        let shared = Arc::<FileQueue>::default();
        let queue = shared.clone();
        let builder = std::thread::Builder::new().name("trace files".into());
        builder
            .spawn(move || {
                let _ended = queue.end_guard();
                FileThread::new(path, held_bytes, counters).run(&queue);
            })
            .map_err(|error| {
                Error::internal(format!("failed to start the thread for trace files: {error}"))
            })?;
        Ok(Self { shared })
    }

    pub(crate) fn push(&self, trace: FinishedTrace) {
        self.shared.push(FileMessage::Trace(trace));
    }

    pub(crate) fn setting_ended(&self, setting: u64) {
        self.shared.push(FileMessage::SettingEnded(setting));
    }

    pub(crate) fn finish(&self, most: Duration) -> bool {
        self.shared.finish(most)
    }
}

impl Drop for FileExporter {
    /// The thread writes what it has, and nobody waits for it.
    fn drop(&mut self) {
        self.shared.end();
    }
}
