/*
 * Serves a model in its own process and asks it one question.
 *
 *   embed MODEL_REPOSITORY BACKEND_DIRECTORY
 *
 * The repository has a model "identity" with the input INPUT0 and the output OUTPUT0, both of type INT32.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "nereid.h"

/* Ends the program if a call has failed. A null error is success. */
static void
check(TRITONSERVER_Error* error, const char* what)
{
  if (error != NULL) {
    fprintf(
        stderr, "%s: %s - %s\n", what, TRITONSERVER_ErrorCodeString(error),
        TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    exit(1);
  }
}

#define CHECK(call) check((call), #call)

/* ---- The server ---- */

static TRITONSERVER_Server*
start_server(const char* repository, const char* backends)
{
  TRITONSERVER_ServerOptions* options;
  TRITONSERVER_Server* server;
  CHECK(TRITONSERVER_ServerOptionsNew(&options));
  CHECK(TRITONSERVER_ServerOptionsSetServerId(options, "embedded"));
  CHECK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
  CHECK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, backends));
  CHECK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  /* Returns when the models of the repository are loaded. */
  CHECK(TRITONSERVER_ServerNew(&server, options));
  CHECK(TRITONSERVER_ServerOptionsDelete(options));
  return server;
}

static void
show_metadata(TRITONSERVER_Server* server, const char* model)
{
  TRITONSERVER_Message* metadata;
  const char* json;
  size_t size;
  CHECK(TRITONSERVER_ServerModelMetadata(server, model, -1, &metadata));
  CHECK(TRITONSERVER_MessageSerializeToJson(metadata, &json, &size));
  printf("metadata: %.*s\n", (int)size, json);
  CHECK(TRITONSERVER_MessageDelete(metadata));
}

/* ---- Memory for outputs ---- */

static TRITONSERVER_Error*
allocate(
    TRITONSERVER_ResponseAllocator* allocator, const char* tensor, size_t size,
    TRITONSERVER_MemoryType wanted, int64_t wanted_id, void* userp, void** buffer, void** buffer_userp,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id)
{
  (void)allocator, (void)tensor, (void)wanted, (void)wanted_id, (void)userp;
  *buffer = size == 0 ? NULL : malloc(size);
  *buffer_userp = NULL;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  if (size > 0 && *buffer == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
  }
  return NULL;
}

static TRITONSERVER_Error*
give_back(
    TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_userp, size_t size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id)
{
  (void)allocator, (void)buffer_userp, (void)size, (void)memory_type, (void)memory_type_id;
  free(buffer);
  return NULL;
}

/* ---- What comes back, on threads of the server ---- */

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  TRITONSERVER_InferenceResponse* response;
  bool is_complete;
  bool is_released;
} Outcome;

static void
on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* userp)
{
  Outcome* outcome = userp;
  pthread_mutex_lock(&outcome->lock);
  /* A response belongs to us from here on. There is none if only the end is told. */
  if (response != NULL) {
    outcome->response = response;
  }
  outcome->is_complete = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  pthread_cond_signal(&outcome->changed);
  pthread_mutex_unlock(&outcome->lock);
}

static void
on_release(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* userp)
{
  (void)request;
  Outcome* outcome = userp;
  pthread_mutex_lock(&outcome->lock);
  outcome->is_released = (flags & TRITONSERVER_REQUEST_RELEASE_ALL) != 0;
  pthread_cond_signal(&outcome->changed);
  pthread_mutex_unlock(&outcome->lock);
}

static void
wait_for(Outcome* outcome)
{
  pthread_mutex_lock(&outcome->lock);
  while (!outcome->is_complete || !outcome->is_released) {
    pthread_cond_wait(&outcome->changed, &outcome->lock);
  }
  pthread_mutex_unlock(&outcome->lock);
}

/* ---- The question ---- */

static void
show_response(TRITONSERVER_InferenceResponse* response)
{
  CHECK(TRITONSERVER_InferenceResponseError(response));
  const char* model;
  int64_t version;
  uint32_t count;
  CHECK(TRITONSERVER_InferenceResponseModel(response, &model, &version));
  CHECK(TRITONSERVER_InferenceResponseOutputCount(response, &count));
  printf("response of %s, version %" PRId64 "\n", model, version);
  for (uint32_t index = 0; index < count; index++) {
    const char* name;
    TRITONSERVER_DataType datatype;
    const int64_t* shape;
    uint64_t dims;
    const void* base;
    size_t size;
    TRITONSERVER_MemoryType memory_type;
    int64_t memory_type_id;
    void* userp;
    CHECK(TRITONSERVER_InferenceResponseOutput(
        response, index, &name, &datatype, &shape, &dims, &base, &size, &memory_type,
        &memory_type_id, &userp));
    printf("%s %s:", name, TRITONSERVER_DataTypeString(datatype));
    const int32_t* values = base;
    for (size_t at = 0; at < size / sizeof *values; at++) {
      printf(" %" PRId32, values[at]);
    }
    printf("\n");
  }
}

static void
ask(TRITONSERVER_Server* server, TRITONSERVER_ResponseAllocator* allocator)
{
  /* One row of three elements; read in place, so it must stay until the request is released. */
  const int32_t values[3] = {3, 1, 4};
  const int64_t shape[2] = {1, 3};
  Outcome outcome = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false, false};

  TRITONSERVER_InferenceRequest* request;
  CHECK(TRITONSERVER_InferenceRequestNew(&request, server, "identity", -1));
  CHECK(TRITONSERVER_InferenceRequestSetId(request, "first"));
  CHECK(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", values, sizeof values, TRITONSERVER_MEMORY_CPU, 0));
  CHECK(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
  CHECK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &outcome));
  CHECK(TRITONSERVER_InferenceRequestSetResponseCallback(
      request, allocator, NULL, on_response, &outcome));

  /* From here until the release callback the request is the server's. */
  CHECK(TRITONSERVER_ServerInferAsync(server, request, NULL));
  wait_for(&outcome);

  show_response(outcome.response);
  CHECK(TRITONSERVER_InferenceResponseDelete(outcome.response));
  CHECK(TRITONSERVER_InferenceRequestDelete(request));
}

int
main(int argc, char** argv)
{
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL_REPOSITORY BACKEND_DIRECTORY\n", argv[0]);
    return 2;
  }
  uint32_t major;
  uint32_t minor;
  CHECK(TRITONSERVER_ApiVersion(&major, &minor));
  printf("interface %" PRIu32 ".%" PRIu32 "\n", major, minor);

  TRITONSERVER_Server* server = start_server(argv[1], argv[2]);
  show_metadata(server, "identity");

  TRITONSERVER_ResponseAllocator* allocator;
  CHECK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
  ask(server, allocator);
  CHECK(TRITONSERVER_ResponseAllocatorDelete(allocator));

  CHECK(TRITONSERVER_ServerStop(server));
  CHECK(TRITONSERVER_ServerDelete(server));
  return 0;
}
