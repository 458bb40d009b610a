/* An identity backend for the reference server, so that its side of the bench runs as fast as it can.
 *
 * Every input INPUT<x> is copied to the output OUTPUT<x>: no runtime, no interpreter, one memcpy. What such a
 * model costs is what the reference server itself costs. An input IGNORED is not copied. Only the functions used here are declared, from the
 * public description of its C interface; all handles are opaque. Built by `cargo xtask bench --reference DIR`:
 *   gcc -O2 -shared -fPIC -o libtriton_identity.so reference_backend.c
 * Inputs are expected in ordinary memory; an error of any call ends the request with that error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct error error;
typedef struct request request;
typedef struct response response;
typedef struct input input;
typedef struct output output;
typedef struct instance instance;

error* TRITONBACKEND_RequestInputCount(request*, uint32_t* count);
error* TRITONBACKEND_RequestInputByIndex(request*, uint32_t index, input**);
error* TRITONBACKEND_RequestRelease(request*, uint32_t flags);
error* TRITONBACKEND_InputProperties(input*, const char** name, int* datatype, const int64_t** shape,
                                     uint32_t* rank, uint64_t* byte_size, uint32_t* buffer_count);
error* TRITONBACKEND_InputBuffer(input*, uint32_t index, const void** buffer, uint64_t* byte_size,
                                 int* memory_type, int64_t* memory_type_id);
error* TRITONBACKEND_ResponseNew(response**, request*);
error* TRITONBACKEND_ResponseOutput(response*, output**, const char* name, int datatype,
                                    const int64_t* shape, uint32_t rank);
error* TRITONBACKEND_OutputBuffer(output*, void** buffer, uint64_t byte_size, int* memory_type,
                                  int64_t* memory_type_id);
error* TRITONBACKEND_ResponseSend(response*, uint32_t flags, error*);
error* TRITONBACKEND_ModelInstanceReportStatistics(instance*, request*, bool success, uint64_t start,
                                                   uint64_t compute_start, uint64_t compute_end, uint64_t end);
error* TRITONBACKEND_ModelInstanceReportBatchStatistics(instance*, uint64_t batch_size, uint64_t start,
                                                        uint64_t compute_start, uint64_t compute_end,
                                                        uint64_t end);

enum { FINAL_RESPONSE = 1, RELEASE_ALL = 1 };

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Copies one input to the output of the same number. */
static error* copy_tensor(request* from, uint32_t index, response* to) {
  input* source;
  const char* name;
  int datatype;
  const int64_t* shape;
  uint32_t rank, pieces;
  uint64_t byte_size;
  error* failed = TRITONBACKEND_RequestInputByIndex(from, index, &source);
  if (failed == NULL)
    failed = TRITONBACKEND_InputProperties(source, &name, &datatype, &shape, &rank, &byte_size, &pieces);
  if (failed != NULL) return failed;
  if (strcmp(name, "IGNORED") == 0) return NULL;

  char output_name[256];
  snprintf(output_name, sizeof output_name, "OUTPUT%s", strncmp(name, "INPUT", 5) == 0 ? name + 5 : name);
  output* target;
  void* bytes;
  int memory_type = 0;
  int64_t memory_type_id = 0;
  failed = TRITONBACKEND_ResponseOutput(to, &target, output_name, datatype, shape, rank);
  if (failed == NULL)
    failed = TRITONBACKEND_OutputBuffer(target, &bytes, byte_size, &memory_type, &memory_type_id);

  uint64_t written = 0;
  for (uint32_t piece = 0; failed == NULL && piece < pieces; ++piece) {
    const void* part;
    uint64_t part_size;
    failed = TRITONBACKEND_InputBuffer(source, piece, &part, &part_size, &memory_type, &memory_type_id);
    if (failed == NULL && written + part_size <= byte_size) {
      memcpy((char*)bytes + written, part, part_size);
      written += part_size;
    }
  }
  return failed;
}

error* TRITONBACKEND_ModelInstanceExecute(instance* self, request** requests, uint32_t count) {
  uint64_t start = now_ns();
  for (uint32_t index = 0; index < count; ++index) {
    response* answer;
    uint32_t inputs = 0;
    error* failed = TRITONBACKEND_ResponseNew(&answer, requests[index]);
    if (failed != NULL) return failed; /* nothing was answered yet: the server keeps the requests */
    failed = TRITONBACKEND_RequestInputCount(requests[index], &inputs);
    for (uint32_t i = 0; failed == NULL && i < inputs; ++i) failed = copy_tensor(requests[index], i, answer);
    TRITONBACKEND_ResponseSend(answer, FINAL_RESPONSE, failed);
    uint64_t end = now_ns();
    TRITONBACKEND_ModelInstanceReportStatistics(self, requests[index], failed == NULL, start, start, end, end);
    TRITONBACKEND_RequestRelease(requests[index], RELEASE_ALL);
  }
  uint64_t end = now_ns();
  TRITONBACKEND_ModelInstanceReportBatchStatistics(self, count, start, start, end, end);
  return NULL;
}
