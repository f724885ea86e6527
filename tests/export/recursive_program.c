#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "nodes.h"

#define STRUCTURES 40
#define SIZE 5
#define NODES (STRUCTURES * SIZE)
#define WIDTH CLASSES_PREDICT_PROBA_COLUMNS
#define CALLERS 3

static int64_t starts[STRUCTURES + 1];
static int32_t first[NODES + 1], child[NODES], word[NODES];
static float vector[NODES * 3], states[NODES * NODES_PREDICT_COLUMNS];
static double shares[STRUCTURES * WIDTH];
static classes_model *classes;
static nodes_model *nodes;
static classes_structures given;
static nodes_structures plain;

static void check(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(3);
}

static void *caller(void *own) {
  int threads = *(int *)own;
  double *s = (double *)malloc(sizeof shares);
  float *x = (float *)malloc(sizeof states);
  for (int round = 0; round < 5; ++round) {
    int64_t results = STRUCTURES, all = NODES;
    check(classes_predict_proba(classes, &given, s, &results, threads, NULL) == CLASSES_OK, "predict_proba");
    check(nodes_predict(nodes, &plain, x, &all, threads, NULL) == NODES_OK, "predict");
    check(results == STRUCTURES && !memcmp(s, shares, sizeof shares), "probabilities");
    check(all == NODES && !memcmp(x, states, sizeof states), "states");
  }
  free(s);
  free(x);
  return NULL;
}

/* Each structure: two leaves and their parent, whose child it is with another leaf. */
static void fill(void) {
  int32_t edge = 0;
  for (int32_t v = 0; v < NODES; ++v) {
    int32_t own = v % SIZE, base = v - own;
    first[v] = edge;
    if (own == 2 || own == 4) {
      child[edge++] = own == 2 ? base : base + 3;
      child[edge++] = own == 2 ? base + 1 : base + 2;
    }
    word[v] = v * 7 % 9;
    for (int i = 0; i < 3; ++i) vector[3 * v + i] = (float)((v + i) % 8) / 4.0f;
  }
  first[NODES] = edge;
  for (int64_t b = 0; b <= STRUCTURES; ++b) starts[b] = b * SIZE;
  given.structures = plain.structures = STRUCTURES;
  given.nodes = plain.nodes = NODES;
  given.edges = plain.edges = edge;
  given.starts = plain.starts = starts;
  given.first = plain.first = first;
  given.child = plain.child = child;
  given.word = plain.word = word;
  given.input_1 = vector;
}

int main(void) {
  pthread_t threads[CALLERS];
  int number[CALLERS] = {0, 1, 2};
  classes_error error;
  int64_t results = STRUCTURES, all = NODES;
  fill();
  classes = classes_open(2);
  nodes = nodes_open(2);
  check(classes && nodes, "open");
  check(classes_predict_proba(classes, &given, shares, &results, 1, &error) == CLASSES_OK, "predict_proba");
  check(nodes_predict(nodes, &plain, states, &all, 1, NULL) == NODES_OK, "predict");
  for (int i = 0; i < CALLERS; ++i) {
    check(!pthread_create(&threads[i], NULL, caller, &number[i]), "pthread_create");
  }
  for (int i = 0; i < CALLERS; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < STRUCTURES * WIDTH; ++i) printf("%a\n", shares[i]);
  for (int i = 0; i < NODES * NODES_PREDICT_COLUMNS; ++i) printf("%a\n", (double)states[i]);
  word[8] = 9;
  check(classes_predict_proba(classes, &given, shares, &results, 2, &error) == CLASSES_ERROR_NUMBER, "9");
  check(error.structure == 1 && error.node == 3 && error.input == 0, "place");
  classes_close(classes);
  classes_close(NULL);
  nodes_close(nodes);
  return 0;
}
