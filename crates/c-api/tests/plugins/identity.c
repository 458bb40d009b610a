/*
 * Copies every input INPUT<x> to the output OUTPUT<x>, and any other input to the output of its name.
 *
 * Parameters of the model:
 *   delay_ms        how long an execution takes at least
 *   own_statistics  "true" (as measured, the default), "fixed" (1, 2 and 3 ms for input, inference and output), or
 *                   "false" (none is reported)
 *   release         "after" the response is sent (the default), or "before"
 *   thread          "true": the response is sent by another thread, after the execution has returned
 *   pieces          "true": each response has the parameters `pieces`, how many pieces its inputs came in, and
 *                   `thread`, the name of the thread that it was made on
 *   half            "true": only the first half of each piece of an input is copied; the rest of the output's memory
 *                   stays as the server gave it
 *   memory          "true": the model reports 64 bytes of memory, each instance 100 and 7 of pinned memory
 *   gate            a folder. An execution writes the file `<n>.running` there and goes on when the file `<n>` exists; n
 *                   is the largest number in the inputs HOLD of its requests, and 0 stands for no file
 *   load_hold       a number n: each instance passes the gate with it before it is ready
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common.h"

typedef struct {
  uint64_t delay_ms;
  bool batches;
  bool reports;
  bool fixed;
  bool releases_before;
  bool in_thread;
  bool tells_pieces;
  bool copies_half;
  bool tells_memory;
  char* gate;
  uint64_t load_hold;
} Settings;

/* What an instance has to wait for before it ends. */
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t working;
} Workers;

/* One execution. */
typedef struct {
  TRITONBACKEND_ModelInstance* instance;
  const Settings* settings;
  Workers* workers;
  uint64_t start_ns;
  uint32_t count;
  TRITONBACKEND_Request* requests[];
} Work;

Error*
TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend)
{
  (void)backend;
  return api_version_is_known();
}

/* An amount of memory, to be deleted. */
static Error*
amount(TRITONSERVER_MemoryType type, size_t bytes, TRITONSERVER_BufferAttributes** attributes)
{
  CHECK(TRITONSERVER_BufferAttributesNew(attributes));
  CHECK(TRITONSERVER_BufferAttributesSetMemoryType(*attributes, type));
  return TRITONSERVER_BufferAttributesSetByteSize(*attributes, bytes);
}

static Error*
report_memory_of_model(TRITONBACKEND_Model* model)
{
  TRITONSERVER_BufferAttributes* usage[1];
  CHECK(amount(TRITONSERVER_MEMORY_CPU, 64, &usage[0]));
  Error* error = TRITONBACKEND_ModelReportMemoryUsage(model, usage, 1);
  report(TRITONSERVER_BufferAttributesDelete(usage[0]));
  return error;
}

static Error*
report_memory_of_instance(TRITONBACKEND_ModelInstance* instance)
{
  TRITONSERVER_BufferAttributes* usage[2];
  CHECK(amount(TRITONSERVER_MEMORY_CPU, 100, &usage[0]));
  CHECK(amount(TRITONSERVER_MEMORY_CPU_PINNED, 7, &usage[1]));
  /* What was reported before is forgotten. */
  Error* error = TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, usage, 1);
  if (error == NULL) {
    error = TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, usage, 2);
  }
  report(TRITONSERVER_BufferAttributesDelete(usage[0]));
  report(TRITONSERVER_BufferAttributesDelete(usage[1]));
  return error;
}

Error*
TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  Settings read = {0};
  bool silent;
  CHECK(model_number(model, "delay_ms", 0, &read.delay_ms));
  CHECK(model_batches(model, &read.batches));
  CHECK(model_says(model, "own_statistics", "false", &silent));
  CHECK(model_says(model, "own_statistics", "fixed", &read.fixed));
  CHECK(model_says(model, "release", "before", &read.releases_before));
  CHECK(model_says(model, "thread", "true", &read.in_thread));
  CHECK(model_says(model, "pieces", "true", &read.tells_pieces));
  CHECK(model_says(model, "half", "true", &read.copies_half));
  CHECK(model_says(model, "memory", "true", &read.tells_memory));
  if (read.tells_memory) {
    CHECK(report_memory_of_model(model));
  }
  read.reports = !silent;
  CHECK(model_parameter(model, "gate", &read.gate));
  CHECK(model_number(model, "load_hold", 0, &read.load_hold));
  Settings* settings = malloc(sizeof *settings);
  *settings = read;
  return TRITONBACKEND_ModelSetState(model, settings);
}

Error*
TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* settings;
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  free(((Settings*)settings)->gate);
  free(settings);
  return NULL;
}

