#include "counters/counters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "epilogue/epilogue.h"

#define MULTIPLIER UINT64_C(0x4906BA494954CB65)

/* Rows of a block, which are looked up in all tables before the next. */
#define BLOCK 512

/* Columns of a block that are copied together: stores a row apart are slow. */
#define TOGETHER 16

/* Factors that are tried for a bucket. */
#define TRIED (1 << 16)

static uint64_t slot_of(uint64_t hash, uint64_t factor, int64_t bits) { return hash * factor >> (64 - bits); }

/* Find slots for the hashes of a bucket; return the factor, or 0 if there is none. */
static uint32_t place_bucket(const uint64_t *hashes, int64_t count, int64_t bits, uint8_t *used, int32_t *slot) {
  for (uint32_t factor = 1; factor < 2 * TRIED; factor += 2) {
    int64_t i = 0;
    for (; i < count; ++i) {
      uint64_t at = slot_of(hashes[i], factor, bits);
      if (used[at]) break;
      used[at] = 1;
      slot[i] = (int32_t)at;
    }
    if (i == count) return factor;
    while (i--) used[slot[i]] = 0;
  }
  return 0;
}

int64_t hbtvm_counters_place(const uint64_t *hashes, int64_t count, int64_t bits, int64_t bucket_bits, uint64_t *key,
                             uint32_t *factor, int32_t *slot) {
  size_t buckets = (size_t)1 << bucket_bits, size = (size_t)1 << bits;
  uint8_t *used = calloc(size, 1);
  if (!used) return 0;
  for (size_t b = 0; b < buckets; ++b) factor[b] = 1;
  memset(key, 0, size * sizeof *key);
  int64_t most = 0, shift = 64 - bucket_bits, end;
  for (int64_t i = 0; i < count; i = end) {
    for (end = i + 1; end < count && hashes[end] >> shift == hashes[i] >> shift;) ++end;
    if (end - i > most) most = end - i;
  }
  int done = 1;
  /* Full buckets first, while most slots are free. */
  for (int64_t members = most; members && done; --members)
    for (int64_t i = 0; i < count && done; i = end) {
      for (end = i + 1; end < count && hashes[end] >> shift == hashes[i] >> shift;) ++end;
      if (end - i != members) continue;
      uint32_t found = place_bucket(hashes + i, members, bits, used, slot + i);
      factor[hashes[i] >> shift] = found;
      done = found != 0;
    }
  for (int64_t i = 0; i < count && done; ++i) key[slot[i]] = hashes[i];
  free(used);
  return done;
}

/* Memory of a block of rows. */
struct block {
  const struct counters *c;
  int64_t rows;
  double *number;       /* the inputs, shape (inputs, rows) */
  uint64_t *hash;       /* the inputs as factors of hashes, shape (inputs, rows) */
  uint64_t *prefix;     /* by depth: hashes of the current combination's beginnings, shape (depth + 1, rows) */
  int32_t *code;        /* the inputs as codes, shape (inputs, rows) */
  int32_t *index;       /* as `prefix`: indices by codes */
  int32_t *slot;        /* shape (rows,) */
  float *stage;         /* computed columns, shape (TOGETHER, rows) */
  int64_t waiting, column[TOGETHER]; /* their number and places in the matrix */
  int64_t type, width;
  void *out; /* the matrix's first row */
};

static void hash_node(const struct block *b, const struct counter_node *node) {
  const struct counters *c = b->c;
  const uint64_t *before = b->prefix + (node->depth - 1) * b->rows;
  uint64_t *hash = b->prefix + node->depth * b->rows;
  int64_t n = b->rows;
  if (node->element < 0) {
    for (int64_t r = 0; r < n; ++r) hash[r] = before[r] * MULTIPLIER;
    return;
  }
  int64_t column = c->column[node->element];
  const double *x = b->number + column * b->rows;
  double number = c->number[node->element];
  if (c->test[node->element] == HBTVM_HASH) {
    const uint64_t *factor = b->hash + column * n;
    for (int64_t r = 0; r < n; ++r) hash[r] = (before[r] + factor[r]) * MULTIPLIER;
  } else if (c->test[node->element] == HBTVM_ABOVE) {
    for (int64_t r = 0; r < n; ++r) hash[r] = (before[r] + (x[r] > number ? MULTIPLIER : 0)) * MULTIPLIER;
  } else {
    for (int64_t r = 0; r < n; ++r) hash[r] = (before[r] + (x[r] == number ? MULTIPLIER : 0)) * MULTIPLIER;
  }
}

