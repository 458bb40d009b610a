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

/** Where a buffer lies and how large it is. */
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;

/** What went wrong. Null is success; whoever gets an error must delete it. */
typedef struct TRITONSERVER_Error TRITONSERVER_Error;

/** A question to a model, which may be asked again once it has been released. */
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;

/** One answer of a model. */
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;

/** Tells by callbacks what becomes of a request, and when. */
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;

/** JSON. */
typedef struct TRITONSERVER_Message TRITONSERVER_Message;

/** What the server has counted, at one moment. */
typedef struct TRITONSERVER_Metrics TRITONSERVER_Metrics;

/** A value with a name. */
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;

/** Whom the server asks for memory for outputs. It must outlive all requests that name it. */
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;

/** A server in this process. */
typedef struct TRITONSERVER_Server TRITONSERVER_Server;

/** How a server is to be. */
typedef struct TRITONSERVER_ServerOptions TRITONSERVER_ServerOptions;

/** One value of a family, with its labels. */
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;

/** Metrics that share a name and differ in their labels. */
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;

/** What a metric needs to know beyond its labels. */
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

/** Kind of memory. Which one of its kind is said by a number beside it. */
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

/** How loud a line of the log is. */
typedef enum TRITONSERVER_loglevel_enum {
  TRITONSERVER_LOG_INFO = 0,
  TRITONSERVER_LOG_WARN = 1,
  TRITONSERVER_LOG_ERROR = 2,
  TRITONSERVER_LOG_VERBOSE = 3
} TRITONSERVER_LogLevel;

/** How lines of the log begin. */
typedef enum TRITONSERVER_logformat_enum {
  TRITONSERVER_LOG_DEFAULT = 0,
  TRITONSERVER_LOG_ISO8601 = 1
} TRITONSERVER_LogFormat;

/** What kind of thing went wrong. */
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

/** In which text metrics are written. */
typedef enum tritonserver_metricformat_enum {
  TRITONSERVER_METRIC_PROMETHEUS = 0
} TRITONSERVER_MetricFormat;

/** What a trace tells. The last two are bits; MIN and MAX are old words for TIMESTAMPS. */
typedef enum tritonserver_tracelevel_enum {
  TRITONSERVER_TRACE_LEVEL_DISABLED = 0,
  TRITONSERVER_TRACE_LEVEL_MIN = 1,
  TRITONSERVER_TRACE_LEVEL_MAX = 2,
  TRITONSERVER_TRACE_LEVEL_TIMESTAMPS = 4,
  TRITONSERVER_TRACE_LEVEL_TENSORS = 8
} TRITONSERVER_InferenceTraceLevel;

/** What a trace tells of. */
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

/** Bits of a request: where it stands in its sequence. */
typedef enum tritonserver_requestflag_enum {
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
} TRITONSERVER_RequestFlag;

/** Bits of a release: the request is done with, or is to be executed once more. */
typedef enum tritonserver_requestreleaseflag_enum {
  TRITONSERVER_REQUEST_RELEASE_ALL = 1,
  TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
} TRITONSERVER_RequestReleaseFlag;

/** Bits of a response: none follows it. */
typedef enum tritonserver_responsecompleteflag_enum {
  TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
} TRITONSERVER_ResponseCompleteFlag;

/** Who decides which models are loaded. */
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

/** Bits of a model: whether the first dimension of its tensors is the batch. */
typedef enum tritonserver_batchflag_enum {
  TRITONSERVER_BATCH_UNKNOWN = 1,
  TRITONSERVER_BATCH_FIRST_DIM = 2
} TRITONSERVER_ModelBatchFlag;

/** Bits of a question for the index: only models that are ready. */
typedef enum tritonserver_modelindexflag_enum {
  TRITONSERVER_INDEX_FLAG_READY = 1
} TRITONSERVER_ModelIndexFlag;

/** Bits of a model: one response to each request, or any number. */
typedef enum tritonserver_txn_property_flag_enum {
  TRITONSERVER_TXN_ONE_TO_ONE = 1,
  TRITONSERVER_TXN_DECOUPLED = 2
} TRITONSERVER_ModelTxnPropertyFlag;

/** What a metric counts. */
typedef enum TRITONSERVER_metrickind_enum {
  TRITONSERVER_METRIC_KIND_COUNTER = 0,
  TRITONSERVER_METRIC_KIND_GAUGE = 1,
  TRITONSERVER_METRIC_KIND_HISTOGRAM = 2
} TRITONSERVER_MetricKind;

/**
 * Gives memory for an output; the memory type is what the model would like. The buffer may be null
 * if byte_size is 0.
 */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void *userp, void **buffer,
    void **buffer_userp, TRITONSERVER_MemoryType *actual_memory_type,
    int64_t *actual_memory_type_id);

/** Completes the attributes of a buffer that has been given just now. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name,
    TRITONSERVER_BufferAttributes *buffer_attributes, void *userp, void *buffer_userp);

/** Says where memory for an output would lie. The name and the size may be null: not known yet. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp, const char *tensor_name,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** Takes memory back when its response is deleted. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/** Is told that a response begins. */
typedef TRITONSERVER_Error * (*TRITONSERVER_ResponseAllocatorStartFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp);

/** Is told what happens to a traced request. May be called from several threads at once. */
typedef void (*TRITONSERVER_InferenceTraceActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    uint64_t timestamp_ns, void *userp);

/** Is shown a tensor of a traced request. The tensor must not be touched afterwards. */
typedef void (*TRITONSERVER_InferenceTraceTensorActivityFn_t)(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTraceActivity activity,
    const char *name, TRITONSERVER_DataType datatype, const void *base, size_t byte_size,
    const int64_t *shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, void *userp);

/** Takes a trace back, which it must delete. */
typedef void (*TRITONSERVER_InferenceTraceReleaseFn_t)(
    TRITONSERVER_InferenceTrace *trace, void *userp);

