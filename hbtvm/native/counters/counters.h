/* Counters of combinations of categories, for any number of rows; see `hbtvm.graph.columns.counters`.
 *
 * The caller lays out a `struct counters` (`hbtvm.runtime.native.counters`); calls only read it, from any thread.
 */
#ifndef HBTVM_COUNTERS_H
#define HBTVM_COUNTERS_H

#include <stdint.h>

enum counter_test { HBTVM_HASH = 0, HBTVM_ABOVE = 1, HBTVM_EQUAL = 2 };
enum counter_input { HBTVM_AS_IT_IS = 0, HBTVM_ROUNDED = 1, HBTVM_ROUNDED_NAN_HIGH = 2 };

/* A combination of elements, or the beginning of combinations. Nodes are in depth-first order: a node follows its
 * parent, the last node before it whose depth is smaller by 1. */
struct counter_node {
  int32_t element; /* the last; -1 for 0 */
  int32_t depth;   /* from 1 */
  int64_t tables;  /* the number of tables of just these elements */
  int32_t codes;   /* the number of the last element's codes; 0 if no table of the subtree is read by codes */
  int32_t hashed;  /* whether a table of the subtree is read by hashes */
};

/* A table is read by hashes, or by codes: the index of a value is then that of the combination's codes, the last
 * element's varying fastest. A category's code is its place among those that are known, or their number; that of a
 * test is 0 or 1.
 *
 * The hashes of a table by slot, without collisions: the slot of a hash h is the upper `bits` of
 * h * factor[upper `bucket_bits` of h]. In the order of their nodes. */
struct counter_table {
  const uint64_t *key;    /* shape (1 << bits,) */
  const uint32_t *factor; /* shape (1 << bucket_bits,) */
  int64_t bits, bucket_bits; /* from 1 to 31; 0 if read by codes */
  int64_t counters;       /* the number of counters of this table */
};

/* The categories of an input, hashed with a factor alone. */
struct counter_codes {
  struct counter_table table; /* without slots if there are no codes */
  const int32_t *code;        /* by slot; free slots, and one more, have that of other categories */
};

/* The counters, in the order of their tables. */
struct counter {
  const float *value; /* by codes; or by slot: free slots, and one more, have that of other hashes */
  int64_t column;     /* of the matrix; -1 if not read */
};

struct counters {
  int64_t inputs, nodes, depth, hot;
  const int32_t *input; /* enum counter_input, shape (inputs,) */
  const struct counter_codes *codes; /* shape (inputs,) */
  /* The elements: enum counter_test, an input, and a number. */
  const int32_t *test, *column;
  const double *number;
  const struct counter_node *node;
  const struct counter_table *table;
  const struct counter *counter;
  /* The elements that are results themselves, and their columns of the matrix; -1 if not read. */
  const int32_t *hot_element;
  const int64_t *hot_column;
};

/* Find the factors of a table, and the slots of its hashes.
 *
 * hashes: ascending, shape (count,). key: shape (1 << bits,). factor: shape (1 << bucket_bits,). slot: shape (count,).
 * Returns whether slots without collisions were found. */
int64_t hbtvm_counters_place(const uint64_t *hashes, int64_t count, int64_t bits, int64_t bucket_bits, uint64_t *key,
                             uint32_t *factor, int32_t *slot);

/* Compute counters of rows `first` to `last` into columns of a matrix.
 *
 * x: the inputs, shape (inputs, n). out: the matrix's row `first`; `width` numbers of `type` (HBTVM_F32 or HBTVM_F64)
 * per row. Returns 0, or 1 if memory is short. */
int64_t hbtvm_count_rows(const struct counters *c, const double *x, int64_t n, int64_t first, int64_t last,
                         int64_t type, void *out, int64_t width);

/* Compute a single row, as `hbtvm_count_rows`, and copy numbers beside them.
 *
 * x: the inputs, and behind them `count` numbers, which become the row's `columns`. Returns 0, or 1 if memory is
 * short. */
int64_t hbtvm_count_row(const struct counters *c, const double *x, const int64_t *columns, int64_t count,
                        int64_t type, void *out);

/* Compute the hashes of texts (see `hbtvm.graph.columns.hashes`): text i is bytes[offsets[i]:offsets[i + 1]], with
 * offsets of 64 bits if `wide`, else 32. Returns -1, or the first text that is not within `size` bytes. */
int64_t hbtvm_hash_texts(const uint8_t *bytes, int64_t size, const void *offsets, int64_t wide, int64_t n,
                         int32_t *out);

#endif
