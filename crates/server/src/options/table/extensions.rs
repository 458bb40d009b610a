//! Options of backends, repository agents, the response cache, the rate limiter, and the options that Triton does not
//! have.

use frontend::http::DrainStatus;
use shared_memory::SharedMemoryOptions;

use super::super::meaning::BackendSetting;
use super::option_spec::{OptionSpec, OptionValue, boolean, checked, count, text};
use crate::options::values;

const MOST_REGIONS: i64 = SharedMemoryOptions::MOST_REGIONS as i64;

pub(super) const BACKEND: &[OptionSpec] = &[
    text(
        "backend-directory",
        |typed, value| typed.backends.directory = value.to_owned(),
        "The directory in which the server looks for backends.",
    )
    .default("/opt/tritonserver/backends"),
    checked(
        "backend-config",
        "[<backend>,]<setting>=<value>",
        |typed, value| {
            let values::Setting { name, key, value } = values::setting(
                value,
                "No backend specified. --backend-config option format is <backend name>,<setting>=<value> \
             or <setting>=<value>",
                "--backend-config option format is '<backend name>,<setting>=<value>'",
            )?;
            typed.backends.settings.push(BackendSetting { backend: name, key, value });
            Ok(())
        },
        "A setting for a backend, or for all backends. May be given several times. Of two values of a setting the \
         later one counts.",
    ),
];

pub(super) const REPOSITORY_AGENT: &[OptionSpec] = &[text(
    "repoagent-directory",
    |typed, value| typed.repository.agent_directory = value.to_owned(),
    "The directory in which the server looks for repository agents.",
)
.default("/opt/tritonserver/repoagents")];

pub(super) const RESPONSE_CACHE: &[OptionSpec] = &[
    checked(
        "cache-config",
        "<cache>,<setting>=<value>",
        |typed, value| {
            let (cache, key, value) = values::cache_setting(value)?;
            let settings = typed.cache.configs.entry(cache.to_owned()).or_default();
            settings.insert(key.to_owned(), value.to_owned());
            Ok(())
        },
        "Store responses of models with 'response_cache { enable: true }' in the cache of this name. Built in \
             are local,size=<bytes>, with local,reserve=true for memory that is taken at the start, and \
             redis,host=<host> with redis,port=<port>. The cache gets this setting. May be given several times for one \
             cache. Of two values of a setting the later one counts.",
    ),
    text(
        "cache-directory",
        |typed, value| typed.cache.directory = value.to_owned(),
        "The directory in which the server looks for caches: <directory>/<cache>/libtritoncache_<cache>.so. A library has \
             priority over a built-in cache.",
    )
    .default("/opt/tritonserver/caches"),
];

pub(super) const RATE_LIMITER: &[OptionSpec] = &[
    checked(
        "rate-limit",
        "off|execution_count",
        |typed, value| {
            typed.rate_limit_on = match value.to_ascii_lowercase().as_str() {
                "off" => false,
                "execution_count" => true,
                _ => return Err("invalid argument for --rate-limit".into()),
            };
            Ok(())
        },
        "Whether executions wait for the resources that models declare: 'off' or 'execution_count'.",
    )
    .default("off"),
    checked(
        "rate-limit-resource",
        "<resource>:<count>[:<device>]",
        |typed, value| {
            typed.rate_limit_resources.push(values::rate_limit_resource(value)?);
            Ok(())
        },
        "The available amount of a resource, on one device or on each device. Of several entries for the same \
             resource and device the smallest counts. If the option is given, resources without an entry have the \
             amount 0. May be given several times.",
    )
    .default_note("for each resource, the largest amount that an instance asks for"),
];

