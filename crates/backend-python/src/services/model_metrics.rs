//! The metrics that the model of a worker has made. They disappear with the worker.
use std::{collections::HashMap, sync::Arc};

use inference::{
    metric_registry::{CustomMetric, CustomMetricFamily, MetricRegistry},
    metrics::{MetricKind, MetricLabels},
};
use vocabulary::{Error, LabelName};

use crate::{
    services::service_answer::{ServiceAnswer, ServiceValue},
    wire::marshal::{DamagedMessage, MarshalValue},
};

/// The most families, and the most metrics, that a worker holds.
const MOST_METRICS: usize = 10_000;

/// The most labels of a metric, and the most bounds of its buckets.
const MOST_PARTS: usize = 256;

/// The most bytes of a name, of a help text, and of the names and values of a metric's labels.
const MOST_TEXT_BYTES: usize = 64 << 10;

/// See the module documentation.
pub(crate) struct ModelMetrics {
    registry: Arc<MetricRegistry>,
    families: HashMap<u64, Arc<CustomMetricFamily>>,
    metrics: HashMap<u64, HeldModelMetric>,
    last_number: u64,
}

/// A metric that a worker holds.
struct HeldModelMetric {
    family: Arc<CustomMetricFamily>,
    labels: MetricLabels,
    value: Arc<CustomMetric>,
}

impl Drop for HeldModelMetric {
    fn drop(&mut self) {
        self.family.let_go(&self.labels);
    }
}

impl ModelMetrics {
    pub(crate) fn new(registry: Arc<MetricRegistry>) -> Self {
        Self { registry, families: HashMap::new(), metrics: HashMap::new(), last_number: 0 }
    }

    /// Answers a question about metrics, if it is one.
    ///
    /// # Errors
    /// The question is damaged.
    pub(crate) fn ask(
        &mut self,
        name: &str,
        arguments: &[MarshalValue<'_>],
    ) -> Result<Option<ServiceAnswer>, DamagedMessage> {
        Ok(Some(match (name, arguments) {
            ("metric_family", [name, help, kind]) => {
                self.family(name.as_str()?, help.as_str()?, kind.as_int()?).map(ServiceValue::Number)
            }
            ("metric", [family, labels, bounds]) => {
                let pair = |pair: &MarshalValue<'_>| {
                    let [name, value] = pair.as_array()?;
                    Ok((name.as_str()?.to_owned(), value.as_str()?.to_owned()))
                };
                let labels = labels.as_list()?.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
                let bounds: Option<Vec<f64>> = match bounds {
                    MarshalValue::None => None,
                    bounds => {
                        Some(bounds.as_list()?.iter().map(MarshalValue::as_float).collect::<Result<_, _>>()?)
                    }
                };
                self.metric(family.as_int()?, labels, bounds).map(ServiceValue::Number)
            }
            ("metric_value", [number]) => {
                let metric = self.metrics.get(&number.as_int()?);
                metric.ok_or_else(unknown).and_then(|metric| metric.value.get()).map(ServiceValue::Float)
            }
            _ => return Ok(None),
        }))
    }

    /// Changes or drops a metric.
    ///
    /// # Errors
    /// The item is damaged.
    pub(crate) fn tell(&mut self, name: &str, arguments: &[MarshalValue<'_>]) -> Result<(), DamagedMessage> {
        let [number, rest @ ..] = arguments else { return Err(DamagedMessage("an item is empty")) };
        let number: u64 = number.as_int()?;
        match name {
            "free_metric" => drop(self.metrics.remove(&number)),
            "free_family" => drop(self.families.remove(&number)),
            _ => {
                let [value] = rest else { return Err(DamagedMessage("a metric changes by one number")) };
                let value = value.as_float()?;
                let Some(HeldModelMetric { value: metric, .. }) = self.metrics.get(&number) else {
                    return Ok(());
                };
                let changed = match name {
                    "increment" => metric.increment(value),
                    "set" => metric.set(value),
                    "observe" => metric.observe(value),
                    _ => return Err(DamagedMessage("a metric changes in an unknown way")),
                };
                // The worker has checked the kind.
                if let Err(error) = changed {
                    log::warn!("a metric of a Python model has not changed: {}", error.message);
                }
            }
        }
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn family(&mut self, name: &str, help: &str, kind: u8) -> Result<u64, Error> {
        let kind =
            [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram].get(usize::from(kind)).copied();
        let kind =
            kind.ok_or_else(|| Error::invalid("Unsupported kind passed to MetricFamily constructor."))?;
        check_limit("metric families", self.families.len() + 1, MOST_METRICS)?;
        check_limit("bytes in the texts of a metric family", name.len() + help.len(), MOST_TEXT_BYTES)?;
        let family = self.registry.family(kind, name, help)?;
        let number = self.number();
        self.families.insert(number, family);
        Ok(number)
    }

    fn metric(
        &mut self,
        family: u64,
        labels: Vec<(String, String)>,
        bounds: Option<Vec<f64>>,
    ) -> Result<u64, Error> {
        let family = self.families.get(&family).ok_or_else(unknown)?.clone();
        let text = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        check_limit("metrics", self.metrics.len() + 1, MOST_METRICS)?;
        check_limit("labels of a metric", labels.len(), MOST_PARTS)?;
        check_limit("bounds of a metric", bounds.as_ref().map_or(0, Vec::len), MOST_PARTS)?;
        check_limit("bytes in the labels of a metric", text, MOST_TEXT_BYTES)?;
        let labels = labels.into_iter().map(|(name, value)| Ok((LabelName::new(name)?, value)));
        let labels = labels.collect::<Result<MetricLabels, Error>>()?;
        let value = family.value(&labels, bounds)?;
        let number = self.number();
        self.metrics.insert(number, HeldModelMetric { family, labels, value });
        Ok(number)
    }
}

/// Refuses more than a process may have.
fn check_limit(what: &str, count: usize, most: usize) -> Result<(), Error> {
    if count <= most {
        return Ok(());
    }
    Err(Error::exhausted(format!(
        "the process of the model would have {count} {what}, and the limit is {most}"
    )))
}

fn unknown() -> Error {
    Error::not_found("the metric does not exist any more")
}

#[cfg(test)]
mod tests {
    use inference::{MetricSource, metrics::MetricsText};

    use super::*;

    fn text(value: &str) -> MarshalValue<'static> {
        MarshalValue::Str(value.to_owned())
    }

    fn number(answer: Option<&ServiceAnswer>) -> MarshalValue<'static> {
        let Some(Ok(ServiceValue::Number(number))) = answer else { panic!("{answer:?}") };
        MarshalValue::Int((*number).into())
    }

