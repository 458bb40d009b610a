//! The plug-ins of an engine, as interfaces, and what an operator sets for them.
use std::sync::Arc;

use crate::{
    MetricSource,
    agent::AgentFinder,
    backend::{Backend, BackendFinder},
    batching::StrategyOpener,
    cache::ResponseCache,
    metrics::MetricsText,
    repository::RepositoryOpener,
};

/// The plug-ins of an engine.
#[derive(Clone, Default)]
pub struct Plugins {
    /// Built-in backends.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Finds the other backends.
    pub finder: Option<Arc<dyn BackendFinder>>,
    /// Stores responses of the models that enable the response cache.
    pub cache: Option<Arc<dyn ResponseCache>>,
    /// Finds repository agents.
    pub agents: Option<Arc<dyn AgentFinder>>,
    /// Opens repositories in object stores. Without one, each repository is a directory.
    pub repositories: Option<Arc<dyn RepositoryOpener>>,
    /// Opens libraries of custom batching strategies.
    pub strategies: Option<Arc<dyn StrategyOpener>>,
    /// The metrics of plug-ins. The engine shows them after its own.
    pub more_metrics: Option<Arc<dyn MetricSource>>,
    /// How freed memory goes back to the system.
    pub memory: Option<MemoryFunctions>,
}

impl Plugins {
    /// The same plug-ins with a further source of metrics, if there is one.
    #[must_use]
    pub fn with_metrics(self, source: Option<Arc<dyn MetricSource>>) -> Self {
        let more_metrics = match (self.more_metrics, source) {
            (Some(first), Some(second)) => {
                Some(Arc::new(MetricSourcePair { first, second }) as Arc<dyn MetricSource>)
            }
            (first, second) => first.or(second),
        };
        Self { more_metrics, ..self }
    }
}

/// Two sources of metrics as one.
struct MetricSourcePair {
    first: Arc<dyn MetricSource>,
    second: Arc<dyn MetricSource>,
}

impl MetricSource for MetricSourcePair {
    fn append_to(&self, text: &mut MetricsText) {
        self.first.append_to(text);
        self.second.append_to(text);
    }

    fn value(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        self.first.value(family, label).or_else(|| self.second.value(family, label))
    }
}

/// How the process returns freed memory to the system. This depends on its allocators.
#[derive(Debug, Clone, Copy)]
pub struct MemoryFunctions {
    /// A thread begins (`true`) or ends (`false`) to build or to end a copy of a model. Meanwhile much memory is freed
    /// that is not needed again soon. Must not block.
    pub models_change: fn(bool),
    /// The requests of a server begin (`true`) or end (`false`) to hold much memory. Meanwhile others need what is freed.
    /// Must not block.
    pub memory_is_scarce: fn(bool),
    /// Returns all freed memory. A blocking thread calls it after copies have been built or have ended, at most once a
    /// second.
    pub return_freed: fn(),
    /// The same, also what threads keep that have freed it: they return it before they rest. A blocking thread calls it
    /// when there have been no large requests for a while.
    pub return_all: fn(),
}

impl From<Vec<Arc<dyn Backend>>> for Plugins {
    fn from(backends: Vec<Arc<dyn Backend>>) -> Self {
        Self { backends, ..Self::default() }
    }
}

/// One `--backend-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSetting {
    /// The backend; `None` means all backends.
    pub backend: Option<String>,
    /// Name of the setting.
    pub key: String,
    /// Value of the setting.
    pub value: String,
}
