/*
 * Nereid's C interfaces, name by name and number by number those of Triton Inference Server:
 *
 *   TRITONSERVER_*     a server in your own process
 *   TRITONBACKEND_*    for shared libraries that run models, and that decide what joins a batch
 *   TRITONCACHE_*      for shared libraries that keep responses
 *   TRITONREPOAGENT_*  for shared libraries that look after the files of models
 *
 * Plug-ins define the functions that are marked NEREID_PLUGIN, as far as their kind needs them, and
 * find all others in the server that loads them. Programs find them in libtritonserver.so.
 *
 * A text ends with a NUL and is UTF-8. What is handed out as const belongs to the object it was
 * asked of, and lives as long. Null where something is needed is answered with an error. Functions
 * may be called from any thread; an object is for one thread at a time.
 *
 * Written by `cargo xtask header` from crates/c-api/abi and from the sources of the functions. Not to
 * be edited.
 */
#ifndef NEREID_H
#define NEREID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NEREID_VISIBLE __attribute__((visibility("default")))
#else
#define NEREID_VISIBLE
#endif

/** A function that plug-ins define. Seen by the server even where symbols are hidden by default. */
#define NEREID_PLUGIN NEREID_VISIBLE

/* Marks that sources written for Triton carry. */
#define TRITONSERVER_DECLSPEC
#define TRITONBACKEND_DECLSPEC
#define TRITONBACKEND_ISPEC NEREID_PLUGIN
#define TRITONCACHE_DECLSPEC
#define TRITONCACHE_ISPEC NEREID_PLUGIN
#define TRITONREPOAGENT_DECLSPEC
#define TRITONREPOAGENT_ISPEC NEREID_PLUGIN

#ifdef __cplusplus
extern "C" {
#endif

/* ---- TRITONSERVER: types --------------------------------------------------------------------- */

#define TRITONSERVER_API_VERSION_MAJOR 1
#define TRITONSERVER_API_VERSION_MINOR 34

/** The location and the size of a buffer. */
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;

/** An error. Null is success. The receiver of an error must delete it. */
typedef struct TRITONSERVER_Error TRITONSERVER_Error;

/** A request to a model. It may be sent again after it has been released. */
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;

/** One response of a model. */
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;

/** Reports by callbacks what happens to a request, and when. */
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;

/** JSON. */
typedef struct TRITONSERVER_Message TRITONSERVER_Message;

/** The metrics of the server at one time. */
typedef struct TRITONSERVER_Metrics TRITONSERVER_Metrics;

/** A value with a name. */
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;

/** The functions that allocate memory for outputs. It must outlive all requests that name it. */
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;

/** A server in this process. */
typedef struct TRITONSERVER_Server TRITONSERVER_Server;

/** The options of a server. */
typedef struct TRITONSERVER_ServerOptions TRITONSERVER_ServerOptions;

/** One value of a family, with its labels. */
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;

/** Metrics that share a name and differ in their labels. */
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;

/** The arguments of a metric besides its labels. */
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;

/** The type of a tensor's elements. */
typedef enum TRITONSERVER_datatype_enum {
  TRITONSERVER_TYPE_INVALID = 0,
  TRITONSERVER_TYPE_BOOL = 1,
  TRITONSERVER_TYPE_UINT8 = 2,
  TRITONSERVER_TYPE_UINT16 = 3,
  TRITONSERVER_TYPE_UINT32 = 4,
  TRITONSERVER_TYPE_UINT64 = 5,
  TRITONSERVER_TYPE_INT8 = 6,
  TRITONSERVER_TYPE_INT16 = 7,
  TRITONSERVER_TYPE_INT32 = 8,
  TRITONSERVER_TYPE_INT64 = 9,
  TRITONSERVER_TYPE_FP16 = 10,
  TRITONSERVER_TYPE_FP32 = 11,
  TRITONSERVER_TYPE_FP64 = 12,
  TRITONSERVER_TYPE_BYTES = 13,
  TRITONSERVER_TYPE_BF16 = 14
} TRITONSERVER_DataType;

/** The kind of memory. A number beside it names the memory among those of its kind. */
typedef enum TRITONSERVER_memorytype_enum {
  TRITONSERVER_MEMORY_CPU = 0,
  TRITONSERVER_MEMORY_CPU_PINNED = 1,
  TRITONSERVER_MEMORY_GPU = 2
} TRITONSERVER_MemoryType;

/**
 * The type of a parameter's value. A text is passed as const char*, another value as a pointer to
 * it.
 */
typedef enum TRITONSERVER_parametertype_enum {
  TRITONSERVER_PARAMETER_STRING = 0,
  TRITONSERVER_PARAMETER_INT = 1,
  TRITONSERVER_PARAMETER_BOOL = 2,
  TRITONSERVER_PARAMETER_DOUBLE = 3,
  TRITONSERVER_PARAMETER_BYTES = 4
} TRITONSERVER_ParameterType;

/** Where the instances of a group run. */
typedef enum TRITONSERVER_instancegroupkind_enum {
  TRITONSERVER_INSTANCEGROUPKIND_AUTO = 0,
  TRITONSERVER_INSTANCEGROUPKIND_CPU = 1,
  TRITONSERVER_INSTANCEGROUPKIND_GPU = 2,
  TRITONSERVER_INSTANCEGROUPKIND_MODEL = 3
} TRITONSERVER_InstanceGroupKind;

/** The level of a log line. */
typedef enum TRITONSERVER_loglevel_enum {
  TRITONSERVER_LOG_INFO = 0,
  TRITONSERVER_LOG_WARN = 1,
  TRITONSERVER_LOG_ERROR = 2,
  TRITONSERVER_LOG_VERBOSE = 3
} TRITONSERVER_LogLevel;

/** The format of log lines. */
typedef enum TRITONSERVER_logformat_enum {
  TRITONSERVER_LOG_DEFAULT = 0,
  TRITONSERVER_LOG_ISO8601 = 1
} TRITONSERVER_LogFormat;

/** The kind of an error. */
typedef enum TRITONSERVER_errorcode_enum {
  TRITONSERVER_ERROR_UNKNOWN = 0,
  TRITONSERVER_ERROR_INTERNAL = 1,
  TRITONSERVER_ERROR_NOT_FOUND = 2,
  TRITONSERVER_ERROR_INVALID_ARG = 3,
  TRITONSERVER_ERROR_UNAVAILABLE = 4,
  TRITONSERVER_ERROR_UNSUPPORTED = 5,
  TRITONSERVER_ERROR_ALREADY_EXISTS = 6,
  TRITONSERVER_ERROR_CANCELLED = 7
} TRITONSERVER_Error_Code;

/** The text format of metrics. */
typedef enum tritonserver_metricformat_enum {
  TRITONSERVER_METRIC_PROMETHEUS = 0
} TRITONSERVER_MetricFormat;

/** What a trace reports. The last two are bits. MIN and MAX are old names of TIMESTAMPS. */
typedef enum tritonserver_tracelevel_enum {
  TRITONSERVER_TRACE_LEVEL_DISABLED = 0,
  TRITONSERVER_TRACE_LEVEL_MIN = 1,
  TRITONSERVER_TRACE_LEVEL_MAX = 2,
  TRITONSERVER_TRACE_LEVEL_TIMESTAMPS = 4,
  TRITONSERVER_TRACE_LEVEL_TENSORS = 8
} TRITONSERVER_InferenceTraceLevel;

/** The activity that a trace reports. */
typedef enum tritonserver_traceactivity_enum {
  TRITONSERVER_TRACE_REQUEST_START = 0,
  TRITONSERVER_TRACE_QUEUE_START = 1,
  TRITONSERVER_TRACE_COMPUTE_START = 2,
  TRITONSERVER_TRACE_COMPUTE_INPUT_END = 3,
  TRITONSERVER_TRACE_COMPUTE_OUTPUT_START = 4,
  TRITONSERVER_TRACE_COMPUTE_END = 5,
  TRITONSERVER_TRACE_REQUEST_END = 6,
  TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT = 7,
  TRITONSERVER_TRACE_TENSOR_BACKEND_INPUT = 8,
  TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT = 9,
  TRITONSERVER_TRACE_CUSTOM_ACTIVITY = 10
} TRITONSERVER_InferenceTraceActivity;

/** Flags of a request: its position in its sequence. */
typedef enum tritonserver_requestflag_enum {
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
} TRITONSERVER_RequestFlag;

/** Flags of a release: the request is finished, or is executed again. */
typedef enum tritonserver_requestreleaseflag_enum {
  TRITONSERVER_REQUEST_RELEASE_ALL = 1,
  TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
} TRITONSERVER_RequestReleaseFlag;

/** Flags of a response: no response follows. */
typedef enum tritonserver_responsecompleteflag_enum {
  TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
} TRITONSERVER_ResponseCompleteFlag;

/** When models are loaded. */
typedef enum tritonserver_modelcontrolmode_enum {
  TRITONSERVER_MODEL_CONTROL_NONE = 0,
  TRITONSERVER_MODEL_CONTROL_POLL = 1,
  TRITONSERVER_MODEL_CONTROL_EXPLICIT = 2
} TRITONSERVER_ModelControlMode;

/** Whether executions wait for resources. */
typedef enum tritonserver_ratelimitmode_enum {
  TRITONSERVER_RATE_LIMIT_OFF = 0,
  TRITONSERVER_RATE_LIMIT_EXEC_COUNT = 1
} TRITONSERVER_RateLimitMode;

/** Flags of a model: whether the first dimension of its tensors is the batch. */
typedef enum tritonserver_batchflag_enum {
  TRITONSERVER_BATCH_UNKNOWN = 1,
  TRITONSERVER_BATCH_FIRST_DIM = 2
} TRITONSERVER_ModelBatchFlag;

/** Flags of a request for the index: only models that are ready. */
typedef enum tritonserver_modelindexflag_enum {
  TRITONSERVER_INDEX_FLAG_READY = 1
} TRITONSERVER_ModelIndexFlag;

/** Flags of a model: one response to each request, or any number. */
typedef enum tritonserver_txn_property_flag_enum {
  TRITONSERVER_TXN_ONE_TO_ONE = 1,
  TRITONSERVER_TXN_DECOUPLED = 2
} TRITONSERVER_ModelTxnPropertyFlag;

/** The kind of a metric. */
typedef enum TRITONSERVER_metrickind_enum {
  TRITONSERVER_METRIC_KIND_COUNTER = 0,
  TRITONSERVER_METRIC_KIND_GAUGE = 1,
  TRITONSERVER_METRIC_KIND_HISTOGRAM = 2
} TRITONSERVER_MetricKind;

/**
 * Allocates memory for an output. The memory type is the one that the model prefers. The buffer may
 * be null if byte_size is 0.
 */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void *userp, void **buffer,
    void **buffer_userp, TRITONSERVER_MemoryType *actual_memory_type,
    int64_t *actual_memory_type_id);

