//! The labels of one model version, in the form of the metrics' text. They never change, so they are made once.
use inference::metrics::{MetricLabels, label_text};
use scheduling::CutReason;
use vocabulary::{FailureReason, LabelName};

/// See the module documentation.
pub(crate) struct SeriesLabels {
    /// `{model="m",version="1"}`, with the namespace and the tags.
    pub(crate) own: String,
    /// The same with each reason of a failure.
    pub(crate) failures: [(FailureReason, String); 4],
    /// The same with each reason why a batch ends.
    pub(crate) batch_ends: [(CutReason, String); CutReason::ALL.len()],
}

impl SeriesLabels {
    /// The texts for a model with these labels.
    pub(crate) fn of(labels: &MetricLabels) -> Self {
        let with_reason = |reason: &str| {
            let mut labels = labels.clone();
            labels.insert(LabelName::of("reason"), reason.to_owned());
            label_text(&labels)
        };
        let failures = [
            ("BACKEND", FailureReason::Backend),
            ("CANCELED", FailureReason::Cancelled),
            ("OTHER", FailureReason::Other),
            ("REJECTED", FailureReason::Rejected),
        ];
        Self {
            own: label_text(labels),
            failures: failures.map(|(reason, failure)| (failure, with_reason(reason))),
            batch_ends: CutReason::ALL.map(|end| (end, with_reason(end.as_str()))),
        }
    }
}
