/* Steps on numeric columns, as in `hbtvm.graph.columns.steps` and `hbtvm.graph.columns.curves`: the same operations in the same order,
 * each rounded to the column's type. Numbers of float32 columns are stored as doubles that float32 holds. */
#include <math.h>

#include "arrow/internal.h"
#include "pointwise/functions.h"

static double narrowed(double x, int narrow) { return narrow ? (double)(float)x : x; }

static double function(int64_t which, double x, int narrow) {
  const float y = (float)x;
  switch (which) {
#define CASE(name, exact, wide, single) \
  case HBTVM_FUNCTION_##name: return narrow ? (double)(single) : (wide);
    HBTVM_FUNCTIONS(CASE)
#undef CASE
    default: return x;
  }
}

/* One of the four operations; `by` is float64, or float32 for float32 columns if `own`. */
static double arithmetic(int64_t kind, double x, double by, int own) {
  if (own) {
    float a = (float)x, b = (float)by;
    switch (kind) {
      case HBTVM_STEP_ADD: return (double)(a + b);
      case HBTVM_STEP_SUBTRACT: return (double)(a - b);
      case HBTVM_STEP_MULTIPLY: return (double)(a * b);
      default: return (double)(a / b);
    }
  }
  switch (kind) {
    case HBTVM_STEP_ADD: return x + by;
    case HBTVM_STEP_SUBTRACT: return x - by;
    case HBTVM_STEP_MULTIPLY: return x * by;
    default: return x / by;
  }
}

static int lost(const struct feed_step *s, double x, int narrow) {
  if (s->flag == HBTVM_MISSING_NAN || s->flag == HBTVM_MISSING_ANY) return isnan(x);
  if (s->flag != HBTVM_MISSING_VALUE || s->lost.kind < HBTVM_INTEGER) return 0;
  return x == (narrow ? s->narrow_b : s->b);
}

/* Return the number of ascending edges that are at most x. */
static double bin_of(const double *edges, int64_t n, double x) {
  if (isnan(x)) return x;
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (edges[middle] <= x)
      low = middle + 1;
    else
      high = middle;
  }
  return (double)low;
}

/* Interpolate linearly at x between n ascending points, and beyond them return the nearest value, like numpy's
 * `interp`. `back`: the points are reversed, and both coordinates negated. */
static double interpolated(const double *x, const double *y, int64_t n, double at, int back) {
  double sign = back ? -1.0 : 1.0;
#define X(i) (sign * x[back ? n - 1 - (i) : (i)])
#define Y(i) (sign * y[back ? n - 1 - (i) : (i)])
  if (n == 1) return Y(0);
  if (isnan(at)) return at;
  if (at > X(n - 1)) return Y(n - 1);
  if (at < X(0)) return Y(0);
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (at >= X(middle))
      low = middle + 1;
    else
      high = middle;
  }
  int64_t j = low - 1;
  if (j == n - 1 || X(j) == at) return Y(j);
  double slope = (Y(j + 1) - Y(j)) / (X(j + 1) - X(j));
  double result = slope * (at - X(j)) + Y(j);
  if (isnan(result)) {
    result = slope * (at - X(j + 1)) + Y(j + 1);
    if (isnan(result) && Y(j) == Y(j + 1)) result = Y(j);
  }
  return result;
#undef X
#undef Y
}

static double quantile(const struct feed_step *s, double x, int narrow) {
  const double *at = s->table, *share = s->table + s->count;
  int low, high;
  if (s->a != 0.0) {
    low = arithmetic(HBTVM_STEP_SUBTRACT, x, s->a, narrow) < at[0];
    high = arithmetic(HBTVM_STEP_ADD, x, s->a, narrow) > at[s->count - 1];
  } else {
    low = x == at[0];
    high = x == at[s->count - 1];
  }
  if (low) return 0.0;
  if (high) return 1.0;
  return narrowed(0.5 * (interpolated(at, share, s->count, x, 0) - interpolated(at, share, s->count, -x, 1)), narrow);
}

static double equals(const struct feed_step *s, double x) {
  if (isnan(x)) return x;
  for (int64_t i = 0; i < s->count; ++i)
    if (x == s->table[i]) return 1.0;
  return 0.0;
}

static double looked_up(const struct feed_step *s, double x) {
  /* Values without a code have none in the lowering either. */
  return x >= 0.0 && x < (double)s->count ? s->table[(int64_t)x] : double_of(UINT64_C(0x7ff8000000000000));
}

static double clipped(double x, double low, double high) {
  if (isnan(x)) return x;
  double most = x < low ? low : x;
  return most > high ? high : most;
}

static double one(const struct feed_step *s, double x, int narrow) {
  double a = narrow ? s->narrow : s->a, b = narrow ? s->narrow_b : s->b;
  switch (s->kind) {
    case HBTVM_STEP_ADD:
    case HBTVM_STEP_SUBTRACT:
    case HBTVM_STEP_MULTIPLY:
    case HBTVM_STEP_DIVIDE: {
      int own = narrow && s->flag;
      return narrowed(arithmetic(s->kind, x, own ? s->narrow : s->a, own), narrow);
    }
    case HBTVM_STEP_CLIP: return clipped(x, a, b);
    case HBTVM_STEP_WITHIN: return x >= a && x <= b ? x : double_of(UINT64_C(0x7ff8000000000000));
    case HBTVM_STEP_ABOVE: return x > a ? 1.0 : 0.0;
    case HBTVM_STEP_CAST: return narrowed(x, !s->flag);
    case HBTVM_STEP_FILL: return lost(s, x, narrow) ? a : x;
    case HBTVM_STEP_IS_MISSING: return lost(s, x, narrow) ? 1.0 : 0.0;
    case HBTVM_STEP_ZERO_IS_MISSING: return x == 0.0 ? double_of(UINT64_C(0x7ff8000000000000)) : x;
    case HBTVM_STEP_LOOKUP: return narrowed(looked_up(s, x), narrow);
    case HBTVM_STEP_EQUALS: return equals(s, x);
    case HBTVM_STEP_BINS: return bin_of(s->table, s->count, x);
    case HBTVM_STEP_QUANTILE: return quantile(s, x, narrow);
    case HBTVM_STEP_FUNCTION: return function(s->flag, x, narrow);
    default: return x;
  }
}

int apply_step(const struct feed_step *s, double *x, int64_t n, int narrow) {
  for (int64_t i = 0; i < n; ++i) x[i] = one(s, x[i], narrow);
  return s->kind == HBTVM_STEP_CAST ? !s->flag : narrow;
}

void run_number_steps(const struct feed_step *steps, int64_t count, double *x, int64_t n) {
  int narrow = 0;
  for (int64_t i = 0; i < count; ++i) narrow = apply_step(&steps[i], x, n, narrow);
}
