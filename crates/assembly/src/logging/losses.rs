//! How many lines of the log are lost.
use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use inference::{
    MetricSource,
    metrics::{MetricFamilyText, MetricKind, MetricsText},
};
use line_writer::{LineAccount, LineCounts};

/// The lines of the log of the process, wherever they go.
static COUNTS: LazyLock<Arc<LineCounts>> = LazyLock::new(Arc::default);

/// The metric of the lines that are lost.
#[derive(Debug)]
pub struct LogLosses;

impl MetricSource for LogLosses {
    fn append_to(&self, text: &mut MetricsText) {
        let help = "Number of lines of the log that are lost, because writing them took too long or failed";
        MetricFamilyText::begin(text, "nereid_log_dropped_total", MetricKind::Counter, help)
            .sample("", COUNTS.lost() as f64);
    }
}

/// What becomes of the lines for a standard stream.
pub(super) fn stream_account(stream: &str) -> LineAccount {
    LineAccount::new(format!("lines on {stream}"), COUNTS.clone())
}

/// What becomes of the lines for a file.
pub(super) fn file_account(path: &Path) -> LineAccount {
    LineAccount::new(format!("lines of the log file '{}'", path.display()), COUNTS.clone())
}
