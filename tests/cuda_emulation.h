// Enough of CUDA to run a kernel's source on a CPU: a block's threads are coroutines that run one after
// the other up to the next barrier (or exchange within their warp), where each waits for the others. Run
// in both orders, a kernel shows barriers that are missing. Shared memory is filled with a pattern before a
// block begins, and ends where memory begins that can't be touched. Blocks run one after the other, or, of a
// cooperative launch, all together: their threads take turns where one waits for another block.
#undef _FORTIFY_SOURCE  // its checks take a jump between stacks for a mistake
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define CUDART_INF_F INFINITY
#define CUDART_INF INFINITY
#define CUDART_NAN NAN
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define __popc __builtin_popcount
#define __fdividef(a, b) ((a) / (b))
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
using int2 = Vector<int, 2>; using int4 = Vector<int, 4>; using uint4 = Vector<unsigned, 4>; using float2 = Vector<float, 2>;
using float4 = Vector<float, 4>; using double2 = Vector<double, 2>; using double4 = Vector<double, 4>;
using longlong2 = Vector<int64_t, 2>; using longlong4 = Vector<int64_t, 4>; using char4 = Vector<char, 4>;
using half4 = Vector<half, 4>;

struct Index { int x, y, z; };
static Index threadIdx, blockIdx;

namespace emulation {
enum State { READY, AT_BARRIER, IN_WARP, DONE };
constexpr int MOST_THREADS = 8192, MOST_BLOCKS = 64, STACK = 64 * 1024;
// A thread's coroutine is begun once, and then runs one block's work after the other's. It is begun by
// ucontext, and switched by jumps, since those need no system calls. Stacks are not filled with zeros.
struct Thread {
  jmp_buf here; State state; Index index; int block; bool begun = false; std::unique_ptr<char[]> stack;
};
static jmp_buf scheduler;
static Thread all[MOST_THREADS];
static int count, current, slot;  // slot: of blocks that run together, which one's shared memory
static void (*body)();
static double slots[MOST_THREADS];

// Shared memory, static and then dynamic, of the block in each slot.
constexpr size_t SHARED = 256 * 1024, PAGE = 4096;
static size_t fixed_bytes, dynamic_bytes;
static unsigned char *shared_ends[MOST_BLOCKS];
static unsigned char *dynamic_shared() { return shared_ends[slot] - dynamic_bytes; }
static unsigned char *fixed_shared() { return dynamic_shared() - fixed_bytes; }
static void size_shared(size_t fixed, size_t dynamic) {
  fixed_bytes = (fixed + 63) / 64 * 64;
  dynamic_bytes = (dynamic + 63) / 64 * 64;
  if (fixed_bytes + dynamic_bytes > SHARED) { fprintf(stderr, "too much shared memory\n"); abort(); }
}
static void begin_shared(int blocks) {
  for (slot = 0; slot < blocks; ++slot) {
    if (!shared_ends[slot]) {
      void *made = mmap(nullptr, SHARED + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made == MAP_FAILED || mprotect((char *)made + SHARED, PAGE, PROT_NONE)) abort();
      shared_ends[slot] = (unsigned char *)made + SHARED;
    }
    memset(fixed_shared(), 0x7f, fixed_bytes + dynamic_bytes);
  }
}

__attribute__((noinline)) static void wait(State state) {
  all[current].state = state;
  if (!_setjmp(all[current].here)) _longjmp(scheduler, 1);
}
static void start() {
  for (;;) { body(); wait(DONE); }
}
__attribute__((noinline)) static void resume(Thread &thread) {
  if (_setjmp(scheduler)) return;
  if (thread.begun) _longjmp(thread.here, 1);
  thread.begun = true;
  thread.stack.reset(new char[STACK]);
  static ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = thread.stack.get();
  context.uc_stack.ss_size = STACK;
  makecontext(&context, start, 0);
  setcontext(&context);
}

static bool release(int first, int last, State state) {
  bool any = false;
  for (int t = first; t < last; ++t) {
    if (all[t].state == READY || (all[t].state != state && all[t].state != DONE)) return false;
    any |= all[t].state == state;
  }
  for (int t = first; any && t < last; ++t) {
    if (all[t].state == DONE && state == AT_BARRIER) { fprintf(stderr, "a thread missed a barrier\n"); abort(); }
    if (all[t].state == state) all[t].state = READY;
  }
  return any;
}

// Blocks of x times y threads each; where there are several, they are the first along x.
static void blocks(int number, int x, int y, bool backwards, void (*kernel)()) {
  body = kernel;
  const int own = x * y;
  count = number * own;
  if (count > MOST_THREADS || number > MOST_BLOCKS) { fprintf(stderr, "too many threads\n"); abort(); }
  const int first_block = number > 1 ? 0 : blockIdx.x;
  begin_shared(number);
  for (int t = 0; t < count; ++t) {
    all[t].state = READY;
    all[t].index = {t % own % x, t % own / x, 0};
    all[t].block = t / own;
  }
  for (bool more = true; more;) {
    more = false;
    for (int turn = 0; turn < count; ++turn) {
      current = backwards ? count - 1 - turn : turn;
      if (all[current].state != READY) continue;
      threadIdx = all[current].index;
      slot = all[current].block;
      blockIdx.x = first_block + slot;
      resume(all[current]);
      more = true;
    }
    for (int start = 0; start < count; start += own) {
      const int end = start + own;
      for (int first = start; first < end; first += 32)
        more |= release(first, first + 32 < end ? first + 32 : end, IN_WARP);
      more |= release(start, end, AT_BARRIER);
    }
  }
  blockIdx.x = first_block;
  for (int t = 0; t < count; ++t)
    if (all[t].state != DONE) { fprintf(stderr, "threads wait for each other\n"); abort(); }
}
static void block(int x, int y, bool backwards, void (*kernel)()) { blocks(1, x, y, backwards, kernel); }
static int64_t slept;
}  // namespace emulation

