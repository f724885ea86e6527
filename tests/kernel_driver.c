/* Calls a kernel: driver LIBRARY ARGUMENTS SCORES

   ARGUMENTS holds the tensors: their number, and of each its type's code and bits, axes, extents and bytes as
   64-bit integers, then its bytes, padded to a multiple of 8. The last one's bytes are written to SCORES. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { MOST = 64, AXES = 8, ALIGNMENT = 64 };

typedef int Kernel(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  fprintf(stderr, "%s: ", kind);
  for (int32_t i = 0; i < count; ++i)
    if (parts[i]) fputs(parts[i], stderr);
  fputc('\n', stderr);
}

static void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(2);
}

static int64_t number(FILE *file) {
  int64_t value;
  if (fread(&value, sizeof value, 1, file) != 1) fail("the arguments are too short");
  return value;
}

int main(int count, char **names) {
  static TVMFFIAny arguments[MOST];
  static DLTensor tensors[MOST];
  static int64_t shapes[MOST][AXES], bytes[MOST];
  if (count != 4) fail("expected LIBRARY ARGUMENTS SCORES");
  void *library = dlopen(names[1], RTLD_NOW);
  if (!library) fail(dlerror());
  void *found = dlsym(library, "__tvm_ffi_main");
  Kernel *kernel;
  memcpy(&kernel, &found, sizeof kernel);
  FILE *file = fopen(names[2], "rb");
  if (!found || !file) fail("there is no kernel, or there are no arguments");
  int64_t given = number(file);
  if (given < 1 || given > MOST) fail("too many arguments");
  for (int64_t i = 0; i < given; ++i) {
    DLTensor *tensor = &tensors[i];
    tensor->device.device_type = kDLCPU;
    tensor->dtype.code = (uint8_t)number(file);
    tensor->dtype.bits = (uint8_t)number(file);
    tensor->dtype.lanes = 1;
    tensor->ndim = (int32_t)number(file);
    if (tensor->ndim > AXES) fail("too many axes");
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) shapes[i][axis] = number(file);
    tensor->shape = shapes[i];
    bytes[i] = number(file);
    size_t padded = ((size_t)bytes[i] + 7) / 8 * 8;
    tensor->data = aligned_alloc(ALIGNMENT, (padded + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (!tensor->data || fread(tensor->data, 1, padded, file) != padded) fail("no memory, or no data");
    arguments[i].type_index = kTVMFFIDLTensorPtr;
    arguments[i].v_ptr = tensor;
  }
  fclose(file);
  TVMFFIAny result = {0};
  if (kernel(NULL, arguments, (int32_t)given, &result)) return 1;
  file = fopen(names[3], "wb");
  size_t size = (size_t)bytes[given - 1];
  if (!file || fwrite(tensors[given - 1].data, 1, size, file) != size || fclose(file)) fail("can't write");
  return 0;
}
