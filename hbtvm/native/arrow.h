/* The front of a pipeline: from record batches of Arrow's C data interface to the matrix that kernels read.
 *
 * A `struct front` is constant data, which Python lays out (`hbtvm.runtime.native.front`). What it says is done as
 * Python's readers do it (`hbtvm.runtime.feeds`, `hbtvm.runtime.inputs`): the matrix and its type are the same, bit
 * for bit. Values that a model refuses in its matrix (NaN, infinities) are left in it: the executor finds them.
 * Other than Python, it reads neither decimals nor texts that spell numbers.
 *
 * There is no global state; a batch is only read, and not released.
 */
#ifndef HBTVM_ARROW_H
#define HBTVM_ARROW_H

#include "arrow_abi.h"
#include "executor.h"

/* Changes with the structures. */
#define HBTVM_FRONT_VERSION 2

struct text; /* of text_types.h */

/* In place of a code: the value is refused; it is a missing number. */
enum no_code { HBTVM_CODE_REFUSED = -1, HBTVM_CODE_NAN = -2 };

/* In which form a value comes, where codes depend on it: by itself, or in a column of float32 or float64 numbers
 * (to whose type what is filled in is rounded). */
enum form { HBTVM_FORM_VALUE = 0, HBTVM_FORM_F32 = 1, HBTVM_FORM_F64 = 2, HBTVM_FORMS = 3 };

/* What kind of value a slot holds. Numbers that are equal are of the same kind: the first that holds them. */
enum known_kind {
  HBTVM_NO_VALUE = 0,
  HBTVM_TEXT = 1,
  HBTVM_INTEGER = 2,  /* of int64 */
  HBTVM_UNSIGNED = 3, /* above that */
  HBTVM_NUMBER = 4    /* bits of float64 */
};

/* A known value, or none. */
struct known {
  int64_t kind;
  uint64_t bits; /* of a number; of a text its first byte in the pool */
  int64_t size;  /* of a text, in bytes */
  int64_t codes[HBTVM_FORMS];
};

/* Codes of values. A value's slot is the first that holds it, from that on which the lowest bits of its hash tell
 * (`hbtvm_hash_known`); at least one slot holds none. */
struct codes {
  const struct known *slots;
  int64_t bits; /* 2^bits slots */
  const uint8_t *pool;
  int64_t none, other;
  int64_t nan[HBTVM_FORMS];
};

/* What a step takes for missing. */
enum missing { HBTVM_MISSING_NONE = 0, HBTVM_MISSING_NAN = 1, HBTVM_MISSING_ANY = 2, HBTVM_MISSING_VALUE = 3 };

/* Steps on one column; their constants are beside each. x stands for a value, and for its column's type. */
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
  HBTVM_STEP_BINS = 14,   /* how many of table are at most x */
  HBTVM_STEP_QUANTILE = 15, /* table: `count` quantiles, then as many shares; margin a */
  HBTVM_STEP_FUNCTION = 16  /* enum function: flag */
};

enum function {
  HBTVM_FUNCTION_SQRT = 0,
  HBTVM_FUNCTION_NEGATIVE = 1,
  HBTVM_FUNCTION_POSITIVE = 2,
  HBTVM_FUNCTION_FLOOR = 3,
  HBTVM_FUNCTION_CEIL = 4,
  HBTVM_FUNCTION_RINT = 5,
  HBTVM_FUNCTION_TRUNC = 6,
  HBTVM_FUNCTION_SIGN = 7,
  HBTVM_FUNCTION_SQUARE = 8,
  HBTVM_FUNCTION_ABSOLUTE = 9,
  HBTVM_FUNCTION_RECIPROCAL = 10,
  HBTVM_FUNCTION_TO_RADIANS = 11,
  HBTVM_FUNCTION_TO_DEGREES = 12,
  /* From here on libm's, whose last bits need not be numpy's. */
  HBTVM_FUNCTION_LOG = 13,
  HBTVM_FUNCTION_LOG1P = 14,
  HBTVM_FUNCTION_LOG2 = 15,
  HBTVM_FUNCTION_LOG10 = 16,
  HBTVM_FUNCTION_EXP = 17,
  HBTVM_FUNCTION_EXP2 = 18,
  HBTVM_FUNCTION_EXPM1 = 19,
  HBTVM_FUNCTION_CBRT = 20,
  HBTVM_FUNCTION_ARCSINH = 21,
  HBTVM_FUNCTION_ARCTAN = 22,
  HBTVM_FUNCTION_TANH = 23,
  HBTVM_FUNCTION_SINH = 24,
  HBTVM_FUNCTION_COSH = 25,
  HBTVM_FUNCTION_SIN = 26,
  HBTVM_FUNCTION_COS = 27,
  HBTVM_FUNCTION_TAN = 28
};

/* A value among constants; a text is zero-terminated by nobody. */
struct constant {
  int64_t kind; /* HBTVM_NO_VALUE, HBTVM_TEXT, or a kind of number */
  uint64_t bits;
  const uint8_t *text;
  int64_t size;
};