/** Takes a request back: its inputs are no longer read. Responses may still come. */
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(
    TRITONSERVER_InferenceRequest *request, uint32_t flags, void *userp);

/** Takes a response, which it must delete. Null if only the flags are news. */
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(
    TRITONSERVER_InferenceResponse *response, uint32_t flags, void *userp);

/* ---- TRITONBACKEND: types -------------------------------------------------------------------- */

#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19

/** Who gives memory to backends. */
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;

/** A tensor that came with a request. */
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;

/** A tensor that goes with a response. */
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;

/** What a sequence remembers under one name. */
typedef struct TRITONBACKEND_State TRITONBACKEND_State;

/** A request in a backend's hands. */
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;

/** Makes responses to a request, also after the request has been released. */
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;

/** A response on its way. */
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;

/** A backend: one per library and name. */
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;

/** A version of a model that a backend runs. */
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;

/** One of the places where a model runs. */
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;

/** When one of several responses was made. */
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics TRITONBACKEND_ModelInstanceResponseStatistics;

/** Where a backend says what it can do. */
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;

/** What a batching strategy remembers about a model. Its own. */
typedef struct TRITONBACKEND_Batcher TRITONBACKEND_Batcher;

/** What the files of a model are. */
typedef enum TRITONBACKEND_artifacttype_enum {
  TRITONBACKEND_ARTIFACT_FILESYSTEM = 0
} TRITONBACKEND_ArtifactType;

/** Whether an instance's executions block its thread, or its device's. */
typedef enum TRITONBACKEND_execpolicy_enum {
  TRITONBACKEND_EXECUTION_BLOCKING = 0,
  TRITONBACKEND_EXECUTION_DEVICE_BLOCKING = 1
} TRITONBACKEND_ExecutionPolicy;

/* ---- TRITONCACHE: types ---------------------------------------------------------------------- */

#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

/** A cache. Its own. */
typedef struct TRITONCACHE_Cache TRITONCACHE_Cache;

/** What is to be stored or has been found: a list of buffers. */
typedef struct TRITONCACHE_CacheEntry TRITONCACHE_CacheEntry;

/** Who copies between an entry's buffers and the server. To be passed on. */
typedef struct TRITONCACHE_Allocator TRITONCACHE_Allocator;

/* ---- TRITONREPOAGENT: types ------------------------------------------------------------------ */

#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

/** An agent: one per library. */
typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;

/** A model that an agent looks after. */
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

/** What the files of a model are. */
typedef enum TRITONREPOAGENT_artifacttype_enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1
} TRITONREPOAGENT_ArtifactType;

/**
 * What happens to a model. First LOAD, then LOAD_FAIL or LOAD_COMPLETE, UNLOAD and UNLOAD_COMPLETE.
 */
typedef enum TRITONREPOAGENT_actiontype_enum {
  TRITONREPOAGENT_ACTION_LOAD = 0,
  TRITONREPOAGENT_ACTION_LOAD_COMPLETE = 1,
  TRITONREPOAGENT_ACTION_LOAD_FAIL = 2,
  TRITONREPOAGENT_ACTION_UNLOAD = 3,
  TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE = 4
} TRITONREPOAGENT_ActionType;

/* ---- TRITONSERVER: functions of the server --------------------------------------------------- */

/** The version of this interface. */
TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor);

/** Name of a datatype, such as FP32; <invalid> for other numbers. Never null; static. */
const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);

/** The datatype of a name such as FP32; 0 (invalid) for others. */
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *dtype);

/** Bytes of one element; 0 for BYTES and for other numbers. */
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

/** Name of a memory type. Never null; static. */
const char *TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype);

/** Name of a parameter's type. Never null; static. */
const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType paramtype);

/**
 * A parameter of a text, an integer, a truth value or a double, which is copied. Null for bytes and
 * for what is not a parameter. The caller owns it.
 */
TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(
    const char *name, TRITONSERVER_ParameterType type, const void *value);

/** A parameter of that many bytes, which are copied. Null without a name. The caller owns it. */
TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(
    const char *name, const void *byte_ptr, uint64_t size);

/** Deletes a parameter; null is fine. */
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter);

/** Name of an instance group's kind. Never null; static. */
const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind);

/** Whether a message of that level would be seen. */
bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);

/** Logs a message as coming from that place of the plug-in's source. */
TRITONSERVER_Error *TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char *filename, int line, const char *msg);

/**
 * Makes an error. A code out of range is taken as unknown, a null message as empty. The caller owns
 * it.
 */
TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *msg);

/** Deletes an error; null is fine. */
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error);

/** The code of an error; 0 (unknown) for null. */
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error);

/** The code of an error in words; belongs to the error. */
const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error);

/** The message of an error; belongs to the error. */
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error);

/**
 * An allocator of the application's functions, of which the last may be null. The caller owns it.
 */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator **allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn);

/** Says who describes buffers after they were allocated. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator *allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);

/** Says who is asked which memory is liked, before any is allocated. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator *allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);

/** Deletes an allocator; null is fine. */
TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator);

/** Parses JSON of that many bytes and copies it. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(
    TRITONSERVER_Message **message, const char *base, size_t byte_size);

/** Deletes a message; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message);

/**
 * The JSON of a message; belongs to the message. It has a closing NUL, which byte_size does not
 * count.
 */
TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(
    TRITONSERVER_Message *message, const char **base, size_t *byte_size);

/** Deletes metrics; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics *metrics);

/** Reads the metrics. The text belongs to them, until they are read again or deleted. */
TRITONSERVER_Error *TRITONSERVER_MetricsFormatted(
    TRITONSERVER_Metrics *metrics, TRITONSERVER_MetricFormat format, const char **base,
    size_t *byte_size);

/** Name of a trace level; <unknown> for other numbers and combinations. Never null; static. */
const char *TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level);

/** Name of an activity; <unknown> for other numbers. Never null; static. */
const char *TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_InferenceTraceActivity activity);

