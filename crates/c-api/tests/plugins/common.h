/*
 * What the test plug-ins share: errors, time, growing texts, parameters of a configuration.
 */
#ifndef COMMON_H
#define COMMON_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nereid.h"

/* Not every plug-in uses everything. */
#define SHARED static __attribute__((unused))

typedef TRITONSERVER_Error Error;

/* Returns the error of a call, if it has one. */
#define CHECK(call)                  \
  do {                               \
    Error* error_of_call = (call);   \
    if (error_of_call != NULL) {     \
      return error_of_call;          \
    }                                \
  } while (0)

__attribute__((format(printf, 2, 3))) SHARED Error*
fail(TRITONSERVER_Error_Code code, const char* format, ...)
{
  char words[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  return TRITONSERVER_ErrorNew(code, words);
}

/* Writes an error to the log and deletes it: for where nobody can be told. */
SHARED void
report(Error* error)
{
  if (error != NULL) {
    Error* lost = TRITONSERVER_LogMessage(
        TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(lost);
    TRITONSERVER_ErrorDelete(error);
  }
}

SHARED uint64_t
now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

SHARED void
sleep_ms(uint64_t ms)
{
  struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
  nanosleep(&time, NULL);
}

/* ---- Texts that grow ---- */

typedef struct {
  char* start;
  size_t length;
} Text;

SHARED void
put_bytes(Text* text, const char* bytes, size_t count)
{
  text->start = realloc(text->start, text->length + count + 1);
  memcpy(text->start + text->length, bytes, count);
  text->length += count;
  text->start[text->length] = '\0';
}

__attribute__((format(printf, 2, 3))) SHARED void
put(Text* text, const char* format, ...)
{
  char words[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  put_bytes(text, words, (size_t)length < sizeof words ? (size_t)length : sizeof words - 1);
}

/* A JSON string; null for NULL. */
SHARED void
put_string(Text* text, const char* string)
{
  if (string == NULL) {
    put_bytes(text, "null", 4);
    return;
  }
  put_bytes(text, "\"", 1);
  for (; *string != '\0'; string++) {
    if (*string == '"' || *string == '\\') {
      put_bytes(text, "\\", 1);
      put_bytes(text, string, 1);
    } else if ((unsigned char)*string < 0x20) {
      put(text, "\\u%04x", (unsigned)*string);
    } else {
      put_bytes(text, string, 1);
    }
  }
  put_bytes(text, "\"", 1);
}

/* ---- Parameters of configurations ---- */

/*
 * The string that follows `"key"` and then `"member"`, as a copy to be freed; NULL if there is none. Enough for JSON in
 * which keys are not values elsewhere. Without a member, the string right after the key.
 */
SHARED char*
find_string(const char* json, const char* key, const char* member)
{
  char quoted[128];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  const char* at = strstr(json, quoted);
  if (at == NULL) {
    return NULL;
  }
  at += strlen(quoted);
  if (member != NULL) {
    snprintf(quoted, sizeof quoted, "\"%s\"", member);
    const char* end = strchr(at, '}');
    at = strstr(at, quoted);
    if (at == NULL || (end != NULL && end < at)) {
      return NULL;
    }
    at += strlen(quoted);
  }
  const char* begin = strchr(at, '"');
  if (begin == NULL) {
    return NULL;
  }
  Text value = {NULL, 0};
  put_bytes(&value, "", 0);
  for (at = begin + 1; *at != '\0' && *at != '"'; at++) {
    if (*at == '\\' && at[1] != '\0') {
      at++;
    }
    put_bytes(&value, at, 1);
  }
  return value.start;
}

/* The model's configuration as JSON, to be freed. */
SHARED Error*
model_config(TRITONBACKEND_Model* model, char** config)
{
  TRITONSERVER_Message* message;
  const char* json;
  size_t size;
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &message));
  Error* error = TRITONSERVER_MessageSerializeToJson(message, &json, &size);
  *config = error == NULL ? strdup(json) : NULL;
  report(TRITONSERVER_MessageDelete(message));
  return error;
}

/* Whether the first dimension of the model's tensors is the batch. */
SHARED Error*
model_batches(TRITONBACKEND_Model* model, bool* batches)
{
  const char key[] = "\"max_batch_size\":";
  char* config;
  CHECK(model_config(model, &config));
  const char* at = strstr(config, key);
  *batches = at != NULL && strtol(at + sizeof key - 1, NULL, 10) > 0;
  free(config);
  return NULL;
}

/* The text of a parameter of the model's configuration, to be freed; NULL if it has none. */
SHARED Error*
model_parameter(TRITONBACKEND_Model* model, const char* key, char** value)
{
  char* config;
  CHECK(model_config(model, &config));
  /* Names of tensors may be those of parameters. */
  const char* parameters = strstr(config, "\"parameters\"");
  *value = parameters == NULL ? NULL : find_string(parameters, key, "string_value");
  free(config);
  return NULL;
}

SHARED Error*
model_number(TRITONBACKEND_Model* model, const char* key, uint64_t otherwise, uint64_t* number)
{
  char* value;
  CHECK(model_parameter(model, key, &value));
  *number = value == NULL ? otherwise : strtoull(value, NULL, 10);
  free(value);
  return NULL;
}

/* Whether a parameter has that value. */
SHARED Error*
model_says(TRITONBACKEND_Model* model, const char* key, const char* word, bool* says)
{
  char* value;
  CHECK(model_parameter(model, key, &value));
  *says = value != NULL && strcmp(value, word) == 0;
  free(value);
  return NULL;
}

/* ---- Requests and responses ---- */

/* All pieces of an input, one after the other; to be freed. */
SHARED Error*
read_input(TRITONBACKEND_Input* input, char** bytes, uint64_t* size)
{
  uint32_t pieces;
  CHECK(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, size, &pieces));
  char* copy = malloc(*size + 1);
  uint64_t at = 0;
  for (uint32_t index = 0; index < pieces; index++) {
    const void* piece;
    uint64_t piece_size;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_type_id = 0;
    Error* error = TRITONBACKEND_InputBuffer(
        input, index, &piece, &piece_size, &memory_type, &memory_type_id);
    if (error == NULL && memory_type == TRITONSERVER_MEMORY_GPU) {
      error = fail(TRITONSERVER_ERROR_UNSUPPORTED, "an input lies in device memory");
    }
    if (error == NULL && at + piece_size > *size) {
      error = fail(TRITONSERVER_ERROR_INTERNAL, "the pieces of an input are more than it has bytes");
    }
    if (error != NULL) {
      free(copy);
      return error;
    }
    memcpy(copy + at, piece, piece_size);
    at += piece_size;
  }
  *bytes = copy;
  *size = at;
  return NULL;
}

