//! The composition root: it makes every part and passes each part explicitly to its users.
use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use engine::{Engine, MetricsOptions, ModelControl, Plugins, ServerMetadata};
use frontend::{
    access_log::AccessLog,
    connection::{ClientLimits, ConnectionSlots, PortOptions},
    drain::Drain,
    forward::HeaderForward,
    grpc::{self, GrpcOptions, GrpcState},
    http::{self, HttpService, SageMakerService, VertexAiService},
    listen::{BoundSocket, EndpointAddress, Listener},
    log_control::LogControl,
    metrics::MetricsService,
    reload::ReloadThread,
};
use inference::{
    Error, MetricSource,
    backend::{Backend, BackendFinder},
};
use shared_memory::ClientRegions;
use tokio::task::JoinHandle;
use trace::Tracer;

mod ports;
mod stopping;
mod vertex_ai;

use crate::{
    AccessLogWriter, Extensions, backend_settings, logging,
    options::{
        GrpcSettings, HttpProtocolSettings, RequiredHeader, ResolvedOptions, RestrictionSettings,
        TRITON_VERSION,
    },
    service_manager::GivenSockets,
    startup_tables,
};
use ports::{Credentials, Slots, Sockets};

/// A server whose ports are bound and whose models are not loaded.
pub struct StartingServer<'a> {
    options: &'a ResolvedOptions,
    engine: Engine,
    handle: Arc<in_process::Server>,
    tracer: Arc<Tracer>,
    sockets: Sockets,
    credentials: Credentials,
    access_log: Option<Arc<AccessLogWriter>>,
    /// The built-in backends.
    backends: Vec<Arc<dyn Backend>>,
    finder: Option<Arc<dyn BackendFinder>>,
}

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
    times: StopTimes,
}

/// How long the phases of a stop may take.
#[derive(Debug, Clone, Copy)]
struct StopTimes {
    /// The server serves as before, but is not ready.
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

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointService {
    Grpc,
    Http,
    SageMaker,
    VertexAi,
    Metrics,
}

/// Why a server did not start. Its display is the text for stderr.
#[derive(Debug)]
pub struct StartError {
    doing: String,
    error: Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} - {}", self.doing, self.error.code.as_str(), self.error.message)
    }
}

impl std::error::Error for StartError {}

impl<'a> StartingServer<'a> {
    /// Binds the ports that the service manager has not opened, opens the response cache, and makes the engine. Must be
    /// called in a tokio runtime.
    ///
    /// # Errors
    /// Something that the options name is not available.
    pub async fn new(
        options: &'a ResolvedOptions,
        extensions: Extensions,
        given: GivenSockets,
    ) -> Result<Self, StartError> {
        vertex_ai::check_routes(options)?;
        let credentials = Credentials::read(options)?;
        let sockets = Sockets::bind(options, given)?;
        if options.repository.paths.is_empty() {
            return Err(creating(Error::invalid("--model-repository must be specified")));
        }
        if options.repository.agent_directory.as_os_str().is_empty() {
            return Err(creating(Error::invalid("--repoagent-directory can not be empty")));
        }
        backend_settings::log_default_batch_size(&options.backends.settings);
        let cache = extensions.open_cache(options.cache.as_ref()).await.map_err(creating)?;
        let tracer = Arc::new(Tracer::start(&options.tracing).map_err(creating)?);
        let access_log = options.access_log.as_ref().map(AccessLogWriter::start).transpose();
        let access_log = access_log.map_err(creating)?;
        let plugins = Plugins { cache, ..extensions.plugins }
            .with_metrics(tracer.metrics())
            .with_metrics(access_log.clone().map(|log| log as Arc<dyn MetricSource>))
            .with_metrics(Some(Arc::new(credentials.metrics_of_certificates())));
        let (backends, finder) = (plugins.backends.clone(), plugins.finder.clone());
        let engine = Engine::new(engine_options(options).map_err(creating)?, plugins).map_err(creating)?;
        // Plug-ins call the server through its C handle while their models load.
        let handle = extensions.host.unwrap_or_else(in_process::Server::hosting);
        handle.attach(engine.clone());
        Ok(Self { options, engine, handle, tracer, sockets, credentials, access_log, backends, finder })
    }