/** A trace that tells times. The caller owns it until a request takes it. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/** A trace that tells times and tensors. The caller owns it until a request takes it. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace **trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void *trace_userp);

/**
 * Reports an activity in words of the caller's own, which the context keeps; nothing for null or
 * without timestamps.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(
    TRITONSERVER_InferenceTrace *trace, uint64_t timestamp, const char *activity_name);

/** Deletes a trace; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace *trace);

/** The number of a trace, which no other in the process has. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace *trace, uint64_t *id);

/** The number of the trace it was made for; 0 for none. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceParentId(
    TRITONSERVER_InferenceTrace *trace, uint64_t *parent_id);

/** The model of the traced request; belongs to the trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelName(
    TRITONSERVER_InferenceTrace *trace, const char **model_name);

/** The version of the model of the traced request. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelVersion(
    TRITONSERVER_InferenceTrace *trace, int64_t *model_version);

/** The id of the traced request; belongs to the trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceRequestId(
    TRITONSERVER_InferenceTrace *trace, const char **request_id);

/**
 * A trace of the same kind, for what is done on behalf of this one; null for null. The caller owns
 * it until a request takes it.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceSpawnChildTrace(
    TRITONSERVER_InferenceTrace *trace, TRITONSERVER_InferenceTrace **child_trace);

/** Replaces the context of a trace. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceSetContext(
    TRITONSERVER_InferenceTrace *trace, const char *trace_context);

/** The context of a trace; belongs to the trace until it changes. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceContext(
    TRITONSERVER_InferenceTrace *trace, const char **trace_context);

/** A request for a version of a model, -1 for the server's choice. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest **inference_request, TRITONSERVER_Server *server,
    const char *model_name, int64_t model_version);

/** Deletes a request; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest *inference_request);

/** The id; belongs to the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestId(
    TRITONSERVER_InferenceRequest *inference_request, const char **id);

/** Sets the id, which is copied. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(
    TRITONSERVER_InferenceRequest *inference_request, const char *id);

/** The flags of the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestFlags(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t *flags);

/** Sets the flags of the request: 1 begins a sequence, 2 ends it. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetFlags(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t flags);

/** The correlation id, if it is a number; 0 for none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *correlation_id);

/** The correlation id, if it is a text; belongs to the request. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char **correlation_id);

/** Sets the correlation id to a number; 0 is none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationId(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t correlation_id);

/** Sets the correlation id to a text, which is copied; empty is none. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest *inference_request, const char *correlation_id);

/** Asks for a request that was sent to be given up; its answer comes all the same. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest *inference_request);

/** Whether that was asked since the request was sent. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest *inference_request, bool *is_cancelled);

/** The priority level, if it is small. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriority(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t *priority);

/** The priority level. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriorityUInt64(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *priority);

/** As TRITONSERVER_InferenceRequestSetPriorityUInt64. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriority(
    TRITONSERVER_InferenceRequest *inference_request, uint32_t priority);

/**
 * Sets the priority level, 1 being the most urgent; 0 and what the model does not have are its
 * default.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriorityUInt64(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t priority);

/** How long the request may wait in its queue, in microseconds; 0 for any time. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t *timeout_us);

/** Sets how long the request may wait in its queue, in microseconds; 0 for any time. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *inference_request, uint64_t timeout_us);

/** Adds an input, without data yet. Name and shape are copied. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint64_t dim_count);

/**
 * Adds the only input of the request, whose name, datatype and shape follow from the model's
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
 * Appends memory to an input. It is not copied, and must stay as it is until the request has come
 * back.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

/** Appends memory to what instances with a host policy read of an input; otherwise as above. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char *host_policy_name);

/** Appends memory to an input, as large as its attributes say; otherwise as above. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest *inference_request, const char *name, const void *base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/** Removes the data of an input. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Asks for an output. Without any, all are given. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Asks for an output no more, whether it was asked for or not. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest *inference_request, const char *name);

/** Asks for no output in particular. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest *inference_request);

/** Says who gets the request back. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void *request_release_userp);

/**
 * Says who gets the responses, and where their outputs go. The allocator must outlive all of them.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_ResponseAllocator *response_allocator, void *response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void *response_userp);

/** Adds a text, which is copied, for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, const char *value);

/** Adds an integer for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, int64_t value);

/** Adds a truth value for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, bool value);

/** Adds a floating-point number for the model. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest *request, const char *key, double value);

/** Deletes a response, which gives its buffers back; null is fine. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(
    TRITONSERVER_InferenceResponse *inference_response);

/** Why the request has failed; null if it has not. A new error each time, which the caller owns. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(
    TRITONSERVER_InferenceResponse *inference_response);

/** Name, which belongs to the response, and version of the model that has answered. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseModel(
    TRITONSERVER_InferenceResponse *inference_response, const char **model_name,
    int64_t *model_version);

/** The id of the request; belongs to the response. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseId(
    TRITONSERVER_InferenceResponse *inference_response, const char **request_id);

/** How many parameters there are. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t *count);

/**
 * A parameter, which belongs to the response. The value of a text is the text, that of others
 * points to it.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, const char **name,
    TRITONSERVER_ParameterType *type, const void **vvalue);

/** How many outputs there are. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t *count);

/**
 * An output, which belongs to the response; userp is what the allocator has said. Places that
 * nobody wants may be null.
 */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count, const void **base,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id, void **userp);

