// A stand-in for NVIDIA's driver: device memory is the host's, machine code a library of emulated kernels
// (see emulated.py). As on a GPU, what is queued in a stream happens when somebody waits for it, and not
// before: whoever reads too early reads what was there. Pageable host memory is copied when a copy is queued,
// pinned memory when the copy happens. Every function that cuda.h lists with CUDA_ERROR_INVALID_CONTEXT fails
// without a current context, and memory that was given back is handed out again with what was in it.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {
struct Graph { std::vector<std::function<void()>> work; size_t launches = 0; };
struct Stream { std::deque<std::function<void()>> queue; size_t queued = 0, done = 0; Graph *graph = nullptr; };
struct Event { Stream *stream = nullptr; size_t at = 0; };
struct Launch {
  void (*call)(void **, const unsigned *);
  std::vector<size_t> sizes;
  unsigned allowed = 48 << 10;  // bytes of dynamic shared memory
};

std::recursive_mutex lock;
Stream default_stream;
std::vector<Stream *> streams = {&default_stream};
std::map<void *, size_t> memory;
std::map<char *, size_t> pinned;
std::map<size_t, std::vector<void *>> spare;  // memory that was given back, by size
size_t used = 0, launches = 0, pinned_bytes = 0;
long settings[11] = {2, 90, 1 << 30, 0, 13000, 0, 0, 0, 0, 1 << 30, 1};  // SECOND: 0 for as the first
// RESIDENT: multiprocessors, 0 for as many as a large GPU has. UNIFIED: whether the host's addresses are the device's.
enum Setting {
  DEVICES, CAPABILITY, MEMORY, FAILURE, VERSION, UNREADABLE, NOT_READY, SECOND, RESIDENT, PINNABLE, UNIFIED
};
int depth = 0;
size_t launches_on[8];
long carveout = -1;  // in percent, what was last asked of it for a kernel
thread_local std::vector<intptr_t> contexts;  // of devices, counted from 1

Stream *stream_of(void *handle) { return handle ? (Stream *)handle : &default_stream; }
void queue(void *handle, std::function<void()> work) {
  Stream *stream = stream_of(handle);
  if (stream->graph) return stream->graph->work.push_back(work);
  stream->queue.push_back(work);
  ++stream->queued;
}
void run(Stream *stream, size_t until) {
  while (stream->done < until && !stream->queue.empty()) {  // work may wait for its own stream
    auto work = stream->queue.front();
    stream->queue.pop_front();
    work();
    ++stream->done;
  }
}
// What is given back may be in use: as the driver does, wait for all that was queued anywhere.
void settle() {
  for (size_t i = 0; i < streams.size(); ++i) run(streams[i], streams[i]->queued);
}
int fail() { return (int)settings[FAILURE]; }
long shared_memory(int device) {  // of a multiprocessor, of compute capability 9.0 and of 8.6
  return 1024 * (settings[device && settings[SECOND] ? SECOND : CAPABILITY] == 86 ? 100 : 228);
}
void *taken(size_t size) {
  auto &left = spare[size];
  if (!left.empty()) {
    void *again = left.back();
    left.pop_back();
    return again;
  }
  void *made = aligned_alloc(256, (size + 255) / 256 * 256);
  memset(made, 0x7f, size);
  return made;
}
}  // namespace

#define API extern "C" int
#define CURRENT if (contexts.empty()) return 201
#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)

extern "C" void fake_set(int which, long value) { settings[which] = value; }
extern "C" long fake_get(int which) {
  const size_t counts[] = {used, memory.size(), launches, (size_t)depth, launches_on[0], launches_on[1], pinned_bytes};
  return which == 7 ? carveout : (long)counts[which];
}

// What another library does in a stream.
extern "C" void fake_queue(void *stream, void (*work)()) {
  LOCKED;
  queue(stream, work);
}

