/* The function that a kernel calls before it returns an error status, if its arguments differ from those for which it
 * was compiled.
 *
 * TVM's loader provides this function. Without TVM (predicting needs no TVM), the executor uses only the status.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

typedef void raised(const char *kind, const char **parts, int32_t count);

/* Hidden: a lookup by name finds TVM's function, if loaded. */
__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts,
                                                                             int32_t count) {
  void *found = dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStrParts");
  if (!found) return;
  raised *raise;
  *(void **)&raise = found;
  raise(kind, parts, count);
}
