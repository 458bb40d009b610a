/*
 * A response cache in one file: it keeps the last `entries` responses [default: 100].
 *
 *   cc -std=gnu11 -shared -fPIC -Iinclude examples/cache/ring.c -pthread -o target/caches/ring/libtritoncache_ring.so
 *
 * docs/writing-a-cache.md explains it.
 */
#include <pthread.h>
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

typedef struct {
  void* bytes;
  size_t size;
} Buffer;

/* A response: the server divides it into buffers, whose meaning is its own. */
typedef struct {
  char* key;
  Buffer* buffers;
  size_t count;
} Entry;

typedef struct {
  pthread_mutex_t lock;
  Entry* entries;
  size_t size;
  size_t next;
} Ring;

static void
clear(Entry* entry)
{
  for (size_t index = 0; index < entry->count; index++) {
    free(entry->buffers[index].bytes);
  }
  free(entry->buffers);
  free(entry->key);
  *entry = (Entry){0};
}

static Entry*
find(Ring* ring, const char* key)
{
  for (size_t index = 0; index < ring->size; index++) {
    Entry* entry = &ring->entries[index];
    if (entry->key != NULL && strcmp(entry->key, key) == 0) {
      return entry;
    }
  }
  return NULL;
}

/* ---- The cache ---- */

/* `config` is a JSON object with the settings of --cache-config, all of them texts: {"entries":"8"}. */
TRITONSERVER_Error*
TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* config)
{
  const char key[] = "\"entries\":\"";
  const char* found = config == NULL ? NULL : strstr(config, key);
  const size_t size = found == NULL ? 100 : strtoull(found + sizeof key - 1, NULL, 10);
  if (size == 0) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "'entries' must be a number from 1");
  }
  Ring* ring = calloc(1, sizeof *ring);
  Entry* entries = calloc(size, sizeof *entries);
  if (ring == NULL || entries == NULL) {
    free(ring);
    free(entries);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the cache");
  }
  *ring = (Ring){.entries = entries, .size = size};
  pthread_mutex_init(&ring->lock, NULL);
  *cache = (TRITONCACHE_Cache*)ring;
  return NULL;
}

TRITONSERVER_Error*
TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache)
{
  Ring* ring = (Ring*)cache;
  for (size_t index = 0; index < ring->size; index++) {
    clear(&ring->entries[index]);
  }
  pthread_mutex_destroy(&ring->lock);
  free(ring->entries);
  free(ring);
  return NULL;
}

/* ---- An answer is stored ---- */

/* Gives each buffer of the server's entry memory of the cache. */
static TRITONSERVER_Error*
make_room(TRITONCACHE_CacheEntry* theirs, Entry* ours, TRITONSERVER_BufferAttributes* attributes)
{
  size_t count;
  CHECK(TRITONCACHE_CacheEntryBufferCount(theirs, &count));
  ours->buffers = calloc(count + 1, sizeof *ours->buffers);
  if (ours->buffers == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for an entry");
  }
  for (; ours->count < count; ours->count++) {
    Buffer* buffer = &ours->buffers[ours->count];
    void* none_yet;
    CHECK(TRITONCACHE_CacheEntryGetBuffer(theirs, ours->count, &none_yet, attributes));
    CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &buffer->size));
    buffer->bytes = malloc(buffer->size);
    if (buffer->bytes == NULL && buffer->size > 0) {
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for an entry");
    }
    CHECK(TRITONCACHE_CacheEntrySetBuffer(theirs, ours->count, buffer->bytes, attributes));
  }
  return NULL;
}

static TRITONSERVER_Error*
insert(Ring* ring, const char* key, TRITONCACHE_CacheEntry* theirs, TRITONCACHE_Allocator* allocator)
{
  if (find(ring, key) != NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "the key has an entry");
  }
  TRITONSERVER_BufferAttributes* attributes;
  CHECK(TRITONSERVER_BufferAttributesNew(&attributes));
  Entry ours = {.key = strdup(key)};
  TRITONSERVER_Error* error = make_room(theirs, &ours, attributes);
  if (error == NULL) {
    /* The server writes the response into the buffers. */
    error = TRITONCACHE_Copy(allocator, theirs);
  }
  TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesDelete(attributes));
  if (error != NULL) {
    clear(&ours);
    return error;
  }
  clear(&ring->entries[ring->next]);
  ring->entries[ring->next] = ours;
  ring->next = (ring->next + 1) % ring->size;
  return NULL;
}

/* Any number of threads may call at the same time. */
TRITONSERVER_Error*
TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator)
{
  Ring* ring = (Ring*)cache;
  pthread_mutex_lock(&ring->lock);
  TRITONSERVER_Error* error = insert(ring, key, entry, allocator);
  pthread_mutex_unlock(&ring->lock);
  return error;
}

/* ---- An answer is looked up ---- */

static TRITONSERVER_Error*
show(const Entry* ours, TRITONCACHE_CacheEntry* theirs, TRITONCACHE_Allocator* allocator)
{
  TRITONSERVER_BufferAttributes* attributes;
  CHECK(TRITONSERVER_BufferAttributesNew(&attributes));
  TRITONSERVER_Error* error = NULL;
  for (size_t index = 0; index < ours->count && error == NULL; index++) {
    error = TRITONSERVER_BufferAttributesSetByteSize(attributes, ours->buffers[index].size);
    if (error == NULL) {
      error = TRITONCACHE_CacheEntryAddBuffer(theirs, ours->buffers[index].bytes, attributes);
    }
  }
  TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesDelete(attributes));
  /* The server reads the buffers before this returns. */
  return error == NULL ? TRITONCACHE_Copy(allocator, theirs) : error;
}

TRITONSERVER_Error*
TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator)
{
  Ring* ring = (Ring*)cache;
  pthread_mutex_lock(&ring->lock);
  const Entry* found = find(ring, key);
  TRITONSERVER_Error* error = found == NULL
                                  ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "the key has no entry")
                                  : show(found, entry, allocator);
  pthread_mutex_unlock(&ring->lock);
  return error;
}