/** The label of a class of an output, null if it has none; belongs to the response. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse *inference_response, uint32_t index, size_t class_index,
    const char **label);

/** Attributes of an empty buffer in host memory. The caller owns them. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(
    TRITONSERVER_BufferAttributes **buffer_attributes);

/** Deletes attributes; null is fine. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(
    TRITONSERVER_BufferAttributes *buffer_attributes);

/** Says which of several memories of its type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryTypeId(
    TRITONSERVER_BufferAttributes *buffer_attributes, int64_t memory_type_id);

/** Says which kind of memory. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryType(
    TRITONSERVER_BufferAttributes *buffer_attributes, TRITONSERVER_MemoryType memory_type);

/** Says by which handle other processes reach the memory. The handle is not copied. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes *buffer_attributes, void *cuda_ipc_handle);

/** Says how many bytes. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetByteSize(
    TRITONSERVER_BufferAttributes *buffer_attributes, size_t byte_size);

/** Which of several memories of its type. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryTypeId(
    TRITONSERVER_BufferAttributes *buffer_attributes, int64_t *memory_type_id);

/** Which kind of memory. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryType(
    TRITONSERVER_BufferAttributes *buffer_attributes, TRITONSERVER_MemoryType *memory_type);

/** By which handle other processes reach the memory; null if they cannot. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesCudaIpcHandle(
    TRITONSERVER_BufferAttributes *buffer_attributes, void **cuda_ipc_handle);

/** How many bytes. */
TRITONSERVER_Error *TRITONSERVER_BufferAttributesByteSize(
    TRITONSERVER_BufferAttributes *buffer_attributes, size_t *byte_size);

/** The defaults. The caller owns them. The log of the process begins with the first of them. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions **options);

/** Deletes options; null is fine. Servers that were made with them stay. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions *options);

/** Sets the name of the server. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetServerId(
    TRITONSERVER_ServerOptions *options, const char *server_id);

/** Adds a model repository. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    TRITONSERVER_ServerOptions *options, const char *model_repository_path);

/** Sets when models are loaded: 0 is once, at the start, which is all this server does. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelControlMode(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_ModelControlMode mode);

/**
 * Names a model to load at the start, which is for a control mode that this server does not have.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStartupModel(
    TRITONSERVER_ServerOptions *options, const char *model_name);

/** Sets whether configurations must be complete; if not, backends complete them. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStrictModelConfig(
    TRITONSERVER_ServerOptions *options, bool strict);

/** Sets which configuration of a model is preferred; empty for the usual one. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelConfigName(
    TRITONSERVER_ServerOptions *options, const char *model_config_name);

/** Sets whether instances share resources: 0 they do not, 1 by how often they ran. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetRateLimiterMode(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_RateLimitMode mode);

/**
 * Adds units of a resource on a device, -1 for each. Of two numbers for the same the smaller
 * counts.
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

/** Switches the cache local on with that size, or off with 0. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    TRITONSERVER_ServerOptions *options, uint64_t size);

/** Switches a response cache on. Its settings are an object of texts, numbers and truth values. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheConfig(
    TRITONSERVER_ServerOptions *options, const char *cache_name, const char *config_json);

/** Sets where caches are looked for. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCacheDirectory(
    TRITONSERVER_ServerOptions *options, const char *cache_dir);

/** Sets the least compute capability of a GPU that may be used; backends are told. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    TRITONSERVER_ServerOptions *options, double cc);

/** Sets whether a server is made only if all its models can be loaded. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetExitOnError(
    TRITONSERVER_ServerOptions *options, bool exit);

/** Sets whether the server is ready only if all its models are. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetStrictReadiness(
    TRITONSERVER_ServerOptions *options, bool strict);

/** Sets how many seconds stopping may take. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetExitTimeout(
    TRITONSERVER_ServerOptions *options, unsigned int timeout);

/** Sets how many threads copy inputs and outputs, of which this server has none. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(
    TRITONSERVER_ServerOptions *options, unsigned int thread_count);

/** Sets how many model versions load at the same time. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    TRITONSERVER_ServerOptions *options, unsigned int thread_count);

/** Sets how often a load that has failed is tried again. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    TRITONSERVER_ServerOptions *options, unsigned int retry_count);

/**
 * Sets whether repositories may have models of the same name, which this server does not let them.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelNamespacing(
    TRITONSERVER_ServerOptions *options, bool enable_namespace);

/** Sets whether GPUs may reach each other's memory; without effect. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    TRITONSERVER_ServerOptions *options, bool enable_peer_access);

/** Sets to which file log lines are appended; for null and the empty text to stdout and stderr. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFile(
    TRITONSERVER_ServerOptions *options, const char *file);

/** Sets whether normal operation is logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogInfo(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets whether warnings are logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogWarn(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets whether errors are logged. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogError(
    TRITONSERVER_ServerOptions *options, bool log);

/** Sets how log lines begin: 0 as usual, 1 by ISO 8601. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogFormat(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_LogFormat format);

/** Sets how much detail is logged; 0 and less for none. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetLogVerbose(
    TRITONSERVER_ServerOptions *options, int level);

/** Sets whether the server shows metrics of its own. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetrics(
    TRITONSERVER_ServerOptions *options, bool metrics);

/** Sets whether GPUs are among the metrics; without effect, as there are none. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetGpuMetrics(
    TRITONSERVER_ServerOptions *options, bool gpu_metrics);

/** Sets whether processors and memory of the host are among the metrics. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetCpuMetrics(
    TRITONSERVER_ServerOptions *options, bool cpu_metrics);

/**
 * Sets how often measured values are refreshed; without effect, as they are measured when they are
 * read.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetricsInterval(
    TRITONSERVER_ServerOptions *options, uint64_t metrics_interval_ms);

/** Sets where backends are looked for. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBackendDirectory(
    TRITONSERVER_ServerOptions *options, const char *backend_dir);

/** Sets where repository agents are looked for. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    TRITONSERVER_ServerOptions *options, const char *repoagent_dir);

/** Sets how full the memory of a GPU may be for a model to be loaded onto it; backends are told. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    TRITONSERVER_ServerOptions *options, TRITONSERVER_InstanceGroupKind kind, int device_id,
    double fraction);

/** Sets a setting of a backend, or of all if its name is empty. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetBackendConfig(
    TRITONSERVER_ServerOptions *options, const char *backend_name, const char *setting,
    const char *value);

/** Sets where the instances of groups with a host policy run: numa-node or cpu-cores. */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetHostPolicy(
    TRITONSERVER_ServerOptions *options, const char *policy_name, const char *setting,
    const char *value);

