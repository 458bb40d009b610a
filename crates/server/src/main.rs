//! `nereid`: serves models, or measures a server that does (`nereid perf`).
#![forbid(unsafe_code)]
use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use backend_onnx::{LibrarySearch, prevent_telemetry};
use c_api::cache::Caches;
use server::{
    Extensions, Server,
    logging::{self, LogSettings},
    options::{self, Invocation, ProcessEnvironment, ResolvedOptions, TRITON_VERSION},
    signals::{self, Signals},
};

/// Tensors are made on one thread and freed on another, which this allocator does cheaply.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == "perf") {
        return perf::run(arguments, &mut io::stdout(), &mut io::stderr()).into();
    }
    match options::parse(arguments, &ProcessEnvironment::of_this_process()) {
        Ok(Invocation::Serve(options)) => serve(&options).unwrap_or_else(|error| fail(&error)),
        Ok(Invocation::Print(text)) => {
            // A reader that has gone needs no answer.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(bad) => fail(&bad.to_string()),
    }
}

/// Brief executions of C++ backends run on network threads, too. Rust's default is smaller than they are used to.
const NETWORK_STACK_BYTES: usize = 8 << 20;

/// For threads that block where nothing is left to wait for.
const LAST_GRACE: Duration = Duration::from_secs(1);

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "{error:#}");
    ExitCode::FAILURE
}

fn serve(options: &ResolvedOptions) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    for warning in &options.warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    // Before anything starts a thread.
    prevent_telemetry(
        options
            .backends
            .settings
            .iter()
            .map(|setting| (setting.backend.as_deref(), setting.key.as_str(), setting.value.as_str())),
    );
    let log = logging::install(&options.logging)?;
    log::info!(
        "nereid {}, which behaves as Triton Inference Server {TRITON_VERSION}",
        env!("CARGO_PKG_VERSION")
    );
    let connections = options.connections;
    server::descriptors::make_room(connections.total.saturating_add(connections.metrics));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(engine::usable_processors().get())
        .thread_name("network")
        .thread_stack_size(NETWORK_STACK_BYTES)
        .enable_all()
        .build()?;
    let code = runtime.block_on(run(options, log, begun))?;
    // What the network still held goes with it, and plug-ins are finalized; but a load that was interrupted, or a backend
    // that hangs, must not hold up the exit.
    runtime.shutdown_timeout(LAST_GRACE);
    Ok(code)
}

async fn run(options: &ResolvedOptions, log: Arc<LogSettings>, begun: Instant) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    tokio::spawn(signals::reopen_log_on_hangup(log)?);
    let server = tokio::select! {
        server = Server::start(options, extensions(options)) => server?,
        _ = signals.first() => return Ok(ExitCode::SUCCESS),
    };
    let took = begun.elapsed().as_millis();
    if server.all_loaded() {
        log::info!("ready in {took} ms");
    } else {
        log::warn!("started in {took} ms, but not all models are loaded");
    }
    signals.first().await;
    match server.stop().await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let _ = writeln!(io::stderr(), "failed to stop server: {} - {error}", error.code.as_str());
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What is built in, and where the rest comes from.
fn extensions(options: &ResolvedOptions) -> Extensions {
    let program = std::env::current_exe().ok();
    let onnxruntime = LibrarySearch {
        named: options.backends.onnxruntime_library.clone(),
        program_directory: program.and_then(|program| program.parent().map(Into::into)),
        python_prefixes: options.backends.python_prefixes.clone(),
    };
    let host = in_process::Server::hosting();
    let plugins = in_process::plugins(&host, onnxruntime, options.repository.agent_directory.clone());
    Extensions { plugins, host: Some(host), cache_finder: Some(Arc::new(Caches)) }
}
