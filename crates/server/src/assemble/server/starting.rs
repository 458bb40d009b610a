//! A server until it serves: ports are bound, then models are loaded.
use std::{collections::BTreeSet, sync::Arc};

use assembly::logging::LogLosses;
use engine::{Engine, IndexEntry, ModelState};
use inference::{
    MetricSource, Plugins,
    backend::{Backend, BackendFinder},
};
use trace::Tracer;
use vocabulary::Error;

use super::{Server, StopTimes, Stopped, stopped};
use crate::{
    AccessLogWriter, Extensions,
    assemble::{
        endpoint_service::{StartError, creating},
        file_repository::FileRepository,
        part_options::engine_options,
        ports::{Credentials, Sockets},
        vertex_ai,
    },
    backend_settings,
    options::ResolvedOptions,
    service_manager::GivenSockets,
    startup_tables,
};

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
    files: Option<FileRepository>,
}

impl<'a> StartingServer<'a> {
    /// Binds the ports that the service manager has not opened, opens the response cache, and makes the engine. Must be
    /// called in a tokio runtime.
    ///
    /// # Errors
    /// Something that the options name is not available.
    pub async fn new(
        options: &'a ResolvedOptions,
        extensions: Extensions,
        inherited: GivenSockets,
    ) -> Result<Self, StartError> {
        vertex_ai::check_routes(options)?;
        let credentials = Credentials::read(options)?;
        let sockets = Sockets::bind(options, inherited)?;
        if !options.repository.is_given() {
            return Err(creating(Error::invalid(
                "--model-repository must be specified: name a repository or an ONNX file, as in 'nereid models/'",
            )));
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
            .with_metrics(Some(Arc::new(LogLosses)))
            .with_metrics(Some(Arc::new(credentials.metrics_of_certificates())));
        let (backends, finder) = (plugins.backends.clone(), plugins.finder.clone());
        let files = FileRepository::of_settings(&options.repository).map_err(creating)?;
        let engine_options = engine_options(options, files.as_ref()).map_err(creating)?;
        let engine = Engine::new(engine_options, plugins).map_err(creating)?;
        // Plug-ins call the server through its C handle while their models load.
        let handle = extensions.host.unwrap_or_else(in_process::Server::hosting);
        handle.attach(engine.clone());
        Ok(Self {
            options,
            engine,
            handle,
            tracer,
            sockets,
            credentials,
            access_log,
            backends,
            finder,
            files,
        })
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
        let settings = &options.backends.settings;
        backend_settings::misspelt(settings, &self.backends, &options.backends.directory)
            .iter()
            .for_each(|warning| log::warn!("{warning}"));
        startup_tables::log(&self.engine, options, &self.backends);
        if options.server.exit_on_error && !self.engine.all_loaded() {
            // The stop changes the states.
            let failed = failure_text(&self.engine.known_models(false));
            if let Err(error) = self.engine.stop(options.server.exit_timeout).await {
                log::error!("failed to stop server: {error}");
            }
            return Err(creating(Error::internal(failed)));
        }
        let times = StopTimes::of(options);
        let mut server = Server {
            engine: self.engine,
            handle: self.handle,
            tracer: self.tracer,
            endpoints: Vec::new(),
            access_log: self.access_log,
            reload: self.credentials.reload.clone(),
            links: Vec::new(),
            _files: self.files,
            times,
        };
        server.open_endpoints(self.sockets, &self.credentials, options)?;
        Ok(server)
    }

    /// Ends a server that was told to stop while it loaded its models. The models that are loaded end in order; loads
    /// that run are left behind.
    ///
    /// # Errors
    /// INTERNAL if a model has not ended within the exit timeout.
    pub async fn interrupt(self) -> Result<Stopped, Error> {
        self.engine.abandon_loads().await;
        self.engine.stop(self.options.server.exit_timeout).await?;
        Ok(stopped(&self.engine).await)
    }
}

/// The error of a start that models have failed, with the first of them and its reason.
fn failure_text(known: &[IndexEntry]) -> String {
    let has_failed = |entry: &&IndexEntry| entry.state != Some(ModelState::Ready);
    // The index has a line for each version.
    let models = |entries: &mut dyn Iterator<Item = &IndexEntry>| {
        entries.map(|entry| (&entry.namespace, &entry.name)).collect::<BTreeSet<_>>().len()
    };
    let mut text = "failed to load all models".to_owned();
    if let Some(IndexEntry { name, reason, .. }) = known.iter().find(has_failed) {
        // A model that did not fit into the memory budget has no reason in the index.
        let reason = reason.lines().next().unwrap_or("the log tells why");
        let (failed, known) = (models(&mut known.iter().filter(has_failed)), models(&mut known.iter()));
        text.push_str(&format!(": {failed} of {known} failed, the first is '{name}': {reason}"));
        let others = if failed < known { "; --exit-on-error=false serves the others" } else { "" };
        text.push_str(&format!(" ('nereid check' shows all problems{others})"));
    }
    text
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_model_that_failed_is_named_with_the_first_line_of_its_reason() {
        let entry = |name: &str, state, reason: &str| IndexEntry {
            name: name.into(),
            namespace: None,
            version: Some(1),
            state: Some(state),
            reason: reason.to_owned(),
        };
        let known = [
            entry("fine", ModelState::Ready, ""),
            entry("bad", ModelState::Unavailable, "no graph\nat line 1"),
            entry("worse", ModelState::Unavailable, "none"),
        ];
        assert_eq!(
            failure_text(&known),
            "failed to load all models: 2 of 3 failed, the first is 'bad': no graph ('nereid check' shows all problems; \
             --exit-on-error=false serves the others)"
        );
        assert_eq!(
            failure_text(&known[1..2]),
            "failed to load all models: 1 of 1 failed, the first is 'bad': no graph ('nereid check' shows all problems)"
        );
        assert_eq!(failure_text(&known[..1]), "failed to load all models");
        let versions = [2, 3].map(|version| IndexEntry { version: Some(version), ..known[1].clone() });
        assert_eq!(
            failure_text(&versions),
            "failed to load all models: 1 of 1 failed, the first is 'bad': no graph ('nereid check' shows all problems)"
        );
    }
}