/**
 * Sets which latencies are shown, for the empty name: counter_latencies, and what this server does
 * not have.
 */
TRITONSERVER_Error *TRITONSERVER_ServerOptionsSetMetricsConfig(
    TRITONSERVER_ServerOptions *options, const char *name, const char *setting, const char *value);

/**
 * A server of these options. Returns when each model is ready or has failed. The caller owns it.
 */
TRITONSERVER_Error *TRITONSERVER_ServerNew(
    TRITONSERVER_Server **server, TRITONSERVER_ServerOptions *options);

/** Stops a server and deletes it; null is fine. If it cannot stop in time it is not deleted. */
TRITONSERVER_Error *TRITONSERVER_ServerDelete(TRITONSERVER_Server *server);

/**
 * Takes no new requests, finishes those it has, ends all models and waits for callbacks, except one
 * that calls this; null, and a server that has stopped, are fine.
 */
TRITONSERVER_Error *TRITONSERVER_ServerStop(TRITONSERVER_Server *server);

/** Sets how many seconds stopping may take; null is fine. */
TRITONSERVER_Error *TRITONSERVER_ServerSetExitTimeout(
    TRITONSERVER_Server *server, unsigned int timeout);

/** Adds a model repository, which a server whose models are all loaded at its start does not do. */
TRITONSERVER_Error *TRITONSERVER_ServerRegisterModelRepository(
    TRITONSERVER_Server *server, const char *repository_path,
    const TRITONSERVER_Parameter **name_mapping, uint32_t mapping_count);

/**
 * Removes a model repository, which a server whose models are all loaded at its start does not do.
 */
TRITONSERVER_Error *TRITONSERVER_ServerUnregisterModelRepository(
    TRITONSERVER_Server *server, const char *repository_path);

/**
 * Looks for changes in the repositories, which a server whose models are all loaded at its start
 * does not do. Nothing while it is not ready.
 */
TRITONSERVER_Error *TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server *server);

/** Whether the server lives. */
TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server, bool *live);

/**
 * Whether the server is ready for requests; if strict, whether all its models are, by the account
 * of their backends, too, which may block.
 */
TRITONSERVER_Error *TRITONSERVER_ServerIsReady(TRITONSERVER_Server *server, bool *ready);

/**
 * Whether a version of a model can be used, -1 for any, by the account of its backend, too, which
 * may block. An unknown one is an error.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelIsReady(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, bool *ready);

/** How a model takes batches: 1 in no known way, 2 in the first dimension of its tensors. */
TRITONSERVER_Error *TRITONSERVER_ServerModelBatchProperties(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, uint32_t *flags,
    void **voidp);

/** How many responses a request to a model has: 1 exactly one, 2 any number. */
TRITONSERVER_Error *TRITONSERVER_ServerModelTransactionProperties(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version, uint32_t *txn_flags,
    void **voidp);

/** Name, version and extensions of the server. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_ServerMetadata(
    TRITONSERVER_Server *server, TRITONSERVER_Message **server_metadata);

/** Versions, inputs and outputs of a model, -1 for all versions. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_ServerModelMetadata(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    TRITONSERVER_Message **model_metadata);

/**
 * What was counted of a model, -1 for all its versions, or of all models if the name is empty. The
 * caller owns the message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelStatistics(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    TRITONSERVER_Message **model_stats);

/**
 * The configuration of a model in the form of that number, which must be 1. The caller owns the
 * message.
 */
TRITONSERVER_Error *TRITONSERVER_ServerModelConfig(
    TRITONSERVER_Server *server, const char *model_name, int64_t model_version,
    uint32_t config_version, TRITONSERVER_Message **model_config);

/** All models and their states; with flag 1 those that are ready. The caller owns the message. */
TRITONSERVER_Error *TRITONSERVER_ServerModelIndex(
    TRITONSERVER_Server *server, uint32_t flags, TRITONSERVER_Message **model_index);

/** Loads a model, or loads it anew. Returns when it is ready or has failed. */
TRITONSERVER_Error *TRITONSERVER_ServerLoadModel(
    TRITONSERVER_Server *server, const char *model_name);

/** Loads a model with a configuration or files of the caller's, which this server does not do. */
TRITONSERVER_Error *TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server *server, const char *model_name, const TRITONSERVER_Parameter **parameters,
    uint64_t parameter_count);

/** Unloads a model. */
TRITONSERVER_Error *TRITONSERVER_ServerUnloadModel(
    TRITONSERVER_Server *server, const char *model_name);

/** Unloads a model; no model of this server depends on another. */
TRITONSERVER_Error *TRITONSERVER_ServerUnloadModelAndDependents(
    TRITONSERVER_Server *server, const char *model_name);

/** The metrics of a server. The caller owns them. */
TRITONSERVER_Error *TRITONSERVER_ServerMetrics(
    TRITONSERVER_Server *server, TRITONSERVER_Metrics **metrics);

/**
 * Sends a request. If that succeeds the request belongs to the server until its release callback;
 * otherwise it stays with the caller and no callback is made. The trace is taken over in any case.
 * Callbacks may come before this returns. They come on threads that the server has for callbacks
 * only, so they may block, and wait for other requests. Responses of one request come one after the
 * other. While 64 callbacks have not returned, the next ones wait until one of them has. The
 * release callback comes when nobody reads the memory of the inputs any more, before or after
 * responses; without inputs, after the last response. The trace is told each time soon after it
 * happens, in order, before the response that follows it.
 */
TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server *server, TRITONSERVER_InferenceRequest *inference_request,
    TRITONSERVER_InferenceTrace *trace);

/** A hold on the family of that name, which is made if there is none. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(
    TRITONSERVER_MetricFamily **family, TRITONSERVER_MetricKind kind, const char *name,
    const char *description);

/**
 * Deletes a hold on a family; null is fine. Refused while metrics that were made through it exist.
 */
TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family);

