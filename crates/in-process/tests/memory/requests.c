/*
 * Sends requests to every test plug-in, several at a time, and lets go of everything: what a memory checker watches.
 *
 *   requests MODEL_REPOSITORY PLUGIN_DIRECTORY COUNT
 *
 * COUNT is how many requests each model gets. `cargo xtask memcheck` makes the repository, whose models are those of
 * KINDS and some that cannot be loaded.
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nereid.h"

/* Ends the program if a call has failed. */
static void
check(TRITONSERVER_Error* error, const char* what)
{
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    exit(1);
  }
}

#define CHECK(call) check((call), #call)

/* Ends the program if a call has not failed. */
static void
check_refused(TRITONSERVER_Error* error, const char* what)
{
  if (error == NULL) {
    fprintf(stderr, "accepted: %s\n", what);
    exit(1);
  }
  TRITONSERVER_ErrorDelete(error);
}

#define CHECK_REFUSED(call) check_refused((call), #call)

/* ---- What is asked ---- */

/* A model and how it is asked. */
typedef struct {
  const char* model;
  const char* input;
  /* Requests are steps of sequences of four. */
  bool sequences;
  /* Each request says in which way the backend shall misbehave. */
  bool misbehaves;
} Kind;

static const Kind KINDS[] = {
    {"identity", "INPUT0", false, false},
    {"identity_before", "INPUT0", false, false},
    {"identity_thread", "INPUT0", false, false},
    {"identity_thread_before", "INPUT0", false, false},
    {"repeat", "IN", false, false},
    {"repeat_last", "IN", false, false},
    {"stateful", "INPUT", true, false},
    {"stateful_in_place", "INPUT", true, false},
    {"iterate", "IN", false, false},
    {"iterate_each", "IN", false, false},
    {"config", "INPUT", false, false},
    {"cached", "INPUT0", false, false},
    {"single_batch", "INPUT0", false, false},
    {"volume_batch", "INPUT0", false, false},
    {"agent", "INPUT0", false, false},
    {"failing", "INPUT", false, true},
};

/* As failing.c lists them. */
static const char* const WAYS[] = {
    "execute",     "response",   "forget",         "forget_later", "drop",      "odd_order",
    "twice",       "factory",    "reschedule",     "short_output", "wrong_shape", "wrong_type",
    "unknown_output", "output_twice", "no_memory", "statistics",   "null"};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- Requests under way ---- */

enum { WINDOW = 8, ELEMENTS = 4 };

typedef struct Lane Lane;

/* A request that is under way or can be made again. */
typedef struct {
  Lane* lane;
  TRITONSERVER_InferenceRequest* request;
  int32_t values[ELEMENTS];
  unsigned uses;
  bool is_complete;
  bool is_released;
} Slot;

/* All requests to one model. */
struct Lane {
  const Kind* kind;
  TRITONSERVER_Server* server;
  /* A plain one, and one with all functions. */
  TRITONSERVER_ResponseAllocator* allocators[2];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Slot slots[WINDOW];
  unsigned answers;
  unsigned failures;
  unsigned cancelled;
  uint64_t sum;
};

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

static TRITONSERVER_Error*
start_response(TRITONSERVER_ResponseAllocator* allocator, void* userp)
{
  (void)allocator, (void)userp;
  return NULL;
}

static TRITONSERVER_Error*
query(
    TRITONSERVER_ResponseAllocator* allocator, void* userp, const char* tensor, size_t* size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id)
{
  (void)allocator, (void)userp, (void)tensor, (void)size;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return NULL;
}

static TRITONSERVER_Error*
describe(
    TRITONSERVER_ResponseAllocator* allocator, const char* tensor,
    TRITONSERVER_BufferAttributes* attributes, void* userp, void* buffer_userp)
{
  (void)allocator, (void)tensor, (void)userp, (void)buffer_userp;
  return TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU);
}

/* ---- What comes back ---- */

/* Reads all bytes of a response; an error counts 0. */
static bool
read_response(TRITONSERVER_InferenceResponse* response, uint64_t* sum)
{
  TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response);
  if (error != NULL) {
    *sum = strlen(TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return false;
  }
  uint32_t count;
  *sum = 0;
  CHECK(TRITONSERVER_InferenceResponseOutputCount(response, &count));
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
    *sum += strlen(name) + dims;
    for (size_t at = 0; at < size; at++) {
      /* A branch: that is where memory checkers look for values that nobody has written. */
      *sum += ((const unsigned char*)base)[at] > 127 ? 2 : 1;
    }
  }
  CHECK(TRITONSERVER_InferenceResponseParameterCount(response, &count));
  for (uint32_t index = 0; index < count; index++) {
    const char* name;
    TRITONSERVER_ParameterType type;
    const void* value;
    CHECK(TRITONSERVER_InferenceResponseParameter(response, index, &name, &type, &value));
    *sum += strlen(name);
  }
  return true;
}

