// A stand-in for NVIDIA's driver: device memory is the host's, machine code a library of emulated kernels
// (see emulated.py). As on a GPU, what is queued in a stream happens when somebody waits for it, and not
// before: whoever reads too early reads what was there. Pageable host memory is copied when a copy is queued,
// pinned memory when the copy happens. Every function on memory, code, streams or events fails without a current
// context, and memory that was given back is handed out again with what was in it. Behind
// memory lies a page that kernels and copies can't touch. Streams, events and kernels belong to a context, and
// can't be used after they were destroyed.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {
struct Graph { std::vector<std::function<void()>> work; size_t launches = 0; };
struct Object { intptr_t context = 0; };
struct Stream : Object {
  std::deque<std::function<void()>> queue;
  size_t queued = 0, done = 0;
  Graph *graph = nullptr;
  bool strict = false, spoilt = false;  // of a capture: other calls of its thread spoil it; one did
};
struct Event : Object { Stream *stream = nullptr; size_t at = 0; bool timed = true; };
struct Module : Object { void *library; };
struct Launch : Object {
  Module *module;
  void (*call)(void **, const unsigned *);
  std::vector<size_t> sizes;
  unsigned fixed, threads;  // bytes of static shared memory; most threads of a block
  size_t local;  // bytes of a thread's arrays, an upper bound of its local memory
  unsigned allowed;  // bytes of dynamic shared memory
};

std::recursive_mutex lock;
Stream default_stream;
std::vector<Stream *> streams = {&default_stream};
std::map<void *, size_t> memory;
std::map<char *, size_t> pinned;
std::set<void *> destroyed;
std::map<size_t, std::vector<void *>> spare;  // memory that was given back, by size
size_t used = 0, launches = 0, pinned_bytes = 0;
long settings[11] = {2, 90, 1 << 30, 0, 13000, 0, 0, 0, 0, 1 << 30, 1};  // SECOND: 0 for as the first
// RESIDENT: multiprocessors, 0 for as many as a large GPU has. UNIFIED: whether the host's addresses are the device's.
enum Setting {
  DEVICES, CAPABILITY, MEMORY, FAILURE, VERSION, UNREADABLE, NOT_READY, SECOND, RESIDENT, PINNABLE, UNIFIED
};
// Of processes that nobody asks by fake_set: so many multiprocessors.
const bool started = [] {
  if (const char *cores = getenv("HBTVM_FAKE_RESIDENT")) settings[RESIDENT] = atol(cores);
  return true;
}();
constexpr size_t LOCAL_BYTES = 10ul << 30;  // most that local memory takes for all threads of a large GPU
int depth = 0;
size_t launches_on[8];
long carveout = -1;  // in percent, what was last asked of it for a kernel
thread_local std::vector<intptr_t> contexts;  // of devices, counted from 1
thread_local Stream *captured = nullptr;  // by this thread

// Whether an object exists, and belongs to the current context.
bool usable(void *object) {
  return object && !destroyed.count(object) && ((Object *)object)->context == contexts.back();
}
int destroy(void *object) {
  if (!usable(object)) return 400;
  destroyed.insert(object);
  return 0;
}

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
  const size_t page = 4096, whole = (size + page - 1) / page * page, padded = (size + 63) / 64 * 64;
  char *pages = (char *)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + whole, page, PROT_NONE)) abort();
  memset(pages, 0x7f, whole);
  return pages + whole - padded;
}
// Whether bytes lie within the memory in which they begin; another library's memory is unknown here.
bool within(uint64_t address, size_t size) {
  auto after = memory.upper_bound((void *)address);
  if (after == memory.begin()) return true;
  const uint64_t start = (uint64_t)std::prev(after)->first, end = start + std::prev(after)->second;
  return address >= end || address + size <= end;
}
}  // namespace

