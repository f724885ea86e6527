#include "executor/kernel.h"

#include <stdlib.h>
#include <string.h>

/* TVM's type indices of an integer and a borrowed tensor, and DLPack's codes of floats and the CPU. */
enum { INTEGER = 1, TENSOR_POINTER = 7, FLOATS = 2, CPU = 1 };

void *hbtvm_memory(struct worker *worker, enum memory which, size_t bytes) {
  if (worker->sizes[which] >= bytes) return worker->memory[which];
  size_t size = (bytes + HBTVM_ALIGNMENT - 1) / HBTVM_ALIGNMENT * HBTVM_ALIGNMENT;
  void *memory = aligned_alloc(HBTVM_ALIGNMENT, size);
  if (!memory) return NULL;
  free(worker->memory[which]);
  worker->memory[which] = memory;
  worker->sizes[which] = size;
  return memory;
}

static void describe(struct tensor *tensor, int64_t axes, uint8_t code, uint8_t bits, int64_t *shape) {
  memset(tensor, 0, sizeof *tensor);
  tensor->device.type = CPU;
  tensor->axes = (int32_t)axes;
  tensor->dtype.code = code;
  tensor->dtype.bits = bits;
  tensor->dtype.lanes = 1;
  tensor->shape = shape;
}

/* Bytes per element of the leading axis. */
static int64_t slice_bytes(const struct table *table) {
  int64_t bytes = table->bits == 1 ? 1 : table->bits / 8;
  for (int32_t i = 1; i < table->axes; ++i) bytes *= table->shape[i];
  return bytes;
}

/* A part's share of a table; `shape` has room for the table's axes. */
static void share(struct tensor *tensor, const struct table *table, int64_t part, int64_t parts, int64_t *shape) {
  describe(tensor, table->axes, table->code, table->bits, shape);
  memcpy(shape, table->shape, (size_t)table->axes * sizeof *shape);
  int64_t first = 0;
  if (table->splits) {
    first = shape[0] * part / parts;
    shape[0] = shape[0] * (part + 1) / parts - first;
  }
  /* Kernels only read their tables. */
  tensor->data = (char *)(uintptr_t)table->data + first * (table->splits ? slice_bytes(table) : 0);
}

int hbtvm_bind(struct bound *bound) {
  const struct kernel *kernel = bound->kernel;
  int64_t axes = 0;
  for (int64_t i = 0; i < kernel->count; ++i) axes += kernel->tables[i].axes;
  bound->part = calloc((size_t)bound->parts, sizeof *bound->part);
  if (!bound->part) return 0;
  for (int64_t p = 0; p < bound->parts; ++p) {
    struct part *part = &bound->part[p];
    part->tables = calloc((size_t)kernel->count + 1, sizeof *part->tables);
    part->shapes = calloc((size_t)axes + 1, sizeof *part->shapes);
    if (!part->tables || !part->shapes) return 0;
    int64_t *shape = part->shapes;
    for (int64_t i = 0; i < kernel->count; ++i) {
      share(&part->tables[i], &kernel->tables[i], p, bound->parts, shape);
      shape += kernel->tables[i].axes;
    }
  }
  return 1;
}

void hbtvm_unbind(struct bound *bound) {
  for (int64_t p = 0; bound->part && p < bound->parts; ++p) {
    free(bound->part[p].tables);
    free(bound->part[p].shapes);
  }
  free(bound->part);
}

static void pass(struct value *value, struct tensor *tensor) {
  value->type = TENSOR_POINTER;
  value->padding = 0;
  value->is.pointer = tensor;
}

int hbtvm_lay_out(struct call *call, const struct bound *bound, int64_t part) {
  const struct kernel *kernel = bound->kernel;
  call->values = calloc((size_t)kernel->count + 2, sizeof *call->values);
  if (!call->values) return 0;
  call->rows_shape[1] = kernel->row_tile;
  call->rows_shape[2] = bound->columns;
  describe(&call->rows, 3, FLOATS, (uint8_t)(8 * item_bytes(bound->row_type)), call->rows_shape);
  call->scores_shape[1] = kernel->by_row ? kernel->row_tile : kernel->groups;
  call->scores_shape[2] = kernel->width;
  call->scores_shape[3] = kernel->row_tile;
  int64_t axes = kernel->by_row ? 3 : 4;
  describe(&call->scores, axes, FLOATS, (uint8_t)(8 * item_bytes(kernel->type)), call->scores_shape);
  pass(&call->values[0], &call->rows);
  for (int64_t i = 0; i < kernel->count; ++i) pass(&call->values[i + 1], &bound->part[part].tables[i]);
  pass(&call->values[kernel->count + 1], &call->scores);
  return 1;
}

