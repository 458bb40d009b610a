/*
 * Completes its configuration, says what it prefers, and answers with what it sees: a JSON text as the only element of
 * the output SEEN.
 *
 * Parameters of the model:
 *   complete    "false": the configuration is left as it is
 *   rendezvous  the initialization of an instance lasts until so many are being initialized, or fails after 10 seconds
 * Settings of the backend:
 *   preferred_kind   "cpu", "gpu" or "model"
 *   preferred_count  number of instances
 *   parallel         "true": instances may be initialized side by side
 */
#include <pthread.h>

#include "common.h"

/* ---- The backend ---- */

static Error*
setting(TRITONBACKEND_Backend* backend, const char* key, char** value)
{
  TRITONSERVER_Message* message;
  const char* json;
  size_t size;
  CHECK(TRITONBACKEND_BackendConfig(backend, &message));
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  *value = find_string(json, key, NULL);
  return NULL;
}

Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  CHECK(api_version_is_known());
  return TRITONBACKEND_BackendSetState(backend, strdup("state of the backend"));
}

Error*
TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend)
{
  void* state;
  CHECK(TRITONBACKEND_BackendState(backend, &state));
  free(state);
  return NULL;
}

Error*
TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attributes)
{
  char* kind;
  char* count;
  char* parallel;
  CHECK(setting(backend, "preferred_kind", &kind));
  CHECK(setting(backend, "preferred_count", &count));
  CHECK(setting(backend, "parallel", &parallel));
  Error* error = NULL;
  if (kind != NULL) {
    const TRITONSERVER_InstanceGroupKind number =
        strcmp(kind, "gpu") == 0   ? TRITONSERVER_INSTANCEGROUPKIND_GPU
        : strcmp(kind, "cpu") == 0 ? TRITONSERVER_INSTANCEGROUPKIND_CPU
                                   : TRITONSERVER_INSTANCEGROUPKIND_MODEL;
    error = TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes, number, count == NULL ? 0 : strtoull(count, NULL, 10), NULL, 0);
  }
  if (error == NULL && parallel != NULL) {
    error = TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
        attributes, strcmp(parallel, "true") == 0);
  }
  free(kind);
  free(count);
  free(parallel);
  return error;
}

/* ---- The model ---- */

/* `text` with the first `from` in it replaced; as it is if there is none. */
static Text
replaced(Text text, const char* from, const char* to)
{
  const char* at = strstr(text.start, from);
  if (at == NULL) {
    return text;
  }
  Text changed = {NULL, 0};
  put_bytes(&changed, text.start, (size_t)(at - text.start));
  put_bytes(&changed, to, strlen(to));
  put_bytes(&changed, at + strlen(from), strlen(at + strlen(from)));
  free(text.start);
  return changed;
}

/* An input, an output and a batch size for a configuration that has none of them. */
static Error*
complete(TRITONBACKEND_Model* model)
{
  Text config = {NULL, 0};
  CHECK(model_config(model, &config.start));
  config.length = strlen(config.start);
  config = replaced(
      config, "\"input\":[]",
      "\"input\":[{\"name\":\"INPUT\",\"data_type\":\"TYPE_INT32\",\"dims\":[\"-1\"]}]");
  config = replaced(
      config, "\"output\":[]",
      "\"output\":[{\"name\":\"SEEN\",\"data_type\":\"TYPE_STRING\",\"dims\":[\"1\"]}]");
  config = replaced(config, "\"max_batch_size\":0", "\"max_batch_size\":4");
  TRITONSERVER_Message* message;
  Error* error = TRITONSERVER_MessageNewFromSerializedJson(&message, config.start, config.length);
  free(config.start);
  if (error == NULL) {
    error = TRITONBACKEND_ModelSetConfig(model, 1, message);
    report(TRITONSERVER_MessageDelete(message));
  }
  return error;
}

