/* The arguments NAME=VALUE of a program (see peer.h); its `main` sets `arguments`. */
#ifndef BENCHMARKS_NATIVE_OPTIONS_H
#define BENCHMARKS_NATIVE_OPTIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static int argument_count;
static char **arguments;

const char *option(const char *name) {
  size_t length = strlen(name);
  for (int i = 1; i < argument_count; i++)
    if (strncmp(arguments[i], name, length) == 0 && arguments[i][length] == '=') return arguments[i] + length + 1;
  fprintf(stderr, "no argument %s=...\n", name);
  exit(2);
}

int64_t option_number(const char *name) { return strtoll(option(name), NULL, 10); }

#endif