/** Completes the attributes of a buffer that has just been allocated. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name,
    TRITONSERVER_BufferAttributes *buffer_attributes, void *userp, void *buffer_userp);

/**
 * Returns where memory for an output would lie. The name and the size may be null, which means not
 * known yet.
 */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp, const char *tensor_name,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** Frees memory when its response is deleted. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/** Called when a response begins. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorStartFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp);

/**
 * Receives a record of the log: the file and the line of its source, the time in microseconds since
 * 1970, and its text. A thread for these calls makes them, one after the other. What a program or a
 * plug-in logs by TRITONSERVER_LogMessage comes at once, on the thread that logs it. The texts are
 * valid until the function returns.
 */
typedef void (*TRITONSERVER_LogCallbackFn_t)(
    TRITONSERVER_LogLevel level, const char *filename, int line, uint64_t timestamp_us,
    const char *message, void *userp);

/** Receives an activity of a traced request. Several threads may call it at once. */
typedef void (*TRITONSERVER_InferenceTraceActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    uint64_t timestamp_ns, void *userp);

/** Receives a tensor of a traced request. The function must not use the tensor after it returns. */
typedef void (*TRITONSERVER_InferenceTraceTensorActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    const char *name, TRITONSERVER_DataType datatype, const void *base, size_t byte_size,
    const int64_t *shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, void *userp);

/** Receives a trace, and must delete it. */
typedef void (*TRITONSERVER_InferenceTraceReleaseFn_t)(
    TRITONSERVER_InferenceTrace *trace, void *userp);

/** Receives a request whose inputs are no longer read. Responses may still follow. */
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(
    TRITONSERVER_InferenceRequest *request, uint32_t flags, void *userp);

/** Receives a response, and must delete it. The response is null if the call has only flags. */
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(
    TRITONSERVER_InferenceResponse *response, uint32_t flags, void *userp);

/* ---- TRITONBACKEND: types -------------------------------------------------------------------- */

#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19

/** Gives memory to backends. */
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;

/** A tensor of a request. */
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;

/** A tensor of a response. */
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;

/** A state of a sequence. */
typedef struct TRITONBACKEND_State TRITONBACKEND_State;

/** A request that a backend holds. */
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;

/** Makes responses to a request, also after the request has been released. */
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;

/** A response that a backend is making. */
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;

/** A backend: one per library and name. */
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;

/** A version of a model that a backend runs. */
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;

/** One executable copy of a model. */
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;

/** The times of one of several responses. */
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics TRITONBACKEND_ModelInstanceResponseStatistics;

/** What a backend declares about itself. */
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;

/** What a batching strategy stores about a model. The strategy owns it. */
typedef struct TRITONBACKEND_Batcher TRITONBACKEND_Batcher;

/** The kind of location of a model's files. */
typedef enum TRITONBACKEND_artifacttype_enum {
  TRITONBACKEND_ARTIFACT_FILESYSTEM = 0
} TRITONBACKEND_ArtifactType;

/** Whether an execution blocks the instance's thread, or the thread of its device. */
typedef enum TRITONBACKEND_execpolicy_enum {
  TRITONBACKEND_EXECUTION_BLOCKING = 0,
  TRITONBACKEND_EXECUTION_DEVICE_BLOCKING = 1
} TRITONBACKEND_ExecutionPolicy;

/* ---- TRITONCACHE: types ---------------------------------------------------------------------- */

