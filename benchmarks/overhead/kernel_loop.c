/* Times a kernel alone, as TVM's calling convention has it: rows, tables, scores. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef int kernel_function(void *self, const void *args, int32_t count, void *result);

/* Arrays as Python describes them. */
struct array {
  void *data;
  int64_t *shape;
  int32_t axes;
  uint8_t code, bits; /* DLPack's */
};

/* DLPack's tensor. */
struct tensor {
  void *data;
  int32_t device_type, device;
  int32_t axes;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct value {
  int32_t type;
  uint32_t padding;
  void *pointer;
};

enum { CPU = 1, TENSOR_POINTER = 7, MOST_ARRAYS = 64 };

/* Call a kernel `calls` times, one row tile after the other.
 *
 * `arrays`: what the kernel takes; the first one is one row tile. Row tiles lie `step` bytes apart from where it
 * begins; there are `tiles` of them.
 *
 * Returns seconds per call; negative if the kernel failed.
 */
double kernel_seconds(kernel_function *kernel, const struct array *arrays, int32_t count, int64_t step, int64_t tiles,
                      int64_t calls) {
  struct tensor tensors[MOST_ARRAYS];
  struct value values[MOST_ARRAYS], result;
  if (count > MOST_ARRAYS || tiles < 1 || calls < 1) return -1.0;
  for (int32_t i = 0; i < count; i++) {
    const struct array *from = &arrays[i];
    tensors[i] = (struct tensor){from->data, CPU, 0, from->axes, from->code, from->bits, 1, from->shape, NULL, 0};
    values[i] = (struct value){TENSOR_POINTER, 0, &tensors[i]};
  }
  struct timespec start, end;
  int failed = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  int64_t tile = 0;
  for (int64_t i = 0; i < calls; i++) {
    tensors[0].data = (char *)arrays[0].data + tile * step;
    if (++tile == tiles) tile = 0;
    failed |= kernel(NULL, values, count, &result);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (failed) return -1.0;
  return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / (double)calls;
}