static void index_node(const struct block *b, const struct counter_node *node) {
  const struct counters *c = b->c;
  int64_t n = b->rows;
  const int32_t *restrict before = b->index + (node->depth - 1) * n;
  int32_t *restrict index = b->index + node->depth * n;
  if (node->element < 0) {
    memcpy(index, before, (size_t)n * sizeof *index);
    return;
  }
  int64_t column = c->column[node->element];
  const double *restrict x = b->number + column * n;
  double number = c->number[node->element];
  if (c->test[node->element] == HBTVM_HASH) {
    const int32_t *restrict code = b->code + column * n;
    for (int64_t r = 0; r < n; ++r) index[r] = before[r] * node->codes + code[r];
  } else if (c->test[node->element] == HBTVM_ABOVE) {
    for (int64_t r = 0; r < n; ++r) index[r] = before[r] * 2 + (x[r] > number);
  } else {
    for (int64_t r = 0; r < n; ++r) index[r] = before[r] * 2 + (x[r] == number);
  }
}

static int32_t find_one(const struct counter_table *t, uint64_t hash) {
  uint64_t at = slot_of(hash, t->factor[hash >> (64 - t->bucket_bits)], t->bits);
  return t->key[at] == hash ? (int32_t)at : (int32_t)(UINT32_C(1) << t->bits);
}

static void find(const struct counter_table *t, const uint64_t *restrict hash, int32_t *restrict slot, int64_t n) {
  const uint64_t *restrict key = t->key;
  const uint32_t *restrict factor = t->factor;
  int64_t bits = t->bits, shift = 64 - t->bucket_bits;
  int32_t other = (int32_t)(UINT32_C(1) << bits);
  for (int64_t r = 0; r < n; ++r) {
    uint64_t at = slot_of(hash[r], factor[hash[r] >> shift], bits);
    slot[r] = key[at] == hash[r] ? (int32_t)at : other;
  }
}

/* Copy the columns that are waiting to their rows, all of a row together. */
static void flush(struct block *b) {
  int64_t n = b->rows, count = b->waiting;
  for (int64_t r = 0; r < n; ++r) {
    const float *x = b->stage + r;
    if (b->type == HBTVM_F32) {
      float *y = (float *)b->out + r * b->width;
      for (int64_t i = 0; i < count; ++i) y[b->column[i]] = x[i * n];
    } else {
      double *y = (double *)b->out + r * b->width;
      for (int64_t i = 0; i < count; ++i) y[b->column[i]] = (double)x[i * n];
    }
  }
  b->waiting = 0;
}

/* Return the memory of a column, which `flush` copies. */
static float *next(struct block *b, int64_t column) {
  if (b->waiting == TOGETHER) flush(b);
  b->column[b->waiting] = column;
  return b->stage + b->waiting++ * b->rows;
}

/* at: the rows' slots or indices */
static void look_up(struct block *b, const float *restrict value, const int32_t *restrict at, int64_t column) {
  float *restrict y = next(b, column);
  for (int64_t r = 0; r < b->rows; ++r) y[r] = value[at[r]];
}

/* As `find` and `look_up`, for a table of one counter. */
static void find_value(struct block *b, const struct counter_table *t, const uint64_t *restrict hash,
                       const float *restrict value, int64_t column) {
  const uint64_t *restrict key = t->key;
  const uint32_t *restrict factor = t->factor;
  float *restrict y = next(b, column);
  int64_t bits = t->bits, shift = 64 - t->bucket_bits;
  float other = value[UINT32_C(1) << bits];
  for (int64_t r = 0; r < b->rows; ++r) {
    uint64_t at = slot_of(hash[r], factor[hash[r] >> shift], bits);
    float known = value[at];
    y[r] = key[at] == hash[r] ? known : other;
  }
}

