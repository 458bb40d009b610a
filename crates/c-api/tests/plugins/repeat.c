/*
 * Answers a request with as many responses as IN has elements, one after the other, from a thread of its own. A response
 * has the element as OUT, and as IDX which one it is.
 *
 * Parameters of the model:
 *   delay_ms         time before each response
 *   final            "flags": the end is told without a response (the default), or "last": with the last response
 *   until_cancelled  "true": after its responses it waits until the request is cancelled
 *   held_by          a file: while it exists, the factory of an answered request is not deleted
 *   own_statistics   "false": no response statistics are reported
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common.h"

typedef struct {
  uint64_t delay_ms;
  bool batches;
  bool final_with_last;
  bool until_cancelled;
  char* held_by;
  bool silent;
} Settings;

/* The answering of one request, which may be released before. */
typedef struct {
  TRITONBACKEND_ModelInstance* instance;
  TRITONBACKEND_ResponseFactory* factory;
  const Settings* settings;
  int32_t* values;
  uint32_t count;
  pthread_t thread;
  atomic_bool is_done;
} Answer;

/* The answers of an instance. Threads that are done are joined at the next execution, the others when it ends. */
typedef struct {
  Answer** started;
  size_t count;
} Answers;

Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  (void)backend;
  return api_version_is_known();
}

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  Settings read = {0};
  CHECK(model_number(model, "delay_ms", 0, &read.delay_ms));
  CHECK(model_batches(model, &read.batches));
  CHECK(model_says(model, "final", "last", &read.final_with_last));
  CHECK(model_says(model, "until_cancelled", "true", &read.until_cancelled));
  CHECK(model_says(model, "own_statistics", "false", &read.silent));
  CHECK(model_parameter(model, "held_by", &read.held_by));
  Settings* settings = malloc(sizeof *settings);
  *settings = read;
  return TRITONBACKEND_ModelSetState(model, settings);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* state;
  CHECK(TRITONBACKEND_ModelState(model, &state));
  Settings* settings = state;
  if (settings != NULL) {
    free(settings->held_by);
  }
  free(settings);
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  return TRITONBACKEND_ModelInstanceSetState(instance, calloc(1, sizeof(Answers)));
}

static Error*
log_instance(TRITONBACKEND_ModelInstance* instance, const char* event)
{
  const char* name;
  char line[256];
  CHECK(TRITONBACKEND_ModelInstanceName(instance, &name));
  snprintf(line, sizeof line, "instance %s %s", name, event);
  return TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, line);
}

/* Joins threads, with `all` also those that are not done. */
static void
join(Answers* answers, bool all)
{
  size_t left = 0;
  for (size_t index = 0; index < answers->count; index++) {
    Answer* answer = answers->started[index];
    if (all || atomic_load(&answer->is_done)) {
      pthread_join(answer->thread, NULL);
      free(answer);
    } else {
      answers->started[left++] = answer;
    }
  }
  answers->count = left;
}

Error*
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  void* state;
  CHECK(log_instance(instance, "is being finalized"));
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));
  Answers* answers = state;
  join(answers, true);
  free(answers->started);
  free(answers);
  return NULL;
}

/* ---- In the thread ---- */

static bool
is_cancelled(const Answer* answer)
{
  bool cancelled = true;
  report(TRITONBACKEND_ResponseFactoryIsCancelled(answer->factory, &cancelled));
  return cancelled;
}

/* Tells when a response was made. `written` is 0 for a response without outputs. */
static Error*
report_response(const Answer* answer, uint64_t start, uint64_t written, Error* error_of_response)
{
  TRITONBACKEND_ModelInstanceResponseStatistics* statistics;
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, answer->instance));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, answer->factory));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(statistics, start));
  if (written != 0) {
    report(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(statistics, written));
  }
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(statistics, now_ns()));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(statistics, error_of_response));
  report(TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  return TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics);
}