static void __syncthreads() { emulation::wait(emulation::AT_BARRIER); }
// A thread that waits for another block lets all others go on.
static void __nanosleep(unsigned) {
  if (++emulation::slept > 100000000) { fprintf(stderr, "blocks wait for each other\n"); abort(); }
  emulation::wait(emulation::READY);
}
static void __threadfence() {}
template <typename T> T atomicAdd(T *at, T by) {
  const T found = *at;
  *at += by;
  return found;
}
namespace emulation {
template <typename T> T exchange(T value, int lane) {
  const int self = current, warp = self / 32 * 32;
  slots[self] = value;
  wait(IN_WARP);
  const bool there = 0 <= lane && lane < 32 && warp + lane < count;
  const T found = (T)slots[there ? warp + lane : self];
  wait(IN_WARP);
  return found;
}
}  // namespace emulation
// Asynchronous copies: until the thread waits for them, there are zeros where they go.
namespace emulation {
struct Copy { void *to; const void *from; size_t size; };
static std::vector<Copy> copies[MOST_THREADS];
}  // namespace emulation
static void __pipeline_memcpy_async(void *to, const void *from, size_t size) {
  if ((size != 4 && size != 8 && size != 16) || (uintptr_t)to % size || (uintptr_t)from % size) {
    fprintf(stderr, "a copy of %zu bytes that GPUs can't make\n", size);
    abort();
  }
  memset(to, 0, size);
  emulation::copies[emulation::current].push_back({to, from, size});
}
static void __pipeline_commit() {}
static void __pipeline_wait_prior(size_t) {
  for (const auto &one : emulation::copies[emulation::current]) memcpy(one.to, one.from, one.size);
  emulation::copies[emulation::current].clear();
}
// Shuffles wait for all threads of the warp, as their masks have to: there is no __activemask.
template <typename T> T __shfl_down_sync(uint, T value, int by, int) {
  return emulation::exchange(value, emulation::current % 32 + by);
}
template <typename T> T __shfl_sync(uint, T value, int lane, int) { return emulation::exchange(value, lane); }

namespace nvcuda { namespace wmma {
struct accumulator; struct matrix_a; struct matrix_b; struct row_major;
enum Layout { mem_row_major };
template <typename Use, int M, int N, int K, typename T, typename L = void> struct fragment { T item[16][16]; };
// A warp's fragments are the first of its threads', which alone stores them.
static bool another() { return emulation::current % 32; }
template <typename F, typename T> void fill_fragment(F &f, T value) {
  if (another()) return;
  for (auto &row : f.item) for (auto &item : row) item = value;
}
template <typename F, typename T> void load_matrix_sync(F &f, const T *from, int width) {
  if (another()) return;
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) f.item[i][j] = from[i * width + j];
}
template <typename C, typename A, typename B> void mma_sync(C &d, const A &a, const B &b, const C &c) {
  if (another()) return;
  C sum = c;
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) for (int k = 0; k < 16; ++k)
    sum.item[i][j] += a.item[i][k] * b.item[k][j];
  d = sum;
}
// A warp's store is done by one of its threads, when all have come to it.
template <typename T, typename C> void store_matrix_sync(T *to, const C &f, int width, Layout) {
  emulation::wait(emulation::IN_WARP);
  if (another()) return;
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) to[i * width + j] = f.item[i][j];
}
}}  // namespace nvcuda::wmma
