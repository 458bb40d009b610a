//! Metrics as text: the only writer of the two forms, and the interface of further sources of metrics.
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use vocabulary::LabelName;

use crate::TraceId;

/// A source of metrics that the server appends to its own.
pub trait MetricSource: Send + Sync {
    /// Appends whole families. Must not block for long, because a scrape waits for it.
    fn append_to(&self, text: &mut MetricsText);

    /// The value of a metric by the name of its family and one of its labels, for those who need single values. `None` if
    /// the source has no such counter or gauge.
    fn value(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        let _ = (family, label);
        None
    }
}

/// The form of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsForm {
    /// The text format of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0. In this form a counter is only what is named `_total`. Triton's counters have other names, so
    /// this form shows them under their names as families of unknown type. Only this form has exemplars.
    OpenMetrics,
}

/// The text of metrics while it is written.
#[derive(Debug, Default)]
pub struct MetricsText {
    text: String,
    form: MetricsForm,
}

impl MetricsText {
    /// An empty text.
    pub fn new(form: MetricsForm) -> Self {
        Self { text: String::new(), form }
    }

    /// The form of the text.
    pub fn form(&self) -> MetricsForm {
        self.form
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.form == MetricsForm::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The kind of a metric family, in the order in which the text shows families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that may increase and decrease.
    Gauge,
    /// The number of observed values up to each of several bounds.
    Histogram,
    /// Quantiles of the values that were observed lately.
    Summary,
}

impl MetricKind {
    /// The word in the text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// Label values by label name.
pub type MetricLabels = BTreeMap<LabelName, String>;

/// `{key="value",...}` sorted by key; empty without labels.
pub fn label_text(labels: &MetricLabels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pair =
        |(key, value): (&LabelName, &String)| format!("{key}=\"{}\"", escaped(value).replace('"', "\\\""));
    format!("{{{}}}", labels.iter().map(pair).collect::<Vec<_>>().join(","))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Numbers below this are exact as whole numbers.
const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// Writes a value as both forms do. Most values are whole numbers, and these are faster to write.
fn push_value(text: &mut String, value: f64) {
    let _ = match value {
        value if value.fract() == 0.0 && value.abs() < EXACT => write!(text, "{}", value as i64),
        value if value.is_nan() => text.write_str("NaN"),
        value if value.is_infinite() => text.write_str(if value > 0.0 { "+Inf" } else { "-Inf" }),
        value => write!(text, "{value}"),
    };
}

/// An observed value, and the trace of the request that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// The trace of the request.
    pub trace_id: TraceId,
    /// The value, in the unit of the histogram.
    pub value: f64,
    /// When it was observed, since 1970.
    pub at: Duration,
}

/// Writes the samples of one family below its heading.
#[derive(Debug)]
pub struct MetricFamilyText<'a> {
    text: &'a mut String,
    form: MetricsForm,
    name: &'a str,
}

impl<'a> MetricFamilyText<'a> {
    /// Writes the heading. If `help` is empty, there is no help line.
    pub fn begin(text: &'a mut MetricsText, name: &'a str, kind: MetricKind, help: &str) -> Self {
        let MetricsText { text, form } = text;
        let (family, word) = match (*form, kind) {
            (MetricsForm::OpenMetrics, MetricKind::Counter) => match name.strip_suffix("_total") {
                Some(family) => (family, kind.as_str()),
                None => (name, "unknown"),
            },
            _ => (name, kind.as_str()),
        };
        if !help.is_empty() {
            let help = escaped(help);
            let help = if *form == MetricsForm::OpenMetrics { help.replace('"', "\\\"") } else { help };
            let _ = writeln!(text, "# HELP {family} {help}");
        }
        let _ = writeln!(text, "# TYPE {family} {word}");
        Self { text, form: *form, name }
    }

    /// Writes a sample; `labels` come from [`label_text`].
    pub fn sample(&mut self, labels: &str, value: f64) {
        self.suffixed("", labels, value);
    }

    /// Writes a sample of `<name><suffix>`. Histograms have several suffixes.
    pub fn suffixed(&mut self, suffix: &str, labels: &str, value: f64) {
        self.push_all(&[self.name, suffix, labels, " "]);
        push_value(self.text, value);
        self.text.push('\n');
    }

    /// Writes the number of values up to `bound`, and one of those values if the form shows it.
    pub fn bucket(&mut self, labels: &str, bound: f64, count: u64, exemplar: Option<Exemplar>) {
        self.bounded("_bucket", labels, "le", bound);
        let _ = write!(self.text, " {count}");
        if let (MetricsForm::OpenMetrics, Some(exemplar)) = (self.form, exemplar) {
            let Exemplar { trace_id, value, at } = exemplar;
            let (seconds, millis) = (at.as_secs(), at.subsec_millis());
            let _ = write!(self.text, " # {{trace_id=\"{trace_id}\"}} ");
            push_value(self.text, value);
            let _ = write!(self.text, " {seconds}.{millis:03}");
        }
        self.text.push('\n');
    }

