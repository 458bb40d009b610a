//! The settings of the endpoint.
use std::sync::Arc;

use http::StatusCode;
use kserve::log_control::LogControl;
use shared_memory::ClientRegions;
use trace::Tracer;

use crate::{
    access::{AccessLog, ApiKeys, Restrictions},
    forward::HeaderForward,
    port::{ClientLimits, Drain},
    server_name::ServerName,
};

/// What `/v2/health/ready` answers while a server that will stop still serves. Balancers differ in what they understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrainStatus {
    /// 400, as of any server that is not ready.
    #[default]
    BadRequest,
    /// 404: HAProxy sends no new clients, but those that it knows (`http-check disable-on-404`).
    NotFound,
    /// 503.
    Unavailable,
}

impl DrainStatus {
    pub(super) const fn code(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The settings of the endpoint. They do not change while the server runs.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// `--http-max-input-size`: the most bytes of JSON, of a raw request, and of a request after decompression.
    pub max_input_size: usize,
    /// The limits that clients must keep (P-W2, P-W41).
    pub limits: ClientLimits,
    /// The drain of the port: from its begin on, the server waits briefly for bodies.
    pub drain: Drain,
    /// Which parts of the protocol need a header.
    pub restrictions: Restrictions,
    /// `--drain-status`: the status of `/v2/health/ready` of a server that will stop.
    pub drain_status: DrainStatus,
    /// The name of the server that each answer has. `None`: answers do not have it.
    pub server_name: Option<ServerName>,
    /// The keys that clients need. `None`: they need none.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// Which headers become request parameters.
    pub forward: Option<HeaderForward>,
    /// `--http-openapi`: whether the endpoint describes itself (`/openapi.json`), and has a page that shows it (`/docs`).
    pub describes_itself: bool,
    /// `--allow-status-page`: whether the endpoint tells people what the server does (`/v2/explain`, and the page `/status`).
    pub shows_status: bool,
    /// The regions of shared memory that clients have registered, with any protocol.
    pub regions: ClientRegions,
    /// Samples requests, and has the settings of tracing.
    pub tracer: Arc<Tracer>,
    /// The log that clients may see and change.
    pub log: Option<Arc<dyn LogControl>>,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<dyn AccessLog>>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_input_size: 64 << 20,
            limits: ClientLimits::default(),
            drain: Drain::new(),
            restrictions: Restrictions::default(),
            drain_status: DrainStatus::default(),
            server_name: None,
            api_keys: None,
            forward: None,
            describes_itself: true,
            shows_status: true,
            regions: ClientRegions::default(),
            tracer: Arc::new(Tracer::off()),
            log: None,
            access_log: None,
        }
    }
}
