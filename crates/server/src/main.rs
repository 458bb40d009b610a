//! `nereid`: serves models, or runs one of its [commands].
#![forbid(unsafe_code)]
use std::{
    env::ArgsOs,
    io::{self, Write},
    iter::Peekable,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use assembly::LibraryBackends;
use backend_onnx::{OnnxBackend, prevent_telemetry};
use backend_openvino::OpenVinoBackend;
use backend_pytorch::{AotInductorBackend, check_inputs_of_code};
use c_api::plugin::exit_at_once;
use native_backend::LibrarySearch;
use object_stores::{CacheOptions, default_cache_directory};
use server::{
    Extensions, StartingServer, Stopped,
    color::{self, ColorChoice, ColoredLines},
    commands::{self, ProgramName},
    error_line,
    logging::{self, LogSettings},
    options::{self, Invocation, ProcessEnvironment, ResolvedOptions, TRITON_VERSION},
    options_reload::OptionsReload,
    service_manager::{self, GivenSockets},
    signals::{self, Signals},
};
use tokio::sync::watch;

/// One thread makes tensors and another frees them. This allocator is fast in that case.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The operator's word on huge pages, which the allocator reads.
const HUGE_PAGES_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

fn main() -> ExitCode {
    do_without_huge_pages();
    let mut arguments = std::env::args_os();
    let name = ProgramName::of(&arguments.next().unwrap_or_default());
    name.name_process();
    let mut arguments = arguments.peekable();
    let mut environment = ProcessEnvironment::of_this_process();
    let run_command = |arguments: &mut Peekable<ArgsOs>| {
        commands::run(arguments, &environment, |options| extensions(options).plugins)
    };
    let ended = match name {
        ProgramName::Nereid | ProgramName::TritonServer => run_command(&mut arguments),
        // `serve` is the program of SageMaker, and no command.
        ProgramName::EntryPoint if arguments.peek().is_some_and(|word| word == "serve") => {
            commands::run_program(&mut arguments)
        }
        ProgramName::EntryPoint => {
            run_command(&mut arguments).or_else(|| commands::run_program(&mut arguments))
        }
        ProgramName::Serve => None,
    };
    if let Some(code) = ended {
        return code.into();
    }
    let mut arguments = arguments.collect::<Vec<_>>();
    if name == ProgramName::Serve {
        arguments = match options::sagemaker_line(arguments, &mut environment) {
            Ok(line) => line,
            Err(bad) => return fail(&bad.to_string(), environment.color()),
        };
    }
    let color = environment.color();
    match options::parse(arguments.clone(), &environment) {
        Ok(Invocation::Serve(options))
            if name == ProgramName::Nereid && arguments.is_empty() && !options.repository.is_given() =>
        {
            fail(&format!("{}\nerror: name a model repository or an ONNX file", options::screen()), color)
        }
        Ok(Invocation::Serve(options)) => {
            let reload = OptionsReload::new(arguments, environment, &options);
            serve(&options, reload)
                .unwrap_or_else(|error| fail(&error_line(&format!("{error:#}")), options.color))
        }
        Ok(Invocation::Print(text)) => {
            // If the reader has closed stdout, the error does not matter.
            let _ = io::stdout().write_all(colored(text, color.colors(&io::stdout())).as_bytes());
            ExitCode::SUCCESS
        }
        Err(bad) => fail(&bad.to_string(), color),
    }
}

/// The allocator asks for huge pages. Each one is in memory as a whole when a part of it is used. Only copies of large
/// tensors gain by them.
fn do_without_huge_pages() {
    if std::env::var_os(HUGE_PAGES_VARIABLE).is_none() {
        // An error means that the kernel has no huge pages.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}

/// Short executions of C++ backends run on network threads. Rust's default stack is smaller than the stack that such
/// backends expect.
const NETWORK_STACK_BYTES: usize = 8 << 20;

/// How long the exit waits for blocking threads when all other work has ended.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// How long the exit waits for them when it leaves work behind: a load that is almost done may still end in order.
const ABANDON_GRACE: Duration = Duration::from_millis(50);

/// The exit code that shells give a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

/// How the server has ended.
enum Ended {
    /// Nothing runs any more.
    InOrder,
    /// It was told to stop, and threads still load models, or run code of backends.
    ThreadsLeft,
    /// The exit timeout has expired, and requests or models have not ended.
    TimedOut,
    /// SIGINT came while the server was stopping.
    AtOnce,
}

fn colored(text: String, is_colored: bool) -> String {
    if is_colored { color::lines(&text) } else { text }
}

fn fail(error: &str, color: ColorChoice) -> ExitCode {
    let text = colored(format!("{error}\n"), color.colors(&io::stderr()));
    logging::to_stderr(text.as_bytes());
    logging::flush_streams(logging::LAST_LINES);
    ExitCode::FAILURE
}

fn serve(options: &ResolvedOptions, reload: Option<OptionsReload>) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let (of_stdout, of_stderr) = (options.color.colors(&io::stdout()), options.color.colors(&io::stderr()));
    logging::color_streams(of_stdout, of_stderr);
    options.write_warnings(&mut ColoredLines::new(io::stderr(), of_stderr));
    // Both change the environment, which must happen before the first thread starts.
    let settings = || {
        let settings = options.backends.settings.iter();
        settings.map(|setting| (setting.backend.as_deref(), setting.key.as_str(), setting.value.as_str()))
    };
    prevent_telemetry(settings());
    check_inputs_of_code(settings());
    let inherited = GivenSockets::take()?;
    let log = logging::install(&options.logging)?;
    let http = &options.http_protocol;
    if let Some(lines) = http.status_log_lines.filter(|_| http.shows_status && options.http.is_some()) {
        log.keep_lines(lines);
    }
    log::info!(
        "nereid {}, which behaves as Triton Inference Server {TRITON_VERSION}",
        env!("CARGO_PKG_VERSION")
    );
    let connections = options.connections;
    let regions = options.shared_memory.map_or(0, |allowed| allowed.limits.regions);
    let descriptors = connections.total.saturating_add(connections.metrics).saturating_add(regions);
    server::descriptors::make_room(descriptors);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The engine lends threads to executions, but never the last one: so each processor can have one.
        .worker_threads(host::usable_processors().get() + 1)
        .thread_name("network")
        .thread_stack_size(NETWORK_STACK_BYTES)
        .on_thread_park(|| {
            let has_freed = frontend::port::connections_have_freed_much();
            if assembly::thread_returns_memory() || has_freed {
                assembly::return_memory_of_thread();
            }
        })
        .enable_all()
        .build()?;
    if let Some(reload) = reload {
        let _in_runtime = runtime.enter();
        runtime.spawn(signals::reload_options_on_hangup(reload, Arc::clone(&log))?);
    }
    let extensions = extensions(options);
    let libraries = extensions.plugins.finder.clone();
    let ended = runtime.block_on(run(options, extensions, log, inherited, begun));
    // The shutdown ends the remaining network tasks and finalizes plug-ins. A backend that hangs must not delay the exit
    // for longer. So no plug-in is finalized on this thread, which has no limit: the last handle of the libraries is dropped
    // by a thread of the runtime.
    runtime.spawn_blocking(move || drop(libraries));
    let status = match ended {
        Ok(Ended::InOrder) => {
            runtime.shutdown_timeout(LAST_GRACE);
            log::logger().flush();
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            runtime.shutdown_timeout(LAST_GRACE);
            return Err(error);
        }
        Ok(Ended::ThreadsLeft) => 0,
        Ok(Ended::TimedOut) => 1,
        Ok(Ended::AtOnce) => INTERRUPTED,
    };
    runtime.shutdown_timeout(ABANDON_GRACE);
    let _none = repository::remove_private_directories();
    log::logger().flush();
    exit_at_once(status)
}

async fn run(
    options: &ResolvedOptions,
    extensions: Extensions,
    log: Arc<LogSettings>,
    inherited: GivenSockets,
    begun: Instant,
) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let (access_log, reopened) = watch::channel(None);
    tokio::spawn(signals::reopen_logs_on_hangup(log, reopened)?);
    let starting = tokio::select! {
        starting = StartingServer::new(options, extensions, inherited) => starting?,
        // A plug-in may be in the middle of its initialization.
        _ = signals.first() => return Ok(Ended::ThreadsLeft),
    };
    let loaded = tokio::select! {
        loaded = starting.load() => loaded,
        _ = signals.first() => return Ok(ended(starting.interrupt(), &mut signals).await),
    };
    let server = starting.serve(loaded).await?;
    if let Some(reload) = server.reload_thread().cloned() {
        // A signal that came while the models were loaded counts, too.
        reload.look_now();
        tokio::spawn(signals::on_hangup(move || reload.look_now())?);
    }
    access_log.send_replace(server.access_log_writer().cloned());
    let took = begun.elapsed().as_millis();
    if server.all_loaded() {
        log::info!("ready in {took} ms");
        service_manager::notify_ready("serving");
    } else {
        log::warn!("started in {took} ms, but not all models are loaded");
        service_manager::notify_ready("serving, but not all models are loaded");
    }
    server.links().iter().for_each(|link| log::info!("{link}"));
    signals.first().await;
    service_manager::notify_stopping();
    Ok(ended(server.stop(), &mut signals).await)
}

/// Waits for the end of a stop, or for a signal that ends the server at once.
async fn ended(
    stopping: impl Future<Output = Result<Stopped, vocabulary::Error>>,
    signals: &mut Signals,
) -> Ended {
    let mut stopping = Box::pin(stopping);
    let stopped = tokio::select! {
        stopped = &mut stopping => stopped,
        () = signals.interrupted() => {
            // What it owns may wait for work that hangs.
            std::mem::forget(stopping);
            return Ended::AtOnce;
        }
    };
    match stopped {
        Ok(Stopped::Whole) => Ended::InOrder,
        Ok(Stopped::ThreadsLeft) => Ended::ThreadsLeft,
        Err(error) => {
            let text = format!("failed to stop server: {} - {error}\n", error.code.as_str());
            logging::to_stderr(text.as_bytes());
            Ended::TimedOut
        }
    }
}

/// The built-in extensions, and the finders of the others.
fn extensions(options: &ResolvedOptions) -> Extensions {
    let program = std::env::current_exe().ok();
    let search = LibrarySearch {
        named: options.backends.onnxruntime_library.clone(),
        program_directory: program.and_then(|program| program.parent().map(Into::into)),
        python_prefixes: options.backends.python_prefixes.clone(),
    };
    let openvino_search =
        LibrarySearch { named: options.backends.openvino_library.clone(), ..search.clone() };
    let torch_search = LibrarySearch { named: options.backends.torch_library.clone(), ..search.clone() };
    let backends = LibraryBackends {
        onnxruntime: OnnxBackend::new(search).with_process_allocator(),
        openvino: OpenVinoBackend::new(openvino_search),
        pytorch: AotInductorBackend::new(torch_search),
    };
    let host = in_process::Server::hosting();
    let cache = CacheOptions {
        directory: options.repository.cache_directory.clone().unwrap_or_else(default_cache_directory),
        max_unused_bytes: options.repository.cache_byte_size,
    };
    let agents = options.repository.agent_directory.clone();
    let plugins = assembly::plugins(host.handle(), backends, agents, cache);
    Extensions { plugins, host: Some(host), cache_finder: Some(Arc::new(assembly::AssembledCaches)) }
}
