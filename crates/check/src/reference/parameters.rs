//! The parameters of a model's configuration, and the settings of backends, that Nereid reads itself.

/// A parameter or a setting.
pub(super) struct NamedValue {
    pub(super) name: &'static str,
    /// What the value can be, and what it means.
    pub(super) meaning: &'static str,
    pub(super) default: &'static str,
}

const fn named(name: &'static str, meaning: &'static str, default: &'static str) -> NamedValue {
    NamedValue { name, meaning, default }
}

/// Parameters for models of every backend. A test compares them with what the server knows.
pub(super) const OF_THE_SERVER: &[NamedValue] = &[
    named(
        "CACHE_TTL_SECONDS",
        "A cached answer that is older is computed anew: a positive number.",
        "answers do not age",
    ),
    named(
        "CACHE_STALE_SECONDS",
        "For so long after that time, clients get the old answer while a new one is computed.",
        "0",
    ),
    named("CACHE_MAX_ANSWER_BYTES", "A larger answer is not stored.", "no limit; 1 MiB for decoupled models"),
    named(
        "CACHE_QUOTA_BYTES",
        "The part of the cache `local` that belongs to the model alone.",
        "all models share",
    ),
    named(
        "CACHE_DECOUPLED",
        "`true`: all responses of a decoupled model to a request are one answer.",
        "`false`",
    ),
    named(
        "MAX_UNREAD_RESPONSES",
        "A decoupled model waits while its client has not read so many responses: a whole number from 1.",
        "no model waits",
    ),
    named(
        "MEMORY_PINNED",
        "`true`: with `--model-memory-budget` the model is loaded at the start and stays in memory.",
        "`false`",
    ),
    named(
        "MEMORY_PRIORITY",
        "With `--model-memory-budget` the model does not make room for one of a smaller priority: a whole number from 0 to 1000.",
        "0",
    ),
    named(
        "TRITON_BATCH_STRATEGY_PATH",
        "The library of a batching strategy: a file in the model's directory, by an absolute path or by one from that directory.",
        "`batchstrategy.so` of the version, the model or the backend",
    ),
];

/// Parameters of ensembles.
pub(super) const OF_ENSEMBLES: &[NamedValue] = &[named(
    "MAX_INTERMEDIATE_BYTES",
    "How many bytes of tensors the requests of the ensemble may hold between its steps.",
    "`--max-intermediate-bytes`",
)];

