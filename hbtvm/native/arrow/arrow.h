/* The front of a pipeline: conversion of record batches (Arrow's C data interface) to the kernels' matrix.
 *
 * A `struct front` is constant data, which Python lays out (`hbtvm.runtime.native.front.front`). The matrix and its type
 * equal those of Python's readers (`hbtvm.runtime.feeds.reader`, `hbtvm.runtime.rows.inputs`), bit for bit. Values that a model
 * refuses in its matrix (NaN, infinities) stay in it: the executor finds them. Unlike Python, this front reads neither
 * decimals nor texts that spell numbers.
 *
 * There is no global state. A batch is only read, and not released.
 */
#ifndef HBTVM_ARROW_H
#define HBTVM_ARROW_H

#include "arrow/abi.h"
#include "executor/executor.h"

/* Increment when structures change. */
#define HBTVM_FRONT_VERSION 2

struct text; /* from text/types.h */

/* In place of a code: a refused value; a missing number. */
enum no_code { HBTVM_CODE_REFUSED = -1, HBTVM_CODE_NAN = -2 };

/* The form of a value, where codes depend on it: a single value, or a number of a float32 or float64 column (to whose
 * type filled-in values are rounded). */
enum form { HBTVM_FORM_VALUE = 0, HBTVM_FORM_F32 = 1, HBTVM_FORM_F64 = 2, HBTVM_FORMS = 3 };

/* The kind of a slot's value. Equal numbers have the same kind: the first that holds them. */
enum known_kind {
  HBTVM_NO_VALUE = 0,
  HBTVM_TEXT = 1,
  HBTVM_INTEGER = 2,  /* int64 */
  HBTVM_UNSIGNED = 3, /* uint64 above int64 */
  HBTVM_NUMBER = 4    /* bits of float64 */
};

/* A known value, or none. */
struct known {
  int64_t kind;
  uint64_t bits; /* of a number; for a text, the index of its first byte in the pool */
  int64_t size;  /* of a text, in bytes */
  int64_t codes[HBTVM_FORMS];
};

/* Codes of values: a hash table. Probing starts at the slot of the hash's lowest bits (`hbtvm_hash_known`); at least
 * one slot is empty. */
struct codes {
  const struct known *slots;
  int64_t bits; /* 2^bits slots */
  const uint8_t *pool;
  int64_t none, other;
  int64_t nan[HBTVM_FORMS];
};

/* The values that a step treats as missing. */
enum missing { HBTVM_MISSING_NONE = 0, HBTVM_MISSING_NAN = 1, HBTVM_MISSING_ANY = 2, HBTVM_MISSING_VALUE = 3 };

/* Steps on a column, with their constants. x is a value, or its column's type. */
enum feed_step_kind {
  HBTVM_STEP_ADD = 0, /* a, or `narrow` for float32 if `flag`; else in float64, rounded to x */
  HBTVM_STEP_SUBTRACT = 1,
  HBTVM_STEP_MULTIPLY = 2,
  HBTVM_STEP_DIVIDE = 3,
  HBTVM_STEP_CLIP = 4,            /* to a, b; for float32 `narrow`, `narrow_b` */
  HBTVM_STEP_WITHIN = 5,          /* likewise */
  HBTVM_STEP_ABOVE = 6,           /* a; for float32 `narrow` */
  HBTVM_STEP_CAST = 7,            /* to float64 if `flag`, else float32 */
  HBTVM_STEP_FILL = 8,            /* a (text: `value`); missing: `flag`, and `lost`, or `b`, `narrow_b` */
  HBTVM_STEP_IS_MISSING = 9,      /* likewise */
  HBTVM_STEP_ZERO_IS_MISSING = 10,
  HBTVM_STEP_ENCODE = 11, /* codes */
  HBTVM_STEP_LOOKUP = 12, /* table[x], of `count` */
  HBTVM_STEP_EQUALS = 13, /* any of table, of `count` */
  HBTVM_STEP_BINS = 14,   /* the number of table entries that are at most x */
  HBTVM_STEP_QUANTILE = 15, /* table: `count` quantiles, then as many shares; margin a */
  HBTVM_STEP_FUNCTION = 16  /* enum function (pointwise/functions.h): flag */
};

/* A constant value; texts are not zero-terminated. */
struct constant {
  int64_t kind; /* HBTVM_NO_VALUE, HBTVM_TEXT, or a kind of number */
  uint64_t bits;
  const uint8_t *text;
  int64_t size;
};

struct feed_step {
  int64_t kind, flag;
  double a, b;
  double narrow, narrow_b; /* replace a and b for float32 */
  struct constant value;   /* FILL: for columns of values */
  struct constant lost;    /* FILL, IS_MISSING: the value that is missing */
  const struct codes *codes;
  const double *table;
  int64_t count;
};

enum feed_kind { HBTVM_FEED_NUMBER = 0, HBTVM_FEED_CODE = 1, HBTVM_FEED_STEPS = 2, HBTVM_FEED_TEXT = 3 };

/* A column of the matrix. */
struct feed {
  int64_t kind;
  int64_t column; /* of the input */
  const struct codes *codes;
  const struct feed_step *steps; /* also of texts' columns */
  int64_t count;
  int64_t refuses_infinity; /* FEED_STEPS: before the steps */
  int64_t text, output;     /* FEED_TEXT: indices of the text and of its column */
};

