/* Errors of a kernel, so that its library needs no TVM runtime beside it.
 *
 * TVM's generated code tells what is wrong with its arguments by a function of TVM's runtime, and returns a status.
 * Where that runtime is loaded, as it is while tuning, it gets the text; elsewhere the status is all there is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NAME TVMFFIErrorSetRaisedFromCStrParts
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

typedef void tell(const char *kind, const char **parts, int32_t count);

/* Hidden: it is this library's own, and never found in place of the runtime's. */
__attribute__((visibility("hidden"))) tell NAME;

void NAME(const char *kind, const char **parts, int32_t count) {
  void *address = dlsym(RTLD_DEFAULT, TEXT(NAME));
  tell *function = NULL;
  memcpy(&function, &address, sizeof function); /* ISO C has no cast from one to the other */
  if (function != NULL) function(kind, parts, count);
}
