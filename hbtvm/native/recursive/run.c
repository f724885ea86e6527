/* Computation of groups of structures level by level, by one thread or by a team that shares each level. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "recursive/internal.h"

/* A thread waits this many pauses for the others before it yields its CPU between checks. */
#define PATIENCE 2000

/* The work between two barriers: a step of a level, or a stage of several levels. */
struct work {
  struct level level;        /* for a stage: the location of its group */
  const struct parts *parts; /* null for a level */
  int64_t number;            /* number of the step or stage */
};

/* A team of threads that share levels. The leader opens one phase after another, and continues when a phase is done.
 * Each member takes its own part of a phase, and then the remaining parts. A late or preempted thread therefore
 * joins later phases, and delays the others only by a part that it has started. */
struct team {
  struct recursive_call *call;
  pthread_t leader;
  struct work work;   /* written between phases */
  int64_t members;    /* number of parts of the phase */
  _Alignas(64) _Atomic int64_t joined;
  _Alignas(64) _Atomic uint64_t phase; /* the phase's number, and in the low bits one bit for each untaken part */
  _Alignas(64) _Atomic int64_t done;   /* parts that members have completed, without the leader's */
};

#define PART_BITS 32
#define MEMBERS PART_BITS
#define ENDED (~UINT64_C(0) << PART_BITS)

