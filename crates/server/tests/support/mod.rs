//! A server of the test's own, on ports the system chooses, gone at the end.
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
    server: Option<Server>,
    runtime: Option<Runtime>,
    _repository: Arc<Repository>,
}

impl Served {
    /// Starts a server on the models of `repository`, with `arguments` besides those that name it and its ports.
    pub(crate) fn start(
        repository: &Arc<Repository>,
        arguments: &[&str],
        backends: Vec<Arc<dyn Backend>>,
    ) -> Result<Self, String> {
        Self::with(repository, arguments, Extensions { plugins: backends.into(), ..Extensions::default() })
    }

    /// The same with more than backends.
    pub(crate) fn with(
        repository: &Arc<Repository>,
        arguments: &[&str],
        extensions: Extensions,
    ) -> Result<Self, String> {
        let options = options(repository, arguments)?;
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

    /// Stops as on SIGTERM.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let server = self.server.take().expect("a server stops once");
        let runtime = self.runtime.take().expect("a server stops once");
        let stopped = runtime.block_on(server.stop());
        runtime.shutdown_background();
        stopped.map_err(|error| error.to_string())
    }
}

impl Drop for Served {
    /// A test that does not care how its server ends leaves it to die with its runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What these arguments mean for a server on `repository`, its ports chosen by the system.
fn options(repository: &Repository, arguments: &[&str]) -> Result<ResolvedOptions, String> {
    let mut all = vec![format!("--model-repository={}", repository.path().display())];
    for endpoint in ["http", "grpc", "metrics"] {
        all.push(format!("--{endpoint}-address=127.0.0.1"));
        all.push(format!("--{endpoint}-port=0"));
    }
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    parse(all)
}

/// What a whole command line means.
pub(crate) fn parse(arguments: Vec<String>) -> Result<ResolvedOptions, String> {
    let arguments = arguments.into_iter().map(OsString::from);
    match options::parse(arguments, &ProcessEnvironment::default()).map_err(|refusal| refusal.to_string())? {
        Invocation::Serve(options) => Ok(*options),
        Invocation::Print(text) => Err(text),
    }
}
