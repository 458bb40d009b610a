//! The trace of one request while the server works on it: the sink of its times and tensors.
use std::{
    mem,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
};

use bytes::Bytes;
use inference::{
    TensorActivity, Timestamp, TraceActivity, TraceContext, TraceId, TraceIdentity, TraceSink, lock::Mutex,
};
use vocabulary::{ByteReservation, Name, Tensor};

use crate::{
    active::ActiveSetting,
    propagation,
    record::{
        ELEMENT_BYTES, FinishedRequest, FinishedTrace, ModelSpans, TRACE_BYTES, TraceElement, TraceOrigin,
        TraceTensor, TracedModel, new_span,
    },
};

/// What a frontend does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrontendActivity {
    /// The head of an HTTP request is there.
    HttpReceiveStart,
    /// Its whole body is there.
    HttpReceiveEnd,
    /// A response is ready to be sent.
    HttpSendStart,
    /// The connection has taken the response.
    HttpSendEnd,
    /// The server waits for a gRPC message.
    GrpcReceiveStart,
    /// The message is there.
    GrpcReceiveEnd,
    /// A gRPC message is ready to be sent.
    GrpcSendStart,
    /// The connection has taken the message.
    GrpcSendEnd,
    /// The frontend has got a response from the model.
    ResponseComplete,
}

impl FrontendActivity {
    /// The name in traces, which is Triton's.
    const fn as_str(self) -> &'static str {
        match self {
            Self::HttpReceiveStart => "HTTP_RECV_START",
            Self::HttpReceiveEnd => "HTTP_RECV_END",
            Self::HttpSendStart => "HTTP_SEND_START",
            Self::HttpSendEnd => "HTTP_SEND_END",
            Self::GrpcReceiveStart => "GRPC_WAITREAD_START",
            Self::GrpcReceiveEnd => "GRPC_WAITREAD_END",
            Self::GrpcSendStart => "GRPC_SEND_START",
            Self::GrpcSendEnd => "GRPC_SEND_END",
            Self::ResponseComplete => "INFER_RESPONSE_COMPLETE",
        }
    }
}

/// The name of a time in traces, which is Triton's.
const fn name_of(activity: TraceActivity) -> &'static str {
    match activity {
        TraceActivity::RequestStart => "REQUEST_START",
        TraceActivity::QueueStart => "QUEUE_START",
        TraceActivity::ComputeStart => "COMPUTE_START",
        TraceActivity::ComputeInputEnd => "COMPUTE_INPUT_END",
        TraceActivity::ComputeOutputStart => "COMPUTE_OUTPUT_START",
        TraceActivity::ComputeEnd => "COMPUTE_END",
        TraceActivity::RequestEnd => "REQUEST_END",
    }
}

/// The trace of a client's request, as a frontend has it. All clones belong to the same trace, which ends when the last
/// user drops it.
#[derive(Clone)]
pub struct RequestTrace {
    record: Arc<TraceRecord>,
}

impl RequestTrace {
    pub(crate) fn new(root: TraceRoot) -> Self {
        let identity = TraceIdentity::unique(0);
        Self { record: Arc::new(TraceRecord::new(Arc::new(root), identity, None)) }
    }

    /// The frontend has reached this point.
    pub fn reached(&self, activity: FrontendActivity, at: Timestamp) {
        if self.record.wants_timestamps() {
            self.record.collect(TraceElement::Time(activity.as_str(), at.as_nanos()), 0);
        }
    }

    /// The trace for the request.
    pub fn context(&self) -> TraceContext {
        TraceContext::new(self.record.clone())
    }
}

impl std::fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RequestTrace").field(&self.record.identity).finish()
    }
}

/// What the traces of a request and of those that follow from it share. It is dropped after the last of them.
pub(crate) struct TraceRoot {
    pub(crate) setting: Arc<ActiveSetting>,
    /// `None` in mode `triton`.
    pub(crate) origin: Option<TraceOrigin>,
    pub(crate) belongs_to_trace: bool,
    pub(crate) finished: Mutex<Vec<FinishedRequest>>,
}

/// The sink of one request.
pub(crate) struct TraceRecord {
    root: Arc<TraceRoot>,
    identity: TraceIdentity,
    spans: ModelSpans,
    has_started: AtomicBool,
    collected: Mutex<CollectedElements>,
    /// A trace ends after those of the requests that follow from its request.
    _parent: Option<Arc<dyn TraceSink>>,
}

struct CollectedElements {
    about: Option<TracedModel>,
    elements: Vec<TraceElement>,
    reservation: ByteReservation,
}

impl TraceRecord {
    fn new(root: Arc<TraceRoot>, identity: TraceIdentity, parent: Option<(u64, Arc<dyn TraceSink>)>) -> Self {
        let mut reservation = root.setting.exporter.budget().reservation();
        // Without room, the elements are dropped and counted.
        let _ = reservation.grow(TRACE_BYTES);
        let spans = match &root.origin {
            Some(origin) => ModelSpans {
                own: new_span(),
                parent: parent.as_ref().map_or(origin.root_span, |(span, _)| *span),
            },
            None => ModelSpans::default(),
        };
        let collected = Mutex::new(CollectedElements { about: None, elements: Vec::new(), reservation });
        let parent = parent.map(|(_, parent)| parent);
        Self { root, identity, spans, has_started: AtomicBool::new(false), collected, _parent: parent }
    }

