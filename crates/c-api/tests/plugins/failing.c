/*
 * Does one thing wrong, and otherwise answers OUTPUT with the bytes of INPUT.
 *
 * What goes wrong is said by `fail_at`. As a setting of the backend it is "initialize", "attribute" or "hang_finalize". As
 * a parameter of the model it is "model_initialize", "set_config", "model_finalize", "hang_model_finalize",
 * "instance_initialize", "instance_finalize" or "ready". What hangs never returns. The ways of misbehaving in an execution may also come as a parameter of the request, which then counts:
 *
 *   execute          the execution returns an error: the server answers
 *   response         an error instead of a response
 *   forget           the request is released without an answer
 *   forget_later     the same, by a thread that ends at once
 *   drop             a response is made and deleted
 *   odd_order        of two responses the second is deleted, then the request is released, then the first is sent
 *   twice            a second response follows the last one
 *   factory          flags are sent twice, and the factory is deleted after the request
 *   reschedule       the request is released for another execution, which it is not in for
 *   short_output     the output has fewer bytes than its shape says
 *   wrong_shape      the output has a dimension of -1
 *   wrong_type       the output has another datatype than the configuration
 *   unknown_output   the response has an output that the configuration does not know
 *   output_twice     the memory of an output is asked for twice
 *   no_memory        no memory is asked for
 *   statistics       times run backwards
 *   null             functions are called without what they need, and must refuse
 */
#include <pthread.h>
#include <unistd.h>

#include "common.h"

#define REFUSED(call) must_refuse((call), #call)

/* That what should be refused was. */
static Error*
must_refuse(Error* error, const char* call)
{
  if (error == NULL) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "accepted: %s", call);
  }
  TRITONSERVER_ErrorDelete(error);
  return NULL;
}

static Error*
wanted_failure(const char* where)
{
  return fail(TRITONSERVER_ERROR_INVALID_ARG, "failed as wanted: %s", where);
}

/* ---- Before the first request ---- */

static void
hang(void)
{
  for (;;) {
    pause();
  }
}

static Error*
fail_if_set(TRITONBACKEND_Backend* backend, const char* where)
{
  TRITONSERVER_Message* message;
  const char* json;
  size_t size;
  CHECK(TRITONBACKEND_BackendConfig(backend, &message));
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  char* place = find_string(json, "fail_at", NULL);
  const bool here = place != NULL && strcmp(place, where) == 0;
  free(place);
  return here ? wanted_failure(where) : NULL;
}

static Error*
fail_if_asked(TRITONBACKEND_Model* model, const char* where)
{
  bool here;
  CHECK(model_says(model, "fail_at", where, &here));
  return here ? wanted_failure(where) : NULL;
}

Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  CHECK(api_version_is_known());
  return fail_if_set(backend, "initialize");
}

Error*
TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend)
{
  Error* error = fail_if_set(backend, "hang_finalize");
  if (error != NULL) {
    report(error);
    hang();
  }
  return NULL;
}

Error*
TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attributes)
{
  (void)attributes;
  return fail_if_set(backend, "attribute");
}

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  bool here;
  CHECK(model_says(model, "fail_at", "set_config", &here));
  if (here) {
    const char json[] = "{\"no_such_field\": 1}";
    TRITONSERVER_Message* message;
    CHECK(TRITONSERVER_MessageNewFromSerializedJson(&message, json, sizeof json - 1));
    Error* error = TRITONBACKEND_ModelSetConfig(model, 1, message);
    report(TRITONSERVER_MessageDelete(message));
    return error;
  }
  return fail_if_asked(model, "model_initialize");
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  Error* error = fail_if_asked(model, "hang_model_finalize");
  if (error != NULL) {
    report(error);
    hang();
  }
  return fail_if_asked(model, "model_finalize");
}

static Error*
fail_if_model_asked(TRITONBACKEND_ModelInstance* instance, const char* where)
{
  TRITONBACKEND_Model* model;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  return fail_if_asked(model, where);
}

Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  return fail_if_model_asked(instance, "instance_initialize");
}

Error*
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  return fail_if_model_asked(instance, "instance_finalize");
}

Error*
TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance* instance)
{
  return fail_if_model_asked(instance, "ready");
}

/* ---- Ways of answering ---- */

/* A copy of INPUT as an output. */
static Error*
copy_as(
    TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, const char* name, const char* way)
{
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims;
  char* bytes;
  uint64_t size;
  CHECK(TRITONBACKEND_RequestInput(request, "INPUT", &input));
  CHECK(TRITONBACKEND_InputProperties(input, NULL, &datatype, &shape, &dims, NULL, NULL));
  CHECK(read_input(input, &bytes, &size));
  int64_t changed[8];
  memcpy(changed, shape, (dims < 8 ? dims : 8) * sizeof *shape);
  if (strcmp(way, "wrong_shape") == 0) {
    changed[0] = -1;
  }
  if (strcmp(way, "wrong_type") == 0) {
    datatype = TRITONSERVER_TYPE_FP64;
  }
  if (strcmp(way, "short_output") == 0) {
    size = size / 2;
  }
  Error* error = write_output(response, name, datatype, changed, dims < 8 ? dims : 8, bytes, size);
  free(bytes);
  return error;
}

