/*
 * Keeps responses in memory, in a list behind one lock.
 *
 * Settings (strings in the JSON object that the server passes):
 *   entries  how many are kept; the oldest is forgotten for a new one [default: no limit]
 *   fail_at  "initialize", "insert" or "lookup": that function returns an error
 *   log      a file that gets a line for each call
 */
#include <pthread.h>

#include "common.h"

typedef struct {
  void* bytes;
  size_t size;
} Buffer;

typedef struct Entry {
  struct Entry* older;
  char* key;
  Buffer* buffers;
  size_t count;
} Entry;

typedef struct {
  pthread_mutex_t lock;
  Entry* newest;
  size_t count;
  size_t limit;
  char* fail_at;
  char* log;
} Cache;

static void
free_entry(Entry* entry)
{
  for (size_t index = 0; index < entry->count; index++) {
    free(entry->buffers[index].bytes);
  }
  free(entry->buffers);
  free(entry->key);
  free(entry);
}

/* Forgets the oldest. */
static void
forget_one(Cache* cache)
{
  Entry** place = &cache->newest;
  while (*place != NULL && (*place)->older != NULL) {
    place = &(*place)->older;
  }
  if (*place != NULL) {
    free_entry(*place);
    *place = NULL;
    cache->count--;
  }
}

static Entry*
find(const Cache* cache, const char* key)
{
  Entry* entry = cache->newest;
  while (entry != NULL && strcmp(entry->key, key) != 0) {
    entry = entry->older;
  }
  return entry;
}

/* Writes the call to the log file and fails if asked to. */
static Error*
enter(const Cache* cache, const char* call)
{
  FILE* file = cache->log == NULL ? NULL : fopen(cache->log, "a");
  if (file != NULL) {
    fprintf(file, "%s\n", call);
    fclose(file);
  }
  if (cache->fail_at != NULL && strcmp(cache->fail_at, call) == 0) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "failed as wanted: %s", call);
  }
  return NULL;
}

static void
free_cache(Cache* cache)
{
  while (cache->newest != NULL) {
    forget_one(cache);
  }
  pthread_mutex_destroy(&cache->lock);
  free(cache->fail_at);
  free(cache->log);
  free(cache);
}

Error*
TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** place, const char* config)
{
  uint32_t major;
  uint32_t minor;
  CHECK(TRITONCACHE_ApiVersion(&major, &minor));
  if (major != TRITONCACHE_API_VERSION_MAJOR || minor < TRITONCACHE_API_VERSION_MINOR) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "interface %u.%u is too old", major, minor);
  }
  Cache* cache = calloc(1, sizeof *cache);
  pthread_mutex_init(&cache->lock, NULL);
  char* entries = config == NULL ? NULL : find_string(config, "entries", NULL);
  cache->limit = entries == NULL ? SIZE_MAX : strtoull(entries, NULL, 10);
  free(entries);
  cache->fail_at = config == NULL ? NULL : find_string(config, "fail_at", NULL);
  cache->log = config == NULL ? NULL : find_string(config, "log", NULL);
  Error* error = enter(cache, "initialize");
  if (error != NULL) {
    free_cache(cache);
    return error;
  }
  *place = (TRITONCACHE_Cache*)cache;
  return NULL;
}

Error*
TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* handle)
{
  Cache* cache = (Cache*)handle;
  report(enter(cache, "finalize"));
  free_cache(cache);
  return NULL;
}

/* Gives each buffer of the server's entry memory of ours, of the size that it says. */
static Error*
make_room(TRITONCACHE_CacheEntry* theirs, Entry* ours, TRITONSERVER_BufferAttributes* attributes)
{
  CHECK(TRITONCACHE_CacheEntryBufferCount(theirs, &ours->count));
  ours->buffers = calloc(ours->count + 1, sizeof *ours->buffers);
  for (size_t index = 0; index < ours->count; index++) {
    Buffer* buffer = &ours->buffers[index];
    void* no_bytes_yet;
    CHECK(TRITONCACHE_CacheEntryGetBuffer(theirs, index, &no_bytes_yet, attributes));
    CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &buffer->size));
    buffer->bytes = malloc(buffer->size);
    CHECK(TRITONCACHE_CacheEntrySetBuffer(theirs, index, buffer->bytes, attributes));
  }
  return NULL;
}

/* Under the lock. */
static Error*
insert(
    Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator)
{
  if (find(cache, key) != NULL) {
    return fail(TRITONSERVER_ERROR_ALREADY_EXISTS, "key '%s' has an entry", key);
  }
  TRITONSERVER_BufferAttributes* attributes;
  CHECK(TRITONSERVER_BufferAttributesNew(&attributes));
  Entry* ours = calloc(1, sizeof *ours);
  ours->key = strdup(key);
  Error* error = make_room(entry, ours, attributes);
  if (error == NULL) {
    error = TRITONCACHE_Copy(allocator, entry);
  }
  report(TRITONSERVER_BufferAttributesDelete(attributes));
  if (error != NULL) {
    free_entry(ours);
    return error;
  }
  while (cache->count >= cache->limit && cache->count > 0) {
    forget_one(cache);
  }
  ours->older = cache->newest;
  cache->newest = ours;
  cache->count++;
  return NULL;
}

Error*
TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache* handle, const char* key, TRITONCACHE_CacheEntry* entry,
    TRITONCACHE_Allocator* allocator)
{
  Cache* cache = (Cache*)handle;
  pthread_mutex_lock(&cache->lock);
  Error* error = enter(cache, "insert");
  if (error == NULL) {
    error = insert(cache, key, entry, allocator);
  }
  pthread_mutex_unlock(&cache->lock);
  return error;
}

/* Adds our buffers to the server's entry, which is to read them at once. */
static Error*
show(const Entry* ours, TRITONCACHE_CacheEntry* theirs, TRITONCACHE_Allocator* allocator)
{
  TRITONSERVER_BufferAttributes* attributes;
  CHECK(TRITONSERVER_BufferAttributesNew(&attributes));
  Error* error = NULL;
  for (size_t index = 0; index < ours->count && error == NULL; index++) {
    const Buffer* buffer = &ours->buffers[index];
    error = TRITONSERVER_BufferAttributesSetByteSize(attributes, buffer->size);
    if (error == NULL) {
      error = TRITONCACHE_CacheEntryAddBuffer(theirs, buffer->bytes, attributes);
    }
  }
  report(TRITONSERVER_BufferAttributesDelete(attributes));
  return error == NULL ? TRITONCACHE_Copy(allocator, theirs) : error;
}

Error*
TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache* handle, const char* key, TRITONCACHE_CacheEntry* entry,
    TRITONCACHE_Allocator* allocator)
{
  Cache* cache = (Cache*)handle;
  pthread_mutex_lock(&cache->lock);
  Error* error = enter(cache, "lookup");
  const Entry* found = error == NULL ? find(cache, key) : NULL;
  if (found != NULL) {
    error = show(found, entry, allocator);
  } else if (error == NULL) {
    error = fail(TRITONSERVER_ERROR_NOT_FOUND, "key '%s' has no entry", key);
  }
  pthread_mutex_unlock(&cache->lock);
  return error;
}