    /// Adds an element with so many bytes of its own, or drops it if the memory for traces is full.
    fn collect(&self, element: TraceElement, bytes: usize) {
        let mut collected = self.collected.lock();
        if collected.reservation.grow(ELEMENT_BYTES + bytes).is_ok() {
            collected.elements.push(element);
        } else {
            drop(collected);
            self.root.setting.exporter.counters().element_dropped();
        }
    }

    fn wants_timestamps(&self) -> bool {
        self.root.setting.settings.levels.timestamps
    }
}

impl TraceSink for TraceRecord {
    fn reached(&self, activity: TraceActivity, at: Timestamp) {
        self.has_started.store(true, Relaxed);
        if self.wants_timestamps() {
            self.collect(TraceElement::Time(name_of(activity), at.as_nanos()), 0);
        }
    }

    fn accepted(&self, model: &Name, version: i64, request_id: &Name) {
        self.has_started.store(true, Relaxed);
        let about = TracedModel { name: model.clone(), version, request_id: request_id.clone() };
        let is_first = self.collected.lock().about.replace(about).is_none();
        if is_first {
            self.collect(TraceElement::Accepted, 0);
        }
    }

    /// Only spans show batches.
    fn batched(&self, rows: u32) {
        if self.root.origin.is_some() && self.wants_timestamps() {
            self.collect(TraceElement::Batch(rows), 0);
        }
    }

    fn wants_tensors(&self) -> bool {
        self.root.origin.is_none() && self.root.setting.settings.levels.tensors
    }

    /// Copies the bytes: the memory may belong to another process, or to a plug-in that waits for it. As Triton: a
    /// trace does not contain tensors in memory of a device.
    fn tensor(&self, activity: TensorActivity, tensor: &Tensor) {
        let exporter = &self.root.setting.exporter;
        // Without room, the bytes are not even copied.
        if exporter.budget().reservation().grow(tensor.byte_size()).is_err() {
            return exporter.counters().element_dropped();
        }
        let Ok(data) = tensor.host() else { return };
        let mut bytes = Vec::with_capacity(data.len());
        data.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
        let tensor = TraceTensor {
            activity,
            name: tensor.name().clone(),
            datatype: tensor.datatype(),
            shape: tensor.shape().to_vec(),
            data: Bytes::from(bytes),
        };
        let size = tensor.data.len();
        self.collect(TraceElement::Tensor(tensor), size);
    }

    fn custom(&self, name: &str, at: Timestamp) {
        if self.wants_timestamps() {
            self.collect(TraceElement::Custom(Name::from(name), at.as_nanos()), name.len());
        }
    }

    fn identity(&self) -> TraceIdentity {
        self.identity
    }

    fn propagated(&self) -> Option<String> {
        let origin = self.root.origin.as_ref()?;
        Some(propagation::as_json(origin.trace_id, self.spans.own, origin.state.as_deref()))
    }

    /// The id that collectors know. Traces in files have none.
    fn trace_id(&self) -> Option<TraceId> {
        self.root.origin.as_ref().map(|origin| TraceId::new(origin.trace_id.to_be_bytes()))
    }

    fn child(self: Arc<Self>) -> Option<Arc<dyn TraceSink>> {
        let identity = TraceIdentity::unique(self.identity.id);
        let parent = Some((self.spans.own, self.clone() as Arc<dyn TraceSink>));
        Some(Arc::new(Self::new(self.root.clone(), identity, parent)))
    }
}

impl Drop for TraceRecord {
    fn drop(&mut self) {
        if !*self.has_started.get_mut() {
            return;
        }
        let collected = self.collected.get_mut();
        // Without room it was not counted, so it must not wait either: a request may send any number of others.
        if collected.reservation.bytes() < TRACE_BYTES {
            return self.root.setting.exporter.counters().element_dropped();
        }
        let reservation = collected.reservation.split_off(usize::MAX);
        let finished = FinishedRequest {
            identity: self.identity,
            spans: self.spans,
            about: collected.about.take(),
            elements: mem::take(&mut collected.elements),
            _reservation: reservation,
        };
        self.root.finished.lock().push(finished);
    }
}

impl Drop for TraceRoot {
    fn drop(&mut self) {
        let requests = mem::take(self.finished.get_mut());
        if requests.is_empty() {
            return self.setting.take_back(self.belongs_to_trace);
        }
        let is_last = self.setting.end_one();
        self.setting.exporter.export(FinishedTrace {
            setting: self.setting.id,
            log_frequency: self.setting.settings.log_frequency,
            is_last,
            origin: self.origin.take(),
            requests,
        });
    }
}