#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

/** A cache. The cache's library owns it. */
typedef struct TRITONCACHE_Cache TRITONCACHE_Cache;

/** The buffers of an entry that is to be stored or has been found. */
typedef struct TRITONCACHE_CacheEntry TRITONCACHE_CacheEntry;

/** Copies between an entry's buffers and the server. A cache passes it on unchanged. */
typedef struct TRITONCACHE_Allocator TRITONCACHE_Allocator;

/* ---- TRITONREPOAGENT: types ------------------------------------------------------------------ */

#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

/** An agent: one per library. */
typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;

/** A model that an agent acts on. */
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

/** The kind of location of a model's files. */
typedef enum TRITONREPOAGENT_artifacttype_enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1
} TRITONREPOAGENT_ArtifactType;

/**
 * The steps of a model's life. First LOAD, then LOAD_FAIL or LOAD_COMPLETE, UNLOAD and
 * UNLOAD_COMPLETE.
 */
typedef enum TRITONREPOAGENT_actiontype_enum {
  TRITONREPOAGENT_ACTION_LOAD = 0,
  TRITONREPOAGENT_ACTION_LOAD_COMPLETE = 1,
  TRITONREPOAGENT_ACTION_LOAD_FAIL = 2,
  TRITONREPOAGENT_ACTION_UNLOAD = 3,
  TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE = 4
} TRITONREPOAGENT_ActionType;

/* ---- TRITONSERVER: functions of the server --------------------------------------------------- */

/** Returns the version of this interface. */
TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor);

/**
 * Returns the name of a datatype, such as FP32; <invalid> for other numbers. Never null; static.
 */
const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);

/** Returns the datatype of a name such as FP32; 0 (invalid) for others. */
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *dtype);

/** Returns the bytes of one element; 0 for BYTES and for other numbers. */
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

/** Returns the name of a memory type. Never null; static. */
const char *TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype);

/** Returns the name of a parameter's type. Never null; static. */
const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType paramtype);

/**
 * Makes a parameter of a text, an integer, a boolean or a double, which is copied. Returns null for
 * bytes and for an unknown type. The caller owns the parameter.
 */
TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(
    const char *name, TRITONSERVER_ParameterType type, const void *value);

/**
 * Makes a parameter of that many bytes, which are copied. Returns null without a name. The caller
 * owns the parameter.
 */
TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(
    const char *name, const void *byte_ptr, uint64_t size);

/** Deletes a parameter; null is fine. */
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter);

/** Returns the name of an instance group's kind. Never null; static. */
const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind);

/** Returns whether messages of that level are logged. */
bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);

/** Logs a message with the given file and line of the plug-in's source. */
TRITONSERVER_Error *TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char *filename, int line, const char *msg);

/**
 * Makes an error. A code out of range becomes unknown, a null message becomes empty. The caller
 * owns the error.
 */
TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *msg);

/** Deletes an error; null is fine. */
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error);

/** Returns the code of an error; 0 (unknown) for null. */
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error);

/** Returns the name of an error's code. It belongs to the error. */
const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error);

/** Returns the message of an error. It belongs to the error. */
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error);

/**
 * Makes an allocator from functions of the application, of which the last may be null. The caller
 * owns it.
 */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator **allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn);

/** Sets the function that describes buffers after they were allocated. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator *allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);

/** Sets the function that states the preferred memory before any is allocated. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator *allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);

/** Deletes an allocator; null is fine. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator);

/** Parses that many bytes of JSON and copies them. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(
    TRITONSERVER_Message **message, const char *base, size_t byte_size);

/** Deletes a message; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message);

/**
 * Returns the JSON of a message. It belongs to the message. It has a closing NUL, which byte_size
 * does not count.
 */
TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(
    TRITONSERVER_Message *message, const char **base, size_t *byte_size);

/** Deletes metrics; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics *metrics);

/** Reads the metrics. The text belongs to the handle until the handle is read again or deleted. */
TRITONSERVER_Error *TRITONSERVER_MetricsFormatted(
    TRITONSERVER_Metrics *metrics, TRITONSERVER_MetricFormat format, const char **base,
    size_t *byte_size);

/**
 * Returns the name of a trace level; <unknown> for other numbers and combinations. Never null;
 * static.
 */
const char *TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level);

/** Returns the name of an activity; <unknown> for other numbers. Never null; static. */
const char *TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_InferenceTraceActivity activity);

