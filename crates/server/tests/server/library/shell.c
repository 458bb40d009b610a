/*
 * A program that has a server in its own process, and obeys commands.
 *
 * Each line on stdin is a command; its words are separated by tabs. Each answer on stdout is one line: "ok", perhaps
 * with more after a blank, or the error's code and text. A newline in an answer is written as "\n".
 *
 * The program counts the threads of the process: it defines the functions of the C library that start and join threads.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nereid.h"

#define MOST_WORDS 64

/* ---- Threads of the process ---- */

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static int started;
static int joined;

/* Shared libraries of the process call these functions instead of those of the C library. */
int
pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument)
{
  typedef int Create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  Create* create = (Create*)dlsym(RTLD_NEXT, "pthread_create");
  const int result = create(thread, attributes, run, argument);
  pthread_mutex_lock(&threads_lock);
  started += result == 0;
  pthread_mutex_unlock(&threads_lock);
  return result;
}

int
pthread_join(pthread_t thread, void** value)
{
  typedef int Join(pthread_t, void**);
  Join* join = (Join*)dlsym(RTLD_NEXT, "pthread_join");
  const int result = join(thread, value);
  pthread_mutex_lock(&threads_lock);
  joined += result == 0;
  pthread_mutex_unlock(&threads_lock);
  return result;
}

/* The threads that the kernel shows. */
static int
tasks(void)
{
  DIR* directory = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent* entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
    count += entry->d_name[0] != '.';
  }
  closedir(directory);
  return count;
}

/* ---- Answers ---- */

static void
write_line(const char* begin, const char* text)
{
  fputs(begin, stdout);
  for (; *text != '\0'; text++) {
    if (*text == '\n') {
      fputs("\\n", stdout);
    } else {
      putchar(*text);
    }
  }
  putchar('\n');
  fflush(stdout);
}

static void
answer(TRITONSERVER_Error* error)
{
  if (error == NULL) {
    write_line("ok", "");
    return;
  }
  printf("%s: ", TRITONSERVER_ErrorCodeString(error));
  write_line("", TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

static void
answer_json(TRITONSERVER_Error* error, TRITONSERVER_Message* message)
{
  const char* json;
  size_t size;
  if (error == NULL) {
    error = TRITONSERVER_MessageSerializeToJson(message, &json, &size);
  }
  if (error != NULL) {
    answer(error);
    return;
  }
  char* text = strndup(json, size);
  write_line("ok ", text);
  free(text);
  TRITONSERVER_MessageDelete(message);
}

static void
must(TRITONSERVER_Error* error)
{
  if (error != NULL) {
    fprintf(stderr, "%s - %s\n", TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
    exit(1);
  }
}

/* ---- The server ---- */

static TRITONSERVER_Server* server;

/* The value of a word `<key>=<value>`, or NULL. */
static const char*
value_of(const char* word, const char* key)
{
  const size_t length = strlen(key);
  return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static void
set(TRITONSERVER_ServerOptions* options, const char* word)
{
  const char* value;
  if ((value = value_of(word, "repository"))) {
    must(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, value));
  } else if ((value = value_of(word, "backends"))) {
    must(TRITONSERVER_ServerOptionsSetBackendDirectory(options, value));
  } else if ((value = value_of(word, "caches"))) {
    must(TRITONSERVER_ServerOptionsSetCacheDirectory(options, value));
    must(TRITONSERVER_ServerOptionsSetCacheConfig(options, "cache", "{}"));
  } else if ((value = value_of(word, "agents"))) {
    must(TRITONSERVER_ServerOptionsSetRepoAgentDirectory(options, value));
  } else if ((value = value_of(word, "mode"))) {
    must(TRITONSERVER_ServerOptionsSetModelControlMode(options, (TRITONSERVER_ModelControlMode)atoi(value)));
  } else if ((value = value_of(word, "startup"))) {
    must(TRITONSERVER_ServerOptionsSetStartupModel(options, value));
  } else if ((value = value_of(word, "load_threads"))) {
    must(TRITONSERVER_ServerOptionsSetModelLoadThreadCount(options, (unsigned int)atoi(value)));
  } else if ((value = value_of(word, "exit_on_error"))) {
    must(TRITONSERVER_ServerOptionsSetExitOnError(options, atoi(value) != 0));
  } else if ((value = value_of(word, "exit_timeout"))) {
    must(TRITONSERVER_ServerOptionsSetExitTimeout(options, (unsigned int)atoi(value)));
  } else if ((value = value_of(word, "namespacing"))) {
    must(TRITONSERVER_ServerOptionsSetModelNamespacing(options, atoi(value) != 0));
  } else {
    fprintf(stderr, "unknown setting '%s'\n", word);
    exit(1);
  }
}

static void
new_server(char** words, int count)
{
  TRITONSERVER_ServerOptions* options;
  must(TRITONSERVER_ServerOptionsNew(&options));
  must(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  for (int index = 1; index < count; index++) {
    set(options, words[index]);
  }
  TRITONSERVER_Error* error = TRITONSERVER_ServerNew(&server, options);
  must(TRITONSERVER_ServerOptionsDelete(options));
  answer(error);
}

/* ---- Loads ---- */

static void*
content_of(const char* path, size_t* size)
{
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  char* content = malloc(1 << 20);
  *size = fread(content, 1, 1 << 20, file);
  fclose(file);
  return content;
}

/*
 * A parameter from a word: its type (s, i, b, d, or f for the bytes of a file), a colon, and `<name>=<value>`.
 */
static TRITONSERVER_Parameter*
parameter_of(char* word)
{
  char* name = word + 2;
  char* value = strchr(name, '=');
  *value++ = '\0';
  const int64_t integer = atoll(value);
  const double number = atof(value);
  const bool truth = strcmp(value, "true") == 0;
  switch (word[0]) {
    case 's': return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value);
    case 'i': return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_INT, &integer);
    case 'b': return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_BOOL, &truth);
    case 'd': return TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_DOUBLE, &number);
  }
  size_t size;
  void* content = content_of(value, &size);
  TRITONSERVER_Parameter* parameter = TRITONSERVER_ParameterBytesNew(name, content, size);
  free(content);
  return parameter;
}