static Error*
send_response(const Answer* answer, uint32_t index)
{
  const int64_t shape[2] = {1, 1};
  const uint32_t dims = answer->settings->batches ? 2 : 1;
  const bool last = answer->settings->final_with_last && index + 1 == answer->count;
  const uint64_t start = now_ns();
  sleep_ms(answer->settings->delay_ms);
  const uint64_t output_start = now_ns();

  TRITONBACKEND_Response* response;
  CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, answer->factory));
  Error* error = write_output(
      response, "OUT", TRITONSERVER_TYPE_INT32, shape, dims, &answer->values[index], sizeof(int32_t));
  if (error == NULL) {
    error = write_output(
        response, "IDX", TRITONSERVER_TYPE_UINT32, shape, dims, &index, sizeof index);
  }
  if (!answer->settings->silent) {
    report(report_response(answer, start, output_start, error));
  }
  report(TRITONBACKEND_ResponseSend(response, last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, error));
  TRITONSERVER_ErrorDelete(error);
  return NULL;
}

/* The end: without a response, or with the news that the request was cancelled. */
static Error*
end(const Answer* answer, bool cancelled)
{
  const bool ended = answer->settings->final_with_last && answer->count > 0;
  if (!cancelled) {
    return ended ? NULL
                 : TRITONBACKEND_ResponseFactorySendFlags(
                       answer->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  }
  TRITONBACKEND_Response* response;
  CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, answer->factory));
  Error* error = fail(TRITONSERVER_ERROR_CANCELLED, "repeat was cancelled");
  if (!answer->settings->silent) {
    report(report_response(answer, now_ns(), 0, error));
  }
  send_final(response, error);
  return NULL;
}

static void*
answer_request(void* argument)
{
  Answer* answer = argument;
  bool cancelled = false;
  for (uint32_t index = 0; index < answer->count && !cancelled; index++) {
    report(send_response(answer, index));
    /* What is answered to its end needs no other end. */
    cancelled = index + 1 < answer->count && is_cancelled(answer);
  }
  while (answer->settings->until_cancelled && !cancelled) {
    sleep_ms(1);
    cancelled = is_cancelled(answer);
  }
  report(end(answer, cancelled));
  while (answer->settings->held_by != NULL && access(answer->settings->held_by, F_OK) == 0) {
    sleep_ms(1);
  }
  report(TRITONBACKEND_ResponseFactoryDelete(answer->factory));
  free(answer->values);
  atomic_store(&answer->is_done, true);
  return NULL;
}

/* ---- In the execution ---- */

static Error*
begin(TRITONBACKEND_Request* request, Answer* answer)
{
  TRITONBACKEND_Input* input;
  char* bytes;
  uint64_t size;
  CHECK(TRITONBACKEND_RequestInput(request, "IN", &input));
  CHECK(read_input(input, &bytes, &size));
  answer->values = (int32_t*)(void*)bytes;
  answer->count = (uint32_t)(size / sizeof(int32_t));
  Error* error = TRITONBACKEND_ResponseFactoryNew(&answer->factory, request);
  if (error == NULL && pthread_create(&answer->thread, NULL, answer_request, answer) != 0) {
    report(TRITONBACKEND_ResponseFactoryDelete(answer->factory));
    error = fail(TRITONSERVER_ERROR_INTERNAL, "no thread to answer with");
  }
  if (error != NULL) {
    free(bytes);
  }
  return error;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  void* settings;
  void* state;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));

  Answers* answers = state;
  join(answers, false);
  answers->started = realloc(answers->started, (answers->count + count) * sizeof *answers->started);
  const uint64_t start = now_ns();
  for (uint32_t index = 0; index < count; index++) {
    Answer* answer = calloc(1, sizeof *answer);
    answer->instance = instance;
    answer->settings = settings;
    Error* error = begin(requests[index], answer);
    const bool success = error == NULL;
    if (success) {
      answers->started[answers->count++] = answer;
    } else {
      free(answer);
      refuse(requests[index], error);
    }
    const uint64_t now = now_ns();
    report(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, requests[index], success, start, start, now, now));
    report(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t now = now_ns();
  report(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, start, start, now, now));
  return NULL;
}
