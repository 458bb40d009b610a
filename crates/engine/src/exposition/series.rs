//! What a scrape reads from a model version, and how a family is written.
use inference::{
    backend::MemoryUsage,
    metrics::{MetricFamilyText, MetricKind, MetricLabels, MetricsText, label_text},
};
use vocabulary::LabelName;

use crate::{
    account::{ModelStatistics, SeriesLabels},
    model::Model,
    models::loaded_version::LoadedVersion,
};

/// What one scrape reads from one model version.
pub(super) struct Series<'m> {
    pub(super) loaded: &'m LoadedVersion,
    pub(super) labels: &'m SeriesLabels,
    pub(super) statistics: ModelStatistics,
    /// The bytes in each memory, with their labels.
    pub(super) memory: Vec<(String, u64)>,
}

impl<'m> Series<'m> {
    pub(super) fn read(loaded: &'m LoadedVersion) -> Self {
        let (model, record) = (loaded.model(), loaded.record());
        let memory = loaded.work().memory_usage().into_iter().map(|MemoryUsage { kind, id, byte_size }| {
            let mut labels = labels_of(model);
            labels.insert(LabelName::of("memory"), kind.as_str().to_owned());
            labels.insert(LabelName::of("memory_id"), id.to_string());
            (label_text(&labels), byte_size)
        });
        Self {
            loaded,
            labels: record.labels(|| SeriesLabels::of(&labels_of(model))),
            statistics: record.read(model.name(), model.version()),
            memory: memory.collect(),
        }
    }

    pub(super) fn own(&self) -> &'m str {
        &self.labels.own
    }

    /// Models that do not use the response cache have no series about it.
    pub(super) fn is_cached(&self) -> bool {
        self.loaded.model().config().response_cache.is_some()
    }
}

/// The labels that all series of a model have.
fn labels_of(model: &Model) -> MetricLabels {
    let mut labels = MetricLabels::from([
        (LabelName::of("model"), model.name().to_string()),
        (LabelName::of("version"), model.version().to_string()),
    ]);
    labels.extend(model.namespace().map(|namespace| (LabelName::of("namespace"), namespace.to_string())));
    labels.extend(model.config().metric_tags.clone());
    labels
}

/// Writes a family, unless it has no samples.
pub(super) fn family<'a>(
    text: &mut MetricsText,
    name: &str,
    kind: MetricKind,
    help: &str,
    samples: impl Iterator<Item = (&'a str, f64)>,
) {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return;
    }
    let mut family = MetricFamilyText::begin(text, name, kind, help);
    samples.for_each(|(labels, value)| family.sample(labels, value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_without_samples_is_left_out() {
        let mut text = MetricsText::default();
        family(&mut text, "f", MetricKind::Gauge, "help", std::iter::empty());
        let samples = [("", 0.5), ("{a=\"b\"}", 3.0)];
        family(&mut text, "g", MetricKind::Gauge, "help", samples.into_iter());
        assert_eq!(text.finish(), "# HELP g help\n# TYPE g gauge\ng 0.5\ng{a=\"b\"} 3\n");
    }
}