/** Makes a trace that reports times. The caller owns it until a request takes it. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/** Makes a trace that reports times and tensors. The caller owns it until a request takes it. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/**
 * Reports an activity with a name of the caller's choice, which the context stores. Does nothing
 * for null or without timestamps.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(
    TRITONSERVER_InferenceTrace *trace, uint64_t timestamp, const char *activity_name);

/** Deletes a trace; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace *trace);

/** Returns the id of a trace, unique in the process. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace *trace, uint64_t *id);

/** Returns the id of the parent trace; 0 if there is none. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceParentId(
    TRITONSERVER_InferenceTrace *trace, uint64_t *parent_id);

/** Returns the model of the traced request. The name belongs to the trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelName(
    TRITONSERVER_InferenceTrace *trace, const char **model_name);

/** Returns the version of the model of the traced request. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelVersion(
    TRITONSERVER_InferenceTrace *trace, int64_t *model_version);

/** Returns the id of the traced request. It belongs to the trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceRequestId(
    TRITONSERVER_InferenceTrace *trace, const char **request_id);

/**
 * Makes a child trace of the same kind; null for null, and if the server does not trace further
 * requests. The caller owns it until a request takes it.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceSpawnChildTrace(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTrace **child_trace);

/** Replaces the context of a trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceSetContext(
    TRITONSERVER_InferenceTrace *trace, const char *trace_context);

/** Returns the context of a trace. It belongs to the trace until it is replaced. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceContext(
    TRITONSERVER_InferenceTrace *trace, const char **trace_context);

/**
 * Makes a request for a version of a model; -1 for the version that the server selects. The caller
 * owns it.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest **inference_request, TRITONSERVER_Server *server,
    const char *model_name, int64_t model_version);

/** Deletes a request; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest *inference_request);

/** Returns the id. It belongs to the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestId(
    TRITONSERVER_InferenceRequest *inference_request, const char **id);

/** Sets the id, which is copied. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(
    TRITONSERVER_InferenceRequest *inference_request, const char *id);

/** Returns the flags of the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestFlags(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t *flags);

/** Sets the flags of the request: 1 begins a sequence, 2 ends it. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetFlags(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t flags);

/** Returns the correlation id if it is a number; 0 for none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *correlation_id);

/** Returns the correlation id if it is a text. It belongs to the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char **correlation_id);

/** Sets the correlation id to a number; 0 is none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationId(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t correlation_id);

/** Sets the correlation id to a text, which is copied; empty is none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char *correlation_id);

/** Cancels a request that was sent. The request still gets a response. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest *inference_request);

/** Returns whether the request was cancelled since it was sent. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest *inference_request, bool *is_cancelled);

/** Returns the priority level if it fits in 32 bits. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriority(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t *priority);

/** Returns the priority level. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriorityUInt64(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *priority);

/** Sets the priority level. See TRITONSERVER_InferenceRequestSetPriorityUInt64. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriority(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t priority);

/**
 * Sets the priority level; 1 is the most urgent. 0, and levels that the model does not have, mean
 * its default level.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriorityUInt64(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t priority);

/** Returns how long the request may wait in its queue, in microseconds; 0 for no limit. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *timeout_us);

/** Sets how long the request may wait in its queue, in microseconds; 0 for no limit. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t timeout_us);

/** Adds an input without data. Name and shape are copied. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint64_t dim_count);

/**
 * Adds the only input of the request. Its name, datatype and shape follow from the model's
 * configuration.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRawInput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Removes an input. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveInput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Removes all inputs. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllInputs(
    TRITONSERVER_InferenceRequest *inference_request);

/**
 * Appends memory to an input. The memory is not copied. The application must not change it until
 * the request is given back.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/**
 * Appends memory to the contents of an input for instances with a host policy. The memory is not
 * copied. The application must not change it until the request is given back.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char *host_policy_name);

/**
 * Appends memory to an input, as large as its attributes say. The memory is not copied. The
 * application must not change it until the request is given back.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/** Removes the data of an input. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Requests an output. If no output is requested, all are given. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Removes a requested output, whether it was requested or not. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Removes all requested outputs. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest *inference_request);

/** Sets the callback that gives the request back. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void *request_release_userp);

/**
 * Sets the callback that receives the responses, and the allocator of their outputs. The allocator
 * must outlive all responses.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_ResponseAllocator *response_allocator, void *response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void *response_userp);

/** Adds a text for the model. The text is copied. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, const char *value);

/** Adds an integer for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, int64_t value);

/** Adds a boolean for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, bool value);

/** Adds a double for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, double value);

/** Deletes a response, which gives its buffers back to the allocator; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(
    TRITONSERVER_InferenceResponse *inference_response);

/**
 * Returns the error of the request; null if it has none. Each call makes a new error, which the
 * caller owns.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(
    TRITONSERVER_InferenceResponse *inference_response);

/** Returns the name and the version of the model. The name belongs to the response. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseModel(
    TRITONSERVER_InferenceResponse *inference_response, const char **model_name,
    int64_t *model_version);

/** Returns the id of the request. It belongs to the response. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseId(
    TRITONSERVER_InferenceResponse *inference_response, const char **request_id);

/** Returns the number of parameters. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t *count);

/**
 * Returns a parameter, which belongs to the response. The value of a text is the text; the value of
 * other types is a pointer to it.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, const char **name,
    TRITONSERVER_ParameterType *type, const void **vvalue);

/** Returns the number of outputs. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t *count);

/**
 * Returns an output, which belongs to the response. userp is the pointer that the allocator has
 * set. Output parameters that the caller does not need may be null.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count, const void **base,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id, void **userp);

/**
 * Returns the label of a class of an output; null if it has none. The label belongs to the
 * response.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, size_t class_index,
    const char **label);

/** Makes the attributes of an empty buffer in host memory. The caller owns them. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(
    TRITONSERVER_BufferAttributes **buffer_attributes);

/** Deletes attributes; null is fine. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(
    TRITONSERVER_BufferAttributes *buffer_attributes);

/** Sets the number of the memory among those of its type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryTypeId(
    TRITONSERVER_BufferAttributes *buffer_attributes, int64_t memory_type_id);

/** Sets the memory type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryType(
    TRITONSERVER_BufferAttributes *buffer_attributes, TRITONSERVER_MemoryType memory_type);

/** Sets the handle by which other processes access the memory. The handle is not copied. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes *buffer_attributes, void *cuda_ipc_handle);

/** Sets the number of bytes. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetByteSize(
    TRITONSERVER_BufferAttributes *buffer_attributes, size_t byte_size);

/** Returns the number of the memory among those of its type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryTypeId(
    TRITONSERVER_BufferAttributes *buffer_attributes, int64_t *memory_type_id);

/** Returns the memory type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryType(
    TRITONSERVER_BufferAttributes *buffer_attributes, TRITONSERVER_MemoryType *memory_type);

/** Returns the handle by which other processes access the memory; null if there is none. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesCudaIpcHandle(
    TRITONSERVER_BufferAttributes *buffer_attributes, void **cuda_ipc_handle);

/** Returns the number of bytes. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesByteSize(
    TRITONSERVER_BufferAttributes *buffer_attributes, size_t *byte_size);

/**
 * Makes options with the default values. The caller owns them. The first call in the process
 * installs the log.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions **options);

/** Deletes options; null is fine. Servers that were made with them continue. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions *options);

/** Sets the name of the server. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetServerId(
    TRITONSERVER_ServerOptions *options, const char *server_id);

/** Adds a model repository. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    TRITONSERVER_ServerOptions *options, const char *model_repository_path);

/**
 * Sets when models are loaded: 0 is once, at the start; 1 is also when the program asks to look for
 * changes; 2 is when the program loads them.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelControlMode(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_ModelControlMode mode);

/**
 * Names a model to load at the start if the program loads models: * stands for all. May be called
 * several times.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStartupModel(
    TRITONSERVER_ServerOptions *options, const char *model_name);

/** Sets whether configurations must be complete. If not, backends complete them. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStrictModelConfig(
    TRITONSERVER_ServerOptions *options, bool strict);

/** Sets which configuration of a model is used; empty for the default one. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelConfigName(
    TRITONSERVER_ServerOptions *options, const char *model_config_name);

/**
 * Sets the rate limiter: 0 for none, 1 if instances share resources in the order of how often they
 * ran.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetRateLimiterMode(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_RateLimitMode mode);

/**
 * Adds units of a resource on a device; -1 for each device. If a resource is set twice, the smaller
 * number counts.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsAddRateLimiterResource(
    TRITONSERVER_ServerOptions *options, const char *resource_name, size_t resource_count,
    int device);

/** Sets how much page-locked memory to reserve; without effect. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(
    TRITONSERVER_ServerOptions *options, uint64_t size);

/** Sets how much memory of a GPU to reserve; without effect. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(
    TRITONSERVER_ServerOptions *options, int gpu_device, uint64_t size);

/** Sets how much address space of a GPU to reserve; without effect. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    TRITONSERVER_ServerOptions *options, int gpu_device, size_t cuda_virtual_address_size);

/** Switches the cache local on with that size in bytes, or off with 0. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    TRITONSERVER_ServerOptions *options, uint64_t size);

/** Switches a response cache on. Its settings are a JSON object of texts, numbers and booleans. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheConfig(
    TRITONSERVER_ServerOptions *options, const char *cache_name, const char *config_json);

/** Sets the directory of caches. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheDirectory(
    TRITONSERVER_ServerOptions *options, const char *cache_dir);

/** Sets the lowest compute capability of usable GPUs. Nereid passes it to backends. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    TRITONSERVER_ServerOptions *options, double cc);

/** Sets whether making the server fails if a model cannot be loaded. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetExitOnError(
    TRITONSERVER_ServerOptions *options, bool exit);

/** Sets whether the server is ready only if all its models are. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStrictReadiness(
    TRITONSERVER_ServerOptions *options, bool strict);

/** Sets how many seconds stopping may take. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetExitTimeout(
    TRITONSERVER_ServerOptions *options, unsigned int timeout);

/** Sets how many threads copy inputs and outputs; without effect, as Nereid has no such threads. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(
    TRITONSERVER_ServerOptions *options, unsigned int thread_count);

/** Sets how many model versions load at the same time. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    TRITONSERVER_ServerOptions *options, unsigned int thread_count);

/** Sets how often a load that has failed is tried again. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    TRITONSERVER_ServerOptions *options, unsigned int retry_count);

/** Sets whether several repositories may have models of the same name. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelNamespacing(
    TRITONSERVER_ServerOptions *options, bool enable_namespace);

/** Sets whether GPUs may access each other's memory; without effect. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    TRITONSERVER_ServerOptions *options, bool enable_peer_access);

/** Sets the file that log lines are appended to. Null and the empty text mean stdout and stderr. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFile(
    TRITONSERVER_ServerOptions *options, const char *file);

/**
 * Sets a function that receives each record of a level that is logged; null for none. The records
 * go to no file, stdout or stderr then, except for those that the function itself logs, and if
 * 10,000 records wait for it. A call that has begun may go on after this returns.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogCallback(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_LogCallbackFn_t callback_fn, void *userp);

/** Sets whether normal operation is logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogInfo(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets whether warnings are logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogWarn(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets whether errors are logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogError(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets the format of log lines: 0 for the default, 1 for ISO 8601. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFormat(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_LogFormat format);

/** Sets the verbosity; 0 and less for none. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogVerbose(
    TRITONSERVER_ServerOptions *options, int level);

/** Sets whether the server shows its own metrics. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetrics(
    TRITONSERVER_ServerOptions *options, bool metrics);

/** Sets whether the metrics contain GPUs; without effect, as Nereid uses none. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetGpuMetrics(
    TRITONSERVER_ServerOptions *options, bool gpu_metrics);

/** Sets whether the metrics contain processors and memory of the host. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCpuMetrics(
    TRITONSERVER_ServerOptions *options, bool cpu_metrics);

/** Sets the interval of measured values: a measurement is used for half of it. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetricsInterval(
    TRITONSERVER_ServerOptions *options, uint64_t metrics_interval_ms);

/** Sets the directory of backends. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBackendDirectory(
    TRITONSERVER_ServerOptions *options, const char *backend_dir);

/** Sets the directory of repository agents. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    TRITONSERVER_ServerOptions *options, const char *repoagent_dir);

/**
 * Sets how full the memory of a GPU may be when a model is loaded onto it. Nereid passes it to
 * backends.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_InstanceGroupKind kind, int device_id,
    double fraction);

/** Sets a setting of a backend, or of all backends if its name is empty. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBackendConfig(
    TRITONSERVER_ServerOptions *options, const char *backend_name, const char *setting,
    const char *value);

/**
 * Sets a host policy, which determines where the instances of its groups run: numa-node or
 * cpu-cores.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetHostPolicy(
    TRITONSERVER_ServerOptions *options, const char *policy_name, const char *setting,
    const char *value);

/**
 * Sets which latencies are shown. The name is empty. Unknown names and settings have no effect, as
 * in Triton.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetricsConfig(
    TRITONSERVER_ServerOptions *options, const char *name, const char *setting, const char *value);

/**
 * Makes a server with these options. Returns when each model is ready or has failed. The caller
 * owns the server.
 */