/* Returns when the gate lets this hold pass. */
static Error*
pass_gate(const char* gate, int64_t hold)
{
  char path[512];
  snprintf(path, sizeof path, "%s/%" PRId64 ".running", gate, hold);
  int file = open(path, O_CREAT | O_WRONLY, 0600);
  if (file < 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "cannot write '%s'", path);
  }
  close(file);
  snprintf(path, sizeof path, "%s/%" PRId64, gate, hold);
  while (access(path, F_OK) != 0) {
    sleep_ms(1);
  }
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  TRITONBACKEND_Model* model;
  void* settings;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  const Settings* read = settings;
  if (read->tells_memory) {
    CHECK(report_memory_of_instance(instance));
  }
  if (read->gate != NULL && read->load_hold != 0) {
    CHECK(pass_gate(read->gate, (int64_t)read->load_hold));
  }
  Workers* workers = calloc(1, sizeof *workers);
  pthread_mutex_init(&workers->lock, NULL);
  pthread_cond_init(&workers->changed, NULL);
  return TRITONBACKEND_ModelInstanceSetState(instance, workers);
}

Error*
TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  void* state;
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));
  Workers* workers = state;
  pthread_mutex_lock(&workers->lock);
  while (workers->working > 0) {
    pthread_cond_wait(&workers->changed, &workers->lock);
  }
  pthread_mutex_unlock(&workers->lock);
  pthread_cond_destroy(&workers->changed);
  pthread_mutex_destroy(&workers->lock);
  free(workers);
  return NULL;
}

/* ---- One request ---- */

static Error*
is_wanted(TRITONBACKEND_Request* request, const char* output, bool* wanted)
{
  uint32_t count;
  CHECK(TRITONBACKEND_RequestOutputCount(request, &count));
  *wanted = false;
  for (uint32_t index = 0; index < count && !*wanted; index++) {
    const char* name;
    CHECK(TRITONBACKEND_RequestOutputName(request, index, &name));
    *wanted = strcmp(name, output) == 0;
  }
  return NULL;
}

/* Copies the pieces of an input into the memory of its output. */
static Error*
copy_input(
    TRITONBACKEND_Input* input, TRITONBACKEND_Request* request, TRITONBACKEND_Response* response,
    bool copies_half, uint32_t* all_pieces)
{
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims;
  uint64_t size;
  uint32_t pieces;
  CHECK(TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &dims, &size, &pieces));
  *all_pieces += pieces;

  char output_name[256];
  const char* rest = strncmp(name, "INPUT", 5) == 0 ? name + 5 : NULL;
  snprintf(output_name, sizeof output_name, "%s%s", rest ? "OUTPUT" : "", rest ? rest : name);
  bool wanted;
  CHECK(is_wanted(request, output_name, &wanted));
  if (!wanted) {
    return NULL;
  }

  TRITONBACKEND_Output* output;
  void* buffer;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, output_name, datatype, shape, dims));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory_type, &memory_type_id));
  if (memory_type == TRITONSERVER_MEMORY_GPU) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "output '%s' lies in device memory", output_name);
  }
  uint64_t at = 0;
  for (uint32_t index = 0; index < pieces; index++) {
    const void* piece;
    uint64_t piece_size;
    CHECK(TRITONBACKEND_InputBuffer(
        input, index, &piece, &piece_size, &memory_type, &memory_type_id));
    if (at + piece_size > size) {
      return fail(TRITONSERVER_ERROR_INTERNAL, "input '%s' has more bytes than it says", name);
    }
    memcpy((char*)buffer + at, piece, copies_half ? piece_size / 2 : piece_size);
    at += piece_size;
  }
  return NULL;
}

static Error*
fill(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, const Settings* settings)
{
  uint32_t count;
  uint32_t pieces = 0;
  CHECK(TRITONBACKEND_RequestInputCount(request, &count));
  for (uint32_t index = 0; index < count; index++) {
    TRITONBACKEND_Input* input;
    CHECK(TRITONBACKEND_RequestInputByIndex(request, index, &input));
    CHECK(copy_input(input, request, response, settings->copies_half, &pieces));
  }
  if (!settings->tells_pieces) {
    return NULL;
  }
  char thread[16] = "";
  prctl(PR_GET_NAME, thread);
  CHECK(TRITONBACKEND_ResponseSetStringParameter(response, "thread", thread));
  return TRITONBACKEND_ResponseSetIntParameter(response, "pieces", pieces);
}

