/* The time, as all parts of the executor measure it. */
#ifndef HBTVM_CLOCK_H
#define HBTVM_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment; they only grow. The file that includes this asks for POSIX first (`_GNU_SOURCE`). */
static inline int64_t nanoseconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
