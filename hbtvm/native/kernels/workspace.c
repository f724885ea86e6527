/* Scratch memory of a kernel, so that its library needs no TVM runtime.
 *
 * TVM's generated code requests scratch memory through these two function pointers, which it declares weak and leaves
 * null; linking replaces them with the definitions here. Each thread keeps its blocks and reuses them, since a kernel
 * requests the same few blocks on every row tile. Blocks are freed when their thread ends; those of the thread that
 * unloads the library are freed with it, since a tuner loads thousands of libraries.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define SLOTS 8

struct slot {
  void* memory;
  uint64_t size;
  int busy;
};

static __thread struct slot slots[SLOTS];

static pthread_key_t key;

/* Whether the key exists: a process has a thousand. Without a key, blocks are not kept. */
static int has_key;

static void drop(void* own) {
  struct slot* s = own;
  for (int i = 0; i < SLOTS; ++i) {
    free(s[i].memory);
    s[i] = (struct slot){0};
  }
}

__attribute__((constructor)) static void load(void) {
  has_key = !pthread_key_create(&key, drop);
}

/* Threads that outlive the library must not call into it when they end. */
__attribute__((destructor)) static void unload(void) {
  if (has_key) pthread_key_delete(key);
  drop(slots);
}

static void* fresh(uint64_t size) {
  /* Whole cache lines; never zero bytes. */
  return aligned_alloc(64, (size + 127) / 64 * 64);
}

static void* take(int device_type, int device_id, uint64_t size, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  if (!has_key) return fresh(size);
  struct slot* spare = NULL;
  for (int i = 0; i < SLOTS; ++i) {
    struct slot* s = &slots[i];
    if (s->busy) continue;
    if (s->memory && s->size >= size) {
      s->busy = 1;
      return s->memory;
    }
    if (!spare || !s->memory) spare = s;
  }
  if (!spare) return fresh(size);
  void* memory = fresh(size);
  if (!memory) return NULL;
  free(spare->memory);
  spare->memory = memory;
  spare->size = size;
  spare->busy = 1;
  pthread_setspecific(key, slots);
  return memory;
}

static int give(int device_type, int device_id, void* memory) {
  (void)device_type, (void)device_id;
  for (int i = 0; i < SLOTS; ++i) {
    if (slots[i].memory == memory) {
      slots[i].busy = 0;
      return 0;
    }
  }
  free(memory);
  return 0;
}

void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = take;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = give;