static void compare(struct block *b, int64_t element, int64_t column) {
  const struct counters *c = b->c;
  const double *x = b->number + c->column[element] * b->rows;
  double number = c->number[element];
  float *y = next(b, column);
  if (c->test[element] == HBTVM_HASH)
    for (int64_t r = 0; r < b->rows; ++r) y[r] = (float)(uint64_t)(int64_t)x[r];
  else if (c->test[element] == HBTVM_ABOVE)
    for (int64_t r = 0; r < b->rows; ++r) y[r] = x[r] > number;
  else
    for (int64_t r = 0; r < b->rows; ++r) y[r] = x[r] == number;
}

static void run(struct block *b) {
  const struct counters *c = b->c;
  for (int64_t h = 0; h < c->hot; ++h)
    if (c->hot_column[h] >= 0) compare(b, c->hot_element[h], c->hot_column[h]);
  const struct counter_table *table = c->table;
  const struct counter *counter = c->counter;
  for (int64_t i = 0; i < c->nodes; ++i) {
    const struct counter_node *node = &c->node[i];
    if (node->codes) index_node(b, node);
    if (node->hashed) hash_node(b, node);
    for (int64_t t = 0; t < node->tables; ++t, ++table) {
      const int32_t *at = b->slot;
      if (!table->bits) {
        at = b->index + node->depth * b->rows;
      } else if (table->counters == 1 && counter->column >= 0) {
        find_value(b, table, b->prefix + node->depth * b->rows, counter->value, counter->column);
        ++counter;
        continue;
      } else {
        find(table, b->prefix + node->depth * b->rows, b->slot, b->rows);
      }
      for (int64_t j = 0; j < table->counters; ++j, ++counter)
        if (counter->column >= 0) look_up(b, counter->value, at, counter->column);
    }
  }
  flush(b);
}

static double read_input(const struct counters *c, int64_t i, double x) {
  if (c->input[i] == HBTVM_AS_IT_IS) return x;
  float rounded = (float)x;
  return c->input[i] == HBTVM_ROUNDED_NAN_HIGH && isnan(rounded) ? INFINITY : (double)rounded;
}

static void put(int64_t type, void *out, int64_t column, double x) {
  if (column < 0) return;
  if (type == HBTVM_F32)
    ((float *)out)[column] = (float)x;
  else
    ((double *)out)[column] = x;
}

static uint64_t element_of(const struct counters *c, int64_t element, const double *x) {
  double value = x[c->column[element]];
  int64_t test = c->test[element];
  if (test == HBTVM_HASH) return (uint64_t)(int64_t)value;
  return test == HBTVM_ABOVE ? value > c->number[element] : value == c->number[element];
}

