//! The composition root: it makes every part and passes each part explicitly to its users.
use std::{
    fmt,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use engine::{Engine, MetricsOptions, ModelControl, Plugins, ServerMetadata};
use frontend::{
    connection::{ClientLimits, ConnectionSlots, SlotCounter},
    drain::Drain,
    forward::HeaderForward,
    grpc::{self, GrpcOptions, GrpcState},
    http::{self, HttpService},
    listen::BoundSocket,
    metrics::MetricsService,
};
use inference::{
    Error,
    backend::{Backend, BackendFinder},
};
use tokio::task::JoinHandle;

mod stopping;

use crate::{
    Extensions, backend_settings, descriptors,
    options::{
        Connections, GrpcSettings, HttpSettings, ListenSettings, RequiredHeader, ResolvedOptions,
        RestrictionSettings, TRITON_VERSION,
    },
    startup_tables,
};

/// A server whose ports are bound and whose models are not loaded.
pub struct StartingServer<'a> {
    options: &'a ResolvedOptions,
    engine: Engine,
    handle: Arc<in_process::Server>,
    sockets: Sockets,
    /// The built-in backends.
    backends: Vec<Arc<dyn Backend>>,
    finder: Option<Arc<dyn BackendFinder>>,
}

/// A running server.
pub struct Server {
    engine: Engine,
    /// The server's handle for plug-ins.
    handle: Arc<in_process::Server>,
    /// The endpoints, in the order in which they were started.
    endpoints: Vec<Endpoint>,
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
    /// Threads still load models. The process must end without waiting for them, and without destructors of libraries
    /// whose code they run.
    LoadsAbandoned,
}

/// A listening socket and its service.
struct Endpoint {
    service: EndpointService,
    address: SocketAddr,
    drain: Drain,
    task: JoinHandle<Result<(), Error>>,
}

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointService {
    Grpc,
    Http,
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

/// The bound sockets. The server binds them before it loads any model, so that a port conflict fails before the time
/// for loading is spent (P-W38).
struct Sockets {
    grpc: Option<BoundSocket>,
    http: Option<BoundSocket>,
    metrics: Option<BoundSocket>,
}

impl<'a> StartingServer<'a> {
    /// Binds the ports, opens the response cache, and makes the engine. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Something that the options name is not available.
    pub async fn new(options: &'a ResolvedOptions, extensions: Extensions) -> Result<Self, StartError> {
        let sockets = Sockets::bind(options)?;
        if options.repository.paths.is_empty() {
            return Err(creating(Error::invalid("--model-repository must be specified")));
        }
        if options.repository.agent_directory.as_os_str().is_empty() {
            return Err(creating(Error::invalid("--repoagent-directory can not be empty")));
        }
        backend_settings::log_default_batch_size(&options.backends.settings);
        let cache = extensions.open_cache(options.cache.as_ref()).await.map_err(creating)?;
        let plugins = Plugins { cache, ..extensions.plugins };
        let (backends, finder) = (plugins.backends.clone(), plugins.finder.clone());
        let engine = Engine::new(engine_options(options).map_err(creating)?, plugins).map_err(creating)?;
        // Plug-ins call the server through its C handle while their models load.
        let handle = extensions.host.unwrap_or_else(in_process::Server::hosting);
        handle.attach(engine.clone());
        Ok(Self { options, engine, handle, sockets, backends, finder })
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
        let mut server = Server { engine: self.engine, handle: self.handle, endpoints: Vec::new(), times };
        server.open_endpoints(self.sockets, options)?;
        Ok(server)
    }
}

impl Server {
    /// Binds the ports, loads all models, and begins to serve. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Those of [`StartingServer::new`] and [`StartingServer::serve`].
    pub async fn start(options: &ResolvedOptions, extensions: Extensions) -> Result<Self, StartError> {
        let starting = StartingServer::new(options, extensions).await?;
        let loaded = starting.load().await;
        starting.serve(loaded).await
    }

    fn open_endpoints(&mut self, sockets: Sockets, options: &ResolvedOptions) -> Result<(), StartError> {
        let slots = Slots::new(options.connections);
        let limits = options.client_limits;
        if let (Some(socket), Some(grpc)) = (sockets.grpc, &options.grpc) {
            let drain = Drain::new();
            let state = grpc_options(grpc, limits, slots.grpc)
                .and_then(|options| GrpcState::new(self.engine.clone(), options, drain.clone()))
                .map_err(|error| EndpointService::Grpc.failed(error))?;
            self.open(EndpointService::Grpc, socket, drain, |socket| grpc::serve(socket, Arc::new(state)))?;
        }
        if let (Some(socket), Some(http)) = (sockets.http, &options.http) {
            let drain = Drain::new();
            let options = http_options(http, limits).map_err(|error| EndpointService::Http.failed(error))?;
            let service = Arc::new(HttpService::new(self.engine.clone(), options));
            self.open(EndpointService::Http, socket, drain.clone(), |socket| {
                http::serve(socket, service, drain, limits, slots.http)
            })?;
        }
        if let Some(socket) = sockets.metrics {
            let drain = Drain::new();
            let service = Arc::new(MetricsService::new(self.engine.clone()));
            self.open(EndpointService::Metrics, socket, drain.clone(), |socket| {
                http::serve(socket, service, drain, limits, slots.metrics)
            })?;
        }
        Ok(())
    }

    fn open<F>(
        &mut self,
        service: EndpointService,
        socket: BoundSocket,
        drain: Drain,
        serve: impl FnOnce(TcpListener) -> F,
    ) -> Result<(), StartError>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let socket = socket.listen().map_err(|error| service.failed(error))?;
        let address = socket.local_addr().map_err(|error| {
            service.failed(Error::unavailable(format!("the socket has no address: {error}")))
        })?;
        let task = tokio::spawn(serve(socket));
        log::info!("Started {} at {address}", service.started());
        self.endpoints.push(Endpoint { service, address, drain, task });
        Ok(())
    }

    /// Tells whether each model has been loaded with all its versions.
    pub fn all_loaded(&self) -> bool {
        self.engine.all_loaded()
    }

    /// The server's handle for plug-ins.
    pub fn handle(&self) -> &Arc<in_process::Server> {
        &self.handle
    }

    /// The address of the HTTP endpoint, if it is on.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Http)
    }

    /// The address of the gRPC endpoint, if it is on.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Grpc)
    }

    /// The address of the metrics endpoint, if it is on.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.address(EndpointService::Metrics)
    }

    fn address(&self, service: EndpointService) -> Option<SocketAddr> {
        self.endpoints.iter().find(|endpoint| endpoint.service == service).map(|endpoint| endpoint.address)
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
            Self::Metrics => "Metrics Service",
        }
    }

    fn connections(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC service connections and inference handlers",
            Self::Http => "HTTP service connections",
            Self::Metrics => "metrics service connections",
        }
    }

    fn failed(self, error: Error) -> StartError {
        let name = match self {
            Self::Grpc => "GRPC",
            Self::Http => "HTTP",
            Self::Metrics => "Metrics",
        };
        StartError { doing: format!("failed to start {name} service"), error }
    }
}