static Error*
fill(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, const char* way)
{
  TRITONBACKEND_Output* output;
  void* buffer;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  const int64_t shape[1] = {1};
  if (strcmp(way, "no_memory") == 0) {
    return TRITONBACKEND_ResponseOutput(
        response, &output, "OUTPUT", TRITONSERVER_TYPE_INT32, shape, 1);
  }
  if (strcmp(way, "output_twice") == 0) {
    CHECK(TRITONBACKEND_ResponseOutput(
        response, &output, "OUTPUT", TRITONSERVER_TYPE_INT32, shape, 1));
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, 4, &memory_type, &memory_type_id));
    return TRITONBACKEND_OutputBuffer(output, &buffer, 4, &memory_type, &memory_type_id);
  }
  if (strcmp(way, "unknown_output") == 0) {
    CHECK(copy_as(request, response, "NO_SUCH_OUTPUT", way));
  }
  return copy_as(request, response, "OUTPUT", way);
}

/* Calls without what they need. */
static Error*
call_with_null(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
{
  TRITONBACKEND_Response* response;
  TRITONBACKEND_Input* input;
  TRITONBACKEND_Output* output;
  TRITONBACKEND_State* state;
  const int64_t shape[1] = {1};
  const char* text;
  uint32_t count;
  uint64_t number;
  bool truth;
  CHECK(REFUSED(TRITONBACKEND_RequestId(NULL, &text)));
  CHECK(REFUSED(TRITONBACKEND_RequestId(request, NULL)));
  CHECK(REFUSED(TRITONBACKEND_RequestIsCancelled(NULL, &truth)));
  CHECK(REFUSED(TRITONBACKEND_RequestInput(request, NULL, &input)));
  CHECK(REFUSED(TRITONBACKEND_RequestInput(request, "NO_SUCH_INPUT", &input)));
  CHECK(REFUSED(TRITONBACKEND_RequestInputByIndex(request, 1000, &input)));
  CHECK(REFUSED(TRITONBACKEND_RequestInputName(request, 1000, &text)));
  CHECK(REFUSED(TRITONBACKEND_RequestOutputName(request, 1000, &text)));
  CHECK(REFUSED(TRITONBACKEND_InputProperties(NULL, &text, NULL, NULL, NULL, NULL, NULL)));
  CHECK(REFUSED(TRITONBACKEND_ResponseNew(NULL, request)));
  CHECK(REFUSED(TRITONBACKEND_ResponseNew(&response, NULL)));
  CHECK(REFUSED(TRITONBACKEND_ResponseSend(NULL, 0, NULL)));
  CHECK(REFUSED(
      TRITONBACKEND_ResponseOutput(NULL, &output, "OUTPUT", TRITONSERVER_TYPE_INT32, shape, 1)));
  CHECK(REFUSED(TRITONBACKEND_StateNew(NULL, request, "s", TRITONSERVER_TYPE_INT32, shape, 1)));
  CHECK(REFUSED(TRITONBACKEND_StateNew(&state, request, "s", TRITONSERVER_TYPE_INT32, shape, 1)));
  CHECK(REFUSED(TRITONBACKEND_RequestRelease(NULL, TRITONSERVER_REQUEST_RELEASE_ALL)));
  CHECK(REFUSED(TRITONBACKEND_ModelName(NULL, &text)));
  CHECK(REFUSED(TRITONBACKEND_ModelVersion(NULL, &number)));
  CHECK(REFUSED(TRITONBACKEND_ModelInstanceName(instance, NULL)));
  CHECK(REFUSED(TRITONBACKEND_ModelInstanceProfileCount(NULL, &count)));
  CHECK(REFUSED(TRITONBACKEND_ModelInstanceReportStatistics(NULL, request, true, 1, 2, 3, 4)));
  CHECK(REFUSED(TRITONSERVER_MessageSerializeToJson(NULL, &text, NULL)));
  /* Deleting nothing is fine. */
  TRITONSERVER_ErrorDelete(NULL);
  TRITONSERVER_ParameterDelete(NULL);
  CHECK(TRITONSERVER_MessageDelete(NULL));
  CHECK(TRITONBACKEND_ResponseDelete(NULL));
  return TRITONBACKEND_ResponseFactoryDelete(NULL);
}

static void*
release(void* request)
{
  report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  pthread_exit(NULL);
}

static Error*
release_in_thread(TRITONBACKEND_Request* request)
{
  pthread_t thread;
  if (pthread_create(&thread, NULL, release, request) != 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "no thread to release with");
  }
  pthread_detach(thread);
  return NULL;
}

