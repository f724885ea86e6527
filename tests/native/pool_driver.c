/* The executor's thread pool: each piece of each job runs exactly once, whoever calls, forks or sleeps. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "executor/pool.h"

#define MOST 300

struct job {
  _Atomic int done[MOST];
  _Atomic int64_t sum;
};

static void piece(void *context, int64_t i) {
  struct job *job = context;
  atomic_fetch_add(&job->done[i], 1);
  atomic_fetch_add(&job->sum, i + 1);
}

static void expect(int good, const char *what, int64_t count, int64_t threads) {
  if (good) return;
  fprintf(stderr, "%s: %ld pieces on %ld threads\n", what, (long)count, (long)threads);
  exit(1);
}

static void run(struct pool *pool, int64_t count, int64_t threads) {
  struct job job = {.sum = 0};
  hbtvm_pool_run(pool, piece, &job, count, threads);
  for (int64_t i = 0; i < MOST; ++i) expect(job.done[i] == (i < count), "pieces done", count, threads);
  expect(job.sum == count * (count + 1) / 2, "sum", count, threads);
}

static void pause_for(long nanoseconds) {
  struct timespec t = {0, nanoseconds};
  nanosleep(&t, NULL);
}

/* A caller of its own: with sleeps in between, longer and shorter than helpers look out for work. */
static void *call(void *own) {
  struct pool *pool = own;
  for (int64_t round = 0; round < 200; ++round) {
    run(pool, round % 7 * 11, 1 + round % 5);
    if (round % 20 == 0) pause_for(300000);
    if (round % 20 == 10) pause_for(20000);
  }
  return NULL;
}

static void fork_and_run(struct pool *pool) {
  pid_t child = fork();
  if (child == 0) {
    run(pool, 100, 3);
    call(pool);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect(status == 0, "a forked child failed", 0, 0);
}

static struct pool *others;

/* A piece that has work of its own to share, with another pool and with none. */
static void nested(void *context, int64_t i) {
  (void)context;
  run(others, 10 + i, 2);
  run(NULL, 5, 4);
}

int main(int argc, char **argv) {
  (void)argv;
  int64_t sizes[] = {1, 2, 3, 8};
  for (int s = 0; s < 4; ++s) {
    struct pool *pool = hbtvm_pool_new(sizes[s]);
    if (s == 3) hbtvm_pool_free(hbtvm_pool_new(4)); /* one that never ran */
    for (int64_t count = 0; count <= MOST; count += 1 + count / 3) {
      for (int64_t threads = 1; threads < 10; threads += 2) run(pool, count, threads);
    }
    pthread_t callers[4];
    for (int i = 0; i < 4; ++i) pthread_create(&callers[i], NULL, call, pool);
    for (int i = 0; i < 4; ++i) pthread_join(callers[i], NULL);
    if (argc == 1) fork_and_run(pool);
    run(pool, 50, sizes[s]);
    others = hbtvm_pool_new(2);
    hbtvm_pool_run(pool, nested, NULL, 20, sizes[s]);
    hbtvm_pool_free(others);
    if (s % 2) pause_for(1000000); /* helpers sleep when it ends, or are awake */
    hbtvm_pool_free(pool);
  }
  hbtvm_pool_free(NULL);
  puts("right");
  return 0;
}