/// Parameters and settings of built-in backends, by their names.
pub(super) const OF_BACKENDS: &[NamedValue] = &[
    named(
        "AUTOCOMPLETE_BATCH",
        "`no`: a model without `max_batch_size` is served without batching.",
        "`yes`",
    ),
    named(
        "ITERATION_DONE_OUTPUT",
        "The output that tells which requests of an iterative model are finished.",
        "none",
    ),
    named("MAP_EXTERNAL_DATA", "`true`: files of external data are mapped and not read.", "`false`"),
    named("arena_extend_strategy", "For GPUs: no effect.", ""),
    named("cudnn_conv_algo_search", "For GPUs: no effect.", ""),
    named("do_copy_in_default_stream", "For GPUs: no effect.", ""),
    named("gpu_mem_limit", "For GPUs: no effect.", ""),
    named(
        "enable_mem_arena",
        "`1`: the runtime keeps memory for the next run. `0`: it allocates with `malloc`.",
        "the server's allocator",
    ),
    named("enable_mem_pattern", "`1` or `0`: the runtime plans memory from earlier runs.", "`1`"),
    named(
        "execution_mode",
        "`0`: operators run one after the other. `1`: independent operators run in parallel.",
        "`0`",
    ),
    named(
        "inter_op_thread_count",
        "Threads for operators that run in parallel.",
        "the instance's share of the processors",
    ),
    named("intra_op_thread_count", "Threads for one operator.", "the instance's share of the processors"),
    named(
        "memory.enable_memory_arena_shrinkage",
        "Memory that is given back after each run, such as `cpu:0`.",
        "none",
    ),
    named(
        "session.*",
        "Entries of the runtime's session configuration, passed on unchanged.",
        "those of the runtime",
    ),
    named("auto-complete-config", "Set by the server.", ""),
    named("backend-directory", "Set by the server.", "`--backend-directory`"),
    named(
        "default-max-batch-size",
        "`max_batch_size` of models that can batch and set none.",
        "4; of `fil` `max-request-rows`",
    ),
    named(
        "max-request-rows",
        "The most rows of a request to a model that can batch and sets no `max_batch_size`.",
        "1024, of `fil` 32768; or `default-max-batch-size`, if set",
    ),
    named("min-compute-capability", "For GPUs: no effect.", ""),
    named("enable-global-threadpool", "`1`: all sessions share their threads.", "`0`"),
    named(
        "op-library-directories",
        "Directories, separated by colons, where libraries of custom operators may be.",
        "none",
    ),
    named("library", "The library, or its directory.", "searched"),
    named("PERFORMANCE_HINT", "`LATENCY`, `THROUGHPUT` or `CUMULATIVE_THROUGHPUT`.", "none"),
    named(
        "INFERENCE_NUM_THREADS",
        "The threads of a compiled model.",
        "the instance's share of the processors",
    ),
    named(
        "NUM_STREAMS",
        "Runs of a compiled model at the same time: a number, `AUTO` or `NUMA`.",
        "1; that of the hint",
    ),
    named("COMPILATION_NUM_THREADS", "Checked. No effect, with a warning.", ""),
    named("HINT_BF16", "`YES`: the library may compute in BF16.", "FP32"),
    named("CPU_EXTENSION_PATH", "A library of operators, by its absolute path.", "none"),
    named(
        "SKIP_OV_DYNAMIC_BATCHSIZE",
        "`YES`: the first dimensions of inputs stay as in the file.",
        "`NO`: with `max_batch_size` they become open",
    ),
    named("ENABLE_BATCH_PADDING", "`YES`: no effect, with a warning.", "`NO`"),
    named("RESHAPE_IO_LAYERS", "`YES`: inputs get the dims of the configuration.", "`NO`"),
    named("TARGET_DEVICE", "`CPU`. Others are refused.", "`CPU`"),
    named(
        "session.intra_op.allow_spinning",
        "`1`: threads of the shared pool wait for work without sleeping.",
        "`0`",
    ),
    named("telemetry", "`true`: the runtime decides whether it sends events to its maker.", "`false`"),
    named(
        "model_type",
        "The format of a forest: `xgboost_ubj`, `xgboost_json`, `treelite_checkpoint` or `lightgbm`.",
        "by the file's name",
    ),
    named("is_classifier", "`true`: a forest answers with classes.", "by the forest"),
    named("output_class", "`is_classifier`, before Triton 25.09.", ""),
    named("predict_proba", "`true`: a classifier answers with probabilities.", "`false`"),
    named("threshold", "The probability above which a binary classifier answers 1.", "0.5"),
    named("xgboost_allow_unknown_field", "`true`: fields that are not known are ignored.", "`false`"),
    named(
        "cpu_nthread",
        "The most threads of a batch of 512 rows or more.",
        "the instance's share of the processors",
    ),
    named("algo", "Of forests: no effect.", ""),
    named("blocks_per_sm", "For GPUs: no effect.", ""),
    named("chunk_size", "For GPUs: no effect.", ""),
    named("layout", "Of forests: no effect.", ""),
    named("storage_type", "Of forests: no effect.", ""),
    named("threads_per_tree", "For GPUs: no effect.", ""),
    named("transfer_threshold", "For GPUs: no effect.", ""),
    named("use_experimental_optimizations", "Of forests: no effect.", ""),
    named("RESIZE", "`stretch`, `crop` or `pad`: how a picture gets the size of the output.", "`stretch`"),
    named("SCALE", "FP32: each value, from 0 to 255, is multiplied by this number.", "1"),
    named("MEAN", "FP32: subtracted after `SCALE`: one number, or one for each channel.", "0"),
    named("STD", "FP32: divides after `MEAN`: one number, or one for each channel, not 0.", "1"),
    named(
        "MAX_PIXELS",
        "Larger pictures are refused before they are decoded: a whole number from 1.",
        "64000000",
    ),
    named("EXECUTION_ENV_PATH", "The environment of the model: an archive or a directory.", "none"),
    named(
        "FORCE_CPU_ONLY_INPUT_TENSORS",
        "Accepted: all tensors are in the memory of the processor.",
        "`yes`",
    ),
    named("MAX_CONCURRENT_EXECUTIONS", "Executions of a coroutine at the same time, for each instance.", "1"),
    named("MAX_EXECUTE_PROCESSOR_SECONDS", "The processor time of an execution.", "no limit"),
    named("MAX_EXECUTE_SECONDS", "The time of an execution.", "no limit"),
    named("MAX_MEMORY_BYTES", "The memory for data of a process.", "no limit"),
    named("PYTHON_EXECUTABLE", "The interpreter.", "see [python.md](python.md)"),
    named(
        "SANDBOX",
        "`best-effort` or `required`, if that is stricter than the server's setting.",
        "that of the server",
    ),
    named("aotinductor", "`native`: the server computes packages of AOTInductor itself.", "`python`"),
    named("DISABLE_CUDNN", "`true`: PyTorch does not use cuDNN.", "`false`"),
    named("DISABLE_OPTIMIZED_EXECUTION", "`true`: TorchScript runs as it is.", "`false`"),
    named("ENABLE_CACHE_CLEANING", "`true`: each execution on a GPU returns unused memory.", "`false`"),
    named("ENABLE_JIT_EXECUTOR", "`false`: TorchScript has its old executor.", "PyTorch's choice"),
    named("ENABLE_JIT_PROFILING", "`false`: TorchScript does not watch its first runs.", "PyTorch's choice"),
    named("ENABLE_NVFUSER", "Accepted: PyTorch has no such fuser any more.", "`false`"),
    named("ENABLE_TENSOR_FUSER", "`false`: TorchScript does not fuse operators.", "PyTorch's choice"),
    named("ENABLE_WEIGHT_SHARING", "Accepted: each instance has its own weights.", "`false`"),
    named("INFERENCE_MODE", "`false`: the mode without gradients instead.", "`true`"),
    named("INTRA_OP_THREAD_COUNT", "Threads of an operator.", "the instance's share of the processors"),
    named("INTER_OP_THREAD_COUNT", "Threads for operators.", "the instance's share of the processors"),
    named("NUM_THREADS", "The same as `INTRA_OP_THREAD_COUNT`.", "that"),
    named("NUM_INTEROP_THREADS", "The same as `INTER_OP_THREAD_COUNT`.", "that"),
    named(
        "TORCH_COMPILE_OPTIONAL_PARAMETERS",
        "The arguments of `torch.compile` for a `model.py`, as an object of JSON.",
        "`{}`",
    ),
    named("STRICT_OUTPUTS", "`yes`: an output that contradicts the configuration is an error.", "`no`"),
    named(
        "archive-limit-bytes",
        "The most bytes of the files of an environment in an archive.",
        "34359738368",
    ),
    named("environments", "`on`: environments are made from `requirements.txt`.", "`off`"),
    named("environments-directory", "Where they are made.", "`~/.cache/nereid/python-environments`"),
    named("environments-timeout-seconds", "The most time to make one, from 1 to 86400.", "600"),
    named("error-paths", "`absolute` or `relative`: the paths in texts of exceptions.", "`absolute`"),
    named(
        "implementation",
        "`built-in`, or `triton`: the library in the backend directory.",
        "see [plugins.md](plugins.md#search-order)",
    ),
    named("pip-index-url", "The index of packages.", "that of `pip`"),
    named("python-executable", "The interpreter of models that name none.", "`python3`"),
    named("sandbox", "`off`, `best-effort` or `required`.", "`off`"),
    named("sandbox-directory", "Where models may write.", "see [python.md](python.md#sandbox)"),
    named("sandbox-max-memory-bytes", "The memory of a model.", "no limit"),
    named("sandbox-max-open-files", "The open files of a process.", "1024"),
    named("sandbox-max-processes", "The processes and threads of the user of a process.", "4096"),
    named("sandbox-user", "The user that runs models.", "that of the server"),
    named(
        "shared-memory-limit-bytes",
        "The most memory that an instance shares with the server, in each direction.",
        "4294967296",
    ),
    named("shm-default-byte-size", "Checked as in Triton. No effect.", "as in Triton"),
    named("shm-growth-byte-size", "Checked as in Triton. No effect.", "as in Triton"),
    named("shm-region-prefix-name", "Checked as in Triton. No effect.", "as in Triton"),
    named("shm_message_queue_size", "Checked as in Triton. No effect.", "as in Triton"),
    named(
        "stub-timeout-seconds",
        "How long a process may take to start, and a model to finalize: without a setting 20 s.",
        "30",
    ),
    named(
        "thread-pool-size",
        "Requests of `async_exec` that wait at the same time on threads of an instance.",
        "32",
    ),
];
