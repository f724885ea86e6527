/* Libraries with scratch memory come and go, also where threads can't have more keys: driver LIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *take_function(int, int, uint64_t, int, int);
typedef int give_function(int, int, void *);

struct scratch {
  take_function **take;
  give_function **give;
};

static void *use(void *own) {
  struct scratch *scratch = own;
  void *blocks[12];
  for (int again = 0; again < 3; ++again) {
    for (int i = 0; i < 12; ++i) {
      blocks[i] = (*scratch->take)(1, 0, (uint64_t)(i + again) * 1000, 2, 32);
      if (!blocks[i] || (uintptr_t)blocks[i] % 64) exit(2);
      memset(blocks[i], i, (size_t)(i + again) * 1000);
    }
    for (int i = 0; i < 12; ++i) {
      for (int at = 0; at < (i + again) * 1000; ++at) {
        if (((char *)blocks[i])[at] != i) exit(3);
      }
      (*scratch->give)(1, 0, blocks[i]);
    }
  }
  return NULL;
}

int main(int count, char **names) {
  if (count != 2) return 4;
  pthread_key_t key, first;
  if (pthread_key_create(&first, NULL) || pthread_setspecific(first, &first)) return 9;
  for (int i = 0; i < 50; ++i) {
    /* From now on, the library gets none. */
    while (i == 40 && !pthread_key_create(&key, NULL)) {
    }
    void *library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return 5;
    struct scratch scratch;
    scratch.take = (take_function **)dlsym(library, "__TVMBackendAllocWorkspace");
    scratch.give = (give_function **)dlsym(library, "__TVMBackendFreeWorkspace");
    if (!scratch.take || !scratch.give) return 6;
    use(&scratch);
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, &scratch) || pthread_join(thread, NULL)) return 7;
    if (dlclose(library) || dlopen(names[1], RTLD_NOW | RTLD_NOLOAD)) return 8;
  }
  if (pthread_getspecific(first) != &first) return 10;
  puts("right");
  return 0;
}