/* Answers in a way that has nothing to do with the content of the response. Releases the request. */
static Error*
misbehave(TRITONBACKEND_Request* request, const char* way)
{
  TRITONBACKEND_Response* first = NULL;
  TRITONBACKEND_Response* second = NULL;
  TRITONBACKEND_ResponseFactory* factory = NULL;
  if (strcmp(way, "forget_later") == 0) {
    return release_in_thread(request);
  }
  if (strcmp(way, "drop") == 0) {
    report(TRITONBACKEND_ResponseNew(&first, request));
    report(TRITONBACKEND_ResponseDelete(first));
  } else if (strcmp(way, "odd_order") == 0) {
    report(TRITONBACKEND_ResponseNew(&first, request));
    report(TRITONBACKEND_ResponseNew(&second, request));
    Error* error = fill(request, first, way);
    report(TRITONBACKEND_ResponseDelete(second));
    report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    send_final(first, error);
    return NULL;
  } else if (strcmp(way, "twice") == 0) {
    report(TRITONBACKEND_ResponseNew(&first, request));
    report(TRITONBACKEND_ResponseNew(&second, request));
    send_final(first, fill(request, first, way));
    send_final(second, fill(request, second, way));
  } else if (strcmp(way, "factory") == 0) {
    report(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    report(TRITONBACKEND_ResponseNewFromFactory(&first, factory));
    Error* error = fill(request, first, way);
    report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    report(TRITONBACKEND_ResponseSend(first, 0, error));
    TRITONSERVER_ErrorDelete(error);
    report(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    report(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    return TRITONBACKEND_ResponseFactoryDelete(factory);
  }
  return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
}

static bool
is_one_of(const char* word, const char* const* words, size_t count)
{
  for (size_t index = 0; index < count; index++) {
    if (strcmp(word, words[index]) == 0) {
      return true;
    }
  }
  return false;
}

/* A response that was sent before it was begun. */
static Error*
report_nonsense_of_response(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
{
  TRITONBACKEND_ModelInstanceResponseStatistics* statistics;
  TRITONBACKEND_ResponseFactory* factory;
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
  CHECK(TRITONBACKEND_ResponseFactoryNew(&factory, request));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, instance));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, factory));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(statistics, UINT64_MAX));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(statistics, 1));
  Error* error = REFUSED(TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  report(TRITONBACKEND_ResponseFactoryDelete(factory));
  report(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics));
  return error;
}

static void
answer(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const char* way)
{
  static const char* const no_answer[] = {
      "forget", "forget_later", "drop", "odd_order", "twice", "factory"};
  if (is_one_of(way, no_answer, sizeof no_answer / sizeof *no_answer)) {
    report(misbehave(request, way));
    return;
  }
  TRITONBACKEND_Response* response;
  report(TRITONBACKEND_ResponseNew(&response, request));
  Error* error = strcmp(way, "response") == 0 ? wanted_failure(way) : NULL;
  if (strcmp(way, "null") == 0) {
    error = call_with_null(instance, request);
  }
  if (strcmp(way, "reschedule") == 0) {
    error = REFUSED(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE));
  }
  if (error == NULL) {
    error = fill(request, response, way);
  }
  if (strcmp(way, "statistics") == 0) {
    report(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, true, UINT64_MAX, 0, UINT64_MAX, 1));
    report(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, UINT64_MAX, 4, 3, 2, 1));
    error = error == NULL ? report_nonsense_of_response(instance, request) : error;
  }
  send_final(response, error);
  report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

/* ---- In the execution ---- */

/* What goes wrong with a request, to be freed: as it says itself, else as the model says. */
static Error*
way_of(TRITONBACKEND_Model* model, TRITONBACKEND_Request* request, char** way)
{
  uint32_t count;
  CHECK(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; index++) {
    const char* key;
    TRITONSERVER_ParameterType type;
    const void* value;
    CHECK(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (strcmp(key, "fail_at") == 0 && type == TRITONSERVER_PARAMETER_STRING) {
      *way = strdup(value);
      return NULL;
    }
  }
  CHECK(model_parameter(model, "fail_at", way));
  *way = *way == NULL ? strdup("") : *way;
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  char** ways = calloc(count, sizeof *ways);
  Error* error = NULL;
  for (uint32_t index = 0; index < count && error == NULL; index++) {
    error = way_of(model, requests[index], &ways[index]);
    if (error == NULL && strcmp(ways[index], "execute") == 0) {
      error = wanted_failure("execute");
    }
  }
  for (uint32_t index = 0; index < count; index++) {
    if (error == NULL) {
      answer(instance, requests[index], ways[index]);
    }
    free(ways[index]);
  }
  free(ways);
  return error;
}
