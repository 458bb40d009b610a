//! The metrics that plug-ins and models count: families by name, each with one value per set of labels.
//!
//! A family stays registered for ever: a second request for its name returns the same family. All handles with the same
//! labels share one value. The value is shown while a handle of it exists.
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use vocabulary::{Error, ErrorCode};

use crate::{
    MetricSource,
    lock::Mutex,
    metrics::{MetricFamilyText, MetricKind as Kind, MetricLabels as Labels, MetricsText, label_text},
};

fn does_not_support(kind: Kind, what: &str) -> Error {
    let name = kind.as_str().to_uppercase();
    Error::unsupported(format!("TRITONSERVER_METRIC_KIND_{name} does not support {what}"))
}

/// All families of the process.
#[derive(Debug, Default)]
pub struct MetricRegistry {
    families: Mutex<Vec<Arc<CustomMetricFamily>>>,
}

/// The values of one family.
#[derive(Debug)]
pub struct CustomMetricFamily {
    name: String,
    help: String,
    kind: Kind,
    values: Mutex<BTreeMap<Labels, HeldMetric>>,
}

/// A value, and the number of its handles.
#[derive(Debug)]
struct HeldMetric {
    value: Arc<CustomMetric>,
    holders: usize,
}

/// One shared value.
#[derive(Debug)]
pub enum CustomMetric {
    /// A number that only increases.
    Counter(MetricNumber),
    /// A number.
    Gauge(MetricNumber),
    /// Observed values.
    Histogram(Mutex<CustomHistogram>),
}

/// A double that several threads change.
#[derive(Debug, Default)]
pub struct MetricNumber(AtomicU64);

/// How many values were observed up to each bound, and their sum.
#[derive(Debug)]
pub struct CustomHistogram {
    bounds: Vec<f64>,
    /// For each bound, the number of values up to it and above the bound before it. The last element counts the values
    /// above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl MetricRegistry {
    /// The family of that name, registered if it does not exist.
    ///
    /// # Errors
    /// INVALID_ARG if the name is not valid in Prometheus, or if the family has another kind.
    pub fn family(&self, kind: Kind, name: &str, help: &str) -> Result<Arc<CustomMetricFamily>, Error> {
        if !is_metric_name(name) {
            return Err(Error::invalid("Invalid metric name"));
        }
        let mut families = self.families.lock();
        match families.iter().find(|family| family.name == name) {
            Some(family) if family.kind == kind => Ok(family.clone()),
            Some(_) => Err(Error::invalid("Family name already exists with different type")),
            None => {
                // Families that nobody holds and that show nothing do not pile up.
                families.retain_mut(|family| {
                    Arc::get_mut(family).is_none_or(|family| !family.values.get_mut().is_empty())
                });
                let (name, help) = (name.to_owned(), help.to_owned());
                let family = Arc::new(CustomMetricFamily { name, help, kind, values: Mutex::default() });
                families.push(family.clone());
                Ok(family)
            }
        }
    }
}

impl MetricSource for MetricRegistry {
    fn append_to(&self, text: &mut MetricsText) {
        let mut families = self.families.lock().clone();
        families.sort_by_key(|family| family.kind);
        families.iter().for_each(|family| family.append_to(text));
    }

    fn value(&self, family: &str, (name, value): (&str, &str)) -> Option<f64> {
        let family = self.families.lock().iter().find(|known| known.name == family).cloned()?;
        let has_label = |labels: &Labels| labels.get(name).is_some_and(|known| known == value);
        let values = family.values.lock();
        let (_, shared) = values.iter().find(|(labels, _)| has_label(labels))?;
        shared.value.get().ok()
    }
}

impl CustomMetricFamily {
    /// The kind of all values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The value with these labels, made if it does not exist. Histograms need bounds; other kinds must have none.
    ///
    /// # Errors
    /// INVALID_ARG for the label `le` of a histogram, and for bounds that do not increase.
    pub fn value(&self, labels: &Labels, bounds: Option<Vec<f64>>) -> Result<Arc<CustomMetric>, Error> {
        let fresh = match (self.kind, bounds) {
            (Kind::Counter, None) => CustomMetric::Counter(MetricNumber::default()),
            (Kind::Gauge, None) => CustomMetric::Gauge(MetricNumber::default()),
            (Kind::Histogram, Some(bounds)) => {
                CustomMetric::Histogram(Mutex::new(CustomHistogram::new(bounds)?))
            }
            (Kind::Summary, _) => return Err(Error::invalid("Unsupported metric kind")),
            (Kind::Histogram, None) => {
                return Err(Error::invalid("Bucket boundaries not found in Metric args."));
            }
            (kind, Some(_)) => {
                let text = format!("Unexpected args found in {} Metric constructor.", kind.as_str());
                return Err(Error::invalid(text));
            }
        };
        // The text of a histogram has a label of its own.
        if self.kind == Kind::Histogram && labels.contains_key("le") {
            return Err(Error::invalid("Invalid label name"));
        }
        let mut values = self.values.lock();
        let fresh = || HeldMetric { value: Arc::new(fresh), holders: 0 };
        let shared = values.entry(labels.clone()).or_insert_with(fresh);
        shared.holders += 1;
        Ok(shared.value.clone())
    }

