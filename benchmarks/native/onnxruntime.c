/* ONNX Runtime by its C interface.
 *
 * Its Python package holds the library, but not the header. The library hands out a table of functions whose order
 * is part of its interface and never changes: the few that are called here are named by their places in it.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "peer.h"

enum {
  GET_ERROR_MESSAGE = 2,
  CREATE_ENV = 3,
  CREATE_SESSION = 7,
  RUN = 9,
  CREATE_SESSION_OPTIONS = 10,
  SET_INTRA_OP_THREADS = 24,
  CREATE_TENSOR = 49, /* of the caller's memory */
  CREATE_CPU_MEMORY_INFO = 69,
  RELEASE_VALUE = 96,
};
enum { API_VERSION = 1, WARNING = 2, FLOAT = 1, DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0 };

typedef any_function *function_table[RELEASE_VALUE + 1];
struct api_base {
  const function_table *(*get_api)(uint32_t version);
  const char *(*version)(void);
};
typedef struct status status;
typedef const char *error_message(const status *failed);
typedef status *create_env(int level, const char *name, void **env);
typedef status *create_session(void *env, const char *path, void *options, void **session);
typedef status *run_session(void *session, const void *options, const char *const *input_names, const void *const *inputs,
                            size_t input_count, const char *const *output_names, size_t output_count, void **outputs);
typedef status *create_options(void **options);
typedef status *set_threads(void *options, int threads);
typedef status *create_tensor(const void *memory, void *data, size_t bytes, const int64_t *shape, size_t axes, int type,
                              void **tensor);
typedef status *create_memory(int allocator, int kind, void **memory);
typedef void release_value(void *value);

static const function_table *api;
static void *sessions[2], *memory, *result_tensor; /* sessions: of one thread, of two */
static float *results;
static const char *input_name, *output_name;
static int64_t columns, outputs;

#define CALL(type, place, ...) (((type *)(*api)[place])(__VA_ARGS__))

static const char *text_of(const status *failed) {
  return failed == NULL ? NULL : CALL(error_message, GET_ERROR_MESSAGE, failed);
}

const char *peer_open(void) {
  void *library = dlopen(option("library"), RTLD_NOW);
  if (library == NULL) return dlerror();
  const struct api_base *(*base)(void) = (const struct api_base *(*)(void))function_of(library, "OrtGetApiBase");
  api = base == NULL ? NULL : base()->get_api(API_VERSION);
  if (api == NULL) return "the library has no such interface";
  columns = option_number("features");
  outputs = option_number("outputs");
  input_name = option("input");
  output_name = option("output");
  void *env;
  const char *error = text_of(CALL(create_env, CREATE_ENV, WARNING, "benchmark", &env));
  for (int i = 0; i < option_number("threads") && i < 2 && error == NULL; i++) {
    void *options;
    error = text_of(CALL(create_options, CREATE_SESSION_OPTIONS, &options));
    if (error == NULL) error = text_of(CALL(set_threads, SET_INTRA_OP_THREADS, options, i + 1));
    if (error == NULL) error = text_of(CALL(create_session, CREATE_SESSION, env, option("model"), options, &sessions[i]));
  }
  if (error == NULL)
    error = text_of(CALL(create_memory, CREATE_CPU_MEMORY_INFO, DEVICE_ALLOCATOR, DEFAULT_MEMORY, &memory));
  return error;
}

const char *peer_way(int way, int64_t n) {
  (void)n;
  if (way == 0) return "Run, 1 thread";
  return way == 1 && option_number("threads") == 2 ? "Run, 2 threads" : NULL;
}

int peer_takes_double(void) { return 0; }

int64_t peer_outputs(void) { return outputs; }

static const char *tensor_of(void *data, int64_t n, int64_t width, void **tensor) {
  const int64_t shape[] = {n, width};
  return text_of(
      CALL(create_tensor, CREATE_TENSOR, memory, data, (size_t)(n * width) * sizeof(float), shape, 2, FLOAT, tensor));
}

/* Results are written where the caller wants them, which saves an allocation. */
const char *peer_prepare(int way, int64_t n) {
  (void)way;
  if (result_tensor != NULL) CALL(release_value, RELEASE_VALUE, result_tensor);
  result_tensor = NULL;
  free(results);
  results = malloc((size_t)(n * outputs) * sizeof *results);
  return results == NULL ? "no memory" : tensor_of(results, n, outputs, &result_tensor);
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  void *tensor;
  const char *error = tensor_of((void *)(uintptr_t)rows, n, columns, &tensor);
  if (error != NULL) return error;
  const void *const inputs[] = {tensor};
  error = text_of(
      CALL(run_session, RUN, sessions[way], NULL, &input_name, inputs, 1, &output_name, 1, &result_tensor));
  CALL(release_value, RELEASE_VALUE, tensor);
  return error;
}

double peer_result(int64_t i) { return (double)results[i]; }
