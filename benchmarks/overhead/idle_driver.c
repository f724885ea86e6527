/* A driver whose functions do nothing, but for memory of the host, and count their calls. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static long calls;
long idle_calls(void) { return calls; }

#define NOTHING(name) int name(void) { ++calls; return 0; }
#define HANDLE(name) int name(uint64_t *made) { ++calls; *made = 1; return 0; }
NOTHING(cuInit)
NOTHING(cuGetErrorName)
NOTHING(cuGetErrorString)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuMemFree_v2)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpyDtoHAsync_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuMemsetD8Async)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventDestroy_v2)
NOTHING(cuEventRecord)
NOTHING(cuEventSynchronize)
NOTHING(cuStreamBeginCapture_v2)
NOTHING(cuGraphUpload)
NOTHING(cuGraphLaunch)
NOTHING(cuGraphExecDestroy)
NOTHING(cuGraphDestroy)
HANDLE(cuGraphInstantiateWithFlags)
HANDLE(cuDevicePrimaryCtxRetain)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleGetFunction)
HANDLE(cuStreamCreate)
HANDLE(cuEventCreate)

static int depth = 1; /* as where another library has made the device current */
int cuCtxPushCurrent_v2(void *context) { (void)context; ++calls; ++depth; return 0; }
int cuCtxPopCurrent_v2(uint64_t *context) { ++calls; *context = 1; --depth; return 0; }
int cuCtxGetCurrent(uint64_t *context) { ++calls; *context = depth > 0; return 0; }
void idle_current(int is) { depth = is; }

int cuStreamIsCapturing(void *stream, int *status) { (void)stream; ++calls; *status = 0; return 0; }
int cuStreamEndCapture(void *stream, uint64_t *graph) { (void)stream; ++calls; *graph = 1; return 0; }
int cuDriverGetVersion(int *version) { ++calls; *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { ++calls; *count = 1; return 0; }
int cuDeviceGet(int *device) { ++calls; *device = 0; return 0; }
int cuDeviceGetName(char *name, int size) { ++calls; strncpy(name, "none", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute) {
  ++calls;
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) { ++calls; *blocks = 1; return 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { ++calls; *address = (uint64_t)malloc(size); return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { ++calls; *free = *total = (size_t)1 << 36; return 0; }
int cuMemHostAlloc(void **address, size_t size) { ++calls; *address = calloc(1, size); return 0; }
int cuMemHostGetDevicePointer_v2(void **made, void *address) { ++calls; *made = address; return 0; }
int cuMemFreeHost(void *address) { ++calls; free(address); return 0; }
int cuEventElapsedTime(float *milliseconds) { ++calls; *milliseconds = 1; return 0; }