/* How many instances of a model are, or were, being initialized at the same time. */
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t wanted;
  uint64_t met;
} Rendezvous;

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  bool asked;
  bool unwanted;
  CHECK(TRITONBACKEND_ModelAutoCompleteConfig(model, &asked));
  CHECK(model_says(model, "complete", "false", &unwanted));
  if (asked && !unwanted) {
    CHECK(complete(model));
  }
  Rendezvous* rendezvous = calloc(1, sizeof *rendezvous);
  pthread_mutex_init(&rendezvous->lock, NULL);
  pthread_cond_init(&rendezvous->changed, NULL);
  CHECK(TRITONBACKEND_ModelSetState(model, rendezvous));
  return model_number(model, "rendezvous", 0, &rendezvous->wanted);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* state;
  CHECK(TRITONBACKEND_ModelState(model, &state));
  Rendezvous* rendezvous = state;
  if (rendezvous == NULL) {
    /* The initialization failed before. */
    return NULL;
  }
  pthread_cond_destroy(&rendezvous->changed);
  pthread_mutex_destroy(&rendezvous->lock);
  free(rendezvous);
  return NULL;
}

/* ---- The instance ---- */

static Error*
meet(Rendezvous* rendezvous)
{
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 10;
  int late = 0;
  pthread_mutex_lock(&rendezvous->lock);
  rendezvous->met++;
  pthread_cond_broadcast(&rendezvous->changed);
  while (rendezvous->met < rendezvous->wanted && late == 0) {
    late = pthread_cond_timedwait(&rendezvous->changed, &rendezvous->lock, &end);
  }
  pthread_mutex_unlock(&rendezvous->lock);
  return late == 0 ? NULL : fail(TRITONSERVER_ERROR_UNAVAILABLE, "the other instances do not come");
}

/* Tells of memory that is not really there. */
static Error*
report_memory(TRITONBACKEND_Model* model, TRITONBACKEND_ModelInstance* instance)
{
  TRITONSERVER_BufferAttributes* usage;
  CHECK(TRITONSERVER_BufferAttributesNew(&usage));
  Error* error = TRITONSERVER_BufferAttributesSetByteSize(usage, 4096);
  if (error == NULL) {
    error = TRITONBACKEND_ModelReportMemoryUsage(model, &usage, 1);
  }
  if (error == NULL) {
    error = TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, &usage, 1);
  }
  report(TRITONSERVER_BufferAttributesDelete(usage));
  return error;
}

Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  TRITONBACKEND_Model* model;
  void* state;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &state));
  CHECK(TRITONBACKEND_ModelInstanceSetState(instance, strdup("state of the instance")));
  CHECK(report_memory(model, instance));
  return meet(state);
}

Error*
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  void* state;
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));
  free(state);
  return NULL;
}

/* ---- What is seen ---- */

static Error*
put_message(Text* text, const char* key, TRITONSERVER_Message* message)
{
  const char* json;
  size_t size;
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  put(text, ",\"%s\":", key);
  put_bytes(text, json, size);
  return NULL;
}

static void
put_member(Text* text, const char* key, const char* value)
{
  put(text, ",\"%s\":", key);
  put_string(text, value);
}

static Error*
put_backend(Text* text, TRITONBACKEND_Backend* backend)
{
  const char* name;
  const char* location;
  void* state;
  TRITONSERVER_Message* config;
  TRITONBACKEND_ArtifactType type;
  TRITONBACKEND_ExecutionPolicy policy;
  CHECK(TRITONBACKEND_BackendName(backend, &name));
  CHECK(TRITONBACKEND_BackendConfig(backend, &config));
  CHECK(TRITONBACKEND_BackendArtifacts(backend, &type, &location));
  CHECK(TRITONBACKEND_BackendExecutionPolicy(backend, &policy));
  CHECK(TRITONBACKEND_BackendState(backend, &state));
  put_member(text, "backend", name);
  put_member(text, "backend_location", location);
  put_member(text, "backend_state", state);
  put(text, ",\"backend_artifact_type\":%d,\"execution_policy\":%d", (int)type, (int)policy);
  return put_message(text, "backend_config", config);
}

