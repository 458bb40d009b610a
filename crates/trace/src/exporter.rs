//! Where finished traces go. Nothing here blocks a request: traces are handed to a thread.
use std::{sync::Arc, time::Duration};

use vocabulary::{ByteBudget, Error};

use crate::{
    config::{TraceConfig, TraceDestination},
    file::FileExporter,
    metrics::TraceCounters,
    otlp::OtlpExporter,
    record::FinishedTrace,
};

/// Takes finished traces.
pub(crate) struct Exporter {
    budget: Arc<ByteBudget>,
    counters: Arc<TraceCounters>,
    target: ExportTarget,
}

enum ExportTarget {
    /// There is nothing that traces could go to.
    Nowhere,
    File(FileExporter),
    Otlp(OtlpExporter),
}

impl Exporter {
    /// Starts the thread that writes or sends traces, if the configuration needs one.
    ///
    /// # Errors
    /// INVALID_ARG: the URL of the collector is not valid. INTERNAL: the thread cannot be started.
    pub(crate) fn start(config: &TraceConfig) -> Result<Arc<Self>, Error> {
        let budget = ByteBudget::new(config.max_buffered_bytes);
        let counters = Arc::new(TraceCounters::default());
        let target = match &config.destination {
            TraceDestination::File(file) => match &file.path {
                None => ExportTarget::Nowhere,
                Some(path) => {
                    let held = config.max_buffered_bytes / 4;
                    ExportTarget::File(FileExporter::start(path.clone(), held, counters.clone())?)
                }
            },
            TraceDestination::Otlp(otlp) if otlp.is_off => ExportTarget::Nowhere,
            TraceDestination::Otlp(otlp) => ExportTarget::Otlp(OtlpExporter::start(otlp, counters.clone())?),
        };
        Ok(Arc::new(Self { budget, counters, target }))
    }

    /// An exporter that drops everything.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Arc<Self> {
        Self::start(&TraceConfig::default()).expect("needs no thread")
    }

    /// The memory for traces.
    pub(crate) fn budget(&self) -> &Arc<ByteBudget> {
        &self.budget
    }

    pub(crate) fn counters(&self) -> &Arc<TraceCounters> {
        &self.counters
    }

    /// Hands a trace over. Does not block.
    pub(crate) fn export(&self, trace: FinishedTrace) {
        match &self.target {
            ExportTarget::Nowhere => {}
            ExportTarget::File(file) => file.push(trace),
            ExportTarget::Otlp(otlp) => otlp.push(trace),
        }
    }

    /// The settings with this number sample no more, and all their traces have been handed over.
    pub(crate) fn setting_ended(&self, setting: u64) {
        match &self.target {
            ExportTarget::File(file) => file.setting_ended(setting),
            ExportTarget::Nowhere | ExportTarget::Otlp(_) => {}
        }
    }

    /// Writes or sends what has been handed over, and ends the thread. Blocks, at most for that time. Returns whether
    /// everything was written or sent.
    pub(crate) fn finish(&self, most: Duration) -> bool {
        match &self.target {
            ExportTarget::Nowhere => true,
            ExportTarget::File(file) => file.finish(most),
            ExportTarget::Otlp(otlp) => otlp.finish(most),
        }
    }
}
