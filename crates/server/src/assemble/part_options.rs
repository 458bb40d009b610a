//! The options of the engine and of the protocols.
use std::sync::Arc;

use engine::{MetricsOptions, ModelControl, ServerMetadata};
use frontend::{
    ServerName,
    access::AccessLog,
    forward::HeaderForward,
    grpc::GrpcOptions,
    http,
    port::{ClientLimits, ConnectionPermits, Drain},
};
use kserve::log_control::LogControl;
use shared_memory::ClientRegions;
use trace::Tracer;
use vocabulary::Error;

use super::{file_repository::FileRepository, ports::Credentials};
use crate::{
    backend_settings, logging,
    options::{
        GrpcSettings, HttpProtocolSettings, RequiredHeader, ResolvedOptions, RestrictionSettings,
        TRITON_VERSION,
    },
};

/// `files` is the repository of the models that are given as files, or of the only model.
pub(super) fn engine_options(
    options: &ResolvedOptions,
    files: Option<&FileRepository>,
) -> Result<engine::EngineOptions, Error> {
    let ResolvedOptions { server, repository, metrics, test_hooks, .. } = options;
    let startup_models = repository.startup_models.clone();
    let control = ModelControl::new(repository.control_mode, repository.polling, startup_models)?;
    Ok(engine::EngineOptions {
        server: ServerMetadata {
            name: server.id.clone(),
            version: TRITON_VERSION.to_owned(),
            extensions: protocol_extensions(),
        },
        repositories: repository
            .paths
            .iter()
            .filter(|_| repository.single_model.is_none())
            .map(Into::into)
            .chain(files.map(|files| files.path().to_owned()))
            .collect(),
        readiness: server.readiness,
        load_threads: repository.load_threads.get(),
        load_retries: repository.load_retries as usize,
        auto_complete: repository.auto_complete,
        config_name: repository.config_name.clone(),
        agent_directory: repository.agent_directory.clone(),
        backend_settings: backend_settings::all(options),
        on_demand: repository.on_demand,
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

/// The extensions of the protocols. Those about shared memory are named also if the operator does not allow it, as in
/// Triton: their calls are answered.
fn protocol_extensions() -> Vec<String> {
    let mut extensions = in_process::EXTENSIONS.to_vec();
    let after = extensions.iter().position(|name| *name == "model_configuration").map_or(0, |at| at + 1);
    extensions.splice(after..after, ["system_shared_memory", "cuda_shared_memory"]);
    extensions.into_iter().map(str::to_owned).collect()
}

/// What the protocols share.
pub(super) struct ProtocolParts<'a> {
    pub(super) credentials: &'a Credentials,
    pub(super) regions: ClientRegions,
    pub(super) tracer: Arc<Tracer>,
    pub(super) access_log: Option<Arc<dyn AccessLog>>,
    pub(super) server_name: Option<ServerName>,
}

pub(super) fn http_options(
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
        drain_status: http.drain_status,
        server_name: shared.server_name.clone(),
        describes_itself: http.describes_itself,
        shows_status: http.shows_status,
        api_keys: shared.credentials.api_keys.clone(),
        regions: shared.regions.clone(),
        tracer: shared.tracer.clone(),
    })
}

pub(super) fn grpc_options(
    grpc: &GrpcSettings,
    limits: ClientLimits,
    permits: ConnectionPermits,
    shared: &ProtocolParts<'_>,
) -> Result<GrpcOptions, Error> {
    Ok(GrpcOptions {
        forward: forward(grpc.header_forward_pattern.as_deref())?,
        log: log(),
        access_log: shared.access_log.clone(),
        server_name: shared.server_name.clone(),
        restrictions: restrictions(&grpc.restrictions),
        api_keys: shared.credentials.api_keys.clone(),
        most_unread_responses: grpc.most_unread_responses,
        reflection: grpc.reflection,
        compression: grpc.compression,
        tls: shared.credentials.grpc.clone(),
        limits,
        permits,
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

fn restrictions(required: &RestrictionSettings) -> frontend::access::Restrictions {
    let mut restrictions = frontend::access::Restrictions::default();
    for (&category, RequiredHeader { name, value }) in required {
        restrictions.require(category, name, value);
    }
    restrictions
}