/** What a family counts. */
TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(
    TRITONSERVER_MetricFamily *family, TRITONSERVER_MetricKind *kind);

/** Arguments that say nothing yet. The caller owns them. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args);

/** Says the bounds of a histogram, which are copied. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(
    TRITONSERVER_MetricArgs *args, const double *buckets, uint64_t buckets_count);

/** Deletes arguments; null is fine. */
TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args);

/** The metric of a family with these labels, which are copied. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_MetricNew(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
    const TRITONSERVER_Parameter **labels, uint64_t label_count);

/** The metric of a family with these labels and arguments, which are copied. The caller owns it. */
TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family,
    const TRITONSERVER_Parameter **labels, uint64_t label_count,
    const TRITONSERVER_MetricArgs *args);

/**
 * Deletes a metric; null is fine. Its value is shown until the last metric with the same labels is
 * deleted.
 */
TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric);

/** The value of a counter or gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value);

/** Adds to a counter or gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value);

/** Sets a gauge. */
TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value);

/** Counts a value in a histogram. */
TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value);

/** What a metric counts. */
TRITONSERVER_Error *TRITONSERVER_GetMetricKind(
    TRITONSERVER_Metric *metric, TRITONSERVER_MetricKind *kind);

/* ---- TRITONBACKEND: functions of the server -------------------------------------------------- */

/** The version of the backend interface: 1.19. */
TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);

/**
 * Allocates memory, to be freed by TRITONBACKEND_MemoryManagerFree. Only ordinary host memory is
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
 * What an input is: every place may be null. The shape includes the batch dimension. Everything
 * belongs to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input *input, const char **name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint32_t *dims_count, uint64_t *byte_size, uint32_t *buffer_count);

/** The same; no host policy has a copy of its own. */
TRITONSERVER_Error *TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint32_t *dims_count,
    uint64_t *byte_size, uint32_t *buffer_count);

/** A piece of an input; null and 0 bytes beyond the last. The memory belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer, uint64_t *buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** The same; no host policy has a copy of its own. */
TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy_name, uint32_t index, const void **buffer,
    uint64_t *buffer_byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/**
 * A piece of an input and what is known of it; null beyond the last. Both belong to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
    TRITONSERVER_BufferAttributes **buffer_attributes);

/**
 * Gives memory for an output, to be written before the response is sent; it belongs to the
 * response. It is host memory whatever was preferred, and zero. A second call is ALREADY_EXISTS.
 */
TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output *output, void **buffer, uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/** What is known of an output's memory; belongs to the response. */
TRITONSERVER_Error *TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output *output, TRITONSERVER_BufferAttributes **buffer_attributes);

/** The request's id, empty if it has none; belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id);

/** Whether nobody waits for an answer any more. */
TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(
    TRITONBACKEND_Request *request, bool *is_cancelled);

/** Whether nobody waits for answers any more. */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(
    TRITONBACKEND_ResponseFactory *factory, bool *is_cancelled);

/** The correlation id, 0 outside of sequences. A text is INVALID_ARG. */
TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(
    TRITONBACKEND_Request *request, uint64_t *id);

/** The queueing time the client grants, in microseconds; 0 for no limit. */
TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request *request, uint64_t *timeout);

/** The correlation id, if it is a text; belongs to the request. Otherwise INVALID_ARG. */
TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(
    TRITONBACKEND_Request *request, const char **id);

/** Whether the request begins (1) or ends (2) its sequence. */
TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags);

/** How many parameters the request has. */
TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/** A parameter; name and value belong to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestParameter(
    TRITONBACKEND_Request *request, uint32_t index, const char **key,
    TRITONSERVER_ParameterType *type, const void **vvalue);

/** How many inputs the request has, control and state inputs included. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/** The name of an input; belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **input_name);

/** The input of that name; belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInput(
    TRITONBACKEND_Request *request, const char *name, TRITONBACKEND_Input **input);

/** An input; belongs to the request. */
TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(
    TRITONBACKEND_Request *request, uint32_t index, TRITONBACKEND_Input **input);

/** How many outputs are wanted: those the client named, or all. */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(
    TRITONBACKEND_Request *request, uint32_t *count);

/**
 * The name of a wanted output, of which there are as many as sorted names; belongs to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **output_name);

/**
 * Where the buffer of an output will lie, if it has that many bytes; name and size may be null.
 * What stands in the places for the answer is what the library would like. A program that brings
 * the memory of outputs is asked by its query function: UNAVAILABLE if it has none.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request *request, const char *name, size_t *byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);

/**
 * Gives the request back for good (1) or to be executed again with others (2). It is the library's
 * no more, unless an error is returned: then it stays the library's.
 */
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(
    TRITONBACKEND_Request *request, uint32_t release_flags);

/** The trace of the request, null if it has none; it lives as long as the request at least. */
TRITONSERVER_Error *TRITONBACKEND_RequestTrace(
    TRITONBACKEND_Request *request, TRITONSERVER_InferenceTrace **trace);

/** A factory for answers to a request. The library deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(
    TRITONBACKEND_ResponseFactory **factory, TRITONBACKEND_Request *request);

/**
 * Deletes a factory; null is fine. A request whose last word nobody can say any more ends with an
 * error.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory);

/** Says, without an answer, that none comes any more (1). */
TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(
    TRITONBACKEND_ResponseFactory *factory, uint32_t send_flags);

/** Begins an answer. The library sends or deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseNew(
    TRITONBACKEND_Response **response, TRITONBACKEND_Request *request);

/** Begins an answer. The library sends or deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response **response, TRITONBACKEND_ResponseFactory *factory);

/** Deletes an answer that is not sent; null is fine. */
TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);

/** Adds a text to the answer's parameters; it is copied. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(
    TRITONBACKEND_Response *response, const char *name, const char *value);

/** Adds an integer to the answer's parameters. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(
    TRITONBACKEND_Response *response, const char *name, int64_t value);

/** Adds a truth value to the answer's parameters. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(
    TRITONBACKEND_Response *response, const char *name, bool value);

/** Adds a number to the answer's parameters. */
TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(
    TRITONBACKEND_Response *response, const char *name, double value);

