"""The kernel that makes a model's outputs of raw scores: probabilities, labels and rounded scores."""

from __future__ import annotations

from hbtvm.runtime.gpu.launch import MOST_OUTPUTS, MOST_STEPS, OUTPUT, OUTPUT_THREADS
from hbtvm.runtime.native.epilogues.epilogue import STEPS, Rule, Type

_EXPRESSIONS = {
    "add": "y + a",
    "subtract": "y - a",
    "multiply": "y * a",
    "divide": "y / a",
    "minimum": "y > a ? a : y",  # NaN stays
    "maximum": "y < a ? a : y",
    "greater": "y > a",
    "greater_equal": "y >= a",
    "less": "y < a",
    "exp": "hbtvm_exp(y)",
    "negative": "-y",
    "sign": "SIGN(y)",
    "square": "y * y",
    "reciprocal": "1.0 / y",
    "signed_square": "SIGN(y) * y * y",
    "likelier": "y > 1.0 - y",
    # In float32, XGBoost's, see `hbtvm.operators.formulas.MOST_POWER`.
    "sigmoid": "1.0 / (1.0 + hbtvm_exp(single && -y > 88.7f ? (double)88.7f : -y))",
}
"""Functions of a value y with a step's constant a."""


def output_source() -> str:
    """Return the CUDA source of the kernel, which runs the epilogue that its argument describes.

    A thread computes a row, and overwrites its raw scores. Each step computes in float64, as its node does,
    and its results are rounded to float32 if the epilogue's values are.
    """
    cases = "".join(f"    case {STEPS[name]}: y = {text}; break;\n" for name, text in _EXPRESSIONS.items())
    softmax, shares = STEPS["softmax"], STEPS["shares"]
    return f"""
struct hbtvm_program {{
  const unsigned char* table; double constants[{MOST_STEPS}];
  int stride, first, width, columns, type, single, rule, item, steps, step[{MOST_STEPS}];
}};
#define ROUNDED(x) (p.single ? (double)(float)(x) : (double)(x))
#define SIGN(x) ((x) > 0 ? 1.0 : (x) < 0 ? -1.0 : (x))
static __device__ __noinline__ double hbtvm_exp(double x) {{ return exp(x); }}
static __device__ double hbtvm_changed(int step, int single, double y, double a) {{
  switch (step) {{
{cases}  }}
  return single ? (double)(float)y : y;
}}
// In numpy's order, for at most {MOST_OUTPUTS} numbers.
static __device__ double hbtvm_total(const double* x, int n) {{
  double s[8], sum = 0.0;
  int i = 0;
  if (n >= 8) {{
#pragma unroll
    for (int j = 0; j < 8; ++j) s[j] = x[j];
    for (i = 8; i < n - n % 8; i += 8)
#pragma unroll
      for (int j = 0; j < 8; ++j) s[j] += x[i + j];
    sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }}
  for (; i < n; ++i) sum += x[i];
  return sum;
}}
extern "C" __global__ void __launch_bounds__({OUTPUT_THREADS}) {OUTPUT}(
    double* raw, char* out, int64_t rows, hbtvm_program p) {{
  const int64_t row = (int64_t)blockIdx.x * {OUTPUT_THREADS} + threadIdx.x;
  if (row >= rows) return;
  double* x = raw + row * p.stride + p.first;
  const int width = p.width;
  if (p.single)
    for (int j = 0; j < width; ++j) x[j] = (double)(float)x[j];
  for (int s = 0; s < p.steps;) {{
    if (p.step[s] == {softmax}) {{
      double most = x[0];
      for (int j = 1; j < width; ++j) most = x[j] > most ? x[j] : most;
      for (int j = 0; j < width; ++j) x[j] = hbtvm_exp(x[j] - most);
      const double sum = hbtvm_total(x, width);
      for (int j = 0; j < width; ++j) x[j] = ROUNDED(x[j] / sum);
      ++s;
    }} else if (p.step[s] == {shares}) {{
      double sum = hbtvm_total(x, width);
      const double none = sum == 0 ? 1.0 : 0.0;
      sum += none * width;
      for (int j = 0; j < width; ++j) x[j] = ROUNDED((x[j] + none) / sum);
      ++s;
    }} else {{
      int end = s;
      while (end < p.steps && p.step[end] != {softmax} && p.step[end] != {shares}) ++end;
      for (int j = 0; j < width; ++j) {{
        double y = x[j];
        for (int t = s; t < end; ++t) y = hbtvm_changed(p.step[t], p.single, y, p.constants[t]);
        x[j] = y;
      }}
      s = end;
    }}
  }}
  if (p.rule == {int(Rule.LARGEST)}) {{  // the first of equal numbers; the first NaN, if there is one
    int at = 0;
    for (int j = 1; j < width; ++j) at = x[at] == x[at] && (x[j] > x[at] || x[j] != x[j]) ? j : at;
    x[0] = at;
  }}
  for (int j = 0; j < p.columns; ++j) {{
    const int64_t to = row * p.columns + j;
    const bool first = p.rule == {int(Rule.WITH_COMPLEMENT)} && j == 0;
    const double y = first ? 1.0 - (p.type == {int(Type.F32)} ? (double)(float)x[0] : x[0])
                   : p.rule == {int(Rule.WITH_COMPLEMENT)} ? x[0] : x[j];
    if (p.table) {{
      const int64_t at = (int64_t)y;
      switch (p.item) {{
        case 8: ((int64_t*)out)[to] = ((const int64_t*)p.table)[at]; break;
        case 4: ((int*)out)[to] = ((const int*)p.table)[at]; break;
        case 2: ((short*)out)[to] = ((const short*)p.table)[at]; break;
        default: out[to] = (char)p.table[at];
      }}
    }} else if (p.type == {int(Type.F32)}) {{
      ((float*)out)[to] = (float)y;
    }} else if (p.type == {int(Type.I64)}) {{
      ((int64_t*)out)[to] = y >= -9223372036854775808.0 && y < 9223372036854775808.0
                                ? (int64_t)y : (int64_t)0x8000000000000000;
    }} else if (p.type == {int(Type.I32)}) {{
      ((int*)out)[to] = y > -2147483649.0 && y < 2147483648.0 ? (int)y : (int)0x80000000;
    }} else {{
      ((double*)out)[to] = y;
    }}
  }}
}}
#undef ROUNDED
#undef SIGN
"""