API cuInit(unsigned) { return settings[NOT_READY] ? settings[NOT_READY] : settings[DEVICES] ? 0 : 100; }
API cuDriverGetVersion(int *version) { *version = settings[VERSION]; return 0; }
API cuGetErrorName(int code, const char **text) {
  *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
  return 0;
}
API cuGetErrorString(int code, const char **text) {
  *text = code == 700 ? "an illegal memory access was encountered" : "something failed";
  return 0;
}
API cuDeviceGetCount(int *count) { *count = settings[DEVICES]; return 0; }
API cuDeviceGet(int *device, int index) { *device = index; return 0; }
API cuDeviceGetName(char *name, int size, int) { strncpy(name, "Emulated GPU", size); return 0; }
API cuDeviceGetAttribute(int *value, int attribute, int device) {
  const long capability = settings[device && settings[SECOND] ? SECOND : CAPABILITY];
  const long cores = settings[RESIDENT] ? settings[RESIDENT] : 132;
  *value = attribute == 75   ? capability / 10
           : attribute == 76 ? capability % 10
           : attribute == 81 ? shared_memory(device)
           : attribute == 41 ? settings[UNIFIED]
                             : cores;
  return 0;
}
API cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
API cuCtxPushCurrent_v2(void *context) {
  LOCKED;
  contexts.push_back((intptr_t)context);
  ++depth;
  return 0;
}
API cuCtxPopCurrent_v2(void **) {
  LOCKED;
  CURRENT;
  contexts.pop_back();
  --depth;
  return 0;
}

API cuCtxGetCurrent(void **context) {
  LOCKED;
  *context = contexts.empty() ? nullptr : (void *)contexts.back();
  return 0;
}

API cuModuleLoadData(void **module, const char *image) {
  CURRENT;
  if (settings[UNREADABLE]) return settings[UNREADABLE];
  if (strncmp(image, "EMULATED:", 9)) return 200;
  *module = dlopen(image + 9, RTLD_NOW | RTLD_LOCAL);
  return *module ? 0 : 200;
}
API cuModuleUnload(void *) {
  CURRENT;
  return 0;
}
API cuModuleGetFunction(void **function, void *module, const char *name) {
  CURRENT;
  Launch *launch = new Launch;
  launch->call = (void (*)(void **, const unsigned *))dlsym(module, ("launch_" + std::string(name)).c_str());
  size_t *sizes = (size_t *)dlsym(module, ("sizes_" + std::string(name)).c_str());
  if (!launch->call || !sizes) return 500;
  while (*sizes) launch->sizes.push_back(*sizes++);
  *function = launch;
  return 0;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
  CURRENT;
  if (attribute == 8) {
    if (value < 0 || value > shared_memory((int)contexts.back() - 1) - 1024) return 1;
    ((Launch *)function)->allowed = (unsigned)value;
  }
  if (attribute == 9 && (value < 0 || value > 100)) return 1;
  if (attribute == 9) carveout = value;
  return attribute == 8 || attribute == 9 ? 0 : 1;
}
static int start(void *function, std::vector<unsigned> sizes, void *stream, void **arguments) {
  LOCKED;
  CURRENT;
  Launch *launch = (Launch *)function;
  if (!sizes[0] || !sizes[1] || !sizes[2] || sizes[3] * sizes[4] * sizes[5] > 1024) return 1;
  if (sizes[0] > 0x7fffffffu || sizes[1] > 65535 || sizes[2] > 65535 || sizes[6] > launch->allowed) return 1;
  std::vector<std::vector<char>> values;  // as the driver does: the caller may forget them at once
  for (size_t i = 0; i < launch->sizes.size(); ++i)
    values.emplace_back((char *)arguments[i], (char *)arguments[i] + launch->sizes[i]);
  if (stream_of(stream)->graph) {
    ++stream_of(stream)->graph->launches;
  } else {
    ++launches;
    ++launches_on[contexts.back() - 1];
  }
  queue(stream, [=]() mutable {
    std::vector<void *> pointers;
    for (auto &value : values) pointers.push_back(value.data());
    launch->call(pointers.data(), sizes.data());
  });
  return 0;
}
API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **) {
  return start(function, {gx, gy, gz, bx, by, bz, shared, 0}, stream, arguments);
}
// All blocks run together, where there is room for them at once: one a multiprocessor.
API cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void *stream, void **arguments) {
  if (gy * gz != 1 || (long)gx > (settings[RESIDENT] ? settings[RESIDENT] : 132)) return 720;
  return start(function, {gx, gy, gz, bx, by, bz, shared, 1 + launches % 2u}, stream, arguments);
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int, size_t) {
  CURRENT;
  *blocks = 1;
  return 0;
}