static inline void pause_briefly(int64_t *pauses) {
  if (++*pauses > PATIENCE) {
    sched_yield();
    return;
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

static void fail(struct recursive_call *call, int status) {
  int none = HBTVM_OK;
  atomic_compare_exchange_strong(&call->status, &none, status);
}

/* Run part k of m of a phase: of a stage, or of a main step and the tail step of the same number. */
static void run_part(struct recursive_call *call, struct recursive_worker *worker, const struct work *work, int64_t k,
                     int64_t m) {
  int status;
  if (work->parts) {
    status = hbtvm_run_parts(worker, &work->level, work->parts, work->number, k, m);
  } else {
    status = hbtvm_step_part(worker, &work->level, 0, work->number, k, m);
    if (!status) status = hbtvm_step_part(worker, &work->level, 1, work->number, k, m);
  }
  if (status) fail(call, status);
}

/* Return whether only one thread has work in a phase. */
static int is_for_one(const struct recursive_call *call, const struct work *work) {
  if (work->parts) return work->parts->part[work->number + 1] - work->parts->part[work->number] < 2;
  int64_t share = call->recursive->model->kernels[call->kernels].share;
  return share == HBTVM_NODES && work->level.main + work->level.tail < 2;
}

/* Take a part of the phase, the thread's own part if it is free; -1 if none is left. */
static int64_t take(struct team *team, int64_t own) {
  uint64_t phase = atomic_load_explicit(&team->phase, memory_order_acquire);
  while ((uint32_t)phase) {
    int64_t part = phase >> own & 1 ? own : __builtin_ctz((uint32_t)phase);
    uint64_t rest = phase & ~(UINT64_C(1) << part);
    if (atomic_compare_exchange_weak_explicit(&team->phase, &phase, rest, memory_order_acq_rel, memory_order_acquire)) {
      return part;
    }
  }
  return -1;
}

static void run_together(struct team *team, struct recursive_worker *worker) {
  int64_t members = 1 + atomic_load_explicit(&team->joined, memory_order_relaxed);
  struct recursive_call *call = team->call;
  if (members < 2 || is_for_one(call, &team->work)) {
    run_part(call, worker, &team->work, 0, 1);
    return;
  }
  if (members > MEMBERS) members = MEMBERS;
  team->members = members;
  atomic_store_explicit(&team->done, 0, memory_order_relaxed);
  uint64_t number = (atomic_load_explicit(&team->phase, memory_order_relaxed) >> PART_BITS) + 1;
  uint64_t others = (UINT64_C(1) << members) - 2;
  atomic_store_explicit(&team->phase, number << PART_BITS | others, memory_order_release);
  int64_t part = 0, own = 0, pauses = 0;
  for (; part >= 0; part = take(team, 1), ++own) run_part(call, worker, &team->work, part, members);
  while (atomic_load_explicit(&team->done, memory_order_acquire) < members - own) pause_briefly(&pauses);
}

/* Join the phases of a call until it ends. */
static void follow(struct team *team) {
  struct recursive_call *call = team->call;
  struct recursive_worker *worker = hbtvm_recursive_take(call->recursive);
  if (!worker) return;
  int64_t own = 1 + atomic_fetch_add(&team->joined, 1), pauses = 0;
  if (own >= MEMBERS) own = MEMBERS - 1;
  while (atomic_load_explicit(&team->phase, memory_order_relaxed) != ENDED) {
    int64_t part = take(team, own);
    if (part < 0) {
      pause_briefly(&pauses);
      continue;
    }
    run_part(call, worker, &team->work, part, team->members);
    atomic_fetch_add_explicit(&team->done, 1, memory_order_acq_rel);
    pauses = 0;
  }
  hbtvm_recursive_give(call->recursive, worker);
}

/* Allocate states and scratch memory of a group, and clear the zero row. 0 if memory is short. */
static int make_room(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                     struct work *work) {
  struct recursive *recursive = call->recursive;
  struct level *level = &work->level;
  size_t row_bytes = (size_t)recursive->model->width * sizeof(float), scratch = 0;
  level->rows = work->parts ? work->parts->rows : group->nodes + 1 + recursive->spare;
  level->state = hbtvm_reserve(&worker->state, (size_t)level->rows * row_bytes);
  /* Parts use each thread's scratch memory. */
  for (int64_t l = 0; !work->parts && l < group->levels; ++l) {
    int64_t nodes = group->start[l + 1] - group->start[l];
    int64_t class = class_of(&recursive->model->kernels[call->kernels], l);
    size_t numbers = (size_t)hbtvm_scratch_numbers(recursive, call->kernels, class, nodes);
    if (numbers > scratch) scratch = numbers;
  }
  level->scratch = hbtvm_reserve(&worker->scratch, scratch * sizeof(float));
  if (!level->state || !level->scratch) return 0;
  if (recursive->poison) {
    memset(level->state, 0xff, (size_t)level->rows * row_bytes);
    memset(level->scratch, 0xff, scratch * sizeof(float));
  }
  memset(level->state, 0, row_bytes);
  return 1;
}

static void set_level(struct level *level, const struct group *group, int64_t l) {
  const struct recursive_call *call = level->call;
  const struct recursive_model *model = call->recursive->model;
  ++level->serial;
  level->program = class_of(&model->kernels[call->kernels], l);
  level->row = group->start[l];
  level->nodes = group->start[l + 1] - group->start[l];
  level->node = call->linear.node + group->first_node + level->row - 1;
  split_level(&model->kernels[call->kernels].program[level->program], level->nodes, &level->main, &level->tail);
}

/* Do a piece of work, with a team if there is one; return whether it and all earlier work succeeded. */
static int run_work(struct recursive_call *call, struct recursive_worker *worker, struct team *team,
                    struct work *work, int64_t number) {
  work->number = number;
  if (team) {
    run_together(team, worker);
  } else {
    int64_t parts = call->recursive->poison > 1 ? call->recursive->poison : 1;
    for (int64_t k = parts - 1; k >= 0; --k) run_part(call, worker, work, k, parts);
  }
  return !atomic_load_explicit(&call->status, memory_order_relaxed);
}

static int run_levels(struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                      struct team *team, struct work *work) {
  const struct recursive_kernels *kernels = &call->recursive->model->kernels[call->kernels];
  for (int64_t l = 0; l < group->levels; ++l) {
    set_level(&work->level, group, l);
    const struct recursive_program *program = &kernels->program[work->level.program];
    int64_t steps = program->main.count > program->tail.count ? program->main.count : program->tail.count;
    for (int64_t step = 0; step < steps; ++step) {
      if (!run_work(call, worker, team, work, step)) return 0;
    }
  }
  return 1;
}

static int run_stages(struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                      struct team *team, struct work *work) {
  const struct parts *parts = work->parts;
  work->level.node = call->linear.node + group->first_node;
  for (int64_t s = 0; s < parts->stages; ++s) {
    if (!run_work(call, worker, team, work, s)) return 0;
  }
  /* Each piece had its own number. */
  work->level.serial += parts->part[parts->stages] * parts->depth;
  return 1;
}

/* Compute one group, with a team if there is one. `work` is the team's, or the caller's. */
static void run_group(struct recursive_call *call, struct recursive_worker *worker, int64_t g, struct team *team,
                      struct work *work) {
  const struct cut *start = &call->linear.start[g];
  struct group group = {start[0].structures, start[1].structures, start[0].nodes, 0, 0, NULL};
  struct level *level = &work->level;
  struct parts parts;
  if (group.first == group.stop) return;
  level->call = call;
  int way = HBTVM_NO_PARTS;
  if (hbtvm_group(call->batch, worker, &call->linear, &group)) way = hbtvm_parts(call, worker, &group, &parts);
  work->parts = way == HBTVM_BY_PARTS ? &parts : NULL;
  if (way == HBTVM_NO_PARTS || !make_room(call, worker, &group, work)) {
    fail(call, HBTVM_NO_MEMORY);
    return;
  }
  int done = work->parts ? run_stages(call, worker, &group, team, work) : run_levels(call, worker, &group, team, work);
  if (!done) return;
  int status = hbtvm_read_out(call, worker, &group, level->state);
  if (status) fail(call, status);
}

/* Compute one group alone. */
static void run_structures(void *context, int64_t g) {
  struct recursive_call *call = context;
  if (atomic_load_explicit(&call->status, memory_order_relaxed)) return;
  struct recursive_worker *worker = hbtvm_recursive_take(call->recursive);
  if (!worker) {
    fail(call, HBTVM_NO_MEMORY);
    return;
  }
  struct work work = {0};
  run_group(call, worker, g, NULL, &work);
  hbtvm_recursive_give(call->recursive, worker);
}

/* Compute all groups, one after the other. */
static void run_all(struct recursive_call *call, struct team *team, struct work *work) {
  for (int64_t g = 0; g < call->groups && !atomic_load(&call->status); ++g) {
    run_group(call, call->worker, g, team, work);
  }
}

/* Lead or follow: the calling thread leads, whichever piece of the pool's work it takes first. */
static void take_part(void *context, int64_t i) {
  struct team *team = context;
  (void)i;
  if (atomic_load_explicit(&team->phase, memory_order_acquire) == ENDED) return;
  if (pthread_equal(pthread_self(), team->leader)) {
    run_all(team->call, team, &team->work);
    atomic_store_explicit(&team->phase, ENDED, memory_order_release);
  } else {
    follow(team);
  }
}

void hbtvm_run_groups(struct recursive_call *call) {
  struct recursive *recursive = call->recursive;
  const struct recursive_kernels *kernels = &recursive->model->kernels[call->kernels];
  hbtvm_choose_groups(call);
  int64_t threads = kernels->share == HBTVM_NOTHING || recursive->poison > 1 ? 1 : call->threads;
  if (call->groups < 2 && kernels->share == HBTVM_STRUCTURES) threads = 1;
  if (threads < 2) {
    struct work work = {0};
    run_all(call, NULL, &work);
  } else if (kernels->share == HBTVM_STRUCTURES) {
    hbtvm_pool_run(recursive->pool, run_structures, call, call->groups, threads);
  } else {
    if (threads > MEMBERS) threads = MEMBERS;
    struct team team = {.call = call, .leader = pthread_self()};
    hbtvm_pool_run(recursive->pool, take_part, &team, threads, threads);
  }
}
