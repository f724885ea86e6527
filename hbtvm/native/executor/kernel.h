/* Kernels with their arguments, and calls of kernels on rows. */
#ifndef HBTVM_KERNEL_H
#define HBTVM_KERNEL_H

#include <stdatomic.h>
#include <stddef.h>

#include "executor/executor.h"

/* Bytes of a block's scores, which stay in the cache until the epilogue reads them. */
#define HBTVM_BLOCK_BYTES (1 << 18)

/* DLPack's tensor, and the value that passes it in TVM's calling convention. */
struct tensor {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t axes;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
};

struct value {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  } is;
};

/* The tables of one part of a kernel's trees, as tensors. */
struct part {
  struct tensor *tables;
  int64_t *shapes;
};

/* A kernel in an executor. Only `nanoseconds` changes after opening. */
struct bound {
  const struct kernel *kernel;
  int64_t columns; /* of rows */
  int64_t row_type;
  int64_t outputs;
  int64_t threads; /* threads that a call may use */
  int64_t alone;   /* maximal rows that a single thread computes, however long it takes */
  int64_t parts;   /* number of threads that share the trees */
  int64_t number;  /* index among all kernels of the model */
  int64_t aligned_rows; /* number of rows after which consecutive scores are aligned again */
  int64_t direct;  /* whether its scores are plain rows of scores */
  int64_t instead; /* index in its set of the kernel for rows with missing values; -1: this kernel */
  int64_t poison;  /* whether scores are set to NaN before each call, so that unwritten scores show */
  double tuned;    /* seconds of a row tile on one thread; negative if not measured */
  struct part *part;
  _Atomic int64_t nanoseconds; /* of a row tile on one thread, as measured here; 0: not yet */
};

/* The arguments of a part of a kernel in one thread, laid out once. */
struct call {
  struct value *values;
  struct tensor rows, scores;
  int64_t rows_shape[3], scores_shape[4];
  int64_t shown; /* tiles of which the kernel showed that all values are finite, since it was set to 0 */
};

enum memory { TILE_MEMORY, TILE_SCORES_MEMORY, SCORES_MEMORY, MATRIX_MEMORY, GATHER_MEMORY, HBTVM_MEMORIES };

/* The work memory of a thread, kept for later calls. */
struct worker {
  struct call *calls; /* by kernel number and part, see `hbtvm_bound_call` */
  size_t sizes[HBTVM_MEMORIES]; /* of the memory below */
  void *memory[HBTVM_MEMORIES]; /* enum memory */
};

/* Return at least this many bytes, aligned; null if memory is short. Earlier contents are lost. */
void *hbtvm_memory(struct worker *worker, enum memory which, size_t bytes);

/* Fill in the parts of `bound`; 0 if memory is short. */
int hbtvm_bind(struct bound *bound);
void hbtvm_unbind(struct bound *bound);

/* Lay out the arguments of a call; 0 if memory is short. */
int hbtvm_lay_out(struct call *call, const struct bound *bound, int64_t part);

/* Call a kernel on `tiles` whole row tiles. Return an enum status. */
int hbtvm_call(struct call *call, const struct bound *bound, const void *rows, int64_t tiles, void *scores);

/* Compute sums of n rows, row-major, in the kernel's type of scores; `stride` elements from one row to the next. Return
 * an enum status. */
int hbtvm_kernel_rows(struct worker *worker, struct call *call, const struct bound *bound, const void *rows,
                      int64_t n, void *sums, int64_t stride);

static inline int64_t item_bytes(int64_t type) { return type == HBTVM_F32 ? 4 : 8; }

static inline int is_aligned(const void *at) { return ((uintptr_t)at & (HBTVM_ALIGNMENT - 1)) == 0; }

#endif
