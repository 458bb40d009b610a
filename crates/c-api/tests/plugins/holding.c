/*
 * Answers Y = X + BUILD, one FP32 number. BUILD is a number that the compiler is given (-DBUILD=2), so that an answer
 * tells which library has made it. Each model holds memory.
 *
 * Parameters of the model:
 *   hold_bytes    how many bytes the model holds and reports, in blocks of 64 KiB
 *   refuses_to    "load": the model cannot be loaded once it holds its memory
 *
 * Settings of the backend:
 *   journal       a file. The library appends a line when it is initialized, and when it is finalized: its BUILD, and
 *                 how many models it has had
 */
#include <stdatomic.h>

#include "common.h"

#ifndef BUILD
#define BUILD 1
#endif

enum { BLOCK_BYTES = 64 * 1024 };

typedef struct {
  size_t count;
  char* blocks[];
} Held;

/* There is one for each time that the library is opened. */
static atomic_int models;

/* ---- The library ---- */

static Error*
write_journal(TRITONBACKEND_Backend* backend, const char* event)
{
  TRITONSERVER_Message* message;
  const char* json;
  size_t size;
  CHECK(TRITONBACKEND_BackendConfig(backend, &message));
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  char* path = find_string(json, "journal", NULL);
  if (path == NULL) {
    return NULL;
  }
  FILE* journal = fopen(path, "a");
  free(path);
  if (journal == NULL) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "the journal cannot be written");
  }
  fprintf(journal, "%s %d, %d models\n", event, BUILD, atomic_load(&models));
  fclose(journal);
  return NULL;
}

Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  CHECK(api_version_is_known());
  return write_journal(backend, "initialized");
}

Error*
TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend)
{
  return write_journal(backend, "finalized");
}

/* ---- Models ---- */

static void
release(Held* held)
{
  for (size_t index = 0; index < held->count; index++) {
    free(held->blocks[index]);
  }
  free(held);
}

static Held*
hold(uint64_t bytes)
{
  const size_t count = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
  Held* held = malloc(sizeof *held + count * sizeof *held->blocks);
  held->count = count;
  for (size_t index = 0; index < count; index++) {
    held->blocks[index] = malloc(BLOCK_BYTES);
    memset(held->blocks[index], 1, BLOCK_BYTES);
  }
  return held;
}

static Error*
report_held(TRITONBACKEND_Model* model, uint64_t bytes)
{
  TRITONSERVER_BufferAttributes* usage[1];
  CHECK(TRITONSERVER_BufferAttributesNew(&usage[0]));
  report(TRITONSERVER_BufferAttributesSetMemoryType(usage[0], TRITONSERVER_MEMORY_CPU));
  report(TRITONSERVER_BufferAttributesSetByteSize(usage[0], bytes));
  Error* error = TRITONBACKEND_ModelReportMemoryUsage(model, usage, 1);
  report(TRITONSERVER_BufferAttributesDelete(usage[0]));
  return error;
}

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  uint64_t bytes;
  bool refuses;
  CHECK(model_number(model, "hold_bytes", 0, &bytes));
  CHECK(model_says(model, "refuses_to", "load", &refuses));
  if (bytes > 0) {
    CHECK(report_held(model, bytes));
  }
  Held* held = hold(bytes);
  if (refuses) {
    release(held);
    return fail(TRITONSERVER_ERROR_INTERNAL, "refused as wanted");
  }
  atomic_fetch_add(&models, 1);
  return TRITONBACKEND_ModelSetState(model, held);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* held;
  CHECK(TRITONBACKEND_ModelState(model, &held));
  if (held != NULL) {
    release(held);
  }
  return NULL;
}

/* ---- Requests ---- */

static Error*
add(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response)
{
  TRITONBACKEND_Input* input;
  char* bytes;
  uint64_t size;
  float number = 0;
  const int64_t shape[1] = {1};
  CHECK(TRITONBACKEND_RequestInput(request, "X", &input));
  CHECK(read_input(input, &bytes, &size));
  memcpy(&number, bytes, size < sizeof number ? size : sizeof number);
  free(bytes);
  number += BUILD;
  return write_output(response, "Y", TRITONSERVER_TYPE_FP32, shape, 1, &number, sizeof number);
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  (void)instance;
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Response* response;
    Error* error = TRITONBACKEND_ResponseNew(&response, requests[index]);
    if (error == NULL) {
      send_final(response, add(requests[index], response));
    } else {
      report(error);
    }
    report(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