static void
on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* userp)
{
  Slot* slot = userp;
  uint64_t sum = 0;
  const bool is_answer = response != NULL && read_response(response, &sum);
  const bool is_failure = response != NULL && !is_answer;
  CHECK(TRITONSERVER_InferenceResponseDelete(response));
  pthread_mutex_lock(&slot->lane->lock);
  slot->lane->answers += is_answer;
  slot->lane->failures += is_failure;
  slot->lane->sum += sum;
  slot->is_complete = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  pthread_cond_signal(&slot->lane->changed);
  pthread_mutex_unlock(&slot->lane->lock);
}

static void
on_release(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* userp)
{
  (void)request, (void)flags;
  Slot* slot = userp;
  pthread_mutex_lock(&slot->lane->lock);
  slot->is_released = true;
  pthread_cond_signal(&slot->lane->changed);
  pthread_mutex_unlock(&slot->lane->lock);
}

static void
on_activity(
    TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity, uint64_t nanos,
    void* userp)
{
  (void)activity, (void)nanos, (void)userp;
  const char* model;
  CHECK(TRITONSERVER_InferenceTraceModelName(trace, &model));
}

static void
on_tensor(
    TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity, const char* name,
    TRITONSERVER_DataType datatype, const void* base, size_t size, const int64_t* shape, uint64_t dims,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void* userp)
{
  (void)activity, (void)name, (void)datatype, (void)base, (void)size, (void)shape, (void)dims;
  (void)memory_type, (void)memory_type_id, (void)userp;
  CHECK(TRITONSERVER_InferenceTraceReportActivity(trace, 1, "a tensor was seen"));
}

static void
on_trace_release(TRITONSERVER_InferenceTrace* trace, void* userp)
{
  (void)userp;
  CHECK(TRITONSERVER_InferenceTraceDelete(trace));
}

/* ---- One request ---- */

static Slot*
next_slot(Lane* lane)
{
  Slot* found = NULL;
  pthread_mutex_lock(&lane->lock);
  while (found == NULL) {
    for (size_t index = 0; index < WINDOW && found == NULL; index++) {
      Slot* slot = &lane->slots[index];
      found = slot->is_complete && slot->is_released ? slot : NULL;
    }
    if (found == NULL) {
      pthread_cond_wait(&lane->changed, &lane->lock);
    }
  }
  found->is_complete = false;
  found->is_released = false;
  pthread_mutex_unlock(&lane->lock);
  return found;
}

/* The input, in one piece or in two. */
static void
add_input(Slot* slot, bool halved)
{
  const Kind* kind = slot->lane->kind;
  TRITONSERVER_InferenceRequest* request = slot->request;
  const int64_t elements = kind->sequences ? 1 : ELEMENTS;
  const int64_t shape[2] = {1, elements};
  const bool batches = strncmp(kind->model, "repeat", strlen("repeat")) != 0;
  const char* bytes = (const char*)slot->values;
  const size_t size = (size_t)elements * sizeof *slot->values;
  const size_t half = halved ? size / 2 : size;
  CHECK(TRITONSERVER_InferenceRequestAddInput(
      request, kind->input, TRITONSERVER_TYPE_INT32, batches ? shape : shape + 1, batches ? 2 : 1));
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      request, kind->input, bytes, half, TRITONSERVER_MEMORY_CPU, 0));
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      request, kind->input, bytes + half, size - half, TRITONSERVER_MEMORY_CPU, 0));
}

static void
make_request(Slot* slot, unsigned number)
{
  Lane* lane = slot->lane;
  char id[32];
  snprintf(id, sizeof id, "request %u", number);
  CHECK(TRITONSERVER_InferenceRequestNew(&slot->request, lane->server, lane->kind->model, -1));
  CHECK(TRITONSERVER_InferenceRequestSetId(slot->request, id));
  CHECK(TRITONSERVER_InferenceRequestSetIntParameter(slot->request, "number", number));
  if (lane->kind->misbehaves) {
    CHECK(TRITONSERVER_InferenceRequestSetStringParameter(
        slot->request, "fail_at", WAYS[number % LENGTH(WAYS)]));
  }
  CHECK(TRITONSERVER_InferenceRequestSetReleaseCallback(slot->request, on_release, slot));
  CHECK(TRITONSERVER_InferenceRequestSetResponseCallback(
      slot->request, lane->allocators[number % 2], NULL, on_response, slot));
}

