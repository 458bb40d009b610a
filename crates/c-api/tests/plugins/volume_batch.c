/*
 * A batching strategy: the inputs of a batch have at most as many bytes as the model's parameter MAX_BATCH_VOLUME_BYTES
 * says. A request that is larger goes alone.
 */
#include "common.h"

typedef struct {
  uint64_t limit;
} Batcher;

/* What is remembered about a batch. */
typedef struct {
  uint64_t room;
  bool is_empty;
} Batch;

Error*
TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** place, TRITONBACKEND_Model* model)
{
  char* limit;
  CHECK(model_parameter(model, "MAX_BATCH_VOLUME_BYTES", &limit));
  if (limit == NULL) {
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "the model has no parameter MAX_BATCH_VOLUME_BYTES");
  }
  Batcher* batcher = malloc(sizeof *batcher);
  batcher->limit = strtoull(limit, NULL, 10);
  free(limit);
  *place = (TRITONBACKEND_Batcher*)batcher;
  return NULL;
}

Error*
TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher)
{
  free(batcher);
  return NULL;
}

Error*
TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher, void** userp)
{
  Batch* batch = malloc(sizeof *batch);
  *batch = (Batch){((const Batcher*)batcher)->limit, true};
  *userp = batch;
  return NULL;
}

static Error*
bytes_of(TRITONBACKEND_Request* request, uint64_t* bytes)
{
  uint32_t count;
  CHECK(TRITONBACKEND_RequestInputCount(request, &count));
  *bytes = 0;
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Input* input;
    uint64_t size;
    CHECK(TRITONBACKEND_RequestInputByIndex(request, index, &input));
    CHECK(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &size, NULL));
    *bytes += size;
  }
  return NULL;
}

Error*
TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request* request, void* userp, bool* should_include)
{
  Batch* batch = userp;
  uint64_t bytes;
  CHECK(bytes_of(request, &bytes));
  *should_include = batch->is_empty || bytes <= batch->room;
  if (*should_include) {
    batch->is_empty = false;
    batch->room -= bytes <= batch->room ? bytes : batch->room;
  }
  return NULL;
}

Error*
TRITONBACKEND_ModelBatchFinalize(void* userp)
{
  free(userp);
  return NULL;
}
