//! What the server counted while a window was measured, from the statistics extension of the protocol.

use std::iter::zip;
use std::time::Duration;

use anyhow::{Context, Result};
use client::endpoint::ServerEndpoint;
use client::grpc::GrpcConnection;
use client::http::HttpConnection;
use serde_json::Value;
use tokio::time::timeout;

use crate::http_request;
use crate::model::TargetModel;
use crate::options::{PerfOptions, Protocol};

/// How long the generator waits for statistics. A server that does not give them is not asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A number of events and the sum of their times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CountedTime {
    pub(crate) count: u64,
    pub(crate) nanoseconds: u64,
}

impl CountedTime {
    /// The mean time in whole microseconds. Zero without events.
    pub(crate) fn mean_micros(self) -> u64 {
        self.nanoseconds.checked_div(self.count).unwrap_or(0) / 1000
    }
}

/// What happens to a request in the server, in the order of [`ModelFigures::times`].
#[derive(Clone, Copy)]
pub(crate) enum ServerPhase {
    Success,
    Queue,
    ComputeInput,
    ComputeInfer,
    ComputeOutput,
    CacheHit,
    CacheMiss,
}

/// The names of the phases in the protocol.
const PHASES: [&str; 7] =
    ["success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"];

/// The figures of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelFigures {
    pub(crate) name: String,
    pub(crate) inferences: u64,
    pub(crate) executions: u64,
    pub(crate) times: [CountedTime; PHASES.len()],
}

impl ModelFigures {
    pub(crate) fn time(&self, phase: ServerPhase) -> CountedTime {
        self.times[phase as usize]
    }

    /// The time of the three phases of computation, per execution of a request.
    pub(crate) fn compute(&self) -> CountedTime {
        let phases = [ServerPhase::ComputeInput, ServerPhase::ComputeInfer, ServerPhase::ComputeOutput];
        let nanoseconds = phases.map(|phase| self.time(phase).nanoseconds).iter().sum();
        CountedTime { count: self.time(ServerPhase::ComputeInput).count, nanoseconds }
    }

    fn combine(&mut self, other: &ModelFigures, operation: fn(u64, u64) -> u64) {
        self.inferences = operation(self.inferences, other.inferences);
        self.executions = operation(self.executions, other.executions);
        for (own, other) in zip(&mut self.times, other.times) {
            own.count = operation(own.count, other.count);
            own.nanoseconds = operation(own.nanoseconds, other.nanoseconds);
        }
    }
}

/// The figures of the model of a run, and of the models of an ensemble.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ServerStatistics {
    pub(crate) model: ModelFigures,
    pub(crate) composing: Vec<ModelFigures>,
}

impl ServerStatistics {
    /// What was added since `start`.
    pub(crate) fn since(mut self, start: &ServerStatistics) -> ServerStatistics {
        // A model that was loaded again starts from zero.
        self.combine(start, u64::saturating_sub);
        self
    }

    /// Adds the figures of another window.
    pub(crate) fn add(&mut self, other: &ServerStatistics) {
        self.combine(other, u64::saturating_add);
    }

    fn combine(&mut self, other: &ServerStatistics, operation: fn(u64, u64) -> u64) {
        self.model.combine(&other.model, operation);
        for (own, other) in zip(&mut self.composing, &other.composing) {
            own.combine(other, operation);
        }
    }
}

/// Asks the server for statistics, over a connection of its own.
pub(crate) struct StatisticsReader {
    endpoint: ServerEndpoint,
    options: PerfOptions,
    composing: Vec<String>,
    connection: Option<ReaderConnection>,
    /// The server refused once, or did not answer. It is not asked again.
    is_refused: bool,
}

enum ReaderConnection {
    Http(HttpConnection),
    Grpc(GrpcConnection),
}

impl StatisticsReader {
    pub(crate) fn new(
        endpoint: &ServerEndpoint,
        options: &PerfOptions,
        model: &TargetModel,
    ) -> StatisticsReader {
        let mut composing = model.traits.composing_models.clone();
        composing.sort();
        composing.dedup();
        StatisticsReader {
            endpoint: endpoint.clone(),
            options: options.clone(),
            composing,
            connection: None,
            is_refused: false,
        }
    }

    /// The figures so far. `None` if the server has none: not every server has the extension.
    pub(crate) async fn read(&mut self) -> Option<ServerStatistics> {
        if self.is_refused {
            return None;
        }
        let all = timeout(PATIENCE, self.fetch()).await.ok().and_then(Result::ok);
        self.is_refused = all.is_none();
        let all = all?;
        let model = figures_of(&self.options.model, self.options.version.as_deref(), &all)?;
        let composing = self.composing.iter().map(|name| figures_of(name, None, &all));
        Some(ServerStatistics { model, composing: composing.collect::<Option<_>>()? })
    }

