/*
 * Executes a request again and again by TRITONSERVER_REQUEST_RELEASE_RESCHEDULE. An execution counts for a request if it is
 * shared by as many requests as the model says; after IN executions that count, the request is done. So a request goes on
 * until others have joined it.
 *
 * SEEN (INT32, three elements) is what the request has seen: its executions, those that counted, and those in which START was
 * set. The server keeps it as the state seen_in, seen_out. A decoupled model answers after each execution that counts,
 * another model after the last one.
 *
 * Parameters of the model:
 *   together  how many requests share an execution that counts [1]
 *   answers   "each" for a decoupled model
 */
#include "common.h"

enum { EXECUTIONS, COUNTED, STARTS, ELEMENTS };

typedef struct {
  uint64_t together;
  bool answers_each;
} Settings;

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  CHECK(api_version_is_known());
  Settings* settings = calloc(1, sizeof *settings);
  CHECK(TRITONBACKEND_ModelSetState(model, settings));
  CHECK(model_number(model, "together", 1, &settings->together));
  return model_says(model, "answers", "each", &settings->answers_each);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* settings;
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  free(settings);
  return NULL;
}

/* The first `size` bytes of an input. */
static Error*
read_start(TRITONBACKEND_Request* request, const char* name, void* start, uint64_t size)
{
  TRITONBACKEND_Input* input;
  char* bytes;
  uint64_t total;
  CHECK(TRITONBACKEND_RequestInput(request, name, &input));
  CHECK(read_input(input, &bytes, &total));
  Error* error = NULL;
  if (total < size) {
    error = fail(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has %" PRIu64 " bytes", name, total);
  } else {
    memcpy(start, bytes, size);
  }
  free(bytes);
  return error;
}

static bool
is_ready(TRITONBACKEND_Request* request)
{
  bool ready = false;
  report(read_start(request, "READY", &ready, sizeof ready));
  return ready;
}

/* Stores what the request has seen for its next execution. */
static Error*
remember(TRITONBACKEND_Request* request, const int32_t* seen)
{
  const int64_t shape[2] = {1, ELEMENTS};
  TRITONBACKEND_State* state;
  void* buffer;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  const uint64_t size = ELEMENTS * sizeof *seen;
  CHECK(TRITONBACKEND_StateNew(&state, request, "seen_out", TRITONSERVER_TYPE_INT32, shape, 2));
  CHECK(TRITONBACKEND_StateBuffer(state, &buffer, size, &memory_type, &memory_type_id));
  memcpy(buffer, seen, size);
  return TRITONBACKEND_StateUpdate(state);
}

/* One execution of a request: what it has seen then, and whether it is done. */
static Error*
step(TRITONBACKEND_Request* request, bool counts, int32_t* seen, bool* is_done)
{
  int32_t wanted;
  int32_t start;
  CHECK(read_start(request, "IN", &wanted, sizeof wanted));
  CHECK(read_start(request, "START", &start, sizeof start));
  CHECK(read_start(request, "seen_in", seen, ELEMENTS * sizeof *seen));
  seen[EXECUTIONS]++;
  seen[COUNTED] += counts;
  seen[STARTS] += start;
  *is_done = seen[COUNTED] >= wanted;
  return remember(request, seen);
}

/* Sends what the request has seen. */
static Error*
answer(TRITONBACKEND_Request* request, const int32_t* seen, bool is_last)
{
  const int64_t shape[2] = {1, ELEMENTS};
  TRITONBACKEND_Response* response;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  Error* error = write_output(
      response, "SEEN", TRITONSERVER_TYPE_INT32, shape, 2, seen, ELEMENTS * sizeof *seen);
  const uint32_t flags = is_last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
  Error* lost = TRITONBACKEND_ResponseSend(response, flags, error);
  TRITONSERVER_ErrorDelete(error);
  return lost;
}

/* Answers a row that only keeps the others in their places. */
static void
pass_over(TRITONBACKEND_Request* request)
{
  TRITONBACKEND_Response* response;
  Error* lost = TRITONBACKEND_ResponseNew(&response, request);
  if (lost == NULL) {
    send_final(response, NULL);
  }
  report(lost);
  report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

static void
execute(const Settings* settings, TRITONBACKEND_Request* request, bool counts)
{
  int32_t seen[ELEMENTS];
  bool is_done = true;
  Error* error = step(request, counts, seen, &is_done);
  if (error != NULL) {
    refuse(request, error);
    is_done = true;
  } else if (is_done || (counts && settings->answers_each)) {
    report(answer(request, seen, is_done));
  }
  if (!is_done) {
    error = TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);
    if (error == NULL) {
      return;
    }
    refuse(request, error);
  }
  report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  void* settings;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  uint64_t ready = 0;
  for (uint32_t index = 0; index < count; index++) {
    ready += is_ready(requests[index]);
  }
  const bool counts = ready >= ((Settings*)settings)->together;
  for (uint32_t index = 0; index < count; index++) {
    if (is_ready(requests[index])) {
      execute(settings, requests[index], counts);
    } else {
      pass_over(requests[index]);
    }
  }
  return NULL;
}