/* A request that contradicts its model stays with the caller. */
static void
be_refused(Slot* slot)
{
  CHECK(TRITONSERVER_InferenceRequestRemoveAllInputs(slot->request));
  CHECK_REFUSED(TRITONSERVER_ServerInferAsync(slot->lane->server, slot->request, NULL));
  CHECK_REFUSED(TRITONSERVER_InferenceRequestAppendInputData(
      slot->request, "no such input", slot->values, 1, TRITONSERVER_MEMORY_CPU, 0));
}

static void
send(Slot* slot, unsigned number)
{
  Lane* lane = slot->lane;
  const Kind* kind = lane->kind;
  TRITONSERVER_InferenceTrace* trace = NULL;
  /* Some requests are made once and sent again. */
  if (slot->request == NULL || kind->misbehaves || number % 4 == 0) {
    CHECK(TRITONSERVER_InferenceRequestDelete(slot->request));
    make_request(slot, number);
  }
  if (kind->sequences) {
    const unsigned step = slot->uses % 4;
    const uint32_t flags = (step == 0 ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START : 0) |
                           (step == 3 ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_END : 0);
    CHECK(TRITONSERVER_InferenceRequestSetFlags(slot->request, flags));
    CHECK(TRITONSERVER_InferenceRequestSetCorrelationId(
        slot->request, (uint64_t)(slot - lane->slots) + 1));
  } else if (number % 11 == 0) {
    be_refused(slot);
  }
  slot->uses++;
  CHECK(TRITONSERVER_InferenceRequestRemoveAllInputs(slot->request));
  for (size_t index = 0; index < ELEMENTS; index++) {
    /* Few enough for a cache to know some of them. */
    slot->values[index] = (int32_t)(number % 6 + index);
  }
  add_input(slot, number % 3 == 0);
  if (number % 5 == 0) {
    CHECK(TRITONSERVER_InferenceTraceTensorNew(
        &trace, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS | TRITONSERVER_TRACE_LEVEL_TENSORS, 0, on_activity,
        on_tensor, on_trace_release, NULL));
  }
  CHECK(TRITONSERVER_ServerInferAsync(lane->server, slot->request, trace));
  if (!kind->sequences && number % 7 == 0) {
    CHECK(TRITONSERVER_InferenceRequestCancel(slot->request));
    lane->cancelled++;
  }
}

/* ---- One model ---- */

static void
look_at(TRITONSERVER_Server* server, const char* model)
{
  TRITONSERVER_Message* message;
  const char* json;
  size_t size;
  CHECK(TRITONSERVER_ServerModelStatistics(server, model, -1, &message));
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  CHECK(TRITONSERVER_MessageDelete(message));
  CHECK(TRITONSERVER_ServerModelMetadata(server, model, -1, &message));
  CHECK(TRITONSERVER_MessageDelete(message));
  CHECK(TRITONSERVER_ServerModelConfig(server, model, -1, 1, &message));
  CHECK(TRITONSERVER_MessageDelete(message));
}

static void
ask(TRITONSERVER_Server* server, TRITONSERVER_ResponseAllocator** allocators, const Kind* kind, unsigned count)
{
  Lane lane = {.kind = kind, .server = server, .allocators = {allocators[0], allocators[1]}};
  pthread_mutex_init(&lane.lock, NULL);
  pthread_cond_init(&lane.changed, NULL);
  for (size_t index = 0; index < WINDOW; index++) {
    lane.slots[index] = (Slot){.lane = &lane, .is_complete = true, .is_released = true};
  }
  for (unsigned number = 0; number < count; number++) {
    send(next_slot(&lane), number);
  }
  for (size_t index = 0; index < WINDOW; index++) {
    /* Each slot once, as a slot that was given out is not given out again. */
    CHECK(TRITONSERVER_InferenceRequestDelete(next_slot(&lane)->request));
  }
  look_at(server, kind->model);
  printf(
      "%-24s %u requests, %u answers, %u failures\n", kind->model, count, lane.answers, lane.failures);
  if (lane.failures > lane.cancelled && !kind->misbehaves) {
    fprintf(stderr, "only %u requests were cancelled\n", lane.cancelled);
    exit(1);
  }
  pthread_cond_destroy(&lane.changed);
  pthread_mutex_destroy(&lane.lock);
}

/* ---- Without requests ---- */

