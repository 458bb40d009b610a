/*
 * Looks after the files of models: moves them, writes them anew, writes down what happens, fails.
 *
 * Parameters of the agent in the model's configuration:
 *   log       a file that gets a line for each call: the call, the name of the model's directory, and for LOAD whether
 *             there is a configuration
 *   fail_at   "model_initialize", "model_finalize" or an action such as "LOAD": an error
 *   relocate  the model's files are taken from this directory
 *   file      the model's files are copied into a directory of the server's, and this one (its path in the model's
 *             directory) gets the content
 *   text      which is this
 *   release   "true": that directory is given back when the model is done with
 * The environment variable TEST_AGENT_FAIL_AT says "initialize" for an agent that cannot be loaded.
 */
#include "common.h"

/* What is remembered of a model: the directory that was acquired for it. */
typedef struct {
  char* acquired;
} Kept;

/* A parameter, or NULL; belongs to the model. */
static Error*
parameter(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char* name, const char** value)
{
  uint32_t count;
  CHECK(TRITONREPOAGENT_ModelParameterCount(agent, model, &count));
  *value = NULL;
  for (uint32_t index = 0; index < count && *value == NULL; index++) {
    const char* found_name;
    const char* found_value;
    CHECK(TRITONREPOAGENT_ModelParameter(agent, model, index, &found_name, &found_value));
    *value = strcmp(found_name, name) == 0 ? found_value : NULL;
  }
  return NULL;
}

/* "with configuration" or "without configuration". */
static Error*
configured(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char** words)
{
  TRITONSERVER_Message* config;
  CHECK(TRITONREPOAGENT_ModelConfig(agent, model, 1, &config));
  *words = config == NULL ? " without configuration" : " with configuration";
  return TRITONSERVER_MessageDelete(config);
}

/* Writes the call down and fails if asked to. */
static Error*
enter(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char* call)
{
  const char* log;
  const char* fail_at;
  const char* location;
  const char* more = "";
  TRITONREPOAGENT_ArtifactType type;
  CHECK(parameter(agent, model, "log", &log));
  CHECK(parameter(agent, model, "fail_at", &fail_at));
  CHECK(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location));
  if (strcmp(call, "LOAD") == 0) {
    CHECK(configured(agent, model, &more));
  }
  FILE* file = log == NULL ? NULL : fopen(log, "a");
  if (file != NULL) {
    const char* name = strrchr(location, '/');
    fprintf(file, "%s %s%s\n", call, name == NULL ? location : name + 1, more);
    fclose(file);
  }
  if (fail_at != NULL && strcmp(fail_at, call) == 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "failed as wanted: %s", call);
  }
  return NULL;
}

Error*
TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent* agent)
{
  uint32_t major;
  uint32_t minor;
  CHECK(TRITONREPOAGENT_ApiVersion(&major, &minor));
  if (major != TRITONREPOAGENT_API_VERSION_MAJOR || minor < TRITONREPOAGENT_API_VERSION_MINOR) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "interface %u.%u is too old", major, minor);
  }
  const char* fail_at = getenv("TEST_AGENT_FAIL_AT");
  if (fail_at != NULL && strcmp(fail_at, "initialize") == 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "failed as wanted: initialize");
  }
  return TRITONREPOAGENT_SetState(agent, strdup("state of the agent"));
}

Error*
TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent* agent)
{
  void* state;
  CHECK(TRITONREPOAGENT_State(agent, &state));
  free(state);
  return NULL;
}

Error*
TRITONREPOAGENT_ModelInitialize(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model)
{
  CHECK(enter(agent, model, "model_initialize"));
  return TRITONREPOAGENT_ModelSetState(model, calloc(1, sizeof(Kept)));
}

Error*
TRITONREPOAGENT_ModelFinalize(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model)
{
  void* state;
  const char* release;
  CHECK(TRITONREPOAGENT_ModelState(model, &state));
  CHECK(parameter(agent, model, "release", &release));
  Kept* kept = state;
  Error* error = NULL;
  if (kept != NULL && kept->acquired != NULL && release != NULL && strcmp(release, "true") == 0) {
    error = TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, kept->acquired);
  }
  if (kept != NULL) {
    free(kept->acquired);
    free(kept);
  }
  return error == NULL ? enter(agent, model, "model_finalize") : error;
}

/* Copies the model's files into an acquired directory and writes one of them there. */
static Error*
rewrite(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char* file, const char* text)
{
  TRITONREPOAGENT_ArtifactType type;
  const char* from;
  const char* to;
  void* state;
  CHECK(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &from));
  CHECK(TRITONREPOAGENT_ModelRepositoryLocationAcquire(
      agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &to));
  CHECK(TRITONREPOAGENT_ModelState(model, &state));
  ((Kept*)state)->acquired = strdup(to);

  char line[4096];
  snprintf(line, sizeof line, "cp -R '%s/.' '%s'", from, to);
  if (system(line) != 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "cannot copy %s", from);
  }
  snprintf(line, sizeof line, "%s/%s", to, file);
  FILE* written = fopen(line, "w");
  if (written == NULL) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "cannot write %s", line);
  }
  fputs(text == NULL ? "" : text, written);
  fclose(written);
  return TRITONREPOAGENT_ModelRepositoryUpdate(
      agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, to);
}

static Error*
load(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model)
{
  const char* relocate;
  const char* file;
  const char* text;
  CHECK(parameter(agent, model, "relocate", &relocate));
  CHECK(parameter(agent, model, "file", &file));
  CHECK(parameter(agent, model, "text", &text));
  if (file != NULL) {
    CHECK(rewrite(agent, model, file, text));
  }
  if (relocate != NULL) {
    CHECK(TRITONREPOAGENT_ModelRepositoryUpdate(
        agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, relocate));
  }
  return NULL;
}

Error*
TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ActionType action)
{
  switch (action) {
    case TRITONREPOAGENT_ACTION_LOAD:
      CHECK(enter(agent, model, "LOAD"));
      return load(agent, model);
    case TRITONREPOAGENT_ACTION_LOAD_COMPLETE:
      return enter(agent, model, "LOAD_COMPLETE");
    case TRITONREPOAGENT_ACTION_LOAD_FAIL:
      return enter(agent, model, "LOAD_FAIL");
    case TRITONREPOAGENT_ACTION_UNLOAD:
      return enter(agent, model, "UNLOAD");
    case TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE:
      return enter(agent, model, "UNLOAD_COMPLETE");
  }
  return fail(TRITONSERVER_ERROR_INVALID_ARG, "there is no action %d", (int)action);
}
