//! Metrics as Prometheus text 0.0.4: the only writer of this format, and the interface of further sources of metrics.
use std::{collections::BTreeMap, fmt::Write as _};

/// A source of metrics that the server appends to its own.
pub trait MetricSource: Send + Sync {
    /// Appends the metrics as Prometheus text 0.0.4, in whole lines. Must not block for long, because a scrape waits
    /// for it.
    fn append_to(&self, text: &mut String);
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
}

impl MetricKind {
    /// All kinds, in order.
    pub const ALL: [Self; 3] = [Self::Counter, Self::Gauge, Self::Histogram];

    /// The word in the text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Label values by label name.
pub type MetricLabels = BTreeMap<String, String>;

/// `{key="value",...}` sorted by key; empty without labels.
pub fn label_text(labels: &MetricLabels) -> String {
    enclosed(labels.iter().map(pair))
}

/// As [`label_text`], for a bucket of a histogram. The bound of the bucket is the last label.
pub fn bucket_label_text(labels: &MetricLabels, bound: f64) -> String {
    enclosed(labels.iter().map(pair).chain([format!("le=\"{}\"", decimal(bound))]))
}

fn pair((key, value): (&String, &String)) -> String {
    format!("{key}=\"{}\"", escaped(value).replace('"', "\\\""))
}

fn enclosed(pairs: impl Iterator<Item = String>) -> String {
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn decimal(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        value => value.to_string(),
    }
}

/// Writes the samples of one family below its heading.
#[derive(Debug)]
pub struct MetricFamilyText<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl<'a> MetricFamilyText<'a> {
    /// Writes the heading. If `help` is empty, there is no help line.
    pub fn begin(text: &'a mut String, name: &'a str, kind: MetricKind, help: &str) -> Self {
        if !help.is_empty() {
            let _ = writeln!(text, "# HELP {name} {}", escaped(help));
        }
        let _ = writeln!(text, "# TYPE {name} {}", kind.as_str());
        Self { text, name }
    }

    /// Writes a sample; `labels` come from [`label_text`].
    pub fn sample(&mut self, labels: &str, value: f64) {
        self.suffixed("", labels, value);
    }

    /// Writes a sample of `<name><suffix>`. Histograms have several suffixes.
    pub fn suffixed(&mut self, suffix: &str, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{}{suffix}{labels} {}", self.name, decimal(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_a_heading_and_a_line_for_each_sample() {
        let mut text = String::new();
        let mut family = MetricFamilyText::begin(&mut text, "f", MetricKind::Gauge, "two\nlines of \\");
        family.sample("", 0.5);
        family.sample("{a=\"b\"}", 3.0);
        family.suffixed("_sum", "", f64::INFINITY);
        MetricFamilyText::begin(&mut text, "g", MetricKind::Counter, "").sample("", f64::NAN);
        assert_eq!(
            text,
            "# HELP f two\\nlines of \\\\\n# TYPE f gauge\nf 0.5\nf{a=\"b\"} 3\nf_sum +Inf\n\
             # TYPE g counter\ng NaN\n"
        );
    }

    #[test]
    fn label_values_are_escaped_and_sorted_by_name() {
        let labels = [("k", "a\"b\\c\nd"), ("a", "1")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(label_text(&labels), r#"{a="1",k="a\"b\\c\nd"}"#);
        assert_eq!(bucket_label_text(&labels, 2.5), r#"{a="1",k="a\"b\\c\nd",le="2.5"}"#);
        assert_eq!(label_text(&MetricLabels::new()), "");
        assert_eq!(bucket_label_text(&MetricLabels::new(), f64::INFINITY), r#"{le="+Inf"}"#);
    }
}