    /// Removes a handle of a value. When the last handle is removed, the value disappears from the text.
    pub fn let_go(&self, labels: &Labels) {
        let mut values = self.values.lock();
        if let Some(shared) = values.get_mut(labels) {
            shared.holders -= 1;
            if shared.holders == 0 {
                values.remove(labels);
            }
        }
    }

    /// Writes nothing for a family without values.
    fn append_to(&self, text: &mut MetricsText) {
        let values: Vec<_> = {
            let values = self.values.lock();
            values.iter().map(|(labels, HeldMetric { value, .. })| (labels.clone(), value.clone())).collect()
        };
        if values.is_empty() {
            return;
        }
        let mut family = MetricFamilyText::begin(text, &self.name, self.kind, &self.help);
        for (labels, value) in values {
            match &*value {
                CustomMetric::Counter(number) | CustomMetric::Gauge(number) => {
                    family.sample(&label_text(&labels), number.get());
                }
                CustomMetric::Histogram(histogram) => histogram.lock().append_to(&mut family, &labels),
            }
        }
    }
}

impl CustomMetric {
    fn kind(&self) -> Kind {
        match self {
            Self::Counter(_) => Kind::Counter,
            Self::Gauge(_) => Kind::Gauge,
            Self::Histogram(_) => Kind::Histogram,
        }
    }

    /// The current value.
    ///
    /// # Errors
    /// UNSUPPORTED for histograms.
    pub fn get(&self) -> Result<f64, Error> {
        match self {
            Self::Counter(number) | Self::Gauge(number) => Ok(number.get()),
            Self::Histogram(_) => Err(does_not_support(self.kind(), "Value")),
        }
    }

    /// Adds to the value.
    ///
    /// # Errors
    /// UNSUPPORTED for histograms, INVALID_ARG for a counter that would decrease.
    pub fn increment(&self, by: f64) -> Result<(), Error> {
        match self {
            Self::Counter(_) if by < 0.0 => Err(Error::new(
                ErrorCode::InvalidArgument,
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.",
            )),
            Self::Counter(number) | Self::Gauge(number) => {
                number.add(by);
                Ok(())
            }
            Self::Histogram(_) => Err(does_not_support(self.kind(), "Increment")),
        }
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// UNSUPPORTED for all but gauges.
    pub fn set(&self, to: f64) -> Result<(), Error> {
        match self {
            Self::Gauge(number) => {
                number.0.store(to.to_bits(), Relaxed);
                Ok(())
            }
            Self::Counter(_) | Self::Histogram(_) => Err(does_not_support(self.kind(), "Set")),
        }
    }

    /// Counts a value.
    ///
    /// # Errors
    /// UNSUPPORTED for all but histograms.
    pub fn observe(&self, value: f64) -> Result<(), Error> {
        match self {
            Self::Histogram(histogram) => {
                histogram.lock().observe(value);
                Ok(())
            }
            Self::Counter(_) | Self::Gauge(_) => Err(does_not_support(self.kind(), "Observe")),
        }
    }
}

impl MetricNumber {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn add(&self, by: f64) {
        let mut old = self.0.load(Relaxed);
        while let Err(changed) =
            self.0.compare_exchange_weak(old, (f64::from_bits(old) + by).to_bits(), Relaxed, Relaxed)
        {
            old = changed;
        }
    }
}

impl CustomHistogram {
    fn new(bounds: Vec<f64>) -> Result<Self, Error> {
        if !bounds.is_sorted_by(|one, next| one < next) || bounds.iter().any(|bound| bound.is_nan()) {
            return Err(Error::invalid("Bucket Boundaries must be strictly sorted"));
        }
        let counts = vec![0; bounds.len() + 1];
        Ok(Self { bounds, counts, sum: 0.0 })
    }

    fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    #[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
    fn append_to(&self, family: &mut MetricFamilyText<'_>, labels: &Labels) {
        let total = self.counts.iter().sum::<u64>();
        let own = label_text(labels);
        family.suffixed("_count", &own, total as f64);
        family.suffixed("_sum", &own, self.sum);
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count;
            family.bucket(&own, *bound, below, None);
        }
        if self.bounds.last() != Some(&f64::INFINITY) {
            family.bucket(&own, f64::INFINITY, total, None);
        }
    }
}