impl Sockets {
    fn bind(options: &ResolvedOptions) -> Result<Self, StartError> {
        let bind = |service: EndpointService, at: Option<&ListenSettings>| {
            at.map(|at| {
                BoundSocket::bind(&at.address, at.port, at.reuse_port).map_err(|error| service.failed(error))
            })
            .transpose()
        };
        Ok(Self {
            grpc: bind(EndpointService::Grpc, options.grpc.as_ref().map(|grpc| &grpc.listen))?,
            http: bind(EndpointService::Http, options.http.as_ref().map(|http| &http.listen))?,
            metrics: bind(EndpointService::Metrics, options.metrics.as_ref().map(|metrics| &metrics.listen))?,
        })
    }
}

/// How many connections each port may have.
struct Slots {
    http: ConnectionSlots,
    grpc: ConnectionSlots,
    metrics: ConnectionSlots,
}

impl Slots {
    fn new(connections: Connections) -> Self {
        let total = SlotCounter::new(descriptors::connections_within_limit(connections.total));
        let of = |own: Option<usize>| {
            ConnectionSlots::new(own.map(SlotCounter::new).into_iter().chain([total.clone()]))
        };
        Self {
            http: of(connections.http),
            grpc: of(connections.grpc),
            metrics: ConnectionSlots::new([SlotCounter::new(connections.metrics)]),
        }
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
            extensions: in_process::EXTENSIONS.map(str::to_owned).to_vec(),
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
        metrics: MetricsOptions {
            counter_latencies: metrics.as_ref().is_some_and(|metrics| metrics.counter_latencies),
            host: metrics.as_ref().is_some_and(|metrics| metrics.cpu),
        },
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

fn http_options(http: &HttpSettings, limits: ClientLimits) -> Result<http::HttpOptions, Error> {
    Ok(http::HttpOptions {
        max_input_size: http.max_input_size.get(),
        limits,
        forward: forward(http.header_forward_pattern.as_deref())?,
        restrictions: restrictions(&http.restrictions),
    })
}

fn grpc_options(
    grpc: &GrpcSettings,
    limits: ClientLimits,
    slots: ConnectionSlots,
) -> Result<GrpcOptions, Error> {
    Ok(GrpcOptions {
        forward: forward(grpc.header_forward_pattern.as_deref())?,
        restrictions: restrictions(&grpc.restrictions),
        most_unread_responses: grpc.most_unread_responses,
        compression: grpc.compression,
        tls: grpc.tls.clone(),
        limits,
        slots,
        max_concurrent_streams: grpc.max_concurrent_streams,
        keepalive: grpc.keepalive,
        pings: grpc.pings,
        max_connection_age: grpc.max_connection_age,
        max_connection_age_grace: grpc.max_connection_age_grace,
    })
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