    #[test]
    fn metrics_are_shown_as_long_as_their_worker_lives() {
        let registry = Arc::<MetricRegistry>::default();
        let shown = |registry: &MetricRegistry| {
            let mut text = MetricsText::default();
            registry.append_to(&mut text);
            text.finish()
        };
        let mut metrics = ModelMetrics::new(registry.clone());
        let family = [text("asked"), text(""), MarshalValue::Int(0)];
        let family = number(metrics.ask("metric_family", &family).unwrap().as_ref());
        let labels = MarshalValue::List(vec![MarshalValue::List(vec![text("a"), text("b")])]);
        let metric = number(metrics.ask("metric", &[family, labels, MarshalValue::None]).unwrap().as_ref());
        metrics.tell("increment", &[metric.clone(), MarshalValue::Float(2.0)]).unwrap();
        assert_eq!(shown(&registry), "# TYPE asked counter\nasked{a=\"b\"} 2\n");
        let value = metrics.ask("metric_value", &[metric]).unwrap();
        assert_eq!(value, Some(Ok(ServiceValue::Float(2.0))));
        drop(metrics);
        assert_eq!(shown(&registry), "");
    }

    #[test]
    fn a_worker_has_a_limit_of_metrics_and_of_their_parts() {
        let mut metrics = ModelMetrics::new(Arc::default());
        let told = |answer: Result<Option<ServiceAnswer>, DamagedMessage>| {
            answer.unwrap().unwrap().map(|_| ()).map_err(|error| error.message.into_owned())
        };
        let refusal = |count: usize, what: &str, limit: usize| {
            Err(format!("the process of the model would have {count} {what}, and the limit is {limit}"))
        };
        let family = |help: &str| [text("asked"), text(help), MarshalValue::Int(0)];
        let number = number(metrics.ask("metric_family", &family("")).unwrap().as_ref());
        let metric = |labels: usize, value: &str| {
            let pair = |label: usize| MarshalValue::List(vec![text(&format!("l{label}")), text(value)]);
            [number.clone(), MarshalValue::List((0..labels).map(pair).collect()), MarshalValue::None]
        };
        for count in 0..MOST_METRICS {
            assert_eq!(told(metrics.ask("metric", &metric(1, &count.to_string()))), Ok(()));
        }
        let refused = refusal(MOST_METRICS + 1, "metrics", MOST_METRICS);
        assert_eq!(told(metrics.ask("metric", &metric(1, ""))), refused);
        metrics.tell("free_metric", &[MarshalValue::Int(2)]).unwrap();
        let refused = refusal(257, "labels of a metric", 256);
        assert_eq!(told(metrics.ask("metric", &metric(257, ""))), refused);
        let long = "x".repeat(65_535);
        let refused = refusal(65_537, "bytes in the labels of a metric", 65_536);
        assert_eq!(told(metrics.ask("metric", &metric(1, &long))), refused);
        let refused = refusal(65_540, "bytes in the texts of a metric family", 65_536);
        assert_eq!(told(metrics.ask("metric_family", &family(&long))), refused);
        for _ in 1..MOST_METRICS {
            assert_eq!(told(metrics.ask("metric_family", &family(""))), Ok(()));
        }
        let refused = refusal(MOST_METRICS + 1, "metric families", MOST_METRICS);
        assert_eq!(told(metrics.ask("metric_family", &family(""))), refused);
    }

    #[test]
    fn wrong_questions_are_refused() {
        let mut metrics = ModelMetrics::new(Arc::default());
        let answer = metrics.ask("metric_family", &[text("1a"), text(""), MarshalValue::Int(0)]).unwrap();
        assert_eq!(answer.unwrap().unwrap_err().message, "Invalid metric name");
        assert!(metrics.ask("metric_value", &[MarshalValue::Int(7)]).unwrap().unwrap().is_err());
        assert_eq!(metrics.ask("else", &[]), Ok(None));
        assert!(metrics.tell("melt", &[MarshalValue::Int(1), MarshalValue::Float(0.0)]).is_ok());
        assert!(metrics.tell("set", &[]).is_err());
    }
}