#define API extern "C" int
#define CURRENT if (contexts.empty()) return 201
#define STREAM(handle) if ((handle) && !usable(handle)) return 400
// What may wait for the device is refused while the calling thread captures, and spoils the capture.
#define UNCAPTURED if (captured && captured->strict) { captured->spoilt = true; return 900; }
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
  const std::map<int, long> values = {
    {13, 1980000}, {16, cores}, {33, 0x65 + device}, {34, 0}, {41, settings[UNIFIED]}, {50, 0},
    {75, capability / 10}, {76, capability % 10}, {81, shared_memory(device)},
  };
  if (!values.count(attribute)) return 1;
  *value = (int)values.at(attribute);
  return 0;
}
API cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
API cuCtxPushCurrent_v2(void *context) {
  LOCKED;
  if ((intptr_t)context < 1 || (intptr_t)context > settings[DEVICES]) return 201;
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
  LOCKED;
  CURRENT;
  UNCAPTURED;
  if (settings[UNREADABLE]) return settings[UNREADABLE];
  if (strncmp(image, "EMULATED:", 9)) return 200;
  void *library = dlopen(image + 9, RTLD_NOW | RTLD_LOCAL);
  if (library) *module = new Module{{contexts.back()}, library};
  return library ? 0 : 200;
}
API cuModuleUnload(void *module) {
  LOCKED;
  CURRENT;
  UNCAPTURED;
  return destroy(module);
}
API cuModuleGetFunction(void **function, void *handle, const char *name) {
  LOCKED;
  CURRENT;
  if (!usable(handle)) return 400;
  Module *module = (Module *)handle;
  auto symbol = [=](const char *kind) { return dlsym(module->library, (kind + std::string(name)).c_str()); };
  Launch *launch = new Launch{{contexts.back()}, module, (void (*)(void **, const unsigned *))symbol("launch_")};
  size_t *sizes = (size_t *)symbol("sizes_");
  unsigned *limits = (unsigned *)symbol("limits_");
  if (!launch->call || !sizes || !limits) return 500;
  while (*sizes) launch->sizes.push_back(*sizes++);
  launch->fixed = limits[0];
  launch->threads = limits[1];
  launch->local = limits[2];
  if (launch->fixed > 48 << 10) return 1;
  launch->allowed = (48 << 10) - launch->fixed;
  *function = launch;
  return 0;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
  LOCKED;
  CURRENT;
  Launch *launch = (Launch *)function;
  if (!usable(launch) || !usable(launch->module)) return 400;
  if (attribute == 8) {
    if (value < 0 || value + (long)launch->fixed > shared_memory((int)contexts.back() - 1) - 1024) return 1;
    launch->allowed = (unsigned)value;
  }
  if (attribute == 9 && (value < 0 || value > 100)) return 1;
  if (attribute == 9) carveout = value;
  return attribute == 8 || attribute == 9 ? 0 : 1;
}
static int start(void *function, std::vector<unsigned> sizes, void *stream, void **arguments) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  Launch *launch = (Launch *)function;
  if (!usable(launch) || !usable(launch->module)) return 400;
  for (int i = 0; i < 6; ++i) if (!sizes[i]) return 1;
  if (sizes[3] > 1024 || sizes[4] > 1024 || sizes[5] > 64 || sizes[3] * sizes[4] * sizes[5] > 1024) return 1;
  if (sizes[3] * sizes[4] * sizes[5] > launch->threads) return 701;
  // Local memory is reserved for all threads that a large GPU can have at once.
  if (launch->local * 2048 * 132 > LOCAL_BYTES) return 2;
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
  return start(function, {gx, gy, gz, bx, by, bz, shared, 1 + (unsigned)launches % 2u}, stream, arguments);
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int, size_t) {
  CURRENT;
  *blocks = 1;
  return 0;
}

