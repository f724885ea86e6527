#define _GNU_SOURCE
#include "executor/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/clock.h"

/* Maximal number of calls that share threads at the same time; further callers work alone. */
#define PLACES 16

/* How long an idle thread spins before it sleeps. Waking a thread takes tens of microseconds, as long as a whole short
 * call, and services call again and again. */
#define SPIN_NANOSECONDS 50000

/* Pauses between two checks of the clock. */
#define PAUSES 32

/* A caller waits this many pauses for the last pieces of its work before it yields its CPU between checks. */
#define PATIENCE 4096

struct job {
  pool_work *work;
  void *context;
  int64_t count;
  _Atomic int64_t next;
  _Atomic int64_t seats; /* threads that may still join */
};

/* `users` counts threads that may access `job`, which lies on its caller's stack. */
struct place_of_job {
  _Alignas(64) _Atomic(struct job *) job;
  _Atomic int64_t users;
  atomic_flag taken;
};

struct pool {
  struct place_of_job places[PLACES];
  _Alignas(64) _Atomic uint64_t published; /* number of jobs so far */
  _Atomic int64_t sleepers;
  _Atomic int64_t ends;
  /* The process of the threads; 0 before they start, negative while they are being started. */
  _Atomic int64_t process;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  int64_t threads, started;
  int64_t spins; /* nanoseconds */
  pthread_t *thread;
};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

static void take(struct job *job) {
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (i >= job->count) return;
    job->work(job->context, i);
  }
}

static void help(struct pool *pool) {
  for (int i = 0; i < PLACES; ++i) {
    struct place_of_job *place = &pool->places[i];
    if (!atomic_load_explicit(&place->job, memory_order_relaxed)) continue;
    /* The caller removes its job, and then waits until there are no users: either it sees this user, or this thread
     * sees that the job is gone. */
    atomic_fetch_add(&place->users, 1);
    struct job *job = atomic_load(&place->job);
    if (job && atomic_fetch_sub(&job->seats, 1) > 0) take(job);
    atomic_fetch_sub_explicit(&place->users, 1, memory_order_release);
  }
}

/* Wait for a job after the first `seen` jobs; spin first, then sleep. */
static void await(struct pool *pool, uint64_t seen) {
  int64_t until = pool->spins ? nanoseconds_now() + pool->spins : 0;
  while (until && nanoseconds_now() < until) {
    for (int i = 0; i < PAUSES; ++i) {
      if (atomic_load_explicit(&pool->published, memory_order_acquire) != seen) return;
      pause_briefly();
    }
    if (atomic_load(&pool->ends)) return;
  }
  pthread_mutex_lock(&pool->mutex);
  /* A caller publishes its job, and then checks for sleepers: either it sees this one, or this thread sees the job. */
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->published) == seen && !atomic_load(&pool->ends)) {
    pthread_cond_wait(&pool->wake, &pool->mutex);
  }
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
}

static void *serve(void *own) {
  struct pool *pool = own;
  while (!atomic_load(&pool->ends)) {
    uint64_t seen = atomic_load(&pool->published);
    help(pool);
    await(pool, seen);
  }
  return NULL;
}

struct pool *hbtvm_pool_new(int64_t threads) {
  struct pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
  if (!pool) return NULL;
  memset(pool, 0, sizeof *pool);
  pool->thread = calloc(threads > 1 ? (size_t)threads - 1 : 1, sizeof *pool->thread);
  if (!pool->thread) {
    free(pool);
    return NULL;
  }
  pool->threads = threads;
  return pool;
}

static void start_threads(struct pool *pool) {
  for (int i = 0; i < PLACES; ++i) {
    atomic_store(&pool->places[i].job, NULL);
    atomic_store(&pool->places[i].users, 0);
    atomic_flag_clear(&pool->places[i].taken);
  }
  atomic_store(&pool->published, 0);
  atomic_store(&pool->sleepers, 0);
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  /* On one CPU, spinning starves the workers. */
  int several = sched_getaffinity(0, sizeof cpus, &cpus) || CPU_COUNT(&cpus) > 1;
  pool->spins = several ? SPIN_NANOSECONDS : 0;
  /* Signals are for the program's threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pool->started = 0;
  while (pool->started < pool->threads - 1) {
    if (pthread_create(&pool->thread[pool->started], NULL, serve, pool)) break;
    ++pool->started;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Return whether this process has threads; start them if there are none yet. */
static int is_ready(struct pool *pool) {
  int64_t own = getpid(), found = atomic_load(&pool->process);
  if (found == own) return 1;
  /* Either there were no threads, or this is a forked child: then only this thread, and threads that it started since,
   * know the pool. */
  if (found == -own || !atomic_compare_exchange_strong(&pool->process, &found, -own)) return 0;
  start_threads(pool);
  atomic_store(&pool->process, own);
  return 1;
}

void hbtvm_pool_free(struct pool *pool) {
  if (!pool) return;
  if (atomic_load(&pool->process) == getpid()) {
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->ends, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (int64_t i = 0; i < pool->started; ++i) pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
  }
  free(pool->thread);
  free(pool);
}

static struct place_of_job *free_place(struct pool *pool) {
  for (int i = 0; i < PLACES; ++i) {
    if (!atomic_flag_test_and_set(&pool->places[i].taken)) return &pool->places[i];
  }
  return NULL;
}

static void wake(struct pool *pool, int64_t helpers) {
  int64_t sleepers = atomic_load(&pool->sleepers);
  if (!sleepers) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
  if (helpers >= sleepers) {
    pthread_cond_broadcast(&pool->wake);
  } else {
    while (helpers-- > 0) pthread_cond_signal(&pool->wake);
  }
}

void hbtvm_pool_run(struct pool *pool, pool_work *work, void *context, int64_t count, int64_t threads) {
  int64_t helpers = threads < count ? threads - 1 : count - 1;
  struct place_of_job *place = NULL;
  if (pool && helpers > 0 && is_ready(pool)) {
    if (helpers > pool->started) helpers = pool->started;
    if (helpers > 0) place = free_place(pool);
  }
  if (!place) {
    for (int64_t i = 0; i < count; ++i) work(context, i);
    return;
  }
  struct job job = {.work = work, .context = context, .count = count};
  atomic_store(&job.seats, helpers);
  atomic_store(&place->job, &job);
  atomic_fetch_add(&pool->published, 1);
  wake(pool, helpers);
  take(&job);
  atomic_store(&place->job, NULL);
  for (int i = 0; atomic_load_explicit(&place->users, memory_order_acquire); ++i) {
    if (i < PATIENCE) {
      pause_briefly();
    } else {
      sched_yield();
    }
  }
  atomic_flag_clear(&place->taken);
}
