//! The sockets of all ports, how many connections they may have, and who may use them.
use std::sync::Arc;

use frontend::{
    access::ApiKeys,
    port::{
        BoundSocket, ConnectionCounter, ConnectionPermits, Reload, ReloadThread,
        tls::{CertificateMetrics, TlsOptions, TlsPort, TlsProtocol},
        unix_path,
    },
};
use vocabulary::Error;

use super::endpoint_service::{EndpointService, StartError, creating};
use crate::{
    descriptors,
    options::{Connections, ListenSettings, ResolvedOptions},
    service_manager::GivenSockets,
};

/// The bound sockets. The server binds them before it loads any model, so that a port conflict fails before the time
/// for loading is spent (P-W38).
pub(super) struct Sockets {
    pub(super) grpc: Option<BoundSocket>,
    pub(super) http: Option<BoundSocket>,
    pub(super) sagemaker: Option<BoundSocket>,
    pub(super) vertex_ai: Option<BoundSocket>,
    pub(super) metrics: Option<BoundSocket>,
}

impl Sockets {
    /// Binds the sockets that are not among the `inherited` ones.
    pub(super) fn bind(options: &ResolvedOptions, mut inherited: GivenSockets) -> Result<Self, StartError> {
        use EndpointService::{Grpc, Http, Metrics, SageMaker, VertexAi};
        let mut bind = |service: EndpointService, at: Option<&ListenSettings>| {
            at.map(|at| bind(at, &mut inherited).map_err(|error| service.failed(error))).transpose()
        };
        let sockets = Self {
            grpc: bind(Grpc, options.grpc.as_ref().map(|grpc| &grpc.listen))?,
            http: bind(Http, options.http.as_ref().map(|http| &http.listen))?,
            sagemaker: bind(SageMaker, options.sagemaker.as_ref().map(|sagemaker| &sagemaker.listen))?,
            vertex_ai: bind(VertexAi, options.vertex_ai.as_ref().map(|vertex_ai| &vertex_ai.listen))?,
            metrics: bind(Metrics, options.metrics.as_ref().map(|metrics| &metrics.listen))?,
        };
        inherited.finish().map_err(creating)?;
        Ok(sockets)
    }
}

fn bind(at: &ListenSettings, inherited: &mut GivenSockets) -> Result<BoundSocket, Error> {
    if let Some(path) = unix_path(&at.address) {
        return BoundSocket::bind_unix(path, at.socket_mode);
    }
    match inherited.remove(at.port) {
        Some(socket) => BoundSocket::from_listener(socket),
        None => BoundSocket::bind(&at.address, at.port, at.reuse_port),
    }
}

/// How many connections each port may have.
pub(super) struct PortPermits {
    pub(super) http: ConnectionPermits,
    pub(super) grpc: ConnectionPermits,
    /// For each endpoint of a managed platform.
    pub(super) managed: ConnectionPermits,
    pub(super) metrics: ConnectionPermits,
}

impl PortPermits {
    pub(super) fn new(connections: Connections) -> Self {
        let counter = |limit| ConnectionCounter::new(limit, connections.per_address);
        let total = counter(descriptors::connections_within_limit(connections.total));
        let of =
            |own: Option<usize>| ConnectionPermits::new(own.map(counter).into_iter().chain([total.clone()]));
        Self {
            http: of(connections.http),
            grpc: of(connections.grpc),
            managed: of(None),
            metrics: ConnectionPermits::new([counter(connections.metrics)]),
        }
    }
}

/// Who may use the ports: certificates and API keys. A thread reads their files again when they change.
pub(super) struct Credentials {
    pub(super) grpc: Option<Arc<TlsPort>>,
    pub(super) http: Option<Arc<TlsPort>>,
    pub(super) sagemaker: Option<Arc<TlsPort>>,
    pub(super) vertex_ai: Option<Arc<TlsPort>>,
    pub(super) metrics: Option<Arc<TlsPort>>,
    pub(super) api_keys: Option<Arc<ApiKeys>>,
    pub(super) reload: Option<Arc<ReloadThread>>,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used. The text names it.
    pub(super) fn read(options: &ResolvedOptions) -> Result<Self, StartError> {
        let tls = |service: EndpointService, files: Option<&TlsOptions>, protocol| {
            let port = files.map(|files| TlsPort::new(service.port_name(), files.clone(), protocol));
            port.transpose().map_err(|error| service.failed(error))
        };
        let grpc = options.grpc.as_ref().and_then(|grpc| grpc.tls.as_ref());
        let http = options.http.as_ref().and_then(|http| http.tls.as_ref());
        let sagemaker = options.sagemaker.as_ref().and_then(|sagemaker| sagemaker.tls.as_ref());
        let vertex_ai = options.vertex_ai.as_ref().and_then(|vertex_ai| vertex_ai.tls.as_ref());
        let metrics = options.metrics.as_ref().and_then(|metrics| metrics.tls.as_ref());
        let api_keys = options.credentials.api_key_file.clone().map(ApiKeys::new).transpose();
        let mut credentials = Self {
            grpc: tls(EndpointService::Grpc, grpc, TlsProtocol::Http2)?,
            http: tls(EndpointService::Http, http, TlsProtocol::Http1)?,
            sagemaker: tls(EndpointService::SageMaker, sagemaker, TlsProtocol::Http1)?,
            vertex_ai: tls(EndpointService::VertexAi, vertex_ai, TlsProtocol::Http1)?,
            metrics: tls(EndpointService::Metrics, metrics, TlsProtocol::Http1)?,
            api_keys: api_keys.map_err(creating)?,
            reload: None,
        };
        let mut items: Vec<Arc<dyn Reload>> = Vec::new();
        items.extend(credentials.ports().map(|port| port as Arc<dyn Reload>));
        items.extend(credentials.api_keys.clone().map(|keys| keys as Arc<dyn Reload>));
        if !items.is_empty() {
            let thread = ReloadThread::start(items, options.credentials.reload_interval).map_err(creating)?;
            credentials.reload = Some(Arc::new(thread));
        }
        Ok(credentials)
    }

    fn ports(&self) -> impl Iterator<Item = Arc<TlsPort>> {
        let Self { grpc, http, sagemaker, vertex_ai, metrics, .. } = self;
        [grpc, http, sagemaker, vertex_ai, metrics].into_iter().flatten().cloned()
    }

    /// The metrics of all certificates.
    pub(super) fn metrics_of_certificates(&self) -> CertificateMetrics {
        CertificateMetrics { ports: self.ports().collect() }
    }
}