/**
 * Adds an output to the answer. The shape includes the batch dimension and is copied; the output
 * belongs to the answer.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response *response, TRITONBACKEND_Output **output, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t dims_count);

/**
 * Sends an answer, which is the library's no more. With error, which stays the library's, sends
 * that instead.
 */
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response *response, uint32_t send_flags, TRITONSERVER_Error *error);

/**
 * Begins a new value of a state of the request's sequence. The shape is copied; the state belongs
 * to the request.
 */
TRITONSERVER_Error *TRITONBACKEND_StateNew(
    TRITONBACKEND_State **state, TRITONBACKEND_Request *request, const char *name,
    TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t dims_count);

/** Makes what was written the state that the sequence's next request sees. */
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

/** What is known of a state's memory; belongs to the state. */
TRITONSERVER_Error *TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State *state, TRITONSERVER_BufferAttributes **buffer_attributes);

/** The backend's name; belongs to the backend. */
TRITONSERVER_Error *TRITONBACKEND_BackendName(TRITONBACKEND_Backend *backend, const char **name);

/** The settings of the command line as {"cmdline": {...}}; belongs to the backend. */
TRITONSERVER_Error *TRITONBACKEND_BackendConfig(
    TRITONBACKEND_Backend *backend, TRITONSERVER_Message **backend_config);

/** Whether an instance blocks while it executes (0), or all instances of its device do (1). */
TRITONSERVER_Error *TRITONBACKEND_BackendExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy *policy);

/**
 * Sets the execution policy. Instances of GPUs, which alone share a thread by device, do not exist
 * here.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendSetExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy policy);

/**
 * The directory the backend was found in (artifact type 0, a file system); the path belongs to the
 * backend.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ArtifactType *artifact_type,
    const char **location);

/** The memory manager; belongs to the backend. */
TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_MemoryManager **manager);

/** What the library has stored with the backend; null at first. */
TRITONSERVER_Error *TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state);

/** Stores something with the backend; the library goes on owning it. */
TRITONSERVER_Error *TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *backend, void *state);

/** The model's name; belongs to the model. */
TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name);

/** The version's number. */
TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model, uint64_t *version);

/** The model's directory (artifact type 0, a file system); the path belongs to the model. */
TRITONSERVER_Error *TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model *model, TRITONBACKEND_ArtifactType *artifact_type, const char **location);

/** The configuration with its defaults, as JSON (version 1). The caller owns the message. */
TRITONSERVER_Error *TRITONBACKEND_ModelConfig(
    TRITONBACKEND_Model *model, uint32_t config_version, TRITONSERVER_Message **model_config);

/** Whether the library should complete the configuration. */
TRITONSERVER_Error *TRITONBACKEND_ModelAutoCompleteConfig(
    TRITONBACKEND_Model *model, bool *auto_complete_config);

/**
 * Completes the configuration, while the model is being initialized. The message stays the
 * caller's.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(
    TRITONBACKEND_Model *model, uint32_t config_version, TRITONSERVER_Message *model_config);

/** The server the model is in; belongs to whoever made it. */
TRITONSERVER_Error *TRITONBACKEND_ModelServer(
    TRITONBACKEND_Model *model, TRITONSERVER_Server **server);

/** The model's backend; null if that is no shared library. */
TRITONSERVER_Error *TRITONBACKEND_ModelBackend(
    TRITONBACKEND_Model *model, TRITONBACKEND_Backend **backend);

/** What the library has stored with the model; null at first. */
TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state);

/** Stores something with the model; the library goes on owning it. */
TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state);

/**
 * Tells how much memory of each kind the model takes besides its instances, in place of what was
 * told before. The attributes stay the library's.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(
    TRITONBACKEND_Model *model, TRITONSERVER_BufferAttributes **usage, uint32_t usage_size);

/** <group>_<index>; belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceName(
    TRITONBACKEND_ModelInstance *instance, const char **name);

/** On what kind of device the instance runs; never AUTO. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceKind(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_InstanceGroupKind *kind);

/** The device's number; 0 for host processors. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceDeviceId(
    TRITONBACKEND_ModelInstance *instance, int32_t *device_id);

/** The host policy as {"<name>": {...}}; belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_Message **host_policy);

/** Whether the instance never gets requests. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(
    TRITONBACKEND_ModelInstance *instance, bool *is_passive);

/** How many optimization profiles the instance is configured with. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);

/** An optimization profile; belongs to the instance. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileName(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **profile_name);

/** How many further devices the instance is configured with. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);

/** Kind, which belongs to the instance, and number of a further device. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **kind, int64_t *id);

/** The instance's model. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Model **model);

/** What the library has stored with the instance; null at first. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(
    TRITONBACKEND_ModelInstance *instance, void **state);

/** Stores something with the instance; the library goes on owning it. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(
    TRITONBACKEND_ModelInstance *instance, void *state);

/**
 * Tells how much memory of each kind the instance takes, in place of what was told before. The
 * attributes stay the library's.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_BufferAttributes **usage,
    uint32_t usage_size);

/**
 * Reports the times of a request, before it is released. Whether it succeeded, its answers have
 * told.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns);

/** An empty report. The library deletes it. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics **response_statistics);

/** Deletes a report; null is fine. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/** Says which instance made the response. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ModelInstance *model_instance);

/** Says of which request the response is. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ResponseFactory *response_factory);

/** Says when work on the response began. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_start);

/** Says when its outputs were computed; 0 for a response without outputs. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    uint64_t compute_output_start);

/** Says when it was sent. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_end);

/** Says why it failed; the error stays the caller's, and only its code is taken. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, TRITONSERVER_Error *error);

/**
 * Reports the response, which becomes the next one of its request. Times that run backwards are an
 * error.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);

/**
 * Reports the times of the latest batch of an instance. How many rows it had, the runtime knows.
 */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns);