API cuMemAlloc_v2(uint64_t *address, size_t size) {
  LOCKED;
  CURRENT;
  if (used + size > (size_t)settings[MEMORY]) return 2;
  void *made = taken(size);
  memory[made] = size;
  used += size;
  *address = (uint64_t)made;
  return 0;
}
API cuMemFree_v2(uint64_t address) {
  LOCKED;
  CURRENT;
  auto found = memory.find((void *)address);
  if (found == memory.end()) return 1;
  settle();
  used -= found->second;
  spare[found->second].push_back(found->first);
  memory.erase(found);
  return 0;
}
API cuMemGetInfo_v2(size_t *free, size_t *total) {
  CURRENT;
  *total = settings[MEMORY];
  *free = settings[MEMORY] - used;
  return 0;
}
API cuMemHostAlloc(void **address, size_t size, unsigned) {
  LOCKED;
  CURRENT;
  if (pinned_bytes + size > (size_t)settings[PINNABLE]) return 2;
  *address = taken(size);
  pinned[(char *)*address] = size;
  pinned_bytes += size;
  return 0;
}
API cuMemHostGetDevicePointer_v2(uint64_t *made, void *address, unsigned) {
  CURRENT;
  *made = (uint64_t)address;
  return 0;
}
API cuMemFreeHost(void *address) {
  LOCKED;
  CURRENT;
  settle();
  pinned_bytes -= pinned[(char *)address];
  spare[pinned[(char *)address]].push_back(address);
  pinned.erase((char *)address);
  return 0;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  auto after = pinned.upper_bound((char *)from);
  if (after != pinned.begin() && (char *)from < std::prev(after)->first + std::prev(after)->second) {
    queue(stream, [=] { memcpy((void *)to, from, size); });
    return 0;
  }
  std::vector<char> bytes((const char *)from, (const char *)from + size);
  queue(stream, [=] { memcpy((void *)to, bytes.data(), size); });
  return 0;
}
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  queue(stream, [=] { memcpy(to, (void *)from, size); });
  return 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  queue(stream, [=] { memcpy((void *)to, (void *)from, size); });
  return 0;
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  queue(stream, [=] { memset((void *)to, value, size); });
  return 0;
}
API cuStreamCreate(void **stream, unsigned flags) {
  LOCKED;
  CURRENT;
  streams.push_back(new Stream);
  *stream = streams.back();
  return flags == 1 ? 0 : 1;
}
API cuStreamDestroy_v2(void *) {  // events may still name it
  CURRENT;
  return 0;
}
API cuStreamSynchronize(void *stream) {
  LOCKED;
  CURRENT;
  if (fail()) return fail();
  if (stream_of(stream)->graph) return 900;
  run(stream_of(stream), stream_of(stream)->queued);
  return 0;
}
API cuStreamIsCapturing(void *stream, int *status) { *status = stream_of(stream)->graph != nullptr; return 0; }
API cuStreamBeginCapture_v2(void *stream, int) {
  LOCKED;
  if (!stream || stream_of(stream)->graph) return 900;
  stream_of(stream)->graph = new Graph;
  return 0;
}
API cuStreamEndCapture(void *stream, void **graph) {
  LOCKED;
  if (!stream_of(stream)->graph) return 901;
  *graph = stream_of(stream)->graph;
  stream_of(stream)->graph = nullptr;
  return 0;
}
API cuGraphInstantiateWithFlags(void **made, void *graph, uint64_t) { *made = new Graph(*(Graph *)graph); return 0; }
API cuGraphUpload(void *, void *) { return 0; }
API cuGraphLaunch(void *handle, void *stream) {
  LOCKED;
  Graph *graph = (Graph *)handle;
  launches += graph->launches;
  launches_on[contexts.back() - 1] += graph->launches;
  for (auto &work : graph->work) queue(stream, work);
  return 0;
}
API cuGraphExecDestroy(void *graph) { delete (Graph *)graph; return 0; }
API cuGraphDestroy(void *graph) { delete (Graph *)graph; return 0; }
API cuStreamWaitEvent(void *stream, void *handle, unsigned) {
  LOCKED;
  CURRENT;
  Event event = *(Event *)handle;
  if (event.stream) queue(stream, [=] { run(event.stream, event.at); });
  return 0;
}
API cuEventCreate(void **event, unsigned) {
  CURRENT;
  *event = new Event;
  return 0;
}
API cuEventDestroy_v2(void *) {
  CURRENT;
  return 0;
}
API cuEventRecord(void *handle, void *stream) {
  LOCKED;
  CURRENT;
  *(Event *)handle = {stream_of(stream), stream_of(stream)->queued};
  return 0;
}
API cuEventSynchronize(void *handle) {
  LOCKED;
  CURRENT;
  if (fail()) return fail();
  Event *event = (Event *)handle;
  if (event->stream) run(event->stream, event->at);
  return 0;
}
// A millisecond for each thing that was queued between the two.
API cuEventElapsedTime(float *milliseconds, void *first, void *last) {
  CURRENT;
  *milliseconds = (float)(((Event *)last)->at - ((Event *)first)->at);
  return 0;
}