TRITONSERVER_Error *TRITONSERVER_ServerNew(
    TRITONSERVER_Server **server, TRITONSERVER_ServerOptions *options);

/**
 * Stops a server and deletes it; null is fine. Returns when all threads of the server have ended,
 * except for the thread of a callback that calls this function. A server that does not stop within
 * its time limit is not deleted. Requests, responses and metrics of the server must be deleted
 * before.
 */
TRITONSERVER_Error *TRITONSERVER_ServerDelete(TRITONSERVER_Server *server);

/**
 * Stops a server: it takes no new requests, finishes the ones it has, unloads all models and waits
 * for callbacks. It does not wait for a callback that calls this function. Null, and a server that
 * has stopped, are fine.
 */
TRITONSERVER_Error *TRITONSERVER_ServerStop(TRITONSERVER_Server *server);

/** Sets how many seconds stopping may take; null is fine. */
TRITONSERVER_Error *TRITONSERVER_ServerSetExitTimeout(
    TRITONSERVER_Server *server, unsigned int timeout);

/**
 * Adds a model repository. The mapping gives models other names than their directories have: one or
 * more for each directory. A mapped name has priority over directories of that name in other
 * repositories. Refused unless the models are loaded explicitly.
 */
TRITONSERVER_Error *TRITONSERVER_ServerRegisterModelRepository(
    TRITONSERVER_Server *server, const char *repository_path,
    const TRITONSERVER_Parameter **name_mapping, uint32_t mapping_count);

/**
 * Removes a model repository. Its models stay loaded. Refused unless the models are loaded
 * explicitly.
 */
TRITONSERVER_Error *TRITONSERVER_ServerUnregisterModelRepository(
    TRITONSERVER_Server *server, const char *repository_path);

/**
 * Looks for changes in the repositories and performs them. Returns when the loads that follow have
 * ended. Refused unless the server polls. Does nothing while the server is not ready.
 */
TRITONSERVER_Error *TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server *server);

/** Returns whether the server is live. */
TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server, bool *live);

/**
 * Returns whether the server is ready for requests. With strict readiness all models must be ready,
 * and their backends are asked too, which may block.
 */
TRITONSERVER_Error *TRITONSERVER_ServerIsReady(TRITONSERVER_Server *server, bool *ready);

/**
 * Returns whether a version of a model is ready; -1 for any version. Its backend is asked too,
 * which may block. A model that is not there is not ready.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelIsReady(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, bool *ready);

/**
 * Returns how a model takes batches: 1 in no known way, 2 in the first dimension of its tensors.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelBatchProperties(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, uint32_t *flags,
    void **voidp);

/** Returns how many responses a request to a model has: 1 exactly one, 2 any number. */
TRITONSERVER_Error *TRITONSERVER_ServerModelTransactionProperties(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, uint32_t *txn_flags,
    void **voidp);

/** Returns name, version and extensions of the server. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_ServerMetadata(
    TRITONSERVER_Server *server, TRITONSERVER_Message **server_metadata);

/**
 * Returns versions, inputs and outputs of a model; -1 for all versions. The caller owns the
 * message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelMetadata(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    TRITONSERVER_Message **model_metadata);

/**
 * Returns the statistics of a model, -1 for all its versions, or of all models if the name is
 * empty. The caller owns the message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelStatistics(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    TRITONSERVER_Message **model_stats);

/**
 * Returns the configuration of a model. The version of the configuration format must be 1. The
 * caller owns the message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelConfig(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    uint32_t config_version, TRITONSERVER_Message **model_config);

/**
 * Returns all models and their states; with flag 1 those that are ready. The caller owns the
 * message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelIndex(
    TRITONSERVER_Server *server, uint32_t flags, TRITONSERVER_Message **model_index);

/** Loads or reloads a model. Returns when it is ready or has failed. */
TRITONSERVER_Error *TRITONSERVER_ServerLoadModel(
    TRITONSERVER_Server *server, const char *model_name);