/* Adds an output with these bytes to a response. */
SHARED Error*
write_output(
    TRITONBACKEND_Response* response, const char* name, TRITONSERVER_DataType datatype,
    const int64_t* shape, uint32_t dims, const void* bytes, uint64_t size)
{
  TRITONBACKEND_Output* output;
  void* buffer;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape, dims));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory_type, &memory_type_id));
  if (memory_type == TRITONSERVER_MEMORY_GPU) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "an output lies in device memory");
  }
  if (size > 0) {
    memcpy(buffer, bytes, size);
  }
  return NULL;
}

/* Adds an output of type BYTES that has the text as its only element, `dims` times the dimension 1. */
SHARED Error*
write_text(TRITONBACKEND_Response* response, const char* name, uint32_t dims, const Text* text)
{
  const int64_t ones[2] = {1, 1};
  uint32_t length = (uint32_t)text->length;
  char* element = malloc(sizeof length + text->length);
  memcpy(element, &length, sizeof length);
  memcpy(element + sizeof length, text->start, text->length);
  Error* error = write_output(
      response, name, TRITONSERVER_TYPE_BYTES, ones, dims, element, sizeof length + text->length);
  free(element);
  return error;
}

/* Sends the last response. An error goes to the client; the caller keeps nothing. */
SHARED void
send_final(TRITONBACKEND_Response* response, Error* error)
{
  report(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
}

/* Answers a request with an error. */
SHARED void
refuse(TRITONBACKEND_Request* request, Error* error)
{
  TRITONBACKEND_Response* response;
  Error* lost = TRITONBACKEND_ResponseNew(&response, request);
  if (lost == NULL) {
    send_final(response, error);
  } else {
    report(lost);
    TRITONSERVER_ErrorDelete(error);
  }
}

SHARED Error*
api_version_is_known(void)
{
  uint32_t major;
  uint32_t minor;
  CHECK(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "interface %u.%u is too old", major, minor);
  }
  return NULL;
}

#endif /* COMMON_H */
