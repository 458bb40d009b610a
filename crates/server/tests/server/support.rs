//! A server for one test. The system chooses its ports, and the server ends with the test.
use std::{ffi::OsString, net::SocketAddr, sync::Arc};

use inference::backend::Backend;
use server::{
    Extensions, Server,
    options::{self, Invocation, ProcessEnvironment, ResolvedOptions},
};
use testing::Repository;
use tokio::runtime::Runtime;

/// A running server.
pub(crate) struct Served {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// Present until it stops.
    pub(crate) server: Option<Server>,
    runtime: Option<Runtime>,
    _repository: Arc<Repository>,
}

impl Served {
    /// Starts a server with the models of `repository` and with `arguments`. The repository and the ports are added to
    /// the arguments.
    pub(crate) fn start(
        repository: &Arc<Repository>,
        arguments: &[&str],
        backends: Vec<Arc<dyn Backend>>,
    ) -> Result<Self, String> {
        Self::with(repository, arguments, Extensions { plugins: backends.into(), ..Extensions::default() })
    }

    /// As [`Served::start`], with more extensions than backends.
    pub(crate) fn with(
        repository: &Arc<Repository>,
        arguments: &[&str],
        extensions: Extensions,
    ) -> Result<Self, String> {
        Self::in_environment(repository, arguments, extensions, &ProcessEnvironment::default())
    }

    /// As [`Served::with`], with variables.
    pub(crate) fn in_environment(
        repository: &Arc<Repository>,
        arguments: &[&str],
        extensions: Extensions,
        environment: &ProcessEnvironment,
    ) -> Result<Self, String> {
        let options = options(repository, arguments, environment)?;
        let runtime = Runtime::new().map_err(|error| error.to_string())?;
        let server =
            runtime.block_on(Server::start(&options, extensions)).map_err(|error| error.to_string())?;
        let known = |address: Option<SocketAddr>| address.ok_or("an endpoint without an address");
        Ok(Self {
            http: known(server.http_address())?,
            grpc: known(server.grpc_address())?,
            metrics: known(server.metrics_address())?,
            server: Some(server),
            runtime: Some(runtime),
            _repository: repository.clone(),
        })
    }

    /// Stops the server as SIGTERM does.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let server = self.server.take().expect("a server stops once");
        let runtime = self.runtime.take().expect("a server stops once");
        let stopped = runtime.block_on(server.stop());
        runtime.shutdown_background();
        stopped.map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Served {
    /// If the test does not stop its server, the server ends with its runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The options from these arguments for a server with `repository`. The system chooses the ports.
fn options(
    repository: &Repository,
    arguments: &[&str],
    environment: &ProcessEnvironment,
) -> Result<ResolvedOptions, String> {
    let mut all = vec![format!("--model-repository={}", repository.path().display())];
    for endpoint in ["http", "grpc", "metrics"] {
        all.push(format!("--{endpoint}-address=127.0.0.1"));
        all.push(format!("--{endpoint}-port=0"));
    }
    all.extend(["--sagemaker-port=0", "--vertex-ai-port=0"].map(str::to_owned));
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    parse_in(all, environment)
}

/// The options from a whole command line.
pub(crate) fn parse_in(
    arguments: Vec<String>,
    environment: &ProcessEnvironment,
) -> Result<ResolvedOptions, String> {
    let arguments = arguments.into_iter().map(OsString::from);
    match options::parse(arguments, environment).map_err(|refusal| refusal.to_string())? {
        Invocation::Serve(options) => Ok(*options),
        Invocation::Print(text) => Err(text),
    }
}