/**
 * Loads a model with a configuration or files of the caller: the string parameter config, and
 * parameters of bytes whose names are file: and a path. Their content is copied.
 */
TRITONSERVER_Error *TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server *server, const char *model_name, const TRITONSERVER_Parameter **parameters,
    uint64_t parameter_count);

/** Unloads a model. */
TRITONSERVER_Error *TRITONSERVER_ServerUnloadModel(
    TRITONSERVER_Server *server, const char *model_name);

/** Unloads a model. Its dependents are ignored: no model of this server depends on another. */
TRITONSERVER_Error *TRITONSERVER_ServerUnloadModelAndDependents(
    TRITONSERVER_Server *server, const char *model_name);

/** Makes a handle on the metrics of a server. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_ServerMetrics(
    TRITONSERVER_Server *server, TRITONSERVER_Metrics **metrics);

/**
 * Sends a request. On success the server owns the request until it calls the release callback. On
 * an error the caller keeps the request and no callback is made. The server owns the trace in
 * either case. Callbacks may come before this function returns. They run on threads that the server
 * has for callbacks only, so they may block, and wait for other requests. The responses of one
 * request come one after the other. While 64 callbacks have not returned, further callbacks wait
 * until one of them returns. The release callback comes when no code reads the memory of the inputs
 * any more, before or after responses; without inputs, after the last response. The trace reports
 * each activity soon after it happens, in order, before the response that follows it.
 */
TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server *server, TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceTrace *trace);

/**
 * Makes a handle of the family of that name. The family is registered if it does not exist. The
 * caller owns the handle.
 */
TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(
    TRITONSERVER_MetricFamily **family, TRITONSERVER_MetricKind kind, const char *name,
    const char *description);

/**
 * Deletes the handle of a family; null is fine. Refused while metrics that were made through it
 * exist.
 */
TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family);

/** Returns the kind of a family. */
TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(
    TRITONSERVER_MetricFamily *family, TRITONSERVER_MetricKind *kind);

/** Makes empty arguments. The caller owns them. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args);

/** Sets the bounds of a histogram, which are copied. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(
    TRITONSERVER_MetricArgs *args, const double *buckets, uint64_t buckets_count);

/** Deletes arguments; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args);

/** Makes a handle of the metric with these labels, which are copied. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_MetricNew(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
    const TRITONSERVER_Parameter **labels, uint64_t label_count);

/**
 * Makes a handle of the metric with these labels and arguments, which are copied. The caller owns
 * it.
 */
TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
    const TRITONSERVER_Parameter **labels, uint64_t label_count,
    const TRITONSERVER_MetricArgs *args);

/**
 * Deletes the handle of a metric; null is fine. The value is shown until the last handle with the
 * same labels is deleted.
 */
TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric);

/** Returns the value of a counter or gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value);

/** Adds to a counter or gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value);

/** Sets a gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value);

/** Counts a value in a histogram. */
TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value);

/** Returns the kind of a metric. */
TRITONSERVER_Error *TRITONSERVER_GetMetricKind(
    TRITONSERVER_Metric *metric, TRITONSERVER_MetricKind *kind);

/* ---- TRITONBACKEND: functions of the server -------------------------------------------------- */

/** Returns the version of the backend interface: 1.19. */
TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);

/**
 * Allocates memory. TRITONBACKEND_MemoryManagerFree frees it. Only ordinary host memory is
 * supported.
 */
TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(
    TRITONBACKEND_MemoryManager *manager, void **buffer, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, uint64_t byte_size);

/** Frees memory of TRITONBACKEND_MemoryManagerAllocate; null is fine. */
TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(
    TRITONBACKEND_MemoryManager *manager, void *buffer, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id);

/**
 * Returns the properties of an input. Each output parameter may be null. The shape includes the
 * batch dimension. Everything belongs to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input *input, const char **name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint32_t *dims_count, uint64_t *byte_size, uint32_t *buffer_count);

/**
 * Returns the properties of an input. The host policy is ignored: all host policies share one copy.
 */
TRITONSERVER_Error *TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint32_t *dims_count,
    uint64_t *byte_size, uint32_t *buffer_count);

/**
 * Returns a piece of an input: null and 0 bytes beyond the last. The memory belongs to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer, uint64_t *buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** Returns a piece of an input. The host policy is ignored: all host policies share one copy. */
TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, uint32_t index, const void **buffer,
    uint64_t *buffer_byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/**
 * Returns a piece of an input and its attributes: null beyond the last. Both belong to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
    TRITONSERVER_BufferAttributes **buffer_attributes);

/**
 * Allocates the memory of an output, which the library writes before it sends the response. The
 * memory belongs to the response. It is host memory, whatever memory type is preferred. It is
 * filled with zeros, unless the sender of the request provides it. A second call is ALREADY_EXISTS.
 */
TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output *output, void **buffer, uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** Returns the attributes of an output's memory. They belong to the response. */
TRITONSERVER_Error *TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output *output, TRITONSERVER_BufferAttributes **buffer_attributes);

/** Returns the request's id, empty if it has none. It belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id);

/** Returns whether the request was cancelled: its responses are no longer wanted. */
TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(
    TRITONBACKEND_Request *request, bool *is_cancelled);

/** Returns whether the request was cancelled: its responses are no longer wanted. */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(
    TRITONBACKEND_ResponseFactory *factory, bool *is_cancelled);

/**
 * Returns the correlation id if it is a number; 0 outside of sequences. INVALID_ARG if the id is a
 * text.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(
    TRITONBACKEND_Request *request, uint64_t *id);

/**
 * Returns the time limit that the client has set for the request, in microseconds; 0 for no limit.
 */
TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request *request, uint64_t *timeout);

/**
 * Returns the correlation id if it is a text. It belongs to the request. INVALID_ARG if the id is a
 * number.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(
    TRITONBACKEND_Request *request, const char **id);

/** Returns whether the request begins (1) or ends (2) its sequence. */
TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags);

/** Returns the number of parameters of the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/** Returns a parameter. Name and value belong to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestParameter(
    TRITONBACKEND_Request *request, uint32_t index, const char **key,
    TRITONSERVER_ParameterType *type, const void **vvalue);

/** Returns the number of inputs of the request, control and state inputs included. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/** Returns the name of an input. It belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **input_name);

/** Returns the input of that name. It belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInput(
    TRITONBACKEND_Request *request, const char *name, TRITONBACKEND_Input **input);

/** Returns an input by its index. It belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(
    TRITONBACKEND_Request *request, uint32_t index, TRITONBACKEND_Input **input);

/** Returns the number of requested outputs: those that the client named, or all. */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/** Returns the name of a requested output. The names are sorted, and belong to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **output_name);

/**
 * Returns where the buffer of an output will lie if it has that many bytes. Name and size may be
 * null. The library writes the memory type it prefers into the output parameters before the call.
 * If a program provides the memory of outputs, Nereid asks its query function. UNAVAILABLE if the
 * program has no query function.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request *request, const char *name, size_t *byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/**
 * Releases the request for good (1), or returns it so that it is executed again (2). On success the
 * library no longer owns the request. On an error the library still owns it.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(
    TRITONBACKEND_Request *request, uint32_t release_flags);

/**
 * Returns the trace of the request; null if it has none. The trace lives at least as long as the
 * request.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestTrace(
    TRITONBACKEND_Request *request, TRITONSERVER_InferenceTrace **trace);

/** Makes a factory for responses to a request. The library deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(
    TRITONBACKEND_ResponseFactory **factory, TRITONBACKEND_Request *request);

/**
 * Deletes a factory; null is fine. If the request has no final response and nothing can send one
 * any more, the request ends with an error.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory);

/** Sends the final flag (1) without a response: no further response follows. */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(
    TRITONBACKEND_ResponseFactory *factory, uint32_t send_flags);

