/* What a kernel calls when its arguments are others than it was compiled for, before it returns a status.
 *
 * TVM's loader brings this function along. Where it is not loaded (a package that predicts needs nothing of TVM),
 * the status is all that the executor asks for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

typedef void raised(const char *kind, const char **parts, int32_t count);

/* Hidden: a lookup by name finds TVM's, if it is there. */
__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts,
                                                                             int32_t count) {
  void *found = dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStrParts");
  if (!found) return;
  raised *raise;
  *(void **)&raise = found;
  raise(kind, parts, count);
}