static Error*
put_model(Text* text, TRITONBACKEND_Model* model)
{
  const char* name;
  const char* location;
  uint64_t version;
  TRITONBACKEND_ArtifactType type;
  TRITONSERVER_Message* config;
  CHECK(TRITONBACKEND_ModelName(model, &name));
  CHECK(TRITONBACKEND_ModelVersion(model, &version));
  CHECK(TRITONBACKEND_ModelRepository(model, &type, &location));
  put_member(text, "model", name);
  put_member(text, "model_location", location);
  put(text, ",\"version\":%" PRIu64 ",\"model_artifact_type\":%d", version, (int)type);
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &config));
  Error* error = put_message(text, "model_config", config);
  report(TRITONSERVER_MessageDelete(config));
  return error;
}

static Error*
put_instance(Text* text, TRITONBACKEND_ModelInstance* instance)
{
  const char* name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device;
  bool passive;
  void* state;
  uint32_t count;
  TRITONSERVER_Message* host_policy;
  CHECK(TRITONBACKEND_ModelInstanceName(instance, &name));
  CHECK(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  CHECK(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
  CHECK(TRITONBACKEND_ModelInstanceIsPassive(instance, &passive));
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));
  CHECK(TRITONBACKEND_ModelInstanceHostPolicy(instance, &host_policy));
  put_member(text, "instance", name);
  put_member(text, "kind", TRITONSERVER_InstanceGroupKindString(kind));
  put_member(text, "instance_state", state);
  put(text, ",\"device\":%" PRId32 ",\"passive\":%s", device, passive ? "true" : "false");
  CHECK(put_message(text, "host_policy", host_policy));

  CHECK(TRITONBACKEND_ModelInstanceProfileCount(instance, &count));
  put(text, ",\"profiles\":[");
  for (uint32_t index = 0; index < count; index++) {
    CHECK(TRITONBACKEND_ModelInstanceProfileName(instance, index, &name));
    put(text, "%s", index == 0 ? "" : ",");
    put_string(text, name);
  }
  CHECK(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance, &count));
  put(text, "],\"secondary_devices\":[");
  for (uint32_t index = 0; index < count; index++) {
    int64_t id;
    CHECK(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, index, &name, &id));
    put(text, "%s{\"id\":%" PRId64, index == 0 ? "" : ",", id);
    put_member(text, "kind", name);
    put(text, "}");
  }
  put(text, "]");
  return NULL;
}

static void
put_value(Text* text, TRITONSERVER_ParameterType type, const void* value)
{
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      put_string(text, value);
      break;
    case TRITONSERVER_PARAMETER_INT:
      put(text, "%" PRId64, *(const int64_t*)value);
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      put(text, "%s", *(const bool*)value ? "true" : "false");
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      put(text, "%.17g", *(const double*)value);
      break;
    case TRITONSERVER_PARAMETER_BYTES:
      put(text, "null");
      break;
  }
}

static Error*
put_input(Text* text, TRITONBACKEND_Input* input)
{
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims;
  uint64_t size;
  uint32_t pieces;
  CHECK(TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &dims, &size, &pieces));
  put(text, "{\"bytes\":%" PRIu64, size);
  put_member(text, "name", name);
  put_member(text, "datatype", TRITONSERVER_DataTypeString(datatype));
  put(text, ",\"shape\":[");
  for (uint32_t index = 0; index < dims; index++) {
    put(text, "%s%" PRId64, index == 0 ? "" : ",", shape[index]);
  }
  put(text, "],\"pieces\":[");
  for (uint32_t index = 0; index < pieces; index++) {
    const void* buffer;
    TRITONSERVER_BufferAttributes* attributes;
    size_t piece_size;
    TRITONSERVER_MemoryType memory_type;
    CHECK(TRITONBACKEND_InputBufferAttributes(input, index, &buffer, &attributes));
    CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &piece_size));
    CHECK(TRITONSERVER_BufferAttributesMemoryType(attributes, &memory_type));
    put(text, "%s{\"bytes\":%zu", index == 0 ? "" : ",", piece_size);
    put_member(text, "memory", TRITONSERVER_MemoryTypeString(memory_type));
    put(text, "}");
  }
  put(text, "]}");
  return NULL;
}

