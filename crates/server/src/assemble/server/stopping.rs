//! How a server stops, in the order of its phases.
use std::{pin::pin, sync::Arc, time::Duration};

use engine::Engine;
use frontend::port::Drain;
use tokio::time::Instant;
use trace::Tracer;
use vocabulary::Error;

use super::{Endpoint, Server, Stopped, stopped};
use crate::assemble::endpoint_service::EndpointService;

impl Server {
    /// Stops the server: announces the stop and serves during the shutdown delay, then accepts no new
    /// connections, finishes the requests in flight and the sequences of open streams, and unloads the models. All steps
    /// after the delay share the exit timeout. Loads that run are left behind.
    ///
    /// # Errors
    /// INTERNAL if the timeout expires. Requests that still run are then lost when the process ends.
    pub async fn stop(self) -> Result<Stopped, Error> {
        self.announce_stop().await;
        let begun = Instant::now();
        let left = || self.times.exit_timeout.saturating_sub(begun.elapsed());
        self.engine.abandon_loads().await;
        let (serving, scraping): (Vec<_>, Vec<_>) =
            self.endpoints.into_iter().partition(|endpoint| endpoint.service != EndpointService::Metrics);
        let drains: Vec<_> = serving.iter().map(|endpoint| endpoint.drain.clone()).collect();
        drains.iter().for_each(Drain::begin);
        let closing = async {
            let mut all_closed = true;
            for endpoint in serving {
                all_closed &= endpoint.finish(left, || log_in_flight(&self.engine, begun)).await;
            }
            all_closed
        };
        let mut closing = pin!(closing);
        let all_closed = tokio::select! {
            all_closed = &mut closing => all_closed,
            () = end_of_sequences(&self.engine, self.times.sequences) => {
                drains.iter().for_each(Drain::end_sequences);
                closing.await
            }
        };
        let ended = self.engine.stop(left()).await;
        // The metrics are there until all else has ended.
        for endpoint in scraping {
            endpoint.drain.begin_since(begun);
            endpoint.finish(left, || ()).await;
        }
        finish_traces(self.tracer, left()).await;
        if let Some(access_log) = self.access_log {
            // Blocks for a second at most, and nothing else runs any more.
            let _ = tokio::task::spawn_blocking(move || access_log.flush()).await;
        }
        // If the timeout has closed connections, the stop fails, even if the engine had no work for their clients.
        if !all_closed {
            return Err(Error::internal("Exit timeout expired. Exiting immediately."));
        }
        ended?;
        Ok(stopped(&self.engine).await)
    }

    /// Says on every connection that the server is not ready, tells its clients to go to another server, and serves as
    /// before for the time of the shutdown delay.
    async fn announce_stop(&self) {
        let delay = self.times.delay;
        if delay.is_zero() {
            return;
        }
        self.engine.announce_stop();
        let serving = self.endpoints.iter().filter(|endpoint| endpoint.service != EndpointService::Metrics);
        serving.for_each(|endpoint| endpoint.drain.announce());
        // Afterwards: who reads the line finds that it is so.
        log::info!(
            "The server is not ready any more. It serves for another {} seconds (--shutdown-delay-secs), then it stops",
            delay.as_secs()
        );
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = end_of_all_work(&self.engine) => log::info!("The last sequence has ended, and no other may begin"),
        }
    }
}

/// Says which requests the server waits for.
fn log_in_flight(engine: &Engine, begun: Instant) {
    for ((model, version), requests) in engine.in_flight_by_version() {
        let plural = if requests == 1 { "" } else { "s" };
        let since = begun.elapsed().as_secs();
        log::info!(
            "the server has waited {since} s for {requests} request{plural} of model '{model}' (version {version}); Ctrl-C \
             ends it at once"
        );
    }
}

/// Waits until no request can be answered any more: all models have sequences, and none runs. Waits for ever if a model has
/// none.
async fn end_of_all_work(engine: &Engine) {
    if !engine.serves_only_running_sequences() {
        return std::future::pending().await;
    }
    // A request that came before the stop was announced may still begin a sequence.
    while engine.live_sequences() > 0 || engine.in_flight() > 0 {
        engine.sequences_ended().await;
        engine.requests_ended().await;
    }
}

/// Waits until no sequence runs any more, at most for that time.
async fn end_of_sequences(engine: &Engine, most: Duration) {
    if tokio::time::timeout(most, engine.sequences_ended()).await.is_err() {
        log::warn!(
            "{} sequences have not ended; the server waits for them no longer",
            engine.live_sequences()
        );
    }
}

/// Writes or sends the traces that are collected. A disk or a collector that hangs delays the exit for a limited time.
async fn finish_traces(tracer: Arc<Tracer>, left: Duration) {
    let most = left.clamp(TRACES_LEAST, TRACES_MOST);
    let finished = tokio::task::spawn_blocking(move || tracer.finish(most)).await;
    if !finished.unwrap_or(false) {
        log::warn!("not all traces could be written or sent before the exit");
    }
}

/// How long an exit waits for traces at least, also if its timeout has expired.
const TRACES_LEAST: Duration = Duration::from_millis(500);

/// How long it waits for them at most.
const TRACES_MOST: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Waits until the last connection has closed or no time is left. Returns true if the last connection has closed.
    /// Logs once a second what it waits for; `log_more` logs the rest of that.
    async fn finish(self, left: impl Fn() -> Duration, log_more: impl Fn()) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        while tokio::time::timeout(left().min(SECOND), self.drain.emptied()).await.is_err() {
            let open = self.drain.open();
            log::info!("Timeout {}: Found {open} {}", left().as_secs(), self.service.connections());
            log_more();
            if left().is_zero() {
                break;
            }
        }
        // The count is read first, because aborting the task drops its connections.
        let emptied = self.drain.open() == 0;
        self.task.abort();
        emptied
    }
}