    /// Loads the models. Returns when each is ready or has failed. Dropping the future interrupts nothing: call
    /// [`StartingServer::interrupt`] then.
    ///
    /// # Errors
    /// The repositories cannot be read.
    pub async fn load(&self) -> Result<(), Error> {
        self.engine.load_models().await
    }

    /// Begins to serve. `loaded` is the result of [`StartingServer::load`].
    ///
    /// # Errors
    /// A model failed to load, unless `--exit-on-error=false`. Or a port cannot be used.
    pub async fn serve(mut self, loaded: Result<(), Error>) -> Result<Server, StartError> {
        let options = self.options;
        if let Err(error) = loaded {
            if options.server.exit_on_error {
                return Err(creating(error));
            }
            // As Triton: the server answers metadata requests, and is neither live nor ready.
            log::error!("the server has no models: {}", error.with_code());
        }
        self.backends.extend(self.finder.iter().flat_map(|finder| finder.found()));
        let given = &options.backends.settings;
        backend_settings::misspelt(given, &self.backends, &options.backends.directory)
            .iter()
            .for_each(|warning| log::warn!("{warning}"));
        startup_tables::log(&self.engine, options, &self.backends);
        if options.server.exit_on_error && !self.engine.all_loaded() {
            if let Err(error) = self.engine.stop(options.server.exit_timeout).await {
                log::error!("failed to stop server: {error}");
            }
            return Err(creating(Error::internal("failed to load all models")));
        }
        let times = StopTimes::of(options);
        let mut server = Server {
            engine: self.engine,
            handle: self.handle,
            tracer: self.tracer,
            endpoints: Vec::new(),
            access_log: self.access_log,
            reload: self.credentials.reload.clone(),
            times,
        };
        server.open_endpoints(self.sockets, &self.credentials, options)?;
        Ok(server)
    }
}

impl Server {
    /// Binds the ports, loads all models, and begins to serve. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Those of [`StartingServer::new`] and [`StartingServer::serve`].
    pub async fn start(options: &ResolvedOptions, extensions: Extensions) -> Result<Self, StartError> {
        let starting = StartingServer::new(options, extensions, GivenSockets::default()).await?;
        let loaded = starting.load().await;
        starting.serve(loaded).await
    }