/// Letters, digits (not first), underscores and colons.
fn is_metric_name(name: &str) -> bool {
    let fits = |(index, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':') || (index > 0 && byte.is_ascii_digit())
    };
    !name.is_empty() && name.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use vocabulary::LabelName;

    use super::*;

    fn labels(pairs: &[(&'static str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (LabelName::of(key), (*value).to_owned())).collect()
    }

    fn text(registry: &MetricRegistry) -> String {
        let mut text = MetricsText::default();
        registry.append_to(&mut text);
        text.finish()
    }

    #[test]
    fn families_are_shown_by_kind_and_only_with_values() {
        let registry = MetricRegistry::default();
        let gauge = registry.family(Kind::Gauge, "g", "a gauge\nof \\ mine").unwrap();
        let counter = registry.family(Kind::Counter, "c", "").unwrap();
        registry.family(Kind::Counter, "empty", "nothing").unwrap();
        gauge.value(&labels(&[]), None).unwrap().set(-1.5).unwrap();
        let value = counter.value(&labels(&[("b", "2\"\\\n"), ("a", "1")]), None).unwrap();
        value.increment(2.0).unwrap();
        let expected = concat!(
            "# TYPE c counter\nc{a=\"1\",b=\"2\\\"\\\\\\n\"} 2\n",
            "# HELP g a gauge\\nof \\\\ mine\n# TYPE g gauge\ng -1.5\n"
        );
        assert_eq!(text(&registry), expected);
    }

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let registry = MetricRegistry::default();
        let family = registry.family(Kind::Histogram, "h", "").unwrap();
        let value = family.value(&labels(&[("a", "b")]), Some(vec![1.0, 2.5])).unwrap();
        for observed in [0.5, 1.0, 2.0, 9.0] {
            value.observe(observed).unwrap();
        }
        let expected = concat!(
            "# TYPE h histogram\nh_count{a=\"b\"} 4\nh_sum{a=\"b\"} 12.5\nh_bucket{a=\"b\",le=\"1\"} 2\n",
            "h_bucket{a=\"b\",le=\"2.5\"} 3\nh_bucket{a=\"b\",le=\"+Inf\"} 4\n"
        );
        assert_eq!(text(&registry), expected);
    }

    #[test]
    fn metrics_with_the_same_labels_share_a_value_until_the_last_is_deleted() {
        let registry = MetricRegistry::default();
        let family = registry.family(Kind::Counter, "c", "").unwrap();
        let again = registry.family(Kind::Counter, "c", "other words").unwrap();
        let (one, two) =
            (family.value(&labels(&[]), None).unwrap(), again.value(&labels(&[]), None).unwrap());
        one.increment(1.0).unwrap();
        two.increment(2.0).unwrap();
        family.let_go(&labels(&[]));
        assert_eq!(text(&registry), "# TYPE c counter\nc 3\n");
        family.let_go(&labels(&[]));
        assert_eq!(text(&registry), "");
    }

    #[test]
    fn families_that_nobody_holds_do_not_pile_up() {
        let registry = MetricRegistry::default();
        let held = registry.family(Kind::Counter, "held", "").unwrap();
        let shown = registry.family(Kind::Counter, "shown", "").unwrap();
        shown.value(&labels(&[]), None).unwrap();
        drop(shown);
        for number in 0..100 {
            registry.family(Kind::Gauge, &format!("dropped_{number}"), "").unwrap();
        }
        let families = registry.families.lock();
        let names: Vec<_> = families.iter().map(|family| family.name.as_str()).collect();
        assert_eq!(names, ["held", "shown", "dropped_99"]);
        drop(held);
    }

    #[test]
    fn names_and_kinds_must_fit() {
        let registry = MetricRegistry::default();
        for bad in ["", "1a", "a b", "ä"] {
            assert_eq!(registry.family(Kind::Gauge, bad, "").unwrap_err().message, "Invalid metric name");
        }
        let family = registry.family(Kind::Gauge, "ns:g_1", "").unwrap();
        assert_eq!(
            registry.family(Kind::Counter, "ns:g_1", "").unwrap_err().message,
            "Family name already exists with different type"
        );
        let bound = [("le", "x")];
        assert!(family.value(&labels(&bound), None).is_ok());
        let histogram = registry.family(Kind::Histogram, "h", "").unwrap();
        let error = histogram.value(&labels(&bound), Some(vec![1.0])).unwrap_err();
        assert_eq!(error.message, "Invalid label name");
    }

    #[test]
    fn bounds_are_for_histograms_and_grow() {
        let registry = MetricRegistry::default();
        let value = |kind: Kind, bounds| {
            let family = registry.family(kind, kind.as_str(), "").unwrap();
            family.value(&Labels::new(), bounds).map(drop).map_err(|error| error.message.into_owned())
        };
        let unexpected = |kind| Err(format!("Unexpected args found in {kind} Metric constructor."));
        assert_eq!(value(Kind::Counter, Some(vec![])), unexpected("counter"));
        assert_eq!(value(Kind::Gauge, Some(vec![1.0])), unexpected("gauge"));
        let missing = "Bucket boundaries not found in Metric args.";
        assert_eq!(value(Kind::Histogram, None), Err(missing.to_owned()));
        assert!(value(Kind::Histogram, Some(vec![2.0, 1.0])).is_err());
        assert!(value(Kind::Histogram, Some(vec![f64::NAN])).is_err());
        assert_eq!(value(Kind::Histogram, Some(vec![])), Ok(()));
    }
}
