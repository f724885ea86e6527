/* The whole executor on kernels that compute something simple: rows, trees, epilogues, refusals, errors, threads. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor_cases.h"

static const int64_t SIZES[] = {0, 1, 3, 4, 5, 22, 300, 3001};

/* All kinds of kernels: types of rows and scores, their layout, row tiles, outputs, and what threads share. */
static void any_kernel(void) {
  for (int kind = 0; kind < 2 * 3 * 2 * 2 * 3 * 2; ++kind) {
    int64_t type = kind % 2, layout = kind / 2 % 3, tile = kind / 6 % 2 ? 4 : 1, outputs = kind / 12 % 2 ? 4 : 1;
    int64_t over = kind / 24 % 3, threads = kind / 72 ? 3 : 1;
    struct fake *fake = fake_of(type, 3, tile, outputs);
    fake->kernel.over = over;
    fake->kernel.type = layout == 2 ? HBTVM_F32 : HBTVM_F64;
    fake->kernel.by_row = layout != 1;
    if (layout == 1 && outputs == 4) fake->kernel.groups = fake->kernel.width = 2;
    struct whole *whole = whole_of(fake, NULL);
    if (kind % 5 > 1) {
      whole->model.base = whole->base;
      whole->model.divisor = 2;
    }
    struct executor *executor = hbtvm_open(&whole->model, threads);
    EXPECT(executor && hbtvm_check(executor) == -1);
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; ++s) {
      run_and_compare(executor, whole, type, SIZES[s], 0);
      run_and_compare(executor, whole, type, SIZES[s], 1 + (int64_t)s % 3);
    }
    if (over == HBTVM_OVER_TREES && threads == 3 && fake->kernel.type == HBTVM_F64) {
      /* Sums of all parts of a block stay in the cache. */
      EXPECT(atomic_load(&fake->most_rows) * outputs * 3 * 8 <= HBTVM_BLOCK_BYTES);
    }
    hbtvm_close(executor);
    free_whole(whole);
  }
}

/* Several threads are at work on a call, for certain. */
static void threads_work(void) {
  for (int64_t over = 0; over < 3; ++over) {
    struct fake *fake = fake_of(HBTVM_F32, 3, 4, 1);
    fake->kernel.over = over;
    fake->meets = 2;
    struct whole *whole = whole_of(fake, NULL);
    struct executor *executor = hbtvm_open(&whole->model, 2);
    run_and_compare(executor, whole, HBTVM_F32, over == HBTVM_OVER_TREES ? 3 : 5000, 0);
    EXPECT(atomic_load(&fake->met));
    hbtvm_close(executor);
    free_whole(whole);
  }
}

static void refusals(void) {
  static const uint8_t refuses[] = {HBTVM_REFUSES_NAN, HBTVM_REFUSES_INFINITY, 3};
  static const double values[] = {NAN, INFINITY, -INFINITY};
  for (int kind = 0; kind < 2 * 3 * 2 * 2; ++kind) {
    int64_t type = kind % 2, telling = kind / 2 % 3, threads = kind / 6 % 2 ? 3 : 1, n = kind / 12 ? 15000 : 50;
    struct fake *fake = fake_of(type, 3, 4, 1);
    struct whole *whole = whole_of(fake, NULL);
    whole->model.refuses = refuses;
    whole->model.telling = telling;
    struct executor *executor = hbtvm_open(&whole->model, threads);
    struct rows rows = rows_of(type, n, 3);
    double *out = memory_of(n * 8);
    for (int64_t at = 0; at < 9; ++at) {
      int64_t row = at / 3 * (n - 1) / 2, column = at % 3;
      for (int v = 0; v < 3; ++v) {
        double before = set_value(&rows, row, column, values[v]);
        struct place place = {-1, -1};
        int status = hbtvm_run(executor, NULL, type, rows.data, n, out, 0, &place);
        int refused = refuses[column] & (v ? HBTVM_REFUSES_INFINITY : HBTVM_REFUSES_NAN);
        EXPECT(status == (!refused ? HBTVM_OK : v ? HBTVM_REFUSED_INFINITY : HBTVM_REFUSED_NAN));
        EXPECT(place.row == (refused ? row : -1) && place.column == (refused ? column : -1));
        EXPECT(hbtvm_sums(executor, type, rows.data, n, out, 0) == HBTVM_OK);
        set_value(&rows, row, column, before);
      }
    }
    run_and_compare(executor, whole, type, n, 0);
    hbtvm_close(executor);
    free(out);
    free(rows.data);
    free(rows.values);
    free_whole(whole);
  }
}

/* Rows without missing values have a kernel of their own: of short calls all, of long ones the blocks without. */
static void missing_values(void) {
  for (int64_t threads = 1; threads < 4; ++threads) {
    struct fake *complete = fake_of(HBTVM_F64, 3, 4, 1), *general = fake_of(HBTVM_F64, 3, 4, 1);
    complete->kernel.takes_missing = 0;
    general->factor = 2;
    struct whole *whole = whole_of(complete, general);
    struct executor *executor = hbtvm_open(&whole->model, threads);
    static const int64_t sizes[] = {1, 1000, 200000};
    for (int s = 0; s < 3; ++s) {
      int64_t n = sizes[s], changed = 0;
      struct rows rows = rows_of(HBTVM_F64, n, 3);
      double *out = memory_of(n * 8);
      EXPECT(!hbtvm_run(executor, NULL, HBTVM_F64, rows.data, n, out, 0, NULL));
      for (int64_t r = 0; r < n; ++r) EXPECT(out[r] == fake_score(complete, rows.values + 3 * r, 0));
      set_value(&rows, n / 2, 1, NAN);
      EXPECT(!hbtvm_run(executor, NULL, HBTVM_F64, rows.data, n, out, 0, NULL));
      for (int64_t r = 0; r < n; ++r) {
        double once = fake_score(complete, rows.values + 3 * r, 0);
        if (r != n / 2) EXPECT(out[r] == once || out[r] == 2 * once);
        changed += out[r] != once;
        if (s < 2 && r != n / 2) EXPECT(out[r] == 2 * once);
      }
      /* Of 24 bytes a row, 256 kB are less than 11,000. */
      EXPECT(isnan(out[n / 2]) && changed <= (s < 2 ? n : 11000) && changed >= (s ? 500 : 1));
      free(out);
      free(rows.data);
      free(rows.values);
    }
    hbtvm_close(executor);
    free_whole(whole);
  }
}

