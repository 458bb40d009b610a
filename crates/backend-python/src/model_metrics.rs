//! The metrics that the model of a worker has made. They disappear with the worker.
use std::{collections::HashMap, sync::Arc};

use inference::{
    Error,
    metric_registry::{CustomMetric, CustomMetricFamily, MetricRegistry},
    metrics::{MetricKind, MetricLabels},
};

use crate::{
    marshal::{DamagedMessage, MarshalValue},
    services::{ServiceAnswer, ServiceValue},
};

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
                let labels = labels.as_list()?.iter().map(pair).collect::<Result<_, _>>()?;
                let bounds = match bounds {
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
        let family = self.registry.family(kind, name, help)?;
        let number = self.number();
        self.families.insert(number, family);
        Ok(number)
    }

    fn metric(&mut self, family: u64, labels: MetricLabels, bounds: Option<Vec<f64>>) -> Result<u64, Error> {
        let family = self.families.get(&family).ok_or_else(unknown)?.clone();
        let value = family.value(&labels, bounds)?;
        let number = self.number();
        self.metrics.insert(number, HeldModelMetric { family, labels, value });
        Ok(number)
    }
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