static Error*
put_request(Text* text, TRITONBACKEND_Request* request)
{
  const char* id;
  const char* name;
  uint32_t flags;
  uint32_t count;
  uint64_t timeout_us;
  bool cancelled;
  TRITONSERVER_InferenceTrace* trace;
  CHECK(TRITONBACKEND_RequestId(request, &id));
  CHECK(TRITONBACKEND_RequestFlags(request, &flags));
  CHECK(TRITONBACKEND_RequestIsCancelled(request, &cancelled));
  CHECK(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us));
  CHECK(TRITONBACKEND_RequestTrace(request, &trace));
  put_member(text, "id", id);
  put(text, ",\"flags\":%" PRIu32 ",\"timeout_us\":%" PRIu64, flags, timeout_us);
  put(text, ",\"cancelled\":%s", cancelled ? "true" : "false");
  put(text, ",\"traced\":%s", trace != NULL ? "true" : "false");

  CHECK(TRITONBACKEND_RequestParameterCount(request, &count));
  put(text, ",\"parameters\":{");
  for (uint32_t index = 0; index < count; index++) {
    TRITONSERVER_ParameterType type;
    const void* value;
    CHECK(TRITONBACKEND_RequestParameter(request, index, &name, &type, &value));
    put(text, "%s", index == 0 ? "" : ",");
    put_string(text, name);
    put(text, ":");
    put_value(text, type, value);
  }
  CHECK(TRITONBACKEND_RequestOutputCount(request, &count));
  put(text, "},\"requested_outputs\":[");
  for (uint32_t index = 0; index < count; index++) {
    CHECK(TRITONBACKEND_RequestOutputName(request, index, &name));
    put(text, "%s", index == 0 ? "" : ",");
    put_string(text, name);
  }
  CHECK(TRITONBACKEND_RequestInputCount(request, &count));
  put(text, "],\"inputs\":[");
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Input* input;
    CHECK(TRITONBACKEND_RequestInputByIndex(request, index, &input));
    put(text, "%s", index == 0 ? "" : ",");
    CHECK(put_input(text, input));
  }
  put(text, "]");
  return NULL;
}

/* What the answer's own memory would be. */
static Error*
put_output_memory(Text* text, TRITONBACKEND_Request* request)
{
  size_t size = 64;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  Error* unknown = TRITONBACKEND_RequestOutputBufferProperties(
      request, "SEEN", &size, &memory_type, &memory_type_id);
  put_member(
      text, "output_memory",
      unknown == NULL ? TRITONSERVER_MemoryTypeString(memory_type)
                      : TRITONSERVER_ErrorCodeString(unknown));
  TRITONSERVER_ErrorDelete(unknown);
  return NULL;
}

static Error*
put_all(Text* text, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
{
  TRITONBACKEND_Model* model;
  TRITONBACKEND_Backend* backend;
  TRITONSERVER_Server* server;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelBackend(model, &backend));
  CHECK(TRITONBACKEND_ModelServer(model, &server));
  put(text, "{\"has_server\":%s", server != NULL ? "true" : "false");
  CHECK(put_backend(text, backend));
  CHECK(put_model(text, model));
  CHECK(put_instance(text, instance));
  CHECK(put_request(text, request));
  CHECK(put_output_memory(text, request));
  put(text, "}");
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  bool batches;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(model_batches(model, &batches));
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Response* response;
    Text seen = {NULL, 0};
    Error* lost = TRITONBACKEND_ResponseNew(&response, requests[index]);
    if (lost == NULL) {
      Error* error = put_all(&seen, instance, requests[index]);
      if (error == NULL) {
        error = write_text(response, "SEEN", batches ? 2 : 1, &seen);
      }
      send_final(response, error);
    }
    free(seen.start);
    report(lost);
    report(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