static void
load(char** words, int count)
{
  const TRITONSERVER_Parameter* parameters[MOST_WORDS];
  for (int index = 2; index < count; index++) {
    parameters[index - 2] = parameter_of(words[index]);
  }
  answer(count > 2 ? TRITONSERVER_ServerLoadModelWithParameters(server, words[1], parameters, (uint64_t)(count - 2))
                   : TRITONSERVER_ServerLoadModel(server, words[1]));
  for (int index = 2; index < count; index++) {
    TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter*)parameters[index - 2]);
  }
}

static void
register_repository(char** words, int count)
{
  const TRITONSERVER_Parameter* names[MOST_WORDS];
  for (int index = 2; index < count; index++) {
    names[index - 2] = parameter_of(words[index]);
  }
  answer(TRITONSERVER_ServerRegisterModelRepository(
      server, words[1], count > 2 ? names : NULL, (uint32_t)(count - 2)));
  for (int index = 2; index < count; index++) {
    TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter*)names[index - 2]);
  }
}

/* A load on a thread of its own. */
typedef struct {
  pthread_t thread;
  char* model;
  TRITONSERVER_Error* error;
} Load;

static Load loads[MOST_WORDS];
static int load_count;

static void*
run_load(void* argument)
{
  Load* load = argument;
  load->error = TRITONSERVER_ServerLoadModel(server, load->model);
  return NULL;
}

static void
begin_load(const char* model)
{
  Load* load = &loads[load_count++];
  load->model = strdup(model);
  pthread_create(&load->thread, NULL, run_load, load);
  /* The test sees by this name when the call has returned. */
  pthread_setname_np(load->thread, "loader");
  answer(NULL);
}

/* Answers for each load that has begun. */
static void
end_loads(void)
{
  for (int index = 0; index < load_count; index++) {
    pthread_join(loads[index].thread, NULL);
    free(loads[index].model);
    answer(loads[index].error);
  }
  load_count = 0;
}

/* ---- Requests ---- */

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  TRITONSERVER_InferenceResponse* response;
  bool is_complete;
  bool is_released;
} Outcome;

static TRITONSERVER_Error*
allocate(
    TRITONSERVER_ResponseAllocator* allocator, const char* tensor, size_t size, TRITONSERVER_MemoryType wanted,
    int64_t wanted_id, void* userp, void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id)
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

static void
on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* userp)
{
  Outcome* outcome = userp;
  pthread_mutex_lock(&outcome->lock);
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

/* Answers with the value of the output and its label. */
static void
show(TRITONSERVER_InferenceResponse* response)
{
  const char* name;
  const char* label = NULL;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint64_t dims;
  const void* base;
  size_t size;
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
  void* userp;
  TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response);
  if (error != NULL) {
    answer(error);
    return;
  }
  must(TRITONSERVER_InferenceResponseOutput(
      response, 0, &name, &datatype, &shape, &dims, &base, &size, &memory_type, &memory_type_id, &userp));
  must(TRITONSERVER_InferenceResponseOutputClassificationLabel(response, 0, 0, &label));
  char text[256];
  snprintf(text, sizeof text, "%" PRId32 "%s%s", *(const int32_t*)base, label ? " " : "", label ? label : "");
  write_line("ok ", text);
}