struct feed_step {
  int64_t kind, flag;
  double a, b;
  double narrow, narrow_b; /* what stands in place of a and b for float32 */
  struct constant value;   /* FILL: of columns of values */
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
  int64_t text, output;     /* FEED_TEXT: which of the texts, and which of its columns */
};

/* A column of the input. */
struct input_column {
  const char *name; /* null: it has none */
  int64_t read;     /* whether something reads it */
  int64_t none;     /* whether a null is None; else it is NaN */
  int64_t refuses;  /* types, 1 << n: bool 0, int8 to int64 1 to 4, uint8 to uint64 5 to 8 */
  /* Of bare models (no feeds): the codes of its categories; null for numbers. */
  const struct codes *categories;
};

/* Categories of a bare model that may be of any of some columns. */
struct category_list {
  const struct codes *codes;
  const int64_t *columns; /* ascending */
  int64_t count;          /* of columns */
  int64_t texts;          /* whether some categories are texts */
};

/* How names of columns are looked at. */
enum naming {
  HBTVM_BY_POSITION = 0, /* as many columns, of any names */
  HBTVM_IN_ORDER = 1,    /* just these, in this order */
  HBTVM_BY_NAME = 2,     /* those that are read, anywhere */
  HBTVM_ONLY_COLUMN = 3  /* one column of any name */
};

/* Texts of a column, cut into terms. */
struct texts {
  const struct text *text;
  int64_t column;
  int64_t width; /* columns that it makes */
  /* Ranges of code points, first and last of each: those that have a case, and those that are passed over when the
   * lower case of a Greek sigma is looked for. */
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
  /* The matrix's type: for which there are kernels; whether numbers are compared in float32; whether float32 rows have
   * kernels of another anchor; whether all feeds are codes that float32 holds; whether the matrix is just the columns
   * of one text. */
  int64_t f32, f64, single, apart, only_codes, whole_text;
  /* Of bare models. */
  int64_t numbers_are_categories;
  int64_t has_missing_value;
  float missing_value; /* beside NaN */
  /* Where the model does not say which columns hold categories: those of the dictionaries and texts, in their
   * order, which have to be as many. */
  const struct category_list *lists;
  int64_t lists_count;
};

/* What `hbtvm_read_arrow` returns, beside HBTVM_OK, HBTVM_NO_MEMORY and HBTVM_BAD_ARGUMENT. */
enum arrow_status {
  HBTVM_ARROW_MALFORMED = 32,       /* no batch, or lengths, offsets, buffers that can't be */
  HBTVM_ARROW_COLUMN_COUNT = 33,    /* more or fewer columns than the model's */
  HBTVM_ARROW_MISSING_COLUMN = 34,  /* `column` */
  HBTVM_ARROW_EXTRA_COLUMN = 35,    /* `given` was not there in training */
  HBTVM_ARROW_COLUMN_TWICE = 36,    /* `column` */
  HBTVM_ARROW_COLUMN_ORDER = 37,    /* `column` is another one */
  HBTVM_ARROW_TYPE = 38,            /* `column` is of a type that is not read */
  HBTVM_ARROW_NOT_A_NUMBER = 39,    /* a text where numbers are expected */
  HBTVM_ARROW_NOT_A_TEXT = 40,      /* a null, or a number, where texts are expected */
  HBTVM_ARROW_NOT_A_CATEGORY = 41,  /* numbers where training had categories or texts */
  HBTVM_ARROW_UNKNOWN_CATEGORY = 42, /* that was not there in training */
  HBTVM_ARROW_NULL = 43,            /* a null or NaN that was not there in training */
  HBTVM_ARROW_INFINITY = 44,        /* where only finite numbers are taken */
  HBTVM_ARROW_INEXACT = 45          /* a number that float32 does not hold, of a model for float32 rows alone */
};

/* Where: -1 for what does not apply. */
struct arrow_place {
  int64_t row;
  int64_t column; /* of the model's input */
  int64_t given;  /* of the batch */
};

struct rows {
  void *values; /* n x columns, row by row */
  int64_t n, columns;
};

/* Read a batch: a struct array of the model's columns. A null row is one of nulls.
 *
 * type: of the matrix, HBTVM_F32 or HBTVM_F64. out: the matrix, for `hbtvm_release_rows`; nothing on errors.
 * place: where an error is; may be null. Integers, floats (half, single and double), bool, texts (utf8, large_utf8,
 * utf8_view), null, and dictionaries of any of these are read.
 */
int hbtvm_read_arrow(const struct front *front, const struct ArrowSchema *schema, const struct ArrowArray *batch,
                     int64_t *type, struct rows *out, struct arrow_place *place);

/* Free a matrix. */
void hbtvm_release_rows(struct rows *rows);

/* A hash of a value's bytes, 8 at a time (the first one lowest), from a start that depends on kind and size: each word
 * is added without carry, the sum multiplied by 2^64 over the golden ratio, and its upper half added to the lower. */
uint64_t hbtvm_hash_known(int64_t kind, const uint8_t *bytes, int64_t size);

#endif
