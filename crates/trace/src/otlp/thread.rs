//! The thread that makes spans of traces, and sends them in batches.
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use vocabulary::Error;

use super::{
    client::CollectorClient,
    json, protobuf,
    queue::SpanQueue,
    spans::{self, Span},
};
use crate::{
    config::{OtlpConfig, OtlpProtocol},
    metrics::TraceCounters,
};

/// The thread does not look for spans more often than that.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// The state of the thread.
pub(super) struct OtlpThread {
    client: CollectorClient,
    protocol: OtlpProtocol,
    resource: Vec<(String, String)>,
    timeout: Duration,
    delay: Duration,
    batch: usize,
    phases: bool,
    counters: Arc<TraceCounters>,
    /// The spans that wait for the rest of their batch. A trace may be in several batches.
    spans: VecDeque<Span>,
}

impl OtlpThread {
    pub(super) fn new(config: &OtlpConfig, counters: Arc<TraceCounters>) -> Result<Self, Error> {
        Ok(Self {
            client: CollectorClient::new(config)?,
            protocol: config.protocol,
            resource: resource(&config.resource),
            timeout: config.timeout,
            delay: config.schedule_delay.max(MIN_DELAY),
            batch: config.max_export_batch_size.max(1),
            phases: config.phases,
            counters,
            spans: VecDeque::new(),
        })
    }

    /// Works until the queue ends.
    pub(super) fn run(mut self, queue: &SpanQueue) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                return self.counters.failed(0, &format!("traces cannot be sent: {error}"));
            }
        };
        runtime.block_on(async {
            loop {
                let whole_batch = tokio::time::timeout(self.delay, queue.work.notified());
                let _ = whole_batch.await;
                let end = queue.must_end_by();
                self.take(queue);
                while !self.spans.is_empty() {
                    if end.is_some_and(|end| end <= Instant::now()) {
                        queue.lost_at_end();
                        return;
                    }
                    self.send_batch(queue, end).await;
                    self.take(queue);
                }
                if end.is_some() {
                    return;
                }
            }
        });
    }

    fn take(&mut self, queue: &SpanQueue) {
        for trace in queue.take() {
            self.spans.extend(spans::of(&trace, self.phases));
        }
    }

    /// Sends spans that belong together, at most until `end`.
    async fn send_batch(&mut self, queue: &SpanQueue, end: Option<Instant>) {
        let batch: Vec<Span> = self.spans.drain(..self.spans.len().min(self.batch)).collect();
        let body = match self.protocol {
            OtlpProtocol::HttpJson => json::request(&self.resource, &batch),
            OtlpProtocol::HttpProtobuf => protobuf::request(&self.resource, &batch),
        };
        let most = end.map_or(self.timeout, |end| self.timeout.min(end - Instant::now()));
        let traces = batch.iter().filter(|span| span.is_root).count() as u64;
        let sent = tokio::time::timeout(most, self.client.send(body)).await;
        queue.gone(batch.len());
        match sent.unwrap_or_else(|_| Err(format!("did not answer within {} seconds", most.as_secs_f32()))) {
            Ok(()) => {
                self.counters.exported(traces);
                self.counters.works(&format!("the collector at {}", self.client.url()));
            }
            Err(why) => {
                self.counters.failed(traces, &format!("the collector at {} {why}", self.client.url()));
                if end.is_some() {
                    queue.lost_at_end();
                }
            }
        }
    }
}

/// The attributes of the server. Those of the operator take precedence.
fn resource(of_operator: &[(String, String)]) -> Vec<(String, String)> {
    let own = [
        ("telemetry.sdk.name", "nereid"),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ("service.name", "triton-inference-server"),
    ];
    let mut attributes: Vec<(String, String)> = Vec::new();
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    for (key, value) in own.chain(of_operator.iter().cloned()) {
        attributes.retain(|(other, _)| *other != key);
        attributes.push((key, value));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_operator_take_precedence() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let all = resource(&[pair("service.name", "mine"), pair("a", "1"), pair("a", "2")]);
        assert_eq!(all.len(), 5);
        assert_eq!(all[3..], [pair("service.name", "mine"), pair("a", "2")]);
    }
}
