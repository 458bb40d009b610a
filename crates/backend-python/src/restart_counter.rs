//! The metric that counts how often the workers of a model were started again.
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use inference::{
    metric_registry::{CustomMetric, CustomMetricFamily, MetricRegistry},
    metrics::{MetricKind, MetricLabels},
};
use vocabulary::{Error, LabelName};

/// The counter of one model version. It is shown as long as the version is loaded.
pub(crate) struct RestartCounter {
    family: Arc<CustomMetricFamily>,
    labels: MetricLabels,
    value: Arc<CustomMetric>,
    count: AtomicU64,
}

const NAME: &str = "nereid_python_worker_restarts_total";
const HELP: &str = "Number of times that a process of a model in Python was started again";

impl RestartCounter {
    /// The counter of a version, from zero on.
    ///
    /// # Errors
    /// The registry has another metric with this name.
    pub(crate) fn new(registry: &MetricRegistry, model: &str, version: i64) -> Result<Self, Error> {
        let family = registry.family(MetricKind::Counter, NAME, HELP)?;
        let labels = MetricLabels::from([
            (LabelName::of("model"), model.to_owned()),
            (LabelName::of("version"), version.to_string()),
        ]);
        let value = family.value(&labels, None)?;
        Ok(Self { family, labels, value, count: AtomicU64::new(0) })
    }

    /// A worker was started again.
    pub(crate) fn count(&self) {
        // A counter accepts what makes it larger.
        let _ = self.value.increment(1.0);
        self.count.fetch_add(1, Relaxed);
    }

    /// How often it has counted.
    pub(crate) fn value(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

impl Drop for RestartCounter {
    fn drop(&mut self) {
        self.family.let_go(&self.labels);
    }
}

impl fmt::Debug for RestartCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartCounter").field("labels", &self.labels).finish_non_exhaustive()
    }
}
