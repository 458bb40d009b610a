//! The labels of one model version, in the form of the metrics' text. They never change, so they are made once.
use inference::{
    FailureReason,
    metrics::{MetricLabels, label_text},
};
use scheduling::BatchEnd;

use crate::model::Model;

/// See the module documentation.
pub(crate) struct SeriesLabels {
    /// `{model="m",version="1"}`, with the namespace and the tags.
    pub(super) own: String,
    /// The same with each reason of a failure.
    pub(super) failures: [(FailureReason, String); 4],
    /// The same with each reason why a batch ends.
    pub(super) batch_ends: [(BatchEnd, String); BatchEnd::ALL.len()],
}

impl SeriesLabels {
    /// The labels of a model.
    pub(super) fn of(model: &Model) -> Self {
        let labels = labels(model);
        let with_reason = |reason: &str| {
            let mut labels = labels.clone();
            labels.insert("reason".to_owned(), reason.to_owned());
            label_text(&labels)
        };
        let failures = [
            ("BACKEND", FailureReason::Backend),
            ("CANCELED", FailureReason::Cancelled),
            ("OTHER", FailureReason::Other),
            ("REJECTED", FailureReason::Rejected),
        ];
        Self {
            own: label_text(&labels),
            failures: failures.map(|(reason, failure)| (failure, with_reason(reason))),
            batch_ends: BatchEnd::ALL.map(|end| (end, with_reason(end.as_str()))),
        }
    }
}

/// The labels that all series of a model have.
pub(super) fn labels(model: &Model) -> MetricLabels {
    let mut labels = MetricLabels::from([
        ("model".to_owned(), model.name().to_string()),
        ("version".to_owned(), model.version().to_string()),
    ]);
    labels.extend(model.namespace().map(|namespace| ("namespace".to_owned(), namespace.to_string())));
    labels.extend(model.config().metric_tags.iter().map(|(key, value)| (format!("_{key}"), value.clone())));
    labels
}