/* A column of the input. */
struct input_column {
  const char *name; /* null: unnamed */
  int64_t read;     /* whether a feed reads it */
  int64_t none;     /* whether a null is None; else it is NaN */
  int64_t refuses;  /* types, 1 << n: bool 0, int8 to int64 1 to 4, uint8 to uint64 5 to 8 */
  /* For bare models (no feeds): the codes of its categories; null for numbers. */
  const struct codes *categories;
};

/* Categories of a bare model that belong to any of some columns. */
struct category_list {
  const struct codes *codes;
  const int64_t *columns; /* ascending */
  int64_t count;          /* of columns */
  int64_t texts;          /* whether some categories are texts */
};

/* The matching of column names. */
enum naming {
  HBTVM_BY_POSITION = 0, /* as many columns, with any names */
  HBTVM_IN_ORDER = 1,    /* exactly these, in this order */
  HBTVM_BY_NAME = 2,     /* the columns that are read, anywhere */
  HBTVM_ONLY_COLUMN = 3  /* one column of any name */
};

/* Texts of a column, cut into terms. */
struct texts {
  const struct text *text;
  int64_t column;
  int64_t width; /* number of its columns */
  /* Ranges of code points, first and last of each: cased characters, and characters that the search for the lower case
   * of a Greek sigma ignores. */
  const uint32_t *cased, *ignored;
  int64_t cased_ranges, ignored_ranges;
};

struct front {
  int64_t version; /* HBTVM_FRONT_VERSION */
  int64_t naming;
  const struct input_column *columns;
  int64_t count; /* of columns */
  const struct feed *feeds;
  int64_t width; /* of the matrix; without feeds `count` */
  const struct texts *texts;
  int64_t texts_count;
  /* The matrix's type: types with kernels; whether numbers are compared in float32; whether float32 rows have kernels
   * of another anchor; whether all feeds are codes that float32 holds; whether the matrix is the columns of a single
   * text. */
  int64_t f32, f64, single, apart, only_codes, whole_text;
  /* For bare models. */
  int64_t numbers_are_categories;
  int64_t has_missing_value;
  float missing_value; /* besides NaN */
  /* If the model does not say which columns hold categories: the categories of dictionary and text columns, in their
   * order, which must be as many. */
  const struct category_list *lists;
  int64_t lists_count;
};

/* Results of `hbtvm_read_arrow`, besides HBTVM_OK, HBTVM_NO_MEMORY and HBTVM_BAD_ARGUMENT. */
enum arrow_status {
  HBTVM_ARROW_MALFORMED = 32,       /* not a batch, or impossible lengths, offsets or buffers */
  HBTVM_ARROW_COLUMN_COUNT = 33,    /* more or fewer columns than the model's */
  HBTVM_ARROW_MISSING_COLUMN = 34,  /* `column` */
  HBTVM_ARROW_EXTRA_COLUMN = 35,    /* `given` was not in the training data */
  HBTVM_ARROW_COLUMN_TWICE = 36,    /* `column` */
  HBTVM_ARROW_COLUMN_ORDER = 37,    /* `column` has another position */
  HBTVM_ARROW_TYPE = 38,            /* `column` has an unsupported type */
  HBTVM_ARROW_NOT_A_NUMBER = 39,    /* a text where numbers are expected */
  HBTVM_ARROW_NOT_A_TEXT = 40,      /* a null, or a number, where texts are expected */
  HBTVM_ARROW_NOT_A_CATEGORY = 41,  /* numbers where training had categories or texts */
  HBTVM_ARROW_UNKNOWN_CATEGORY = 42, /* that was not in the training data */
  HBTVM_ARROW_NULL = 43,            /* a null or NaN that was not in the training data */
  HBTVM_ARROW_INFINITY = 44,        /* where only finite numbers are accepted */
  HBTVM_ARROW_INEXACT = 45          /* a number that float32 does not hold, for a model of float32 rows only */
};

/* The place of an error; -1 where a field does not apply. */
struct arrow_place {
  int64_t row;
  int64_t column; /* of the model's input */
  int64_t given;  /* of the batch */
};

struct rows {
  void *values; /* n x columns, row by row */
  int64_t n, columns;
};

/* Read a batch: a struct array of the model's columns. A null row consists of nulls.
 *
 * type: of the matrix, HBTVM_F32 or HBTVM_F64. out: the matrix, for `hbtvm_release_rows`; unset on errors. place: the
 * place of an error; may be null. Supported types: integers, floats (half, single and double), bool, texts (utf8,
 * large_utf8, utf8_view), null, and dictionaries of any of these.
 */
int hbtvm_read_arrow(const struct front *front, const struct ArrowSchema *schema, const struct ArrowArray *batch,
                     int64_t *type, struct rows *out, struct arrow_place *place);

/* Free a matrix. */
void hbtvm_release_rows(struct rows *rows);

/* Hash a value's bytes, 8 at a time (little-endian), from a start that depends on kind and size: each word is XORed in,
 * the result multiplied by 2^64 over the golden ratio, and its upper half XORed to the lower half. */
uint64_t hbtvm_hash_known(int64_t kind, const uint8_t *bytes, int64_t size);

#endif