    /// Writes a quantile of a summary.
    pub fn quantile(&mut self, labels: &str, quantile: f64, value: f64) {
        self.bounded("", labels, "quantile", quantile);
        self.text.push(' ');
        push_value(self.text, value);
        self.text.push('\n');
    }

    /// Writes a name with a number as its last label.
    fn bounded(&mut self, suffix: &str, labels: &str, label: &str, bound: f64) {
        let others = labels.strip_suffix('}');
        let (others, comma) = match others {
            Some(others) => (others, ","),
            None => ("{", ""),
        };
        // OpenMetrics writes whole numbers with a fraction.
        let fraction = if self.form == MetricsForm::OpenMetrics && bound.fract() == 0.0 { ".0" } else { "" };
        self.push_all(&[self.name, suffix, others, comma, label, "=\""]);
        push_value(self.text, bound);
        self.push_all(&[fraction, "\"}"]);
    }

    fn push_all(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.push_str(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: MetricsForm, write: impl FnOnce(&mut MetricsText)) -> String {
        let mut text = MetricsText::new(form);
        write(&mut text);
        text.finish()
    }

    #[test]
    fn a_family_has_a_heading_and_a_line_for_each_sample() {
        let text = written(MetricsForm::Prometheus, |text| {
            let mut family = MetricFamilyText::begin(text, "f", MetricKind::Gauge, "two\nlines of \\");
            family.sample("", 0.5);
            family.sample("{a=\"b\"}", 3.0);
            family.suffixed("_sum", "", f64::INFINITY);
            MetricFamilyText::begin(text, "g", MetricKind::Counter, "").sample("", f64::NAN);
        });
        assert_eq!(
            text,
            "# HELP f two\\nlines of \\\\\n# TYPE f gauge\nf 0.5\nf{a=\"b\"} 3\nf_sum +Inf\n\
             # TYPE g counter\ng NaN\n"
        );
    }

    #[test]
    fn label_values_are_escaped_and_sorted_by_name() {
        let labels = [("k", "a\"b\\c\nd"), ("a", "1")];
        let labels = labels.map(|(key, value)| (LabelName::of(key), value.to_owned())).into();
        assert_eq!(label_text(&labels), r#"{a="1",k="a\"b\\c\nd"}"#);
        assert_eq!(label_text(&MetricLabels::new()), "");
    }

    const EXEMPLAR: Exemplar = Exemplar {
        trace_id: TraceId::new([0xab; 16]),
        value: 0.75,
        at: Duration::new(1_700_000_000, 42_999_999),
    };

    fn histogram(text: &mut MetricsText) {
        let mut family = MetricFamilyText::begin(text, "h", MetricKind::Histogram, "a \"b\"");
        family.bucket("", 1.0, 2, Some(EXEMPLAR));
        family.bucket("{a=\"b\"}", 2.5, 3, None);
        family.bucket("{a=\"b\"}", f64::INFINITY, 3, None);
    }

    #[test]
    fn the_bound_is_the_last_label_of_a_bucket() {
        assert_eq!(
            written(MetricsForm::Prometheus, histogram),
            "# HELP h a \"b\"\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2.5\"} 3\n\
             h_bucket{a=\"b\",le=\"+Inf\"} 3\n"
        );
    }

    #[test]
    fn openmetrics_has_exemplars_whole_bounds_with_a_fraction_and_an_end() {
        let trace = "ab".repeat(16);
        let expected = format!(
            "# HELP h a \\\"b\\\"\n# TYPE h histogram\n\
             h_bucket{{le=\"1.0\"}} 2 # {{trace_id=\"{trace}\"}} 0.75 1700000000.042\n\
             h_bucket{{a=\"b\",le=\"2.5\"}} 3\nh_bucket{{a=\"b\",le=\"+Inf\"}} 3\n# EOF\n"
        );
        assert_eq!(written(MetricsForm::OpenMetrics, histogram), expected);
    }

    #[test]
    fn a_quantile_is_the_last_label_of_a_summary() {
        let text = written(MetricsForm::Prometheus, |text| {
            let mut family = MetricFamilyText::begin(text, "s", MetricKind::Summary, "");
            family.quantile("{a=\"b\"}", 0.5, f64::NAN);
            family.quantile("", 0.999, 7.0);
        });
        let expected = "# TYPE s summary\ns{a=\"b\",quantile=\"0.5\"} NaN\ns{quantile=\"0.999\"} 7\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn openmetrics_shows_counters_of_other_names_as_unknown() {
        let text = written(MetricsForm::OpenMetrics, |text| {
            MetricFamilyText::begin(text, "a_total", MetricKind::Counter, "h").sample("", 1.0);
            MetricFamilyText::begin(text, "nv_b", MetricKind::Counter, "").sample("", 2.0);
        });
        assert_eq!(text, "# HELP a h\n# TYPE a counter\na_total 1\n# TYPE nv_b unknown\nnv_b 2\n# EOF\n");
    }
}