    fn open_endpoints(
        &mut self,
        sockets: Sockets,
        credentials: &Credentials,
        options: &ResolvedOptions,
    ) -> Result<(), StartError> {
        let slots = Slots::new(options.connections);
        let limits = options.client_limits;
        let engine = self.engine.clone();
        let regions = options.shared_memory.map_or_else(ClientRegions::forbidden, ClientRegions::allowed);
        let shared = ProtocolParts {
            credentials,
            regions,
            tracer: self.tracer.clone(),
            access_log: self.access_log(),
        };
        let origin_rules = Arc::new(options.http_protocol.origin_rules.clone());
        let port = |slots, tls| PortOptions { limits, slots, tls, origin_rules: origin_rules.clone() };
        let http_service = |drain: &Drain| {
            let options = http_options(&options.http_protocol, (limits, drain), &shared)?;
            Ok(HttpService::new(engine.clone(), options))
        };
        if let (Some(socket), Some(grpc)) = (sockets.grpc, &options.grpc) {
            let drain = Drain::new();
            let state = grpc_options(grpc, limits, slots.grpc, &shared)
                .and_then(|options| GrpcState::new(self.engine.clone(), options, drain.clone()))
                .map_err(|error| EndpointService::Grpc.failed(error))?;
            self.open(EndpointService::Grpc, socket, drain, |socket| grpc::serve(socket, Arc::new(state)))?;
        }
        if let Some(socket) = sockets.http {
            let drain = Drain::new();
            let service = http_service(&drain).map_err(|error| EndpointService::Http.failed(error))?;
            let port = port(slots.http, credentials.http.clone());
            self.open_http(EndpointService::Http, (socket, drain), Arc::new(service), port)?;
        }
        let metrics = options.metrics.as_ref().map(|_| Arc::new(MetricsService::new(self.engine.clone())));
        if let (Some(socket), Some(sagemaker)) = (sockets.sagemaker, &options.sagemaker) {
            let drain = Drain::new();
            let service = http_service(&drain).map_err(|error| EndpointService::SageMaker.failed(error))?;
            let service = SageMakerService::new(service, sagemaker.options.clone());
            let port = port(slots.managed.clone(), credentials.sagemaker.clone());
            self.open_http(EndpointService::SageMaker, (socket, drain), Arc::new(service), port)?;
        }
        if let (Some(socket), Some(settings)) = (sockets.vertex_ai, &options.vertex_ai) {
            let drain = Drain::new();
            let service = vertex_ai::options(settings, &self.engine)
                .and_then(|options| Ok(VertexAiService::new(http_service(&drain)?, metrics.clone(), options)))
                .map_err(|error| EndpointService::VertexAi.failed(error))?;
            let port = port(slots.managed, credentials.vertex_ai.clone());
            self.open_http(EndpointService::VertexAi, (socket, drain), Arc::new(service), port)?;
        }
        if let (Some(socket), Some(service)) = (sockets.metrics, metrics) {
            let port = port(slots.metrics, credentials.metrics.clone());
            self.open_http(EndpointService::Metrics, (socket, Drain::new()), service, port)?;
        }
        Ok(())
    }

    fn open_http<S: http::Respond>(
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

fn creating(error: Error) -> StartError {
    StartError { doing: "error: creating server".to_owned(), error }
}

impl EndpointService {
    /// The text of the log line about the start. Scripts search for these lines.
    fn started(self) -> &'static str {
        match self {
            Self::Grpc => "GRPCInferenceService",
            Self::Http => "HTTPService",
            Self::SageMaker => "Sagemaker HTTPService",
            Self::VertexAi => "Vertex AI HTTPService",
            Self::Metrics => "Metrics Service",
        }
    }

    fn connections(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC service connections and inference handlers",
            Self::Http => "HTTP service connections",
            Self::SageMaker => "Sagemaker service connections",
            Self::VertexAi => "Vertex AI service connections",
            Self::Metrics => "metrics service connections",
        }
    }

    /// The name of the port in the log and in metrics.
    fn port_name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::Http => "HTTP",
            Self::SageMaker => "SageMaker",
            Self::VertexAi => "Vertex AI",
            Self::Metrics => "metrics",
        }
    }

    fn failed(self, error: Error) -> StartError {
        let name = match self {
            Self::Grpc => "GRPC",
            Self::Http => "HTTP",
            Self::SageMaker => "Sagemaker",
            Self::VertexAi => "Vertex AI",
            Self::Metrics => "Metrics",
        };
        StartError { doing: format!("failed to start {name} service"), error }
    }
}