/**
 * Adds instance groups that a model gets whose configuration names none, the best first. Device
 * numbers are copied.
 */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *backend_attributes, TRITONSERVER_InstanceGroupKind kind,
    uint64_t count, const uint64_t *device_ids, uint64_t id_count);

/** Says whether instances may be initialized side by side. */
TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute *backend_attributes, bool enabled);

/** What the output of that name is; the shape belongs to the answer. */
TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutputByName(
    TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint64_t *dim_count);

/** What one of the outputs is; name and shape belong to the answer. */
TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutput(
    TRITONBACKEND_Response *response, uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count);

/* ---- TRITONBACKEND: functions of plug-ins ---------------------------------------------------- */

/** Optional. Called once for each name under which the library is loaded as a backend. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);

/** Optional. Called last; threads must have ended when it returns. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend);

/**
 * Optional. Called when a version of a model is loaded; an error keeps it from being served. The
 * configuration may be completed here, and only here.
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
 * Required. With success the backend owns the requests, answers each and releases it, now or later;
 * the array itself stays the server's. With an error the server owns them, answers with that error
 * and releases them.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests,
    uint32_t request_count);

/**
 * Optional. Called when somebody asks whether the model is ready, for each of its instances, on any
 * thread, also while the instance executes; an error says that the model is not.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(
    TRITONBACKEND_ModelInstance *instance);

/** Optional. Called for what the backend can do; with an error nothing of it counts. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *backend_attributes);

/**
 * Called when a model with this batching strategy is loaded. The strategy's five functions come
 * together or not at all.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model);

/** Called when the model is unloaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(
    TRITONBACKEND_Batcher *batcher);

/** Called for each request that could join the batch. The request may be looked at and no more. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include);

/** Called when a batch begins; what it remembers about the batch comes back as userp. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(
    const TRITONBACKEND_Batcher *batcher, void **userp);

/** Called when the batch is complete. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp);

/* ---- TRITONCACHE: functions of the server ---------------------------------------------------- */

/** The version of the cache interface: 0.1. */
TRITONSERVER_Error *TRITONCACHE_ApiVersion(uint32_t *major, uint32_t *minor);

/** An empty entry. The caller deletes it. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryNew(TRITONCACHE_CacheEntry **entry);

/** Deletes an entry of TRITONCACHE_CacheEntryNew, and not what its buffers lie in. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryDelete(TRITONCACHE_CacheEntry *entry);

/** How many buffers the entry has. */
TRITONSERVER_Error *TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry *entry, size_t *count);

/**
 * Adds a buffer of the cache's memory, which must stay until it has been copied. The attributes are
 * copied.
 */
TRITONSERVER_Error *TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry *entry, void *base, TRITONSERVER_BufferAttributes *buffer_attributes);

/**
 * Where a buffer lies, null if it has no place yet, and, into attributes of the caller, how large
 * it is.
 */
TRITONSERVER_Error *TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void **base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/** Gives a buffer another place, and, with attributes, another size. The attributes are copied. */
TRITONSERVER_Error *TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void *new_base,
    TRITONSERVER_BufferAttributes *buffer_attributes);

/**
 * Copies between the entry's buffers and what belongs to the server, in the direction of the call
 * the cache is in.
 */
TRITONSERVER_Error *TRITONCACHE_Copy(
    TRITONCACHE_Allocator *allocator, TRITONCACHE_CacheEntry *entry);

/* ---- TRITONCACHE: functions of plug-ins ------------------------------------------------------ */

/** Required. Makes a cache of a JSON object of settings, or of null. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheInitialize(
    TRITONCACHE_Cache **cache, const char *config);

/** Required. Deletes the cache. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache);

/**
 * Required. Stores an entry: gives each of its buffers memory of the cache by
 * TRITONCACHE_CacheEntrySetBuffer, then has it filled by TRITONCACHE_Copy. ALREADY_EXISTS if the
 * key has an entry.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);

/**
 * Required. Finds an entry: adds the cache's buffers to it by TRITONCACHE_CacheEntryAddBuffer, then
 * has them read by TRITONCACHE_Copy. NOT_FOUND if the key has no entry.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);

/* ---- TRITONREPOAGENT: functions of the server ------------------------------------------------ */

/** The version of the agent interface: 0.1. */
TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor);

/** Where the model lies (artifact type 0, a file system); the path belongs to the model. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType *artifact_type, const char **location);

/**
 * Gives a directory that the agent may fill; it is removed when it is released, or with the model.
 */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType artifact_type, const char **location);

/** Removes the directory that was acquired; there is one at most, whatever location says. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, const char *location);

/** Says where the model lies from now on; only while it is being loaded. The path is copied. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ArtifactType artifact_type, const char *location);

/** How many parameters the configuration gives the agent. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelParameterCount(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t *count);

/** A parameter; name and value belong to the model. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelParameter(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t index,
    const char **parameter_name, const char **parameter_value);

/** The configuration as it was read, as JSON (version 1). The caller owns the message. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelConfig(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t config_version,
    TRITONSERVER_Message **model_config);

/** What the library has stored with the model; null at first. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state);

/** Stores something with the model; the library goes on owning it. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state);

/** What the library has stored with the agent; null at first. */
TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent, void **state);

/** Stores something with the agent; the library goes on owning it. */
TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent, void *state);

/* ---- TRITONREPOAGENT: functions of plug-ins -------------------------------------------------- */

/** Optional. Called when the agent is loaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent);

/** Optional. Called before the agent is unloaded. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent *agent);

/** Optional. Called when the life of a model begins. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelInitialize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/** Optional. Called when the life of a model has ended. */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelFinalize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);

/**
 * Required. Called for what happens to a model. An error upon LOAD keeps the model from being
 * loaded. Only upon LOAD may the model's files be replaced.
 */
NEREID_PLUGIN TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
    TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NEREID_H */
