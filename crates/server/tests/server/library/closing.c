/*
 * A program that opens the library, has a server, and closes the library, again and again.
 *
 *   closing LIBRARY MODEL_REPOSITORY BACKEND_DIRECTORY
 *
 * It prints for each round whether the library is still mapped after it was closed.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nereid.h"

/* A function of the library. */
#define FUNCTION(name) ((__typeof__(&name))dlsym(library, #name))

static void* library;

static void
check(TRITONSERVER_Error* error, const char* what)
{
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, FUNCTION(TRITONSERVER_ErrorMessage)(error));
    exit(1);
  }
}

#define CALL(name, ...) check(FUNCTION(name)(__VA_ARGS__), #name)

static bool
is_mapped(const char* file)
{
  char line[4096];
  bool found = false;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    found |= strstr(line, file) != NULL;
  }
  fclose(maps);
  return found;
}

int
main(int argc, char** argv)
{
  if (argc != 4) {
    fprintf(stderr, "usage: %s LIBRARY MODEL_REPOSITORY BACKEND_DIRECTORY\n", argv[0]);
    return 2;
  }
  for (int round = 0; round < 5; round++) {
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    TRITONSERVER_ServerOptions* options;
    TRITONSERVER_Server* server;
    bool ready;
    CALL(TRITONSERVER_ServerOptionsNew, &options);
    CALL(TRITONSERVER_ServerOptionsSetModelRepositoryPath, options, argv[2]);
    CALL(TRITONSERVER_ServerOptionsSetBackendDirectory, options, argv[3]);
    CALL(TRITONSERVER_ServerOptionsSetLogInfo, options, false);
    CALL(TRITONSERVER_ServerNew, &server, options);
    CALL(TRITONSERVER_ServerIsReady, server, &ready);
    CALL(TRITONSERVER_ServerOptionsDelete, options);
    CALL(TRITONSERVER_ServerDelete, server);
    dlclose(library);
    printf("%s %s\n", ready ? "ready" : "not ready", is_mapped("libtritonserver") ? "mapped" : "gone");
  }
  return 0;
}