/* A metric is counted, shown and forgotten. */
static void
count_something(TRITONSERVER_Server* server)
{
  TRITONSERVER_MetricFamily* family;
  TRITONSERVER_MetricArgs* args;
  TRITONSERVER_Metric* metric;
  TRITONSERVER_Metrics* metrics;
  const char* text;
  size_t size;
  const double bounds[2] = {1.0, 2.0};
  TRITONSERVER_Parameter* label = TRITONSERVER_ParameterNew("label", TRITONSERVER_PARAMETER_STRING, "a");
  const TRITONSERVER_Parameter* labels[1] = {label};
  CHECK(TRITONSERVER_MetricFamilyNew(
      &family, TRITONSERVER_METRIC_KIND_HISTOGRAM, "memory_histogram", "what was seen"));
  CHECK(TRITONSERVER_MetricArgsNew(&args));
  CHECK(TRITONSERVER_MetricArgsSetHistogram(args, bounds, 2));
  CHECK(TRITONSERVER_MetricNewWithArgs(&metric, family, labels, 1, args));
  CHECK(TRITONSERVER_MetricObserve(metric, 1.5));
  CHECK_REFUSED(TRITONSERVER_MetricFamilyDelete(family));
  CHECK(TRITONSERVER_ServerMetrics(server, &metrics));
  CHECK(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &text, &size));
  if (strstr(text, "memory_histogram_count") == NULL) {
    fprintf(stderr, "the metric is not shown\n");
    exit(1);
  }
  CHECK(TRITONSERVER_MetricsDelete(metrics));
  CHECK(TRITONSERVER_MetricDelete(metric));
  CHECK(TRITONSERVER_MetricArgsDelete(args));
  CHECK(TRITONSERVER_MetricFamilyDelete(family));
  TRITONSERVER_ParameterDelete(label);
}

static TRITONSERVER_Server*
start_server(const char* repository, const char* plugins)
{
  TRITONSERVER_ServerOptions* options;
  TRITONSERVER_Server* server;
  CHECK(TRITONSERVER_ServerOptionsNew(&options));
  CHECK(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository));
  CHECK(TRITONSERVER_ServerOptionsSetBackendDirectory(options, plugins));
  CHECK(TRITONSERVER_ServerOptionsSetRepoAgentDirectory(options, plugins));
  CHECK(TRITONSERVER_ServerOptionsSetCacheDirectory(options, plugins));
  CHECK(TRITONSERVER_ServerOptionsSetCacheConfig(options, "cache", "{\"entries\": \"4\"}"));
  /* Some models fail to load, and all that fails is logged. */
  CHECK(TRITONSERVER_ServerOptionsSetExitOnError(options, false));
  CHECK(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  CHECK(TRITONSERVER_ServerOptionsSetLogWarn(options, false));
  CHECK(TRITONSERVER_ServerOptionsSetLogError(options, false));
  CHECK(TRITONSERVER_ServerNew(&server, options));
  CHECK(TRITONSERVER_ServerOptionsDelete(options));
  return server;
}

/* Waits until this is the only thread: what others still hold would be taken for lost. */
static void
wait_for_threads(void)
{
  for (int tries = 0; tries < 1000; tries++) {
    int count = 0;
    DIR* threads = opendir("/proc/self/task");
    while (threads != NULL && readdir(threads) != NULL) {
      count++;
    }
    closedir(threads);
    /* Besides the directory itself and its parent. */
    if (count <= 3) {
      return;
    }
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  fprintf(stderr, "threads of the server are left\n");
  exit(1);
}

int
main(int argc, char** argv)
{
  if (argc != 4) {
    fprintf(stderr, "usage: %s MODEL_REPOSITORY PLUGIN_DIRECTORY COUNT\n", argv[0]);
    return 2;
  }
  const unsigned count = (unsigned)strtoul(argv[3], NULL, 10);
  TRITONSERVER_Server* server = start_server(argv[1], argv[2]);
  TRITONSERVER_ResponseAllocator* allocators[2];
  CHECK(TRITONSERVER_ResponseAllocatorNew(&allocators[0], allocate, give_back, NULL));
  CHECK(TRITONSERVER_ResponseAllocatorNew(&allocators[1], allocate, give_back, start_response));
  CHECK(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocators[1], query));
  CHECK(TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(allocators[1], describe));

  for (size_t index = 0; index < LENGTH(KINDS); index++) {
    ask(server, allocators, &KINDS[index], count);
  }
  for (unsigned number = 0; number < count; number++) {
    count_something(server);
  }
  TRITONSERVER_InferenceRequest* request = NULL;
  CHECK_REFUSED(TRITONSERVER_InferenceRequestNew(&request, server, "no such model", -1));

  CHECK(TRITONSERVER_ServerStop(server));
  CHECK(TRITONSERVER_ServerDelete(server));
  CHECK(TRITONSERVER_ResponseAllocatorDelete(allocators[0]));
  CHECK(TRITONSERVER_ResponseAllocatorDelete(allocators[1]));
  wait_for_threads();
  return 0;
}
