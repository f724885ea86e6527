/* The executor's clock. */
#ifndef HBTVM_CLOCK_H
#define HBTVM_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return nanoseconds of a monotonic clock. Files that include this define `_GNU_SOURCE` first. */
static inline int64_t nanoseconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