fn engine_options(options: &ResolvedOptions) -> Result<engine::EngineOptions, Error> {
    let ResolvedOptions { server, repository, metrics, test_hooks, .. } = options;
    let startup_models = repository.startup_models.clone();
    let control = ModelControl::new(repository.control_mode, repository.polling, startup_models)?;
    Ok(engine::EngineOptions {
        server: ServerMetadata {
            name: server.id.clone(),
            version: TRITON_VERSION.to_owned(),
            extensions: protocol_extensions(),
        },
        repositories: repository.paths.iter().map(Into::into).collect(),
        readiness: server.readiness,
        load_threads: repository.load_threads.get(),
        load_retries: repository.load_retries as usize,
        auto_complete: repository.auto_complete,
        config_name: repository.config_name.clone(),
        agent_directory: repository.agent_directory.clone(),
        backend_settings: backend_settings::all(options),
        limits: options.limits,
        // Without the endpoint, nobody reads what would be counted.
        metrics: metrics.as_ref().map_or_else(MetricsOptions::none, |metrics| metrics.shown.clone()),
        hold_until_queued: test_hooks.delay_scheduler,
        hold_until_backlogged: test_hooks.backlog_delay_scheduler,
        rate_limit: options.rate_limit.clone(),
        host_policies: options.host_policies.clone(),
        load_policy: repository.load_policy,
        control,
        namespacing: repository.namespacing,
        sequence_limit: repository.sequence_timeout,
    })
}

/// What the protocols share.
struct ProtocolParts<'a> {
    credentials: &'a Credentials,
    regions: ClientRegions,
    tracer: Arc<Tracer>,
    access_log: Option<Arc<dyn AccessLog>>,
}

/// The extensions of the protocols. Those about shared memory are named also if the operator does not allow it, as in
/// Triton: their calls are answered.
fn protocol_extensions() -> Vec<String> {
    let mut extensions = in_process::EXTENSIONS.to_vec();
    let after = extensions.iter().position(|name| *name == "model_configuration").map_or(0, |at| at + 1);
    extensions.splice(after..after, ["system_shared_memory", "cuda_shared_memory"]);
    extensions.into_iter().map(str::to_owned).collect()
}

fn http_options(
    http: &HttpProtocolSettings,
    (limits, drain): (ClientLimits, &Drain),
    shared: &ProtocolParts<'_>,
) -> Result<http::HttpOptions, Error> {
    Ok(http::HttpOptions {
        max_input_size: http.max_input_size.get(),
        limits,
        drain: drain.clone(),
        forward: forward(http.header_forward_pattern.as_deref())?,
        log: log(),
        access_log: shared.access_log.clone(),
        restrictions: restrictions(&http.restrictions),
        describes_itself: http.describes_itself,
        shows_status: http.shows_status,
        api_keys: shared.credentials.api_keys.clone(),
        regions: shared.regions.clone(),
        tracer: shared.tracer.clone(),
    })
}

fn grpc_options(
    grpc: &GrpcSettings,
    limits: ClientLimits,
    slots: ConnectionSlots,
    shared: &ProtocolParts<'_>,
) -> Result<GrpcOptions, Error> {
    Ok(GrpcOptions {
        forward: forward(grpc.header_forward_pattern.as_deref())?,
        log: log(),
        access_log: shared.access_log.clone(),
        restrictions: restrictions(&grpc.restrictions),
        api_keys: shared.credentials.api_keys.clone(),
        most_unread_responses: grpc.most_unread_responses,
        reflection: grpc.reflection,
        compression: grpc.compression,
        tls: shared.credentials.grpc.clone(),
        limits,
        slots,
        max_concurrent_streams: grpc.max_concurrent_streams,
        keepalive: grpc.keepalive,
        pings: grpc.pings,
        max_connection_age: grpc.max_connection_age,
        max_connection_age_grace: grpc.max_connection_age_grace,
        regions: shared.regions.clone(),
        tracer: shared.tracer.clone(),
    })
}

/// The log of the process. `None` if a program has installed another one.
fn log() -> Option<Arc<dyn LogControl>> {
    logging::of_process().map(|log| log as Arc<dyn LogControl>)
}

fn forward(pattern: Option<&str>) -> Result<Option<HeaderForward>, Error> {
    pattern.map(HeaderForward::new).transpose()
}

fn restrictions(required: &RestrictionSettings) -> frontend::restrict::Restrictions {
    let mut restrictions = frontend::restrict::Restrictions::default();
    for (&category, RequiredHeader { name, value }) in required {
        restrictions.require(category, name, value);
    }
    restrictions
}