int64_t hbtvm_count_row(const struct counters *c, const double *x, const int64_t *columns, int64_t count,
                        int64_t type, void *out) {
  size_t deep = (size_t)(c->depth + 1), inputs = (size_t)c->inputs;
  uint64_t *prefix = malloc((deep + inputs) * (sizeof *prefix + sizeof(int32_t)));
  if (!prefix) return 1;
  double *number = (double *)(void *)(prefix + deep);
  int32_t *index = (int32_t *)(void *)(number + inputs), *code = index + deep;
  for (int64_t i = 0; i < c->inputs; ++i) {
    const struct counter_codes *codes = &c->codes[i];
    number[i] = read_input(c, i, x[i]);
    code[i] = 0;
    if (codes->code) code[i] = codes->code[find_one(&codes->table, (uint64_t)(int64_t)number[i] * MULTIPLIER)];
  }
  for (int64_t i = 0; i < count; ++i) put(type, out, columns[i], x[c->inputs + i]);
  for (int64_t h = 0; h < c->hot; ++h)
    put(type, out, c->hot_column[h], (float)element_of(c, c->hot_element[h], number));
  const struct counter_table *table = c->table;
  const struct counter *counter = c->counter;
  prefix[0] = 0;
  index[0] = 0;
  for (int64_t i = 0; i < c->nodes; ++i) {
    const struct counter_node *node = &c->node[i];
    uint64_t element = node->element < 0 ? 0 : element_of(c, node->element, number);
    int64_t depth = node->depth;
    prefix[depth] = (prefix[depth - 1] + element * MULTIPLIER) * MULTIPLIER;
    int is_hash = node->element >= 0 && c->test[node->element] == HBTVM_HASH;
    if (node->codes)
      index[depth] = index[depth - 1] * node->codes + (is_hash ? code[c->column[node->element]] : (int32_t)element);
    for (int64_t t = 0; t < node->tables; ++t, ++table) {
      int32_t at = table->bits ? find_one(table, prefix[depth]) : index[depth];
      for (int64_t j = 0; j < table->counters; ++j, ++counter) put(type, out, counter->column, counter->value[at]);
    }
  }
  free(prefix);
  return 0;
}

static void read_inputs(struct block *b, const double *x, int64_t n) {
  const struct counters *c = b->c;
  for (int64_t i = 0; i < c->inputs; ++i) {
    const double *from = x + i * n;
    double *to = b->number + i * b->rows;
    uint64_t *hash = b->hash + i * b->rows;
    int32_t *code = b->code + i * b->rows;
    memset(code, 0, (size_t)b->rows * sizeof *code);
    if (c->input[i] == HBTVM_AS_IT_IS) {
      for (int64_t r = 0; r < b->rows; ++r) to[r] = from[r];
      for (int64_t r = 0; r < b->rows; ++r) hash[r] = (uint64_t)(int64_t)from[r] * MULTIPLIER;
      const int32_t *known = c->codes[i].code;
      if (!known) continue;
      find(&c->codes[i].table, hash, code, b->rows);
      for (int64_t r = 0; r < b->rows; ++r) code[r] = known[code[r]];
      continue;
    }
    for (int64_t r = 0; r < b->rows; ++r) to[r] = (double)(float)from[r];
    if (c->input[i] == HBTVM_ROUNDED_NAN_HIGH)
      for (int64_t r = 0; r < b->rows; ++r) to[r] = isnan(to[r]) ? INFINITY : to[r];
  }
}

int64_t hbtvm_count_rows(const struct counters *c, const double *x, int64_t n, int64_t first, int64_t last,
                         int64_t type, void *out, int64_t width) {
  int64_t most = last - first < BLOCK ? last - first : BLOCK;
  int64_t wide = 2 * c->inputs + c->depth + 1, narrow = c->inputs + c->depth + 2 + TOGETHER;
  uint64_t *memory = malloc((size_t)most * ((size_t)wide * sizeof *memory + (size_t)narrow * sizeof(float)));
  if (!memory) return 1;
  for (int64_t start = first; start < last; start += BLOCK) {
    struct block b = {.c = c, .rows = last - start < BLOCK ? last - start : BLOCK, .type = type, .width = width};
    b.number = (double *)(void *)memory;
    b.hash = memory + c->inputs * b.rows;
    b.prefix = b.hash + c->inputs * b.rows;
    b.code = (int32_t *)(void *)(b.prefix + (c->depth + 1) * b.rows);
    b.index = b.code + c->inputs * b.rows;
    b.slot = b.index + (c->depth + 1) * b.rows;
    b.stage = (float *)(void *)(b.slot + b.rows);
    b.out = (char *)out + (start - first) * width * (type == HBTVM_F32 ? 4 : 8);
    memset(b.prefix, 0, (size_t)b.rows * sizeof *b.prefix);
    memset(b.index, 0, (size_t)b.rows * sizeof *b.index);
    read_inputs(&b, x + start, n);
    run(&b);
  }
  free(memory);
  return 0;
}