int hbtvm_call(struct call *call, const struct bound *bound, const void *rows, int64_t tiles, void *scores) {
  const struct kernel *kernel = bound->kernel;
  call->rows_shape[0] = call->scores_shape[0] = tiles;
  call->rows.data = (void *)(uintptr_t)rows;
  call->scores.data = scores;
  if (bound->poison) memset(scores, 0xff, (size_t)(tiles * kernel->row_tile * bound->outputs * item_bytes(kernel->type)));
  struct value result = {0};
  if (kernel->function(kernel->self, call->values, (int32_t)kernel->count + 2, &result)) return HBTVM_KERNEL_FAILED;
  /* Most kernels return nothing. */
  if (result.type == INTEGER && result.is.integer) call->shown += tiles;
  return HBTVM_OK;
}

/* Copy `width` outputs of a tile of scores [G * V, R] to rows. */
static inline void transpose_few(const double *tile, int64_t row_tile, int64_t width, int64_t rows, double *sums,
                                 int64_t stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < width; ++o) sums[r * stride + o] = tile[o * row_tile + r];
}

/* Copy tiles of scores [G * V, R] to rows, a cache line of each row at a time. */
static void transpose(const struct bound *bound, const double *tiles, int64_t n, double *sums, int64_t stride) {
  enum { LINE = HBTVM_ALIGNMENT / sizeof(double) };
  int64_t outputs = bound->outputs, tile = bound->kernel->row_tile;
  for (int64_t start = 0; start < n; start += tile, tiles += outputs * tile) {
    int64_t rows = n - start < tile ? n - start : tile, o = 0;
    double *to = sums + start * stride;
    for (; o + LINE <= outputs; o += LINE) transpose_few(tiles + o * tile, tile, LINE, rows, to + o, stride);
    transpose_few(tiles + o * tile, tile, outputs - o, rows, to + o, stride);
  }
}

/* Compute `tiles` whole tiles, of which the first n rows count. */
static int whole_tiles(struct worker *worker, struct call *call, const struct bound *bound, const void *rows,
                       int64_t tiles, int64_t n, void *sums, int64_t stride) {
  int64_t outputs = bound->outputs, tile = bound->kernel->row_tile, item = item_bytes(bound->kernel->type);
  if (bound->direct && stride == outputs && tiles * tile == n && is_aligned(sums)) {
    return hbtvm_call(call, bound, rows, tiles, sums);
  }
  int64_t tile_bytes = outputs * tile * item, columns = bound->columns;
  int64_t block = HBTVM_BLOCK_BYTES / tile_bytes;
  if (block < 1) block = 1;
  if (block > tiles) block = tiles;
  char *scores = hbtvm_memory(worker, TILE_SCORES_MEMORY, (size_t)(block * tile_bytes));
  if (!scores) return HBTVM_NO_MEMORY;
  for (int64_t start = 0; start < tiles; start += block) {
    int64_t count = tiles - start < block ? tiles - start : block, first = start * tile;
    int64_t counted = n - first < count * tile ? n - first : count * tile;
    const char *from = (const char *)rows + first * columns * item_bytes(bound->row_type);
    int status = hbtvm_call(call, bound, from, count, scores);
    if (status) return status;
    char *to = (char *)sums + first * stride * item;
    if (!bound->direct) {
      transpose(bound, (const double *)(const void *)scores, counted, (double *)(void *)to, stride);
    } else if (stride == outputs) {
      memcpy(to, scores, (size_t)(counted * outputs * item));
    } else {
      for (int64_t r = 0; r < counted; ++r) {
        memcpy(to + r * stride * item, scores + r * outputs * item, (size_t)(outputs * item));
      }
    }
  }
  return HBTVM_OK;
}

int hbtvm_kernel_rows(struct worker *worker, struct call *call, const struct bound *bound, const void *rows,
                      int64_t n, void *sums, int64_t stride) {
  int64_t tile = bound->kernel->row_tile, tiles = n / tile, whole = tiles * tile, rest = n - whole;
  int64_t row_bytes = bound->columns * item_bytes(bound->row_type), item = item_bytes(bound->kernel->type);
  if (tiles) {
    int status = whole_tiles(worker, call, bound, rows, tiles, whole, sums, stride);
    if (status || !rest) return status;
  }
  const char *from = (const char *)rows + whole * row_bytes;
  char *to = (char *)sums + whole * stride * item;
  /* The kernel also computes the rest of the last tile. It repeats a row: what a kernel decides for a tile, as the type
   * of sums by the largest score, must depend on the caller's rows alone. */
  char *padded = hbtvm_memory(worker, TILE_MEMORY, (size_t)(tile * row_bytes));
  if (!padded) return HBTVM_NO_MEMORY;
  memcpy(padded, from, (size_t)(rest * row_bytes));
  for (int64_t row = rest; row < tile; ++row) memcpy(padded + row * row_bytes, from, (size_t)row_bytes);
  return whole_tiles(worker, call, bound, padded, 1, rest, to, stride);
}
