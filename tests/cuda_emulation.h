// Enough of CUDA to run a kernel's source on a CPU: a block's threads are coroutines that run one after
// the other up to the next barrier (or exchange within their warp), where each waits for the others. Run
// in both orders, a kernel shows barriers that are missing.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDART_INF_F INFINITY
#define CUDART_INF INFINITY
#define CUDART_NAN NAN
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define __popc __builtin_popcount
#define __float2half_rn (half)
#define __popcll __builtin_popcountll

static inline int min(int a, int b) { return b < a ? b : a; }
static inline int max(int a, int b) { return a < b ? b : a; }
static inline int64_t min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

typedef _Float16 half;
template <typename T, int N> struct alignas(sizeof(T) * N) Vector { T item[N]; };
using int2 = Vector<int, 2>; using int4 = Vector<int, 4>; using float2 = Vector<float, 2>;
using float4 = Vector<float, 4>; using double2 = Vector<double, 2>; using double4 = Vector<double, 4>;
using longlong2 = Vector<int64_t, 2>; using longlong4 = Vector<int64_t, 4>; using char4 = Vector<char, 4>;
using half4 = Vector<half, 4>;

struct Index { int x, y, z; };
static Index threadIdx, blockIdx;
alignas(64) static unsigned char dynamic_shared[256 * 1024];

namespace emulation {
enum State { READY, AT_BARRIER, IN_WARP, DONE };
struct Thread { ucontext_t context; State state; Index index; std::vector<char> stack; };
static ucontext_t scheduler;
static std::vector<Thread> threads;
static int current;
static void (*body)();
static double slots[1024];

static void wait(State state) {
  threads[current].state = state;
  swapcontext(&threads[current].context, &scheduler);
}
static void start() { body(); threads[current].state = DONE; }

static bool release(size_t first, size_t last, State state) {
  bool any = false;
  for (size_t t = first; t < last; ++t) {
    if (threads[t].state == READY || (threads[t].state != state && threads[t].state != DONE)) return false;
    any |= threads[t].state == state;
  }
  for (size_t t = first; any && t < last; ++t) {
    if (threads[t].state == DONE && state == AT_BARRIER) { fprintf(stderr, "a thread missed a barrier\n"); abort(); }
    if (threads[t].state == state) threads[t].state = READY;
  }
  return any;
}

static void block(int x, int y, bool backwards, void (*kernel)()) {
  body = kernel;
  threads.resize(x * y);
  for (int t = 0; t < x * y; ++t) {
    Thread &thread = threads[t];
    thread.stack.resize(64 * 1024);
    thread.state = READY;
    thread.index = {t % x, t / x, 0};
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, start, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (int turn = 0; turn < x * y; ++turn) {
      current = backwards ? x * y - 1 - turn : turn;
      if (threads[current].state != READY) continue;
      threadIdx = threads[current].index;
      swapcontext(&scheduler, &threads[current].context);
      more = true;
    }
    for (int first = 0; first < x * y; first += 32)
      more |= release(first, first + 32 < x * y ? first + 32 : x * y, IN_WARP);
    more |= release(0, x * y, AT_BARRIER);
  }
  for (Thread &thread : threads)
    if (thread.state != DONE) { fprintf(stderr, "threads wait for each other\n"); abort(); }
}
}  // namespace emulation

static void __syncthreads() { emulation::wait(emulation::AT_BARRIER); }
static uint __activemask() { return 0xFFFFFFFFu; }
namespace emulation {
template <typename T> T exchange(T value, int lane) {
  const int self = current, warp = self / 32 * 32;
  slots[self] = value;
  wait(IN_WARP);
  const bool there = 0 <= lane && lane < 32 && warp + lane < (int)threads.size();
  const T found = (T)slots[there ? warp + lane : self];
  wait(IN_WARP);
  return found;
}
}  // namespace emulation
template <typename T> T __shfl_down_sync(uint, T value, int by, int) {
  return emulation::exchange(value, emulation::current % 32 + by);
}
template <typename T> T __shfl_sync(uint, T value, int lane, int) { return emulation::exchange(value, lane); }

namespace nvcuda { namespace wmma {
struct accumulator; struct matrix_a; struct matrix_b; struct row_major;
enum Layout { mem_row_major };
template <typename Use, int M, int N, int K, typename T, typename L = void> struct fragment { T item[16][16]; };
template <typename F, typename T> void fill_fragment(F &f, T value) {
  for (auto &row : f.item) for (auto &item : row) item = value;
}
template <typename F, typename T> void load_matrix_sync(F &f, const T *from, int width) {
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) f.item[i][j] = from[i * width + j];
}
template <typename C, typename A, typename B> void mma_sync(C &d, const A &a, const B &b, const C &c) {
  C sum = c;
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) for (int k = 0; k < 16; ++k)
    sum.item[i][j] += a.item[i][k] * b.item[k][j];
  d = sum;
}
// A warp's store is done by one of its threads, when all have come to it.
template <typename T, typename C> void store_matrix_sync(T *to, const C &f, int width, Layout) {
  emulation::wait(emulation::IN_WARP);
  if (emulation::current % 32) return;
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) to[i * width + j] = f.item[i][j];
}
}}  // namespace nvcuda::wmma
