//! A running server: its endpoints and their addresses.
pub(super) mod starting;
mod stopping;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use engine::Engine;
use frontend::{
    access::AccessLog,
    grpc::{self, GrpcContext},
    http::{self, HttpService, PortOptions, SageMakerService, VertexAiService},
    metrics::MetricsService,
    port::{BoundSocket, Drain, EndpointAddress, Listener, ReloadThread},
};
use shared_memory::ClientRegions;
use tokio::task::JoinHandle;
use trace::Tracer;
use vocabulary::Error;

use super::{
    endpoint_service::{EndpointService, StartError},
    file_repository::FileRepository,
    links::links,
    part_options::{ProtocolParts, grpc_options, http_options},
    ports::{Credentials, PortPermits, Sockets},
    vertex_ai,
};
use crate::{AccessLogWriter, options::ResolvedOptions};

/// A running server.
pub struct Server {
    engine: Engine,
    /// The server's handle for plug-ins.
    handle: Arc<in_process::Server>,
    tracer: Arc<Tracer>,
    /// The endpoints, in the order in which they were started.
    endpoints: Vec<Endpoint>,
    /// Reads certificates and API keys again. `None` if there are none.
    reload: Option<Arc<ReloadThread>>,
    access_log: Option<Arc<AccessLogWriter>>,
    links: Vec<String>,
    /// The models that were given as files, until they are unloaded.
    _files: Option<FileRepository>,
    times: StopTimes,
}

/// How long the phases of a stop may take.
#[derive(Debug, Clone, Copy)]
struct StopTimes {
    /// The server serves, but begins no sequence, and is not ready.
    delay: Duration,
    /// Everything that follows. The time begins after the delay.
    exit_timeout: Duration,
    /// How much of the exit timeout streams may wait for their sequences.
    sequences: Duration,
}

/// How a server has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Everything has ended.
    Whole,
    /// Threads still load models, or run code of backends that have not ended. The process must end without waiting for
    /// them, and without destructors of libraries whose code they run.
    ThreadsLeft,
}

/// A listening socket and its service.
struct Endpoint {
    service: EndpointService,
    address: EndpointAddress,
    drain: Drain,
    task: JoinHandle<Result<(), Error>>,
}

impl Server {
    fn open_endpoints(
        &mut self,
        sockets: Sockets,
        credentials: &Credentials,
        options: &ResolvedOptions,
    ) -> Result<(), StartError> {
        let permits = PortPermits::new(options.connections);
        let limits = options.client_limits;
        let engine = self.engine.clone();
        let regions = options.shared_memory.map_or_else(ClientRegions::forbidden, ClientRegions::allowed);
        let shared = ProtocolParts {
            credentials,
            regions,
            tracer: self.tracer.clone(),
            access_log: self.access_log(),
            server_name: options.server.name_in_answers.clone(),
        };
        let origin_rules = Arc::new(options.http_protocol.origin_rules.clone());
        let port = |permits, tls| PortOptions { limits, permits, tls, origin_rules: origin_rules.clone() };
        let http_service = |drain: &Drain| {
            let options = http_options(&options.http_protocol, (limits, drain), &shared)?;
            Ok(HttpService::new(engine.clone(), options))
        };
        if let (Some(socket), Some(grpc)) = (sockets.grpc, &options.grpc) {
            let drain = Drain::new();
            let state = grpc_options(grpc, limits, permits.grpc, &shared)
                .and_then(|options| GrpcContext::new(self.engine.clone(), options, drain.clone()))
                .map_err(|error| EndpointService::Grpc.failed(error))?;
            self.open(EndpointService::Grpc, socket, drain, |socket| grpc::serve(socket, Arc::new(state)))?;
        }
        if let Some(socket) = sockets.http {
            let drain = Drain::new();
            let service = http_service(&drain).map_err(|error| EndpointService::Http.failed(error))?;
            let port = port(permits.http, credentials.http.clone());
            self.open_http(EndpointService::Http, (socket, drain), Arc::new(service), port)?;
        }
        let metrics = options
            .metrics
            .as_ref()
            .map(|metrics| Arc::new(MetricsService::new(self.engine.clone(), metrics.offers_openmetrics)));
        if let (Some(socket), Some(sagemaker)) = (sockets.sagemaker, &options.sagemaker) {
            let drain = Drain::new();
            let service = http_service(&drain).map_err(|error| EndpointService::SageMaker.failed(error))?;
            let service = SageMakerService::new(service, sagemaker.options.clone());
            let port = port(permits.managed.clone(), credentials.sagemaker.clone());
            self.open_http(EndpointService::SageMaker, (socket, drain), Arc::new(service), port)?;
        }
        if let (Some(socket), Some(settings)) = (sockets.vertex_ai, &options.vertex_ai) {
            let drain = Drain::new();
            let service = vertex_ai::options(settings, &self.engine)
                .and_then(|options| Ok(VertexAiService::new(http_service(&drain)?, metrics.clone(), options)))
                .map_err(|error| EndpointService::VertexAi.failed(error))?;
            let port = port(permits.managed, credentials.vertex_ai.clone());
            self.open_http(EndpointService::VertexAi, (socket, drain), Arc::new(service), port)?;
        }
        if let (Some(socket), Some(service)) = (sockets.metrics, metrics) {
            let port = port(permits.metrics, credentials.metrics.clone());
            self.open_http(EndpointService::Metrics, (socket, Drain::new()), service, port)?;
        }
        self.links = links(|service| self.address(service), credentials, &options.http_protocol);
        Ok(())
    }

