/*
 * Uses the trace of a request, if the request has one: reports the activities PREPARE_START, PREPARE_END and checked, and
 * answers CONTEXT (a text) with the context of the trace. Reports its times after the answer, as most backends do.
 */
#include "common.h"

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  (void)model;
  return api_version_is_known();
}

static Error*
report_activities(TRITONSERVER_InferenceTrace* trace, Text* context)
{
  const char* content;
  CHECK(TRITONSERVER_InferenceTraceReportActivity(trace, now_ns(), "PREPARE_START"));
  CHECK(TRITONSERVER_InferenceTraceReportActivity(trace, now_ns(), "checked"));
  CHECK(TRITONSERVER_InferenceTraceReportActivity(trace, now_ns(), "PREPARE_END"));
  CHECK(TRITONSERVER_InferenceTraceContext(trace, &content));
  put(context, "%s", content);
  return NULL;
}

static Error*
answer(TRITONBACKEND_Request* request)
{
  TRITONSERVER_InferenceTrace* trace;
  CHECK(TRITONBACKEND_RequestTrace(request, &trace));
  Text context = {NULL, 0};
  if (trace != NULL) {
    CHECK(report_activities(trace, &context));
  } else {
    put(&context, "none");
  }
  TRITONBACKEND_Response* response;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  send_final(response, write_text(response, "CONTEXT", 1, &context));
  free(context.start);
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count)
{
  for (uint32_t index = 0; index < count; index++) {
    const uint64_t start = now_ns();
    report(answer(requests[index]));
    const uint64_t end = now_ns();
    report(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, requests[index], true, start, start + 1, end - 1, end));
    report(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
