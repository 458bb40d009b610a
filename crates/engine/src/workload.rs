//! How much a server has to do: what autoscalers and load balancers ask.
use std::time::Duration;

use vocabulary::Name;

use crate::models::{ModelTable, loaded_version::LoadedVersion};

/// How much the server has to do at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerWorkload {
    /// Requests that were accepted and have not ended, of all models. A step of an ensemble counts at its model, too.
    pub requests_in_flight: usize,
    /// Those of them that wait for an instance.
    pub requests_waiting: usize,
    /// The longest time that the instances of a model probably need for what waits there.
    pub queued_work: Duration,
    /// The highest share of the last 5 to 10 seconds in which the instances of a model ran batches, from 0 to 1.
    pub busy_share: f64,
    /// Requests that have ended, of all models that are loaded.
    pub requests_ended: u64,
    /// Those of them that have failed.
    pub requests_failed: u64,
    /// Sequences that may still get requests.
    pub live_sequences: usize,
    /// The versions that have something to do, or had in the last 5 to 10 seconds, by name and number.
    pub models: Vec<ModelWorkload>,
}

/// How much a model version has to do at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelWorkload {
    /// The model.
    pub name: Name,
    /// The number of the version.
    pub version: i64,
    /// Requests that were accepted and have not ended.
    pub requests_in_flight: usize,
    /// Those of them that wait for an instance.
    pub requests_waiting: usize,
    /// How long the instances probably need for what waits. `None` for an ensemble, and before the first execution.
    pub queued_work: Option<Duration>,
    /// The share of the last 5 to 10 seconds in which the instances ran batches, from 0 to 1. `None` for an ensemble.
    pub busy_share: Option<f64>,
}

impl ModelWorkload {
    fn of(loaded: &LoadedVersion) -> Self {
        let workload = loaded.work().workload();
        Self {
            name: loaded.model().name().clone(),
            version: loaded.model().version(),
            requests_in_flight: loaded.in_flight(),
            requests_waiting: workload.requests,
            queued_work: workload.time,
            busy_share: workload.busy_share,
        }
    }

    fn is_idle(&self) -> bool {
        self.requests_in_flight == 0
            && self.requests_waiting == 0
            && self.busy_share.is_none_or(|share| share == 0.0)
    }
}

impl ServerWorkload {
    /// The workload of the models of a table. `shows` tells of which models the numbers may be told.
    pub(crate) fn of(table: &ModelTable, shows: impl Fn(&str) -> bool) -> Self {
        let mut server = Self { live_sequences: table.live_sequences(), ..Self::default() };
        for loaded in table.built() {
            let model = ModelWorkload::of(&loaded);
            server.requests_in_flight += model.requests_in_flight;
            server.requests_waiting += model.requests_waiting;
            server.requests_ended += loaded.record().requests_ended();
            server.requests_failed += loaded.record().requests_failed();
            server.queued_work = server.queued_work.max(model.queued_work.unwrap_or_default());
            server.busy_share = server.busy_share.max(model.busy_share.unwrap_or_default());
            if !model.is_idle() && shows(&model.name) {
                server.models.push(model);
            }
        }
        server
    }
}