/* One row of one number to the input INPUT0 of a model. */
static void
infer(const char* model, const char* number)
{
  const int32_t value = atoi(number);
  const int64_t shape[2] = {1, 1};
  Outcome outcome = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false, false};
  TRITONSERVER_InferenceRequest* request;
  TRITONSERVER_Error* error = TRITONSERVER_InferenceRequestNew(&request, server, model, -1);
  if (error != NULL) {
    answer(error);
    return;
  }
  TRITONSERVER_ResponseAllocator* allocator;
  must(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, NULL));
  must(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
  must(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", &value, sizeof value, TRITONSERVER_MEMORY_CPU, 0));
  must(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &outcome));
  must(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, NULL, on_response, &outcome));
  error = TRITONSERVER_ServerInferAsync(server, request, NULL);
  if (error == NULL) {
    pthread_mutex_lock(&outcome.lock);
    while (!outcome.is_complete || !outcome.is_released) {
      pthread_cond_wait(&outcome.changed, &outcome.lock);
    }
    pthread_mutex_unlock(&outcome.lock);
    show(outcome.response);
    must(TRITONSERVER_InferenceResponseDelete(outcome.response));
  } else {
    answer(error);
  }
  must(TRITONSERVER_InferenceRequestDelete(request));
  must(TRITONSERVER_ResponseAllocatorDelete(allocator));
}

/* ---- Commands ---- */

static void
answer_flag(TRITONSERVER_Error* error, bool flag)
{
  if (error != NULL) {
    answer(error);
  } else {
    write_line("ok ", flag ? "true" : "false");
  }
}

static void
obey(char** words, int count)
{
  const char* command = words[0];
  TRITONSERVER_Message* message = NULL;
  bool flag = false;
  if (strcmp(command, "new") == 0) {
    new_server(words, count);
  } else if (strcmp(command, "delete") == 0) {
    answer(TRITONSERVER_ServerDelete(server));
  } else if (strcmp(command, "stop") == 0) {
    answer(TRITONSERVER_ServerStop(server));
  } else if (strcmp(command, "threads") == 0) {
    char text[64];
    snprintf(text, sizeof text, "%d %d %d", started, joined, tasks());
    write_line("ok ", text);
  } else if (strcmp(command, "load") == 0) {
    load(words, count);
  } else if (strcmp(command, "begin-load") == 0) {
    begin_load(words[1]);
  } else if (strcmp(command, "end-loads") == 0) {
    end_loads();
  } else if (strcmp(command, "load-null") == 0) {
    answer(TRITONSERVER_ServerLoadModelWithParameters(server, words[1], NULL, 1));
  } else if (strcmp(command, "unload") == 0) {
    answer(TRITONSERVER_ServerUnloadModel(server, words[1]));
  } else if (strcmp(command, "unload-dependents") == 0) {
    answer(TRITONSERVER_ServerUnloadModelAndDependents(server, words[1]));
  } else if (strcmp(command, "register") == 0) {
    register_repository(words, count);
  } else if (strcmp(command, "unregister") == 0) {
    answer(TRITONSERVER_ServerUnregisterModelRepository(server, words[1]));
  } else if (strcmp(command, "poll") == 0) {
    answer(TRITONSERVER_ServerPollModelRepository(server));
  } else if (strcmp(command, "index") == 0) {
    TRITONSERVER_Error* error = TRITONSERVER_ServerModelIndex(server, (uint32_t)atoi(words[1]), &message);
    answer_json(error, message);
  } else if (strcmp(command, "config") == 0) {
    TRITONSERVER_Error* error = TRITONSERVER_ServerModelConfig(server, words[1], -1, 1, &message);
    answer_json(error, message);
  } else if (strcmp(command, "server-ready") == 0) {
    TRITONSERVER_Error* error = TRITONSERVER_ServerIsReady(server, &flag);
    answer_flag(error, flag);
  } else if (strcmp(command, "ready") == 0) {
    TRITONSERVER_Error* error = TRITONSERVER_ServerModelIsReady(server, words[1], -1, &flag);
    answer_flag(error, flag);
  } else if (strcmp(command, "infer") == 0) {
    infer(words[1], words[2]);
  } else {
    fprintf(stderr, "unknown command '%s'\n", command);
    exit(1);
  }
}

int
main(void)
{
  static char line[1 << 16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* words[MOST_WORDS];
    int count = 0;
    for (char* rest = line; rest != NULL && count < MOST_WORDS;) {
      words[count++] = strsep(&rest, "\t");
    }
    obey(words, count);
  }
  return 0;
}
