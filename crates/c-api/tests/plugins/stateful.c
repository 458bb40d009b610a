/*
 * Adds INPUT (INT32) to what the sequence remembers as `sum`, element by element, and answers with it as OUTPUT.
 *
 * The configuration has a state with the names sum_in and sum_out. SEEN, if asked for, is a JSON text with what came
 * besides: the controls START, END, READY and CORRID where the configuration has them, the flags, the correlation id, and
 * whether the state is written where its input lies.
 *
 * Parameters of the model:
 *   update  "never" to leave out TRITONBACKEND_StateUpdate
 */
#include "common.h"

typedef struct {
  bool batches;
  bool never_updates;
} Settings;

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  CHECK(api_version_is_known());
  Settings* settings = calloc(1, sizeof *settings);
  CHECK(TRITONBACKEND_ModelSetState(model, settings));
  CHECK(model_batches(model, &settings->batches));
  return model_says(model, "update", "never", &settings->never_updates);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* settings;
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  free(settings);
  return NULL;
}

/* An input that may be missing. */
static TRITONBACKEND_Input*
input_if_any(TRITONBACKEND_Request* request, const char* name)
{
  TRITONBACKEND_Input* input = NULL;
  Error* missing = TRITONBACKEND_RequestInput(request, name, &input);
  const bool found = missing == NULL;
  TRITONSERVER_ErrorDelete(missing);
  return found ? input : NULL;
}

/* A control as a JSON number or string; null if the configuration has no such control. */
static Error*
put_control(Text* text, TRITONBACKEND_Request* request, const char* name)
{
  put(text, ",\"%s\":", name);
  TRITONBACKEND_Input* input = input_if_any(request, name);
  if (input == NULL) {
    put(text, "null");
    return NULL;
  }
  TRITONSERVER_DataType datatype;
  char* bytes;
  uint64_t size;
  CHECK(TRITONBACKEND_InputProperties(input, NULL, &datatype, NULL, NULL, NULL, NULL));
  CHECK(read_input(input, &bytes, &size));
  int32_t number = 0;
  float real = 0;
  uint64_t large = 0;
  switch (datatype) {
    case TRITONSERVER_TYPE_INT32:
      memcpy(&number, bytes, sizeof number);
      put(text, "%" PRId32, number);
      break;
    case TRITONSERVER_TYPE_FP32:
      memcpy(&real, bytes, sizeof real);
      put(text, "%g", (double)real);
      break;
    case TRITONSERVER_TYPE_BOOL:
      put(text, "%s", bytes[0] ? "true" : "false");
      break;
    case TRITONSERVER_TYPE_UINT64:
    case TRITONSERVER_TYPE_INT64:
      memcpy(&large, bytes, sizeof large);
      put(text, "%" PRIu64, large);
      break;
    case TRITONSERVER_TYPE_BYTES:
      /* One element behind its length. */
      bytes[size] = '\0';
      put_string(text, bytes + sizeof(uint32_t));
      break;
    default:
      put_string(text, TRITONSERVER_DataTypeString(datatype));
  }
  free(bytes);
  return NULL;
}

static Error*
put_seen(Text* text, TRITONBACKEND_Request* request, bool in_place)
{
  uint32_t flags;
  uint64_t number;
  const char* string;
  CHECK(TRITONBACKEND_RequestFlags(request, &flags));
  put(text, "{\"flags\":%" PRIu32 ",\"correlation_id\":", flags);
  /* It is either a number or a string; asking for the other is an error. */
  Error* not_a_number = TRITONBACKEND_RequestCorrelationId(request, &number);
  if (not_a_number == NULL) {
    put(text, "%" PRIu64, number);
  } else {
    TRITONSERVER_ErrorDelete(not_a_number);
    CHECK(TRITONBACKEND_RequestCorrelationIdString(request, &string));
    put_string(text, string);
  }
  CHECK(put_control(text, request, "START"));
  CHECK(put_control(text, request, "END"));
  CHECK(put_control(text, request, "READY"));
  CHECK(put_control(text, request, "CORRID"));
  put(text, ",\"in_place\":%s}", in_place ? "true" : "false");
  return NULL;
}