pub(super) const NEREID: &[OptionSpec] = &[
    text(
        "config",
        // Read before the other options.
        |_, _| {},
        "A file with options in TOML: 'http-port = 8000', or 'port = 8000' below '[http]'. Lists are options that may be \
             given several times. Options of the command line take precedence over variables of the environment, and those \
             over the file. The variable of an option is NEREID_ and its name, for example NEREID_HTTP_PORT; lines are \
             values of options that may be given several times.",
    )
    .default_note("the environment variable NEREID_CONFIG"),
    text(
        "access-log",
        |typed, value| typed.logging.access_log = value.to_owned(),
        "Write a line for each request of a client to this file: a JSON object with model, id, status, sizes and times, \
             without tensors and headers. '-' is stdout. If the server cannot open the file, it does not start. SIGHUP \
             reopens the file.",
    )
    .default_note("none"),
    checked(
        "access-log-rate",
        "float",
        |typed, value| {
            let rate = values::float(value)?;
            if !(0.0..=1.0).contains(&rate) {
                return Err(format!("Provided option value is out of bound. Got {value}"));
            }
            typed.logging.access_log_rate = rate;
            Ok(())
        },
        "Which part of the requests --access-log contains, from 0 to 1.",
    )
    .takes("a number from 0 to 1")
    .default("1"),
    text(
        "onnxruntime-library",
        |typed, value| typed.backends.onnxruntime_library = value.to_owned(),
        "The ONNX Runtime library to use for ONNX models (libonnxruntime.so).",
    )
    .default_note("the environment variable NEREID_ONNXRUNTIME_LIBRARY, else ORT_DYLIB_PATH"),
    boolean(
        "gpu-instances-on-cpu",
        |typed, value| typed.repository.gpu_instances_on_cpu = value,
        "Run the instances of groups that ask for GPUs (KIND_GPU, or KIND_AUTO with 'gpus') on the CPU, with a warning \
             for each, so that an operator can try a repository that was made for GPUs. If false, the server refuses \
             such a model.",
    )
    .default("false"),
    count(
        "repository-settle-ms",
        |typed, value| typed.repository.settle_ms = Some(value),
        "With --model-control-mode=poll, a change of a model counts when its files have been the same for so many \
             milliseconds. 0: at once, even while files are written.",
    )
    .default_note("the smaller of 2000 and the interval of --repository-poll-secs"),
    text(
        "model-repository-cache-directory",
        |typed, value| typed.repository.cache_directory = value.to_owned(),
        "Where the server keeps copies of models from object stores. They survive a restart. Several servers of one user \
             may share the directory.",
    )
    .default_note("nereid/models below XDG_CACHE_HOME or ~/.cache, else a directory below TMPDIR"),
    OptionSpec::new(
        "model-repository-cache-byte-size",
        OptionValue::Integer(0, i64::MAX, |typed, value| typed.repository.cache_byte_size = value),
        "How many bytes that no served model uses may stay in the directory of --model-repository-cache-directory. Beyond \
             the limit, the server removes what was not used for the longest time.",
    )
    .default("68719476736"),
    checked(
        "strict-readiness-scope",
        "all|startup",
        |typed, value| {
            typed.repository.startup_readiness = match value {
                "all" => false,
                "startup" => true,
                _ => return Err("invalid argument for --strict-readiness-scope".into()),
            };
            Ok(())
        },
        "Which models must be ready with --strict-readiness=true. 'all': all models that the server knows. 'startup': \
             the models that were asked for at startup, until a client unloads them.",
    )
    .default("all"),
    OptionSpec::new(
        "model-memory-budget",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.repository.memory_budget = Some(value)),
        "How many bytes of memory all models together may have. Models are then loaded when requests come for them, and the \
             least useful are unloaded for others. A request waits for the load of its model. A model whose configuration \
             has the parameter MEMORY_PINNED is loaded at startup and stays. Not with --model-control-mode=poll and not with \
             --model-namespacing.",
    )
    .default_note("no limit: models are not loaded on demand"),
    count(
        "model-load-wait-secs",
        |typed, value| typed.repository.load_wait_secs = value,
        "With --model-memory-budget: how many seconds a request waits at most for the load of its model.",
    )
    .default("60"),
    count(
        "reload-sequence-timeout-secs",
        |typed, value| typed.repository.sequence_timeout_secs = value,
        "After a reload of a model, or after a version policy has retired a version, requests of running sequences go \
             to the old copy until the sequences have ended, but no longer than so many seconds.",
    )
    .default("60"),
    count(
        "shutdown-delay-secs",
        |typed, value| typed.server.shutdown_delay_secs = value,
        "A server that is told to stop (SIGTERM, SIGINT) is not ready from that moment on, and serves for so many \
             seconds as before, so that a load balancer that checks its readiness sends it no more requests. It tells \
             clients to go to another server: responses over HTTP have 'Connection: close', gRPC connections get \
             GOAWAY. Sequences that run go on, and none begins; if all models have sequences, the time is over when none \
             runs any more. Then the server stops, within --exit-timeout-secs.",
    )
    .default("0"),
    checked(
        "single-model",
        "string",
        |typed, value| {
            if value.is_empty() || value.contains('/') || value.starts_with('.') {
                return Err("Error: --single-model needs the name of a model".into());
            }
            typed.repository.single_model = Some(value.to_owned());
            Ok(())
        },
        "Serve what --model-repository names as one model of this name, instead of the models in it: the directory of a \
             model, the directory with the files of its only version, or an ONNX file. For platforms that download one \
             model, such as KServe. Not for URLs.",
    ),
    checked(
        "drain-status",
        "400|404|503",
        |typed, value| {
            typed.http.drain_status = match value {
                "400" => DrainStatus::BadRequest,
                "404" => DrainStatus::NotFound,
                "503" => DrainStatus::Unavailable,
                _ => return Err("invalid argument for --drain-status".into()),
            };
            Ok(())
        },
        "The status that GET /v2/health/ready has during --shutdown-delay-secs. With 404, HAProxy sends only clients that \
             it knows (http-check disable-on-404).",
    )
    .default("400"),
    OptionSpec::new(
        "max-client-shm-regions",
        OptionValue::Integer(1, MOST_REGIONS, |typed, value| typed.devices.most_client_regions = value),
        "The most regions of shared memory that clients may register with --allow-client-shm=true. Each needs an open file.",
    )
    .default("1024"),
    OptionSpec::new(
        "max-client-shm-byte-size",
        OptionValue::Integer(0, i64::MAX, |typed, value| typed.devices.most_client_region_bytes = value),
        "The most bytes of all regions together that clients may register.",
    )
    .default("17179869184"),
    boolean(
        "client-shm-in-place",
        |typed, value| typed.devices.client_shm_in_place = value,
        "Let backends read and write the clients' regions where they are, as Triton does. If false, they work on copies. \
             Set it only if all clients that can register regions are trusted: a client that changes an input while a model \
             runs may make the backend read or write memory of the server.",
    )
    .default("false"),
    boolean(
        "serve-partial-models",
        |typed, value| typed.repository.serve_partial_models = value,
        "If some versions of a model fail to load, serve its other versions. If false, the server does not serve \
             such a model at all. Has an effect only with --exit-on-error=false.",
    )
    .default("false"),
];