/** Begins a response. The library sends or deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseNew(
    TRITONBACKEND_Response **response, TRITONBACKEND_Request *request);

/** Begins a response. The library sends or deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response **response, TRITONBACKEND_ResponseFactory *factory);

/** Deletes a response that is not sent; null is fine. */
TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);

/** Adds a text to the parameters of the response. The text is copied. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(
    TRITONBACKEND_Response *response, const char *name, const char *value);

/** Adds an integer to the parameters of the response. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(
    TRITONBACKEND_Response *response, const char *name, int64_t value);

/** Adds a boolean to the parameters of the response. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(
    TRITONBACKEND_Response *response, const char *name, bool value);

/** Adds a double to the parameters of the response. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(
    TRITONBACKEND_Response *response, const char *name, double value);

/**
 * Adds an output to the response. The shape includes the batch dimension and is copied. The output
 * belongs to the response.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response *response, TRITONBACKEND_Output **output, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t dims_count);

/**
 * Sends a response. The library no longer owns it afterwards. If error is not null, it is sent
 * instead; the library keeps owning the error.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response *response, uint32_t send_flags, TRITONSERVER_Error *error);

/**
 * Begins a new value of a state of the request's sequence. The shape is copied. The state belongs
 * to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_StateNew(
    TRITONBACKEND_State **state, TRITONBACKEND_Request *request, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t dims_count);

/** Stores the written value. The sequence's next request reads it. */
TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state);

/**
 * Gives memory for a state, to be written before the update; it belongs to the state, until the
 * update. It is host memory whatever was preferred. With use_same_buffer_for_input_output it is the
 * memory of the state's input, if that has the size, and what is written is remembered without an
 * update.
 */
TRITONSERVER_Error *TRITONBACKEND_StateBuffer(
    TRITONBACKEND_State *state, void **buffer, uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** Returns the attributes of a state's memory. They belong to the state. */
TRITONSERVER_Error *TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State *state, TRITONSERVER_BufferAttributes **buffer_attributes);

/** Returns the backend's name. It belongs to the backend. */
TRITONSERVER_Error *TRITONBACKEND_BackendName(TRITONBACKEND_Backend *backend, const char **name);

/**
 * Returns the settings of the command line as {"cmdline": {...}}. The message belongs to the
 * backend.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendConfig(
    TRITONBACKEND_Backend *backend, TRITONSERVER_Message **backend_config);

/**
 * Returns the execution policy: 0 if an instance blocks while it executes, 1 if all instances of
 * its device do.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy *policy);

/**
 * Sets the execution policy. It has no effect: only instances of GPUs share a thread by device, and
 * Nereid has none.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendSetExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy policy);

/**
 * Returns the directory where the backend was found (artifact type 0, a file system). The path
 * belongs to the backend.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ArtifactType *artifact_type,
    const char **location);

/** Returns the memory manager. It belongs to the backend. */
TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_MemoryManager **manager);

/** Returns the pointer that the library has stored with the backend; null at first. */
TRITONSERVER_Error *TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state);

/** Stores a pointer with the backend. The library keeps owning what it points to. */
TRITONSERVER_Error *TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *backend, void *state);

/** Returns the model's name. It belongs to the model. */
TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name);

/** Returns the version's number. */
TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model, uint64_t *version);

/**
 * Returns the model's directory (artifact type 0, a file system). The path belongs to the model.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model *model, TRITONBACKEND_ArtifactType *artifact_type, const char **location);

/**
 * Returns the configuration with its defaults, as JSON (version 1). The caller owns the message.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelConfig(
    TRITONBACKEND_Model *model, uint32_t config_version, TRITONSERVER_Message **model_config);

/** Returns whether the library should complete the configuration. */
TRITONSERVER_Error *TRITONBACKEND_ModelAutoCompleteConfig(
    TRITONBACKEND_Model *model, bool *auto_complete_config);

/**
 * Completes the configuration. Allowed only while the model is being initialized. The caller keeps
 * owning the message.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(
    TRITONBACKEND_Model *model, uint32_t config_version, TRITONSERVER_Message *model_config);

/** Returns the server of the model. It belongs to the program that made it. */
TRITONSERVER_Error *TRITONBACKEND_ModelServer(
    TRITONBACKEND_Model *model, TRITONSERVER_Server **server);

/** Returns the model's backend; null if the backend is not a shared library. */
TRITONSERVER_Error *TRITONBACKEND_ModelBackend(
    TRITONBACKEND_Model *model, TRITONBACKEND_Backend **backend);

/** Returns the pointer that the library has stored with the model; null at first. */
TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state);

/** Stores a pointer with the model. The library keeps owning what it points to. */
TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state);

/**
 * Reports how much memory of each kind the model uses besides its instances. It replaces the
 * previous report. The library keeps owning the attributes.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(
    TRITONBACKEND_Model *model, TRITONSERVER_BufferAttributes **usage, uint32_t usage_size);

/** Returns the instance's name, <group>_<index>. It belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceName(
    TRITONBACKEND_ModelInstance *instance, const char **name);

/** Returns the kind of device that the instance runs on; never AUTO. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceKind(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_InstanceGroupKind *kind);

/** Returns the device's number; 0 for host processors. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceDeviceId(
    TRITONBACKEND_ModelInstance *instance, int32_t *device_id);

/** Returns the host policy as {"<name>": {...}}. The message belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_Message **host_policy);

/** Returns whether the instance is passive: it never gets requests. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(
    TRITONBACKEND_ModelInstance *instance, bool *is_passive);

/** Returns the number of optimization profiles that the configuration gives the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);

/** Returns an optimization profile. It belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileName(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **profile_name);

/** Returns the number of secondary devices that the configuration gives the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);

/** Returns the kind and the number of a secondary device. The kind belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **kind, int64_t *id);

/** Returns the instance's model. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Model **model);

/** Returns the pointer that the library has stored with the instance; null at first. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(
    TRITONBACKEND_ModelInstance *instance, void **state);

/** Stores a pointer with the instance. The library keeps owning what it points to. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(
    TRITONBACKEND_ModelInstance *instance, void *state);

/**
 * Reports how much memory of each kind the instance uses. It replaces the previous report. The
 * library keeps owning the attributes.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_BufferAttributes **usage,
    uint32_t usage_size);

/**
 * Reports the times of a request before the library releases it. The success flag is ignored: the
 * responses have told whether the request succeeded.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns);

/** Makes an empty report. The library deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics **response_statistics);

/** Deletes a report; null is fine. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/** Sets the instance that made the response. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ModelInstance *model_instance);

/** Sets the request that the response belongs to, by a response factory. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ResponseFactory *response_factory);

/** Sets when the work on the response began. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_start);

/** Sets when its outputs were computed; 0 for a response without outputs. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    uint64_t compute_output_start);

/** Sets when the response was sent. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_end);

/** Sets the error of the response. The caller keeps owning the error. Only its code is used. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, TRITONSERVER_Error *error);

/** Reports a response: the next one of its request. Times that do not increase are an error. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/**
 * Reports the times of the latest batch of an instance. The batch size is ignored: the server knows
 * the number of rows.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns);

/**
 * Adds instance groups for models whose configuration names none, in the order of preference.
 * Device numbers are copied.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *backend_attributes, TRITONSERVER_InstanceGroupKind kind,
    uint64_t count, const uint64_t *device_ids, uint64_t id_count);

/** Sets whether instances may be initialized in parallel. */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled);

