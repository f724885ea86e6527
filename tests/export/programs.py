"""A program that uses two libraries at once, from several threads, and in a forked child."""

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "first.h"
#include "second.h"

#define ROWS 5000
#define SINGLE 200
#define CALLERS 3
#define ROUNDS 6

static double rows[ROWS * FIRST_COLUMNS];
static float narrow[ROWS * FIRST_COLUMNS];
static int64_t labels[ROWS];
static double shares[ROWS * FIRST_PREDICT_PROBA_COLUMNS], numbers[ROWS];
static first_model *first;
static second_model *second;

static void check(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(3);
}

/* Compute everything again, in parts of other sizes, and compare. */
static void repeat(int round, int threads) {
  double *s = (double *)malloc(sizeof shares), *x = (double *)malloc(sizeof numbers);
  int64_t *l = (int64_t *)malloc(sizeof labels);
  check(s && x && l, "memory");
  const int64_t width = FIRST_PREDICT_PROBA_COLUMNS;
  int64_t step = round % 3 == 0 ? ROWS : round % 3 == 1 ? 370 : 1;
  for (int64_t i = 0, n; i < ROWS; i += n) {
    /* Row by row some of them, all others at once. */
    n = step == 1 && i == SINGLE ? ROWS - i : ROWS - i < step ? ROWS - i : step;
    const double *from = rows + i * FIRST_COLUMNS;
    check(first_predict_proba_f64(first, from, n, s + i * width, threads, NULL) == FIRST_OK, "predict_proba");
    check(first_predict_class_f64(first, from, n, l + i, threads, NULL) == FIRST_OK, "predict_class");
    check(second_predict_f64(second, from, n, x + i, threads, NULL) == SECOND_OK, "predict");
  }
  check(!memcmp(s, shares, sizeof shares), "probabilities");
  check(!memcmp(l, labels, sizeof labels), "labels");
  check(!memcmp(x, numbers, sizeof numbers), "numbers");
  free(s);
  free(x);
  free(l);
}

static void *caller(void *own) {
  int number = *(int *)own;
  for (int round = 0; round < ROUNDS; ++round) repeat(round + number, number % 3);
  return NULL;
}

static void from_threads(void) {
  pthread_t threads[CALLERS];
  int number[CALLERS];
  for (int i = 0; i < CALLERS; ++i) {
    number[i] = i;
    check(!pthread_create(&threads[i], NULL, caller, &number[i]), "pthread_create");
  }
  for (int i = 0; i < CALLERS; ++i) pthread_join(threads[i], NULL);
}

static void errors(void) {
  first_error error;
  rows[5 * FIRST_COLUMNS + 2] = strtod("nan", NULL);
  check(second_predict_f64(second, rows, ROWS, numbers, 0, NULL) == SECOND_ERROR_NAN, "NaN");
  second_error wrong;
  check(second_predict_f64(second, rows, ROWS, numbers, 2, &wrong) == wrong.code, "code");
  check(wrong.row == 5 && wrong.column == 2, "place");
  check(first_predict_class_f64(NULL, rows, 1, labels, 0, &error) == FIRST_ERROR_ARGUMENT, "no model");
  check(first_predict_class_f64(first, rows, -1, labels, 0, &error) == FIRST_ERROR_ARGUMENT, "rows below 0");
  check(first_predict_class_f64(first, NULL, 1, labels, 0, &error) == FIRST_ERROR_ARGUMENT, "no rows");
  check(first_predict_class_f64(first, rows, 1, NULL, 0, &error) == FIRST_ERROR_ARGUMENT, "nowhere to write");
  check(first_predict_class_f64(first, rows, 1, labels, -1, &error) == FIRST_ERROR_ARGUMENT, "threads");
  check(error.row == -1 && error.column == -1, "no place");
  check(first_predict_class_f64(first, NULL, 0, NULL, 0, &error) == FIRST_OK, "no rows are right");
  check(error.code == FIRST_OK, "no error");
  check(!first_open(-1) && !first_cpu_lacks(), "open");
}

static void facts(void) {
  check(first_abi_version() == FIRST_ABI_VERSION && first_columns() == FIRST_COLUMNS, "facts");
  check(first_classes() == FIRST_PREDICT_PROBA_COLUMNS && !first_class_name(first_classes()), "classes");
  check(!strcmp(first_class_name(0), "high \"\\ \303\251") && !first_class_name(-1), "names of classes");
  check(!strcmp(first_column_name(1), "b") && !second_column_name(0) && !first_column_name(4), "columns");
  check(first_outputs() > 1 && !strcmp(first_output_name(1), "predict_proba"), "outputs");
  check(!first_output_name(first_outputs()) && !first_output_name(-1), "names of outputs");
  check(first_output_columns(1) == FIRST_PREDICT_PROBA_COLUMNS && first_output_columns(9) == -1, "widths");
  check(strstr(first_message(FIRST_ERROR_NAN), "NaN") && first_message(-5), "messages");
}

int main(int count, char **given) {
  unsigned state = 1;
  for (int i = 0; i < ROWS * FIRST_COLUMNS; ++i) {
    state = state * 1103515245u + 12345u;
    narrow[i] = (float)((state >> 16) % 4096) / 1024.0f - 2.0f;
    rows[i] = (double)narrow[i];
  }
  first = first_open(2);
  second = second_open(2);
  check(first && second, "open");
  facts();
  check(first_predict_proba_f64(first, rows, ROWS, shares, 1, NULL) == FIRST_OK, "predict_proba");
  check(first_predict_class_f64(first, rows, ROWS, labels, 1, NULL) == FIRST_OK, "predict_class");
  check(second_predict_f64(second, rows, ROWS, numbers, 1, NULL) == SECOND_OK, "predict");
  repeat(0, 2);
  if (count > 1 && !strcmp(given[1], "fork")) {
    for (int i = 0; i < 2; ++i) {
      /* Sanitizers hold locks of their own, over a fork, too, while another thread begins. */
      usleep(50000);
      pid_t child = fork();
      if (!child) {
        from_threads();
        first_close(first);
        second_close(second);
        _exit(0);
      }
      int status = 0;
      check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "the child");
    }
  }
  from_threads();
  double sum = 0;
  for (int i = 0; i < ROWS; ++i) {
    sum += numbers[i] + (double)labels[i] * shares[i * FIRST_PREDICT_PROBA_COLUMNS];
  }
  printf("%a\n", sum);
  errors();
  first_close(first);
  first_close(NULL);
  second_close(second);
  return 0;
}
"""
"""Written in what C and C++ have in common."""
