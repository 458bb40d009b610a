//! The routes of every server, with what the document says of them.
use serde_json::json;

use super::{
    fragments::Paths,
    operations::{HttpOperation, ReplyBody, RequestBody, get, parameters},
};

const HEALTH: &str = "Health";
const METADATA: &str = "Metadata";
const INFERENCE: &str = "Inference";
const STATISTICS: &str = "Statistics";
const REPOSITORY: &str = "Model repository";
const SHARED_MEMORY: &str = "Shared memory";
const STATUS: &str = "Status";
const OBSERVING: &str = "Tracing and logging";

/// The groups of operations, the most important first.
pub(super) const TAGS: [&str; 8] =
    [INFERENCE, METADATA, HEALTH, STATUS, STATISTICS, REPOSITORY, OBSERVING, SHARED_MEMORY];

/// All routes. Those of a model have a twin for one version of it.
pub(super) const ROUTES: &[HttpOperation] = &[
    get("/v2/health/live", HEALTH, "live", "Whether the server runs.", ReplyBody::Nothing),
    get("/v2/health/ready", HEALTH, "ready", "Whether the server can serve requests.", ReplyBody::Nothing),
    get(
        "/v2",
        METADATA,
        "serverMetadata",
        "Name, version and extensions of the server.",
        ReplyBody::Json("ServerMetadata"),
    ),
    get("/v2/models", METADATA, "listModels", "All models and their states.", ReplyBody::Json("ModelList")),
    get("/openapi.json", METADATA, "openapi", "This document.", ReplyBody::OpenApi),
    get("/docs", METADATA, "docs", "A page that shows this document.", ReplyBody::Html),
    get(
        "/v2/explain",
        STATUS,
        "explain",
        "What the server does now: queues, slots, batches, where time goes, and what to change.",
        ReplyBody::Json("Explanation"),
    ),
    get(
        "/v2/load",
        STATUS,
        "serverLoad",
        "How much the server has to do, for autoscalers.",
        ReplyBody::Json("Load"),
    ),
    get("/status", STATUS, "status", "A page that shows what the server does.", ReplyBody::Html),
    get(
        "/v2/models/stats",
        STATISTICS,
        "statistics",
        "Counters of all models.",
        ReplyBody::Json("Statistics"),
    ),
    get(
        "/v2/repository/index",
        REPOSITORY,
        "index",
        "All models and their states, as Triton lists them.",
        ReplyBody::Json("Index"),
    )
    .post(RequestBody::MayBeJson("IndexRequest")),
    get(
        "/v2/repository/models/{model}/load",
        REPOSITORY,
        "loadModel",
        "Loads a model, or loads it again.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::MayBeJson("LoadRequest")),
    get(
        "/v2/repository/models/{model}/unload",
        REPOSITORY,
        "unloadModel",
        "Unloads a model.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::MayBeJson("UnloadRequest")),
    get(
        "/v2/trace/setting",
        OBSERVING,
        "traceSettings",
        "The settings of tracing.",
        ReplyBody::Json("TraceSettings"),
    ),
    get(
        "/v2/trace/setting",
        OBSERVING,
        "setTraceSettings",
        "Changes the settings of tracing.",
        ReplyBody::Json("TraceSettings"),
    )
    .post(RequestBody::Json("TraceSettingsUpdate")),
    get(
        "/v2/models/{model}/trace/setting",
        OBSERVING,
        "modelTraceSettings",
        "The settings of tracing for a model.",
        ReplyBody::Json("TraceSettings"),
    ),
    get(
        "/v2/models/{model}/trace/setting",
        OBSERVING,
        "setModelTraceSettings",
        "Changes the settings of tracing for a model.",
        ReplyBody::Json("TraceSettings"),
    )
    .post(RequestBody::Json("TraceSettingsUpdate")),
    get("/v2/logging", OBSERVING, "logSettings", "The settings of the log.", ReplyBody::Json("LogSettings")),
    get(
        "/v2/logging",
        OBSERVING,
        "setLogSettings",
        "Changes the settings of the log.",
        ReplyBody::Json("LogSettings"),
    )
    .post(RequestBody::Json("LogSettingsUpdate")),
    get(
        "/v2/systemsharedmemory/status",
        SHARED_MEMORY,
        "systemRegions",
        "The registered regions of system shared memory.",
        ReplyBody::Json("SystemRegions"),
    ),
    get(
        "/v2/systemsharedmemory/region/{region}/status",
        SHARED_MEMORY,
        "systemRegion",
        "A registered region of system shared memory.",
        ReplyBody::Json("SystemRegions"),
    ),
    get(
        "/v2/systemsharedmemory/region/{region}/register",
        SHARED_MEMORY,
        "registerSystemRegion",
        "Registers a region of system shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Json("SystemRegionRequest")),
    get(
        "/v2/systemsharedmemory/region/{region}/unregister",
        SHARED_MEMORY,
        "unregisterSystemRegion",
        "Forgets a region of system shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Nothing),
    get(
        "/v2/systemsharedmemory/unregister",
        SHARED_MEMORY,
        "unregisterSystemRegions",
        "Forgets all regions of system shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Nothing),
    get(
        "/v2/cudasharedmemory/status",
        SHARED_MEMORY,
        "cudaRegions",
        "The registered regions of CUDA shared memory.",
        ReplyBody::Json("CudaRegions"),
    ),
    get(
        "/v2/cudasharedmemory/region/{region}/status",
        SHARED_MEMORY,
        "cudaRegion",
        "A registered region of CUDA shared memory.",
        ReplyBody::Json("CudaRegions"),
    ),
    get(
        "/v2/cudasharedmemory/region/{region}/register",
        SHARED_MEMORY,
        "registerCudaRegion",
        "Registers a region of CUDA shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Json("CudaRegionRequest")),
    get(
        "/v2/cudasharedmemory/region/{region}/unregister",
        SHARED_MEMORY,
        "unregisterCudaRegion",
        "Forgets a region of CUDA shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Nothing),
    get(
        "/v2/cudasharedmemory/unregister",
        SHARED_MEMORY,
        "unregisterCudaRegions",
        "Forgets all regions of CUDA shared memory.",
        ReplyBody::Nothing,
    )
    .post(RequestBody::Nothing),
];

/// The routes of a model, after `/v2/models/{model}` and after `/v2/models/{model}/versions/{version}`.
pub(super) const MODEL_ROUTES: &[HttpOperation] = &[
    get("", METADATA, "modelMetadata", "The tensors of a model.", ReplyBody::Json("ModelMetadata")),
    get("/ready", HEALTH, "modelReady", "Whether a model can serve requests.", ReplyBody::Nothing),
    get(
        "/config",
        METADATA,
        "modelConfig",
        "The configuration of a model, as the server uses it.",
        ReplyBody::Json("ModelConfig"),
    ),
    get("/stats", STATISTICS, "modelStatistics", "Counters of a model.", ReplyBody::Json("Statistics")),
    get(
        "/openapi.json",
        METADATA,
        "modelOpenapi",
        "The description of a model's own paths.",
        ReplyBody::OpenApi,
    ),
    get(
        "/explain",
        STATUS,
        "explainModel",
        "What a model does now, and what to change.",
        ReplyBody::Json("Explanation"),
    ),
    get("/infer", INFERENCE, "infer", "Runs a model on tensors.", ReplyBody::Tensors)
        .post(RequestBody::Tensors),
    get(
        "/generate",
        INFERENCE,
        "generate",
        "Runs a model on plain JSON, for one response.",
        ReplyBody::Json("GenerateResponse"),
    )
    .post(RequestBody::Json("GenerateRequest")),
    get(
        "/generate_stream",
        INFERENCE,
        "generateStream",
        "Runs a model on plain JSON, for any number of responses.",
        ReplyBody::Events,
    )
    .post(RequestBody::Json("GenerateRequest")),
    get(
        "/empty_cache",
        REPOSITORY,
        "emptyCache",
        "Removes the model's answers from the response cache.",
        ReplyBody::Json("EmptiedCache"),
    )
    .post(RequestBody::Nothing),
];

/// The paths of all routes.
pub(super) fn paths() -> Paths {
    let mut paths = Paths::new();
    for route in ROUTES {
        add(&mut paths, route.path, route, route.id);
    }
    for route in MODEL_ROUTES {
        add(&mut paths, &format!("/v2/models/{{model}}{}", route.path), route, route.id);
        let of_version = format!("/v2/models/{{model}}/versions/{{version}}{}", route.path);
        add(&mut paths, &of_version, route, &format!("{}OfVersion", route.id));
    }
    paths
}

fn add(paths: &mut Paths, path: &str, operation: &HttpOperation, id: &str) {
    let item = paths.entry(path).or_insert_with(|| {
        let parameters: Vec<_> = parameters(path).collect();
        if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
    });
    item[operation.method] = operation.describe(id);
}
