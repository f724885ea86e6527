// CatBoost: the function `ApplyCatboostModel` of the C++ code that it exports (`save_model(format="cpp")`).
//
// CatBoost's C interface is in a library of its own, which its Python package lacks. The function takes a vector of
// one row, and returns the raw score. It works on one thread; as a C program would, two threads are had by OpenMP.
#include <cmath>
#include <exception>
#include <vector>

extern "C" {
#include "peer.h"
}

#include MODEL

namespace {

int64_t columns;
std::vector<double> results;

void predict_span(const float *rows, int64_t start, int64_t end) {
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t i = start; i < end; i++) {
    row.assign(rows + i * columns, rows + (i + 1) * columns);
    results[static_cast<size_t>(i)] = 1.0 / (1.0 + std::exp(-ApplyCatboostModel(row)));
  }
}

}  // namespace

extern "C" {

const char *peer_open(void) {
  columns = option_number("features");
  return nullptr;
}

const char *peer_way(int way, int64_t n) {
  if (way == 0) return "ApplyCatboostModel";
  return way == 1 && n > 1 && option_number("threads") == 2 ? "ApplyCatboostModel, 2 threads" : nullptr;
}

int peer_takes_double(void) { return 0; }

int64_t peer_outputs(void) { return 1; }

const char *peer_prepare(int, int64_t n) {
  try {
    results.assign(static_cast<size_t>(n), 0.0);
  } catch (const std::exception &) {
    return "no memory";
  }
  return nullptr;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  const float *values = static_cast<const float *>(rows);
  if (way == 0) {
    predict_span(values, 0, n);
    return nullptr;
  }
#pragma omp parallel for num_threads(2) schedule(static)
  for (int half = 0; half < 2; half++) predict_span(values, half * n / 2, (half + 1) * n / 2);
  return nullptr;
}

double peer_result(int64_t i) { return results[static_cast<size_t>(i)]; }

}  // extern "C"