/* Stores the new sum. Its memory belongs to the server; in_place tells whether the old sum lies there. */
static Error*
remember(
    TRITONBACKEND_Request* request, TRITONBACKEND_Input* old, const int64_t* shape, uint32_t dims, const char* sum,
    uint64_t size, bool updates, bool* in_place)
{
  TRITONBACKEND_State* state;
  TRITONSERVER_BufferAttributes* attributes;
  void* buffer;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  size_t buffer_size;
  CHECK(TRITONBACKEND_StateNew(&state, request, "sum_out", TRITONSERVER_TYPE_INT32, shape, dims));
  CHECK(TRITONBACKEND_StateBuffer(state, &buffer, size, &memory_type, &memory_type_id));
  CHECK(TRITONBACKEND_StateBufferAttributes(state, &attributes));
  CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &buffer_size));
  if (buffer_size != size || memory_type == TRITONSERVER_MEMORY_GPU) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "the state has %zu bytes of memory", buffer_size);
  }
  const void* old_buffer;
  uint64_t old_size;
  CHECK(TRITONBACKEND_InputBuffer(old, 0, &old_buffer, &old_size, &memory_type, &memory_type_id));
  *in_place = buffer == old_buffer && size == old_size;
  memcpy(buffer, sum, size);
  return updates ? TRITONBACKEND_StateUpdate(state) : NULL;
}

static Error*
add(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, bool updates, bool* in_place)
{
  TRITONBACKEND_Input* input;
  const int64_t* shape;
  uint32_t dims;
  char* values;
  char* sums;
  uint64_t size;
  uint64_t sums_size;
  CHECK(TRITONBACKEND_RequestInput(request, "INPUT", &input));
  CHECK(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &dims, NULL, NULL));
  CHECK(read_input(input, &values, &size));
  TRITONBACKEND_Input* remembered;
  Error* error = TRITONBACKEND_RequestInput(request, "sum_in", &remembered);
  if (error == NULL) {
    error = read_input(remembered, &sums, &sums_size);
  }
  if (error == NULL) {
    for (uint64_t at = 0; at + sizeof(int32_t) <= size && at + sizeof(int32_t) <= sums_size;
         at += sizeof(int32_t)) {
      int32_t value;
      int32_t sum;
      memcpy(&value, values + at, sizeof value);
      memcpy(&sum, sums + at, sizeof sum);
      sum += value;
      memcpy(sums + at, &sum, sizeof sum);
    }
    error = remember(request, remembered, shape, dims, sums, sums_size, updates, in_place);
    if (error == NULL) {
      error = write_output(
          response, "OUTPUT", TRITONSERVER_TYPE_INT32, shape, dims, sums, sums_size);
    }
    free(sums);
  }
  free(values);
  return error;
}

static Error*
fill(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, const Settings* settings)
{
  uint32_t outputs;
  bool in_place = false;
  CHECK(add(request, response, !settings->never_updates, &in_place));
  CHECK(TRITONBACKEND_RequestOutputCount(request, &outputs));
  for (uint32_t index = 0; index < outputs; index++) {
    const char* name;
    CHECK(TRITONBACKEND_RequestOutputName(request, index, &name));
    if (strcmp(name, "SEEN") == 0) {
      Text seen = {NULL, 0};
      Error* error = put_seen(&seen, request, in_place);
      if (error == NULL) {
        error = write_text(response, "SEEN", settings->batches ? 2 : 1, &seen);
      }
      free(seen.start);
      CHECK(error);
    }
  }
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  void* settings;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Response* response;
    Error* lost = TRITONBACKEND_ResponseNew(&response, requests[index]);
    if (lost == NULL) {
      send_final(response, fill(requests[index], response, settings));
    }
    report(lost);
    report(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