    fn open_http<S: http::HttpEndpoint>(
        &mut self,
        endpoint: EndpointService,
        (socket, drain): (BoundSocket, Drain),
        service: Arc<S>,
        port: PortOptions,
    ) -> Result<(), StartError> {
        self.open(endpoint, socket, drain.clone(), |socket| http::serve(socket, service, drain, port))
    }

    fn open<F>(
        &mut self,
        service: EndpointService,
        socket: BoundSocket,
        drain: Drain,
        serve: impl FnOnce(Listener) -> F,
    ) -> Result<(), StartError>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let socket = socket.listen().map_err(|error| service.failed(error))?;
        let address = socket.address().map_err(|error| {
            service.failed(Error::unavailable(format!("the socket has no address: {error}")))
        })?;
        let task = tokio::spawn(serve(socket));
        log::info!("Started {} at {address}", service.started());
        self.endpoints.push(Endpoint { service, address, drain, task });
        Ok(())
    }

    /// What a user may open: names with addresses, such as `status page: http://localhost:8000/status`.
    pub fn links(&self) -> &[String] {
        &self.links
    }

    fn access_log(&self) -> Option<Arc<dyn AccessLog>> {
        self.access_log.clone().map(|log| log as Arc<dyn AccessLog>)
    }

    /// The log of requests, if there is one.
    pub fn access_log_writer(&self) -> Option<&Arc<AccessLogWriter>> {
        self.access_log.as_ref()
    }

    /// Tells whether each model has been loaded with all its versions.
    pub fn all_loaded(&self) -> bool {
        self.engine.all_loaded()
    }

    /// The server's handle for plug-ins.
    pub fn handle(&self) -> &Arc<in_process::Server> {
        &self.handle
    }

    /// Reads certificates and API keys again if they have changed, and again when they change. `None` if there are none.
    pub fn reload_thread(&self) -> Option<&Arc<ReloadThread>> {
        self.reload.as_ref()
    }

    /// The address of the HTTP endpoint, if it is on and has a port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Http)
    }

    /// The address of the gRPC endpoint, if it is on and has a port.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Grpc)
    }

    /// The address of the metrics endpoint, if it is on and has a port.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Metrics)
    }

    /// The address of the endpoint for SageMaker, if it is on.
    pub fn sagemaker_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::SageMaker)
    }

    /// The address of the endpoint for Vertex AI, if it is on.
    pub fn vertex_ai_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::VertexAi)
    }

    fn address(&self, service: EndpointService) -> Option<SocketAddr> {
        self.endpoints.iter().find(|endpoint| endpoint.service == service)?.address.port()
    }
}

impl StopTimes {
    fn of(options: &ResolvedOptions) -> Self {
        let exit_timeout = options.server.exit_timeout;
        // The other half is for what runs when the streams end.
        let sequences = options.repository.sequence_timeout.min(exit_timeout / 2);
        Self { delay: options.server.shutdown_delay, exit_timeout, sequences }
    }
}

/// How a server has stopped whose loads were abandoned.
async fn stopped(engine: &Engine) -> Stopped {
    if engine.abandon_loads().await { Stopped::ThreadsLeft } else { Stopped::Whole }
}