static void epilogues(void) {
  static const int64_t ends[] = {3}, labels[] = {0, 2};
  struct fake *fake = fake_of(HBTVM_F32, 3, 4, 3);
  struct whole *whole = whole_of(fake, NULL);
  struct executor *executor = hbtvm_open(&whole->model, 3);
  int64_t n = 3000;
  struct rows rows = rows_of(HBTVM_F32, n, 3);
  float *two = memory_of(n * 8);
  struct epilogue cut = {.type = HBTVM_F32, .row_bytes = 8, .plain = 1, .first = 1, .last = 3, .columns = 2};
  EXPECT(!hbtvm_run(executor, &cut, HBTVM_F32, rows.data, n, two, 0, NULL));
  int64_t *numbers = memory_of(n * 8);
  struct epilogue largest = {.type = HBTVM_I64, .row_bytes = 8, .last = 3, .columns = 1, .rule = HBTVM_LARGEST,
                             .targets = 1, .ends = ends};
  EXPECT(!hbtvm_run(executor, &largest, HBTVM_F32, rows.data, n, numbers, 0, NULL));
  for (int64_t r = 0; r < n; ++r) {
    double one = fake_score(fake, rows.values + 3 * r, 0);
    EXPECT(two[2 * r] == (float)(2 * one) && two[2 * r + 1] == (float)(3 * one));
    EXPECT(numbers[r] == (one > 0 ? 2 : 0));
  }
  /* The first score as the position of one of two labels: other numbers have none. */
  struct epilogue position = {.type = HBTVM_I64, .row_bytes = 8, .last = 1, .columns = 1, .rule = HBTVM_VALUES,
                              .targets = 1, .labels = labels, .item = 8};
  for (int64_t i = 0; i < 3 * n; ++i) ((float *)rows.data)[i] = 0;
  struct place place = {-1, -1};
  EXPECT(!hbtvm_run(executor, &position, HBTVM_F32, rows.data, n, numbers, 0, &place));
  for (int64_t at = 0; at < n; at += 999) {
    set_value(&rows, at, 0, 1000);
    EXPECT(hbtvm_run(executor, &position, HBTVM_F32, rows.data, n, numbers, 0, &place) == HBTVM_NO_LABEL);
    EXPECT(place.row == at);
    set_value(&rows, at, 0, 0);
  }
  hbtvm_close(executor);
  free(two);
  free(numbers);
  free(rows.data);
  free(rows.values);
  free_whole(whole);
}

static void errors(void) {
  for (int64_t over = 0; over < 3; ++over) {
    struct fake *good = fake_of(HBTVM_F32, 3, 4, 1), *bad = fake_of(HBTVM_F32, 3, 4, 1);
    bad->kernel.rows = 100000;
    bad->kernel.over = over;
    bad->fails = 1;
    struct whole *whole = whole_of(good, bad);
    struct executor *executor = hbtvm_open(&whole->model, 3);
    EXPECT(hbtvm_check(executor) == 1);
    struct rows rows = rows_of(HBTVM_F32, 100000, 3);
    double *out = memory_of(100000 * 8);
    for (int again = 0; again < 3; ++again) {
      EXPECT(hbtvm_run(executor, NULL, HBTVM_F32, rows.data, 100000, out, 0, NULL) == HBTVM_KERNEL_FAILED);
      run_and_compare(executor, whole, HBTVM_F32, 300, 0);
    }
    EXPECT(hbtvm_run(executor, NULL, HBTVM_F64, rows.data, 1, out, 0, NULL) == HBTVM_NO_KERNEL);
    EXPECT(hbtvm_run(executor, NULL, HBTVM_I64, rows.data, 1, out, 0, NULL) == HBTVM_BAD_ARGUMENT);
    EXPECT(hbtvm_run(executor, NULL, HBTVM_F32, rows.data, -1, out, 0, NULL) == HBTVM_BAD_ARGUMENT);
    EXPECT(hbtvm_run(executor, NULL, HBTVM_F32, NULL, 1, out, 0, NULL) == HBTVM_BAD_ARGUMENT);
    EXPECT(hbtvm_run(executor, NULL, HBTVM_F32, rows.data, 1, NULL, 0, NULL) == HBTVM_BAD_ARGUMENT);
    EXPECT(hbtvm_run(executor, NULL, HBTVM_F32, NULL, 0, NULL, 0, NULL) == HBTVM_OK);
    hbtvm_close(executor);
    whole->model.version = HBTVM_EXECUTOR_VERSION + 1;
    EXPECT(!hbtvm_open(&whole->model, 1));
    free(rows.data);
    free(rows.values);
    free(out);
    free_whole(whole);
  }
  hbtvm_close(NULL);
}

int main(int argc, char **argv) {
  (void)argv;
  any_kernel();
  threads_work();
  refusals();
  missing_values();
  epilogues();
  errors();
  stages();
  no_memory();
  callers();
  if (argc == 1) forks();
  puts("right");
  return 0;
}