/* Rows of a request to a model that batches. */
static Error*
rows_of(TRITONBACKEND_Request* request, uint64_t* rows)
{
  TRITONBACKEND_Input* input;
  const int64_t* shape;
  uint32_t dims;
  CHECK(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  CHECK(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &dims, NULL, NULL));
  *rows = dims > 0 && shape[0] > 0 ? (uint64_t)shape[0] : 1;
  return NULL;
}

/* The number in the input HOLD of a request. */
static Error*
hold_of(TRITONBACKEND_Request* request, int64_t* hold)
{
  TRITONBACKEND_Input* input;
  char* bytes;
  uint64_t size;
  CHECK(TRITONBACKEND_RequestInput(request, "HOLD", &input));
  CHECK(read_input(input, &bytes, &size));
  const bool fits = size == sizeof *hold;
  if (fits) {
    memcpy(hold, bytes, size);
  }
  free(bytes);
  return fits ? NULL : fail(TRITONSERVER_ERROR_INVALID_ARG, "the input HOLD must be one number of 8 bytes");
}

/* ---- One execution ---- */

static void
wait_at_gate(const Work* work)
{
  int64_t largest = 0;
  for (uint32_t index = 0; index < work->count; index++) {
    int64_t hold = 0;
    report(hold_of(work->requests[index], &hold));
    largest = hold > largest ? hold : largest;
  }
  if (largest != 0) {
    report(pass_gate(work->settings->gate, largest));
  }
}

typedef struct {
  uint64_t start;
  uint64_t compute_start;
  uint64_t compute_end;
  uint64_t end;
} Times;

static Times
times_of(const Work* work, uint64_t compute_end)
{
  if (work->settings->fixed) {
    const uint64_t ms = 1000000;
    return (Times){work->start_ns, work->start_ns + ms, work->start_ns + 3 * ms, work->start_ns + 6 * ms};
  }
  return (Times){work->start_ns, work->start_ns, compute_end, now_ns()};
}

static void
answer_all(const Work* work)
{
  const Settings* settings = work->settings;
  if (settings->gate != NULL) {
    wait_at_gate(work);
  }
  if (settings->delay_ms > 0) {
    /* Even no time at all takes the kernel a while. */
    sleep_ms(settings->delay_ms);
  }
  const uint64_t compute_end = now_ns();
  uint64_t all_rows = 0;
  for (uint32_t index = 0; index < work->count; index++) {
    TRITONBACKEND_Request* request = work->requests[index];
    TRITONBACKEND_Response* response = NULL;
    uint64_t rows = 1;
    if (settings->batches) {
      report(rows_of(request, &rows));
    }
    all_rows += rows;
    report(TRITONBACKEND_ResponseNew(&response, request));
    Error* error = response == NULL ? NULL : fill(request, response, settings);
    if (settings->reports) {
      const Times times = times_of(work, compute_end);
      report(TRITONBACKEND_ModelInstanceReportStatistics(
          work->instance, request, error == NULL, times.start, times.compute_start,
          times.compute_end, times.end));
    }
    if (settings->releases_before) {
      report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    }
    if (response != NULL) {
      send_final(response, error);
    }
    if (!settings->releases_before) {
      report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
    }
  }
  if (settings->reports) {
    const Times times = times_of(work, compute_end);
    report(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        work->instance, all_rows, times.start, times.compute_start, times.compute_end, times.end));
  }
}

static void*
answer_in_thread(void* argument)
{
  Work* work = argument;
  answer_all(work);
  Workers* workers = work->workers;
  free(work);
  pthread_mutex_lock(&workers->lock);
  workers->working--;
  pthread_cond_signal(&workers->changed);
  pthread_mutex_unlock(&workers->lock);
  return NULL;
}

static Error*
start_thread(Work* work)
{
  pthread_t thread;
  Workers* workers = work->workers;
  pthread_mutex_lock(&workers->lock);
  workers->working++;
  pthread_mutex_unlock(&workers->lock);
  if (pthread_create(&thread, NULL, answer_in_thread, work) != 0) {
    pthread_mutex_lock(&workers->lock);
    workers->working--;
    pthread_mutex_unlock(&workers->lock);
    return fail(TRITONSERVER_ERROR_INTERNAL, "no thread to answer with");
  }
  pthread_detach(thread);
  return NULL;
}

Error*
TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count)
{
  TRITONBACKEND_Model* model;
  void* settings;
  void* workers;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &settings));
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &workers));

  Work* work = malloc(sizeof *work + count * sizeof *requests);
  *work = (Work){instance, settings, workers, now_ns(), count};
  memcpy(work->requests, requests, count * sizeof *requests);
  Error* error = NULL;
  if (work->settings->in_thread) {
    error = start_thread(work);
    work = error == NULL ? NULL : work;
  } else {
    answer_all(work);
  }
  free(work);
  return error;
}
