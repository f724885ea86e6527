/* Models of fake kernels; cases of staged models, of lacking memory, of several callers and forked children. */
#define _GNU_SOURCE
#include "executor_cases.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 40, ROUNDS = 8 };

_Atomic int64_t allocations_left = -1;

void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static int fails_now(void) {
  int64_t left = atomic_load(&allocations_left);
  return left >= 0 && (left == 0 || atomic_fetch_sub(&allocations_left, 1) <= 0);
}

void *__wrap_calloc(size_t count, size_t bytes) { return fails_now() ? NULL : __real_calloc(count, bytes); }

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return fails_now() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *memory_of(int64_t bytes) {
  void *memory = malloc(bytes ? (size_t)bytes : 1);
  EXPECT(memory);
  return memory;
}

double set_value(struct rows *rows, int64_t row, int64_t column, double value) {
  int64_t at = row * rows->columns + column;
  double before = value_at(rows->type, rows->data, at);
  if (rows->type == HBTVM_F32) {
    ((float *)rows->data)[at] = (float)value;
  } else {
    ((double *)rows->data)[at] = value;
  }
  return before;
}

struct rows rows_of(int64_t type, int64_t n, int64_t columns) {
  struct rows rows = {type, columns, memory_of(n * columns * item_bytes(type)), memory_of(n * columns * 8)};
  uint32_t state = 12345;
  for (int64_t i = 0; i < n * columns; ++i) {
    state = state * 1664525u + 1013904223u;
    rows.values[i] = (double)(state >> 28) - 8;
    set_value(&rows, i / columns, i % columns, rows.values[i]);
  }
  return rows;
}

struct whole *whole_of(struct fake *first, struct fake *second) {
  struct whole *whole = memory_of(sizeof *whole);
  *whole = (struct whole){.fakes = {first, second}, .kernels = {first->kernel}};
  if (second) whole->kernels[1] = second->kernel;
  int64_t outputs = first->kernel.groups * first->kernel.width;
  whole->set = (struct kernels){whole->kernels, second ? 2 : 1, first->row_type};
  whole->stage = (struct stage){.sets = &whole->set, .count = 1, .read = first->columns, .outputs = outputs};
  whole->model = (struct model){.version = HBTVM_EXECUTOR_VERSION, .columns = first->columns,
                                .stages = &whole->stage, .count = 1, .divisor = 1};
  for (int64_t o = 0; o < outputs; ++o) whole->base[o] = (double)o + 0.5;
  return whole;
}

void free_whole(struct whole *whole) {
  free(whole->fakes[0]);
  free(whole->fakes[1]);
  free(whole);
}

void run_and_compare(struct executor *executor, const struct whole *whole, int64_t type, int64_t n, int64_t threads) {
  const struct model *model = &whole->model;
  int64_t outputs = whole->stage.outputs, bytes = n * outputs * 8;
  struct rows rows = rows_of(type, n, model->columns);
  char *memory = aligned_alloc(64, (size_t)(bytes + 128) / 64 * 64);
  EXPECT(memory);
  /* Aligned or not, and with something behind that nobody overwrites. */
  for (int64_t offset = 0; offset < 16; offset += 8) {
    double *out = (double *)(void *)(memory + offset);
    out[n * outputs] = -0.25;
    struct place place = {-1, -1};
    EXPECT(!hbtvm_run(executor, NULL, type, rows.data, n, out, threads, &place) && place.row == -1);
    for (int64_t i = 0; i < n * outputs; ++i) {
      double sum = fake_score(whole->fakes[0], rows.values + i / outputs * model->columns, i % outputs);
      EXPECT(out[i] == sum / model->divisor + (model->base ? model->base[i % outputs] : 0));
    }
    EXPECT(!hbtvm_sums(executor, type, rows.data, n, out, threads));
    for (int64_t i = 0; i < n * outputs; ++i) {
      EXPECT(out[i] == fake_score(whole->fakes[0], rows.values + i / outputs * model->columns, i % outputs));
    }
    EXPECT(out[n * outputs] == -0.25);
  }
  free(memory);
  free(rows.data);
  free(rows.values);
}

