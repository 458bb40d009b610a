//! When a request passed each door. Written once by whoever opens the door, read once at the end.
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use scheduling::Moment;

/// The doors of one request: arrival, queue, and the execution it became part of.
#[derive(Debug)]
pub struct Timeline {
    /// When the request was accepted from its caller.
    pub request_start: Moment,
    /// Rows the request brings; 1 for models without a batch dimension.
    pub rows: u32,
    queue_start: AtomicU64,
    execution: OnceLock<Arc<Marks>>,
}

impl Timeline {
    /// A request of `rows` rows that was accepted at `request_start`.
    pub fn new(request_start: Moment, rows: u32) -> Self {
        Self { request_start, rows, queue_start: AtomicU64::new(0), execution: OnceLock::new() }
    }

    /// Notes that the request entered its queue.
    pub fn queued(&self, at: Moment) {
        self.queue_start.store(at.as_nanos(), Relaxed);
    }

    /// When the request entered its queue; its arrival if it never did.
    pub fn queue_start(&self) -> Moment {
        match self.queue_start.load(Relaxed) {
            0 => self.request_start,
            nanos => Moment::from_nanos(nanos),
        }
    }

    /// Whether the request was accepted into a queue.
    pub fn was_queued(&self) -> bool {
        self.queue_start.load(Relaxed) != 0
    }

    /// Notes the execution the request has become part of. The first one counts.
    pub fn executing(&self, marks: Arc<Marks>) {
        let _ = self.execution.set(marks);
    }

    /// The execution the request has become part of, once it has.
    pub fn execution(&self) -> Option<&Arc<Marks>> {
        self.execution.get()
    }
}

/// The doors of one execution, shared by the requests of its batch.
///
/// The runtime opens the first; the backend notes when inputs are ready ([`Marks::compute_started`]) and when outputs
/// are computed ([`Marks::compute_ended`]). A backend that notes nothing is taken to compute all the time.
pub struct Marks {
    /// Rows of the whole batch; what `batch_stats` is keyed by.
    pub rows: u32,
    /// When the batch was handed to the backend.
    pub exec_start: Moment,
    clock: fn() -> Moment,
    compute_start: AtomicU64,
    compute_end: AtomicU64,
    counted: AtomicBool,
}

impl Marks {
    /// An execution of `rows` rows that starts now, by `clock`.
    pub fn start(rows: u32, clock: fn() -> Moment) -> Self {
        Self {
            rows,
            exec_start: clock(),
            clock,
            compute_start: AtomicU64::new(0),
            compute_end: AtomicU64::new(0),
            counted: AtomicBool::new(false),
        }
    }

    /// Inputs are in place; the model begins to compute.
    pub fn compute_started(&self) {
        self.compute_start.store((self.clock)().as_nanos(), Relaxed);
    }

    /// The model has computed; outputs are being handed out.
    pub fn compute_ended(&self) {
        self.compute_end.store((self.clock)().as_nanos(), Relaxed);
    }

    /// When inputs were in place.
    pub fn compute_start(&self) -> Moment {
        match self.compute_start.load(Relaxed) {
            0 => self.exec_start,
            nanos => Moment::from_nanos(nanos),
        }
    }

    /// When outputs were computed, or `now` if the backend did not say.
    pub fn compute_end(&self, now: Moment) -> Moment {
        match self.compute_end.load(Relaxed) {
            0 => now,
            nanos => Moment::from_nanos(nanos),
        }
    }

    /// True for the first caller only: the execution as such is counted once, by its first finished request.
    pub fn count_once(&self) -> bool {
        !self.counted.swap(true, Relaxed)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks")
            .field("rows", &self.rows)
            .field("exec_start", &self.exec_start)
            .finish_non_exhaustive()
    }
}
