/*
 * A backend in one file: the output Y is the input X, times the model's parameter `factor`.
 *
 *   cc -std=gnu11 -shared -fPIC -Iinclude examples/backend/scale.c -o target/backends/scale/libtriton_scale.so
 *
 * docs/writing-a-backend.md explains it.
 */
#define _GNU_SOURCE /* memmem */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nereid.h"

/* Returns the error of a call, if it has one. The server takes it. */
#define CHECK(call)                    \
  do {                                 \
    TRITONSERVER_Error* error = (call); \
    if (error != NULL) {               \
      return error;                    \
    }                                  \
  } while (0)

/* What all instances of a model share. Nobody changes it after it was made, so it needs no lock. */
typedef struct {
  float factor;
} Settings;

/* ---- A model is loaded and unloaded ---- */

/* The configuration is JSON: {"parameters":{"factor":{"string_value":"2.5"}},...}. Use a JSON library for more. */
static TRITONSERVER_Error*
read_factor(TRITONBACKEND_Model* model, float* factor)
{
  TRITONSERVER_Message* config;
  const char* json;
  size_t size;
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &config));
  TRITONSERVER_Error* error = TRITONSERVER_MessageSerializeToJson(config, &json, &size);
  *factor = 1;
  if (error == NULL) {
    const char key[] = "\"factor\":{\"string_value\":\"";
    const char* found = memmem(json, size, key, sizeof key - 1);
    if (found != NULL) {
      *factor = strtof(found + sizeof key - 1, NULL);
    }
  }
  TRITONSERVER_Error* lost = TRITONSERVER_MessageDelete(config);
  TRITONSERVER_ErrorDelete(lost);
  return error;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  Settings read;
  CHECK(read_factor(model, &read.factor));
  Settings* settings = malloc(sizeof *settings);
  if (settings == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the settings of a model");
  }
  *settings = read;
  return TRITONBACKEND_ModelSetState(model, settings);
}

TRITONSERVER_Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* settings;
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  free(settings);
  return NULL;
}

/* ---- A batch of requests is executed ---- */

/* Fills a response. An error becomes the answer of the request, and concerns no other request of the batch. */
static TRITONSERVER_Error*
fill(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, float factor)
{
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims;
  uint64_t size;
  uint32_t pieces;
  CHECK(TRITONBACKEND_RequestInput(request, "X", &input));
  CHECK(TRITONBACKEND_InputProperties(input, NULL, &datatype, &shape, &dims, &size, &pieces));

  TRITONBACKEND_Output* output;
  void* memory;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "Y", datatype, shape, dims));
  CHECK(TRITONBACKEND_OutputBuffer(output, &memory, size, &type, &device));

  /* An input may lie in several pieces, of which each has any number of bytes. */
  char* place = memory;
  for (uint32_t index = 0; index < pieces; index++) {
    const void* piece;
    uint64_t piece_size;
    CHECK(TRITONBACKEND_InputBuffer(input, index, &piece, &piece_size, &type, &device));
    memcpy(place, piece, piece_size);
    place += piece_size;
  }
  float* numbers = memory;
  for (uint64_t index = 0; index < size / sizeof *numbers; index++) {
    numbers[index] *= factor;
  }
  return NULL;
}

TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count)
{
  TRITONBACKEND_Model* model;
  void* settings;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));

  /* From here on the backend owns the requests: each gets a response, and is released. */
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Request* request = requests[index];
    TRITONBACKEND_Response* response;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, request);
    if (error == NULL) {
      error = fill(request, response, ((const Settings*)settings)->factor);
      if (error == NULL) {
        error = TRITONBACKEND_ResponseSetIntParameter(response, "batched_requests", count);
      }
      TRITONSERVER_Error* lost =
          TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
      TRITONSERVER_ErrorDelete(lost);
    }
    TRITONSERVER_ErrorDelete(error);
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