/* Three stages: one for rows of both types, one of two kernels for what that makes, and the last one. */
void stages(void) {
  static const int64_t first[] = {2, 0, 1}, second[] = {3, 4, 1}, third[] = {0, 5};
  static const double base[] = {1, -1};
  for (int kind = 0; kind < 2 * 3; ++kind) {
    int64_t type = kind % 2, threads = 1 + kind / 2;
    struct fake *fakes[] = {fake_of(HBTVM_F32, 3, 4, 2), fake_of(HBTVM_F64, 3, 4, 2), fake_of(HBTVM_F64, 3, 1, 1),
                            fake_of(HBTVM_F64, 3, 8, 1), fake_of(HBTVM_F64, 2, 4, 2)};
    /* One row behind whole tiles of the other kernel goes through this one. */
    fakes[2]->kernel.rows = 1;
    fakes[2]->kernel.seconds = 2e-6;
    fakes[3]->kernel.seconds = 5e-4;
    fakes[4]->kernel.by_row = 0;
    fakes[4]->kernel.over = HBTVM_OVER_TREES;
    struct kernel kernels[5];
    for (int i = 0; i < 5; ++i) kernels[i] = fakes[i]->kernel;
    struct kernels sets[] = {{kernels, 1, HBTVM_F32}, {kernels + 1, 1, HBTVM_F64}, {kernels + 2, 2, HBTVM_F64},
                             {kernels + 4, 1, HBTVM_F64}};
    struct stage all[] = {{sets, 2, first, 3, 2}, {sets + 2, 1, second, 3, 1}, {sets + 3, 1, third, 2, 2}};
    struct model model = {.version = HBTVM_EXECUTOR_VERSION, .columns = 3, .stages = all, .count = 3,
                          .divisor = 1, .base = base};
    struct executor *executor = hbtvm_open(&model, threads);
    EXPECT(executor && hbtvm_check(executor) == -1);
    static const int64_t sizes[] = {0, 1, 15, 17, 64, 257, 2729, 2731, 9001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      int64_t n = sizes[s];
      struct rows rows = rows_of(type, n, 3);
      double *out = memory_of(n * 16);
      fakes[4]->meets = threads > 1 && n > 9000 ? 2 : 0;
      EXPECT(!hbtvm_run(executor, NULL, type, rows.data, n, out, 0, NULL));
      for (int64_t r = 0; r < n; ++r) {
        const double *x = rows.values + 3 * r, one[] = {x[2], x[0], x[1]};
        const double two[] = {fake_score(fakes[0], one, 0), fake_score(fakes[0], one, 1), x[1]};
        const double three[] = {x[0], fake_score(fakes[2], two, 0)};
        for (int64_t o = 0; o < 2; ++o) EXPECT(out[2 * r + o] == fake_score(fakes[4], three, o) + base[o]);
      }
      fakes[3]->fails = 1;
      int status = hbtvm_run(executor, NULL, type, rows.data, n, out, 0, NULL);
      EXPECT(status == (n > 3 ? HBTVM_KERNEL_FAILED : HBTVM_OK));
      fakes[3]->fails = 0;
      free(out);
      free(rows.data);
      free(rows.values);
    }
    EXPECT(atomic_load(&fakes[4]->met) == (threads > 1));
    EXPECT((type == HBTVM_F32) == (atomic_load(&fakes[0]->calls) > 0));
    EXPECT(atomic_load(&fakes[2]->calls) && atomic_load(&fakes[3]->calls));
    hbtvm_close(executor);
    for (int i = 0; i < 5; ++i) free(fakes[i]);
  }
}

/* Each allocation fails once; what was allocated before is freed, and another call works. */
void no_memory(void) {
  for (int64_t kind = 0; kind < 6; ++kind) {
    struct fake *fake = fake_of(HBTVM_F32, 3, 4, 4);
    fake->kernel.over = kind % 3;
    fake->kernel.by_row = kind < 3;
    struct whole *whole = whole_of(fake, NULL);
    whole->model.base = whole->base;
    int64_t n = 3001, failed = 0;
    struct rows rows = rows_of(HBTVM_F32, n, 3);
    double *out = memory_of(n * 32);
    for (int64_t left = 0, done = 0; !done; ++left) {
      EXPECT(left < 1000);
      atomic_store(&allocations_left, left);
      struct executor *executor = hbtvm_open(&whole->model, 3);
      if (!executor) {
        ++failed;
        continue;
      }
      int64_t checked = hbtvm_check(executor);
      int status = hbtvm_run(executor, NULL, HBTVM_F32, rows.data, n, out, 0, NULL);
      EXPECT((checked == -1 || checked == -2) && (status == HBTVM_OK || status == HBTVM_NO_MEMORY));
      done = checked == -1 && !status;
      atomic_store(&allocations_left, -1);
      run_and_compare(executor, whole, HBTVM_F32, 300, 0);
      EXPECT(hbtvm_check(executor) == -1);
      hbtvm_close(executor);
    }
    EXPECT(failed > 5);
    free(out);
    free(rows.data);
    free(rows.values);
    free_whole(whole);
  }
}

struct shared_model {
  struct whole *whole;
  struct executor *executor;
  _Atomic int ends;
};

static void *call_often(void *own) {
  struct shared_model *model = own;
  for (int64_t i = 1; i <= ROUNDS; ++i) run_and_compare(model->executor, model->whole, HBTVM_F32, i * i * 60, i % 4);
  return NULL;
}

/* More callers than threads can help, and than workers are kept for. */
void callers(void) {
  for (int64_t over = 1; over < 3; ++over) {
    struct fake *fake = fake_of(HBTVM_F32, 3, 4, 2);
    fake->kernel.over = over;
    struct shared_model model = {.whole = whole_of(fake, NULL)};
    model.executor = hbtvm_open(&model.whole->model, 3);
    pthread_t threads[CALLERS];
    fake->meets = CALLERS;
    for (int i = 0; i < CALLERS; ++i) EXPECT(!pthread_create(&threads[i], NULL, call_often, &model));
    for (int i = 0; i < CALLERS; ++i) EXPECT(!pthread_join(threads[i], NULL));
    EXPECT(atomic_load(&fake->met));
    hbtvm_close(model.executor);
    free_whole(model.whole);
  }
}

static void *call_until_end(void *own) {
  struct shared_model *model = own;
  while (!atomic_load(&model->ends)) run_and_compare(model->executor, model->whole, HBTVM_F32, 3000, 0);
  return NULL;
}

/* Children of a process of which other threads are in the midst of calls. */
void forks(void) {
  struct shared_model model = {.whole = whole_of(fake_of(HBTVM_F32, 3, 4, 2), NULL)};
  model.executor = hbtvm_open(&model.whole->model, 3);
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) EXPECT(!pthread_create(&threads[i], NULL, call_until_end, &model));
  for (int i = 0; i < 20; ++i) {
    pid_t child = fork();
    if (child == 0) {
      for (int again = 0; again < 3; ++again) run_and_compare(model.executor, model.whole, HBTVM_F32, 5000, 0);
      hbtvm_close(model.executor);
      _exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
  }
  atomic_store(&model.ends, 1);
  for (int i = 0; i < 2; ++i) EXPECT(!pthread_join(threads[i], NULL));
  hbtvm_close(model.executor);
  free_whole(model.whole);
}