    /// The figures of each version of each model, with the version.
    async fn fetch(&mut self) -> Result<Vec<(String, ModelFigures)>> {
        let is_ensemble = !self.composing.is_empty();
        if self.connection.is_none() {
            self.connection = Some(match self.options.protocol {
                Protocol::Grpc => ReaderConnection::Grpc(GrpcConnection::open(&self.endpoint).await?),
                Protocol::HttpBinary | Protocol::HttpJson => {
                    ReaderConnection::Http(HttpConnection::open(&self.endpoint).await?)
                }
            });
        }
        match self.connection.as_mut().context("the connection was just opened")? {
            ReaderConnection::Http(connection) => {
                let path = match is_ensemble {
                    true => "/v2/models/stats".to_owned(),
                    false => format!("{}/stats", http_request::model_path(&self.options)),
                };
                let body = connection.fetch(&http_request::get(&self.options, &path)).await?;
                from_json(&serde_json::from_slice(&body)?)
            }
            ReaderConnection::Grpc(connection) => {
                connection.reopen().await?;
                let name = if is_ensemble { String::new() } else { self.options.model.clone() };
                let version = self.options.version.clone().filter(|_| !is_ensemble).unwrap_or_default();
                let request = proto::ModelStatisticsRequest { name, version };
                let answer: proto::ModelStatisticsResponse =
                    connection.fetch("ModelStatistics", &request).await?;
                Ok(answer.model_stats.into_iter().map(from_message).collect())
            }
        }
    }
}

/// The sum over the versions of a model, or the figures of one version.
fn figures_of(name: &str, version: Option<&str>, all: &[(String, ModelFigures)]) -> Option<ModelFigures> {
    let mut sum: Option<ModelFigures> = None;
    for (_, figures) in
        all.iter().filter(|(of, figures)| figures.name == name && version.is_none_or(|version| version == of))
    {
        match &mut sum {
            Some(sum) => sum.combine(figures, u64::saturating_add),
            None => sum = Some(figures.clone()),
        }
    }
    sum
}

fn from_json(answer: &Value) -> Result<Vec<(String, ModelFigures)>> {
    let models = answer["model_stats"].as_array().context("the server has no statistics")?;
    let read = |model: &Value| {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let times = PHASES.map(|phase| {
            let time = &model["inference_stats"][phase];
            CountedTime { count: number(&time["count"]), nanoseconds: number(&time["ns"]) }
        });
        let figures = ModelFigures {
            name: model["name"].as_str().unwrap_or_default().to_owned(),
            inferences: number(&model["inference_count"]),
            executions: number(&model["execution_count"]),
            times,
        };
        (model["version"].as_str().unwrap_or_default().to_owned(), figures)
    };
    Ok(models.iter().map(read).collect())
}

fn from_message(model: proto::ModelStatistics) -> (String, ModelFigures) {
    let all = model.inference_stats.unwrap_or_default();
    let phases = [
        all.success,
        all.queue,
        all.compute_input,
        all.compute_infer,
        all.compute_output,
        all.cache_hit,
        all.cache_miss,
    ];
    let times = phases.map(|time| {
        let time = time.unwrap_or_default();
        CountedTime { count: time.count, nanoseconds: time.ns }
    });
    let (inferences, executions) = (model.inference_count, model.execution_count);
    (model.version, ModelFigures { name: model.name, inferences, executions, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(count: u64) -> Value {
        let time = serde_json::json!({"count": count, "ns": count * 5000});
        let stats: serde_json::Map<String, Value> =
            PHASES.iter().map(|phase| ((*phase).to_owned(), time.clone())).collect();
        let model = |version: &str| {
            serde_json::json!({"name": "m", "version": version, "inference_count": count * 2,
                "execution_count": count, "inference_stats": stats})
        };
        serde_json::json!({"model_stats": [model("1"), model("2")]})
    }

    #[test]
    fn versions_add_up_unless_one_is_wanted() {
        let all = from_json(&answer(3)).unwrap();
        let sum = figures_of("m", None, &all).unwrap();
        assert_eq!((sum.inferences, sum.executions), (12, 6));
        assert_eq!(sum.time(ServerPhase::Queue), CountedTime { count: 6, nanoseconds: 30_000 });
        assert_eq!(figures_of("m", Some("2"), &all).unwrap().executions, 3);
        assert_eq!(figures_of("other", None, &all), None);
    }

    #[test]
    fn a_window_is_the_difference_of_two_answers() {
        let read = |count| ServerStatistics {
            model: figures_of("m", Some("1"), &from_json(&answer(count)).unwrap()).unwrap(),
            composing: Vec::new(),
        };
        let window = read(10).since(&read(4));
        assert_eq!(window.model.executions, 6);
        assert_eq!(window.model.time(ServerPhase::Success).mean_micros(), 5);
        assert_eq!(window.model.compute().mean_micros(), 15);
        let mut both = window.clone();
        both.add(&window);
        assert_eq!(both.model.inferences, 24);
    }

    #[test]
    fn messages_hold_the_same_as_json() {
        let time = Some(proto::StatisticDuration { count: 1, ns: 2000 });
        let stats = proto::InferStatistics { success: time, cache_miss: time, ..Default::default() };
        let model = proto::ModelStatistics {
            name: "m".into(),
            version: "7".into(),
            inference_count: 4,
            inference_stats: Some(stats),
            ..Default::default()
        };
        let (version, figures) = from_message(model);
        assert_eq!((version.as_str(), figures.inferences), ("7", 4));
        assert_eq!(figures.time(ServerPhase::CacheMiss).mean_micros(), 2);
        assert_eq!(figures.time(ServerPhase::Queue), CountedTime::default());
    }
}