/** Returns the properties of the output of that name. The shape belongs to the response. */
TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutputByName(
    TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint64_t *dim_count);

/** Returns the properties of an output by its index. Name and shape belong to the response. */
TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutput(
    TRITONBACKEND_Response *response, uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count);

/* ---- TRITONBACKEND: functions of plug-ins ---------------------------------------------------- */

/** Optional. Called once for each name under which the library is loaded as a backend. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);

/** Optional. Called last; threads must have ended when it returns. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend);

/**
 * Optional. Called when a version of a model is loaded. If it returns an error, the version is not
 * served. The backend may complete the configuration during this call only.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);

/** Optional. Called when a model is unloaded, after its instances. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);

/**
 * Optional. Called for each instance, one after the other unless the backend allows them in
 * parallel.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance *instance);

/** Optional. Called for each instance when its model is unloaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance *instance);

/**
 * Required. On success the backend owns the requests: it sends responses to each and releases it,
 * during the call or later. The server always owns the array. On an error the server owns the
 * requests, ends them with that error and releases them.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests,
    uint32_t request_count);

/**
 * Optional. Called for each instance when a client asks whether the model is ready, on any thread,
 * also while the instance executes. An error means that the model is not ready.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(
    TRITONBACKEND_ModelInstance *instance);

/** Optional. The backend declares its attributes. On an error none of them counts. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *backend_attributes);

/**
 * Called when a model with this batching strategy is loaded. A strategy defines all five functions
 * or none.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model);

/** Called when the model is unloaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(
    TRITONBACKEND_Batcher *batcher);

/**
 * Called for each request that could join the batch. The strategy may read the request, but not
 * change or keep it.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include);

/**
 * Called when a batch begins. The pointer that the strategy stores for the batch is passed back as
 * userp.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(
    const TRITONBACKEND_Batcher *batcher, void **userp);

/** Called when the batch is complete. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp);

/* ---- TRITONCACHE: functions of the server ---------------------------------------------------- */

/** Returns the version of the cache interface: 0.1. */
TRITONSERVER_Error *TRITONCACHE_ApiVersion(uint32_t *major, uint32_t *minor);

/** Makes an empty entry. The caller deletes it. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryNew(TRITONCACHE_CacheEntry **entry);

/** Deletes an entry of TRITONCACHE_CacheEntryNew, but not the memory of its buffers. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryDelete(TRITONCACHE_CacheEntry *entry);

/** Returns the number of buffers of the entry. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry *entry, size_t *count);

/**
 * Adds a buffer of the cache's memory. The memory must stay valid until it has been copied. The
 * attributes are copied.
 */
TRITONSERVER_Error *TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry *entry, void *base, TRITONSERVER_BufferAttributes *buffer_attributes);

/**
 * Returns the address of a buffer, null if it has none yet. Writes its size into attributes that
 * the caller owns.
 */
TRITONSERVER_Error *TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void **base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/**
 * Sets the address of a buffer and, if attributes are given, its size. The attributes are copied.
 */
TRITONSERVER_Error *TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void *new_base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/**
 * Copies between the entry's buffers and the server's. A look-up copies out of the cache, an
 * insertion copies into it.
 */
TRITONSERVER_Error *TRITONCACHE_Copy(
    TRITONCACHE_Allocator *allocator, TRITONCACHE_CacheEntry *entry);

/* ---- TRITONCACHE: functions of plug-ins ------------------------------------------------------ */

/** Required. Makes a cache from a JSON object of settings, or from null. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheInitialize(
    TRITONCACHE_Cache **cache, const char *config);

/** Required. Deletes the cache. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache);

/**
 * Required. Stores an entry: sets memory of the cache for each of its buffers by
 * TRITONCACHE_CacheEntrySetBuffer, then calls TRITONCACHE_Copy, which fills them. ALREADY_EXISTS if
 * the key has an entry.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);

/**
 * Required. Finds an entry: adds the cache's buffers to it by TRITONCACHE_CacheEntryAddBuffer, then
 * calls TRITONCACHE_Copy, which reads them. NOT_FOUND if the key has no entry.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);

/* ---- TRITONREPOAGENT: functions of the server ------------------------------------------------ */

/** Returns the version of the agent interface: 0.1. */
TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor);

/**
 * Returns the location of the model (artifact type 0, a file system). The path belongs to the
 * model.
 */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType *artifact_type, const char **location);

/**
 * Gives the agent a directory that it may fill. The directory is removed when the agent releases
 * it, or with the model.
 */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType artifact_type, const char **location);

/** Removes the directory that was acquired. There is at most one, so location is not used. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, const char *location);

/**
 * Sets the location of the model. Allowed only while the model is being loaded. The path is copied.
 */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType artifact_type, const char *location);

/** Returns the number of parameters that the configuration gives the agent. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelParameterCount(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t *count);

/** Returns a parameter. Name and value belong to the model. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelParameter(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t index,
    const char **parameter_name, const char **parameter_value);

/** Returns the configuration as it was read, as JSON (version 1). The caller owns the message. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelConfig(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t config_version,
    TRITONSERVER_Message **model_config);

/** Returns the pointer that the library has stored with the model; null at first. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state);

/** Stores a pointer with the model. The library keeps owning what it points to. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state);

/** Returns the pointer that the library has stored with the agent; null at first. */
TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent, void **state);

/** Stores a pointer with the agent. The library keeps owning what it points to. */
TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent, void *state);

/* ---- TRITONREPOAGENT: functions of plug-ins -------------------------------------------------- */

/** Optional. Called when the agent is loaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent);

/** Optional. Called before the agent is unloaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent *agent);

/** Optional. Called when the agent begins to act on a model. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelInitialize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/** Optional. Called when the agent no longer acts on a model. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelFinalize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/**
 * Required. Called for each step of a model's life. An error for LOAD means that the model is not
 * loaded. The agent may replace the model's files for LOAD only.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NEREID_H */
