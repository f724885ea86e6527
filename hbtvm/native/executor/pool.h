/* A pool of threads that share the work of calls; the calling thread is always among them. */
#ifndef HBTVM_POOL_H
#define HBTVM_POOL_H

#include <stdint.h>

typedef void pool_work(void *context, int64_t i);

struct pool;

/* Create a pool of this many threads, callers included; null if memory is short. */
struct pool *hbtvm_pool_new(int64_t threads);

/* Stop the threads. No work may be running. */
void hbtvm_pool_free(struct pool *pool);

/* Call work(context, 0) to work(context, count - 1), each once, and return when all are done. At most `threads` threads
 * share the work. Several threads may call this at once. */
void hbtvm_pool_run(struct pool *pool, pool_work *work, void *context, int64_t count, int64_t threads);

#endif
