/*
 * A batching strategy in one file: all requests of a batch have the same request parameter `tenant`. A request without
 * it belongs to the tenant "".
 *
 *   cc -std=gnu11 -shared -fPIC -Iinclude examples/batching-strategy/tenants.c -o /models/scale/batchstrategy.so
 *
 * docs/writing-a-batching-strategy.md explains it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nereid.h"

#define CHECK(call)                    \
  do {                                 \
    TRITONSERVER_Error* error = (call); \
    if (error != NULL) {               \
      return error;                    \
    }                                  \
  } while (0)

/* What the strategy remembers about a batch. */
typedef struct {
  bool is_empty;
  char tenant[64];
} Batch;

/* A model is loaded. This strategy needs nothing for it. */
TRITONSERVER_Error*
TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** batcher, TRITONBACKEND_Model* model)
{
  (void)model;
  *batcher = NULL;
  return NULL;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher)
{
  (void)batcher;
  return NULL;
}

/* A batch begins. The other functions get `userp` back. */
TRITONSERVER_Error*
TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher, void** userp)
{
  (void)batcher;
  Batch* batch = calloc(1, sizeof *batch);
  if (batch == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch");
  }
  batch->is_empty = true;
  *userp = batch;
  return NULL;
}

static TRITONSERVER_Error*
read_tenant(TRITONBACKEND_Request* request, char* tenant, size_t size)
{
  uint32_t count;
  CHECK(TRITONBACKEND_RequestParameterCount(request, &count));
  tenant[0] = '\0';
  for (uint32_t index = 0; index < count; index++) {
    const char* name;
    TRITONSERVER_ParameterType type;
    const void* value;
    CHECK(TRITONBACKEND_RequestParameter(request, index, &name, &type, &value));
    if (strcmp(name, "tenant") == 0 && type == TRITONSERVER_PARAMETER_STRING) {
      strncpy(tenant, value, size - 1);
      tenant[size - 1] = '\0';
    }
  }
  return NULL;
}

/* May this request join the batch? If not, the batch is complete, and the request begins the next one. */
TRITONSERVER_Error*
TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request* request, void* userp, bool* should_include)
{
  Batch* batch = userp;
  char tenant[sizeof batch->tenant];
  CHECK(read_tenant(request, tenant, sizeof tenant));
  if (batch->is_empty) {
    memcpy(batch->tenant, tenant, sizeof tenant);
    batch->is_empty = false;
  }
  *should_include = strcmp(batch->tenant, tenant) == 0;
  return NULL;
}

/* The batch is complete. */
TRITONSERVER_Error*
TRITONBACKEND_ModelBatchFinalize(void* userp)
{
  free(userp);
  return NULL;
}