API cuMemAlloc_v2(uint64_t *address, size_t size) {
  LOCKED;
  CURRENT;
  UNCAPTURED;
  if (!size) return 1;
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
  UNCAPTURED;
  auto found = memory.find((void *)address);
  if (found == memory.end()) return 1;
  settle();
  used -= found->second;
  spare[found->second].push_back(found->first);
  memory.erase(found);
  return 0;
}
API cuMemGetInfo_v2(size_t *free, size_t *total) {
  LOCKED;
  CURRENT;
  *total = settings[MEMORY];
  *free = settings[MEMORY] - used;
  return 0;
}
API cuMemHostAlloc(void **address, size_t size, unsigned) {
  LOCKED;
  CURRENT;
  UNCAPTURED;
  if (!size) return 1;
  if (pinned_bytes + size > (size_t)settings[PINNABLE]) return 2;
  *address = taken(size);
  pinned[(char *)*address] = size;
  pinned_bytes += size;
  return 0;
}
API cuMemHostGetDevicePointer_v2(uint64_t *made, void *address, unsigned flags) {
  LOCKED;
  CURRENT;
  if (flags || !pinned.count((char *)address)) return 1;
  *made = (uint64_t)address;
  return 0;
}
API cuMemFreeHost(void *address) {
  LOCKED;
  CURRENT;
  UNCAPTURED;
  auto found = pinned.find((char *)address);
  if (found == pinned.end()) return 1;
  settle();
  pinned_bytes -= found->second;
  spare[found->second].push_back(address);
  pinned.erase(found);
  return 0;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (!within(to, size)) return 1;
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
  STREAM(stream);
  if (!within(from, size)) return 1;
  queue(stream, [=] { memcpy(to, (void *)from, size); });
  return 0;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (!within(to, size) || !within(from, size)) return 1;
  queue(stream, [=] { memcpy((void *)to, (void *)from, size); });
  return 0;
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (!within(to, size)) return 1;
  queue(stream, [=] { memset((void *)to, value, size); });
  return 0;
}
API cuStreamCreate(void **stream, unsigned flags) {
  LOCKED;
  CURRENT;
  Stream *made = new Stream;
  made->context = contexts.back();
  streams.push_back(made);
  *stream = made;
  return flags == 1 ? 0 : 1;
}
API cuStreamDestroy_v2(void *stream) {  // what was queued still happens
  LOCKED;
  CURRENT;
  return destroy(stream);
}
API cuStreamSynchronize(void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (fail()) return fail();
  if (stream_of(stream)->graph) return 900;
  run(stream_of(stream), stream_of(stream)->queued);
  return 0;
}
API cuStreamIsCapturing(void *stream, int *status) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  *status = stream_of(stream)->graph != nullptr;
  return 0;
}
API cuStreamBeginCapture_v2(void *handle, int mode) {
  LOCKED;
  CURRENT;
  STREAM(handle);
  Stream *stream = stream_of(handle);
  if (!handle || stream->graph || captured) return 900;
  stream->graph = new Graph;
  stream->strict = mode != 2;
  stream->spoilt = false;
  captured = stream;
  return 0;
}
API cuStreamEndCapture(void *handle, void **graph) {
  LOCKED;
  CURRENT;
  STREAM(handle);
  Stream *stream = stream_of(handle);
  if (!stream->graph) return 901;
  if (stream != captured) return 908;
  *graph = stream->spoilt ? nullptr : stream->graph;
  stream->graph = nullptr;
  captured = nullptr;
  return stream->spoilt ? 901 : 0;
}
API cuGraphInstantiateWithFlags(void **made, void *graph, uint64_t) {
  LOCKED;
  CURRENT;
  if (!graph || destroyed.count(graph)) return 1;
  *made = new Graph(*(Graph *)graph);
  return 0;
}
API cuGraphUpload(void *graph, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  return destroyed.count(graph) ? 1 : 0;
}
API cuGraphLaunch(void *handle, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (destroyed.count(handle)) return 1;
  Graph *graph = (Graph *)handle;
  launches += graph->launches;
  launches_on[contexts.back() - 1] += graph->launches;
  for (auto &work : graph->work) queue(stream, work);
  return 0;
}
static int drop(void *graph) {
  LOCKED;
  CURRENT;
  if (!graph || !destroyed.insert(graph).second) return 1;
  ((Graph *)graph)->work.clear();
  return 0;
}
API cuGraphExecDestroy(void *graph) { return drop(graph); }
API cuGraphDestroy(void *graph) { return drop(graph); }
API cuStreamWaitEvent(void *stream, void *handle, unsigned) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (!usable(handle)) return 400;
  Event event = *(Event *)handle;
  if (event.stream) queue(stream, [=] { run(event.stream, event.at); });
  return 0;
}
API cuEventCreate(void **event, unsigned flags) {
  LOCKED;
  CURRENT;
  Event *made = new Event;
  made->context = contexts.back();
  made->timed = !(flags & 2);
  *event = made;
  return 0;
}
API cuEventDestroy_v2(void *event) {
  LOCKED;
  CURRENT;
  return destroy(event);
}
API cuEventRecord(void *handle, void *stream) {
  LOCKED;
  CURRENT;
  STREAM(stream);
  if (!usable(handle)) return 400;
  ((Event *)handle)->stream = stream_of(stream);
  ((Event *)handle)->at = stream_of(stream)->queued;
  return 0;
}
API cuEventSynchronize(void *handle) {
  LOCKED;
  CURRENT;
  if (!usable(handle)) return 400;
  if (fail()) return fail();
  Event *event = (Event *)handle;
  if (event->stream) run(event->stream, event->at);
  return 0;
}
// A millisecond for each thing that was queued between the two.
API cuEventElapsedTime(float *milliseconds, void *first, void *last) {
  LOCKED;
  CURRENT;
  for (void *handle : {first, last}) {
    Event *event = (Event *)handle;
    if (!usable(event) || !event->timed || !event->stream) return 400;
    if (event->stream->done < event->at) return 600;
  }
  *milliseconds = (float)(((Event *)last)->at - ((Event *)first)->at);
  return 0;
}
