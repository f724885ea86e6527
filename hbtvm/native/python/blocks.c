/* Fields of pandas' managers and blocks: loaded from their places where these are known (`hbtvm.runtime.native.blocks`),
 * else got as attributes. */
#include <stdlib.h>

#include "python/frame.h"

/* Set before the first call, and never changed. */
static struct frame_places known;
static struct placement_places placed;

void hbtvm_frame_places(const struct frame_places *given) {
  if (!known.manager_type) known = *given;
}

void hbtvm_placement_places(const struct placement_places *given) {
  if (!placed.type) placed = *given;
}

static const void *type_of(const struct reading_frame *r, const void *object) {
  return FIELD(const void *, object, r->p->type_at);
}

void *hbtvm_part(struct reading_frame *r, void *object, void *name) {
  void *part = object ? r->f->api->get(object, name) : NULL;
  if (!part) r->f->api->clear();
  if (part) r->held[r->holds++] = part;
  return part;
}

void *hbtvm_manager_of(struct reading_frame *r, void *frame) {
  void *manager = (known.get ? known.get : r->f->api->get)(frame, r->f->api->manager);
  if (manager) r->held[r->holds++] = manager;
  return manager;
}

/* A field of a manager; null if its place is unknown, or pandas has yet to compute it. */
static void *manager_field(const struct reading_frame *r, void *manager, int64_t at) {
  if (type_of(r, manager) != known.manager_type) return NULL;
  void *part = FIELD(void *, manager, at);
  return part == r->p->none ? NULL : part;
}

static void *manager_part(struct reading_frame *r, void *manager, int64_t at, void *name) {
  void *part = manager_field(r, manager, at);
  if (!part) return hbtvm_part(r, manager, name);
  r->p->take(part);
  r->held[r->holds++] = part;
  return part;
}

void *hbtvm_axes(struct reading_frame *r, void *manager) {
  return manager_part(r, manager, known.axes, r->f->api->axes);
}

void *hbtvm_blocks(struct reading_frame *r, void *manager) {
  return manager_part(r, manager, known.blocks, r->f->api->blocks);
}

static int is_known(const struct reading_frame *r, const void *block) {
  const void *type = type_of(r, block);
  return type == known.block_types[0] || type == known.block_types[1];
}

void hbtvm_prefetch_block(const void *block) {
  __builtin_prefetch(block);
  __builtin_prefetch((const char *)block + known.values);
}

void *hbtvm_values(const struct reading_frame *r, void *block) {
  if (!is_known(r, block)) return r->f->api->get(block, r->f->api->values);
  void *values = FIELD(void *, block, known.values);
  if (values) r->p->take(values);
  return values;
}

/* Integers of an array of one axis; null if they have another form. */
static const int64_t *integers_of(const struct python *p, void *array, int64_t *count) {
  if (!hbtvm_is_array(p, array, 1) || hbtvm_type_of_number(hbtvm_number_of(p, array)) != I64) return NULL;
  if (~FIELD(int, array, p->flags_at) & (C_CONTIGUOUS | ALIGNED)) return NULL;
  *count = FIELD(const intptr_t *, array, p->shape_at)[0];
  return FIELD(const int64_t *, array, p->data_at);
}

/* Write down the columns of a block, which are a slice or an array of positions. Returns their number; -1 if they have
 * another form. */
static int64_t place_block(const struct reading_frame *r, void *placement, int64_t block, int64_t *block_of,
                           int64_t *place_of) {
  void *slice = FIELD(void *, placement, placed.slice), *array = FIELD(void *, placement, placed.array);
  const int64_t *positions = NULL;
  intptr_t start = 0, stop, step = 1;
  int64_t count;
  if (slice && type_of(r, slice) == placed.slice_type) {
    if (placed.unpack(slice, &start, &stop, &step) || step < 1 || start < 0 || stop < start) return -1;
    count = (int64_t)((stop - start + step - 1) / step);
  } else {
    positions = array ? integers_of(r->p, array, &count) : NULL;
    if (!positions) return -1;
  }
  if (count > r->layout->width) return -1;
  for (int64_t k = 0; k < count; ++k) {
    int64_t column = positions ? positions[k] : (int64_t)start + k * (int64_t)step;
    if (column < 0 || column >= r->layout->width || block_of[column] >= 0) return -1;
    block_of[column] = block;
    place_of[column] = k;
  }
  return count;
}

/* Find the blocks and places of a new frame's columns, which pandas computes when it needs them, in ten times as long.
 * Returns 0 if they are not found. */
static int place_columns(struct reading_frame *r, void *blocks) {
  const struct frame_api *api = r->f->api;
  int64_t width = r->layout->width, count = 0;
  if (!placed.type || r->blocks > width) return 0;
  int64_t *block_of = r->computed = malloc((size_t)width * 2 * sizeof *block_of), *place_of = block_of + width;
  if (!block_of) return 0;
  for (int64_t b = 0; b < r->blocks; ++b) hbtvm_prefetch_block(api->tuple_item(blocks, (intptr_t)b));
  for (int64_t b = 0; b < r->blocks; ++b) {
    void *block = api->tuple_item(blocks, (intptr_t)b);
    if (!is_known(r, block)) return 0;
    __builtin_prefetch(FIELD(void *, block, placed.at));
  }
  for (int64_t b = 0; b < r->blocks; ++b) {
    void *placement = FIELD(void *, api->tuple_item(blocks, (intptr_t)b), placed.at);
    if (!placement || type_of(r, placement) != placed.type) return 0;
    __builtin_prefetch(FIELD(void *, placement, placed.slice));
    __builtin_prefetch(FIELD(void *, placement, placed.array));
  }
  for (int64_t i = 0; i < width; ++i) block_of[i] = -1;
  for (int64_t b = 0; b < r->blocks; ++b) {
    void *placement = FIELD(void *, api->tuple_item(blocks, (intptr_t)b), placed.at);
    int64_t placed_here = place_block(r, placement, b, block_of, place_of);
    if (placed_here < 0) return 0;
    count += placed_here;
  }
  r->block_of = block_of;
  r->place_of = place_of;
  return count == width;
}

int hbtvm_find_places(struct reading_frame *r, void *manager, void *blocks) {
  const struct frame_api *api = r->f->api;
  int is_new = type_of(r, manager) == known.manager_type && !manager_field(r, manager, known.numbers);
  if (is_new && place_columns(r, blocks)) return 1;
  void *numbers = manager_part(r, manager, known.numbers, api->numbers);
  void *places = manager_part(r, manager, known.places, api->places);
  int64_t count = 0, others = 0;
  if (!numbers || !places) return 0;
  r->block_of = integers_of(r->p, numbers, &count);
  r->place_of = integers_of(r->p, places, &others);
  return r->block_of && r->place_of && count == r->layout->width && others == count;
}
