//: OI_APART
/* Never inlined or cloned: code stays small, and warnings do not depend on the callers. */
#if defined(__clang__)
#define OI_APART static __attribute__((noinline, unused))
#elif defined(__GNUC__)
#define OI_APART static __attribute__((noinline, noclone, unused))
#else
#define OI_APART static inline
#endif

//: OI_AXES
#ifndef OI_AXES
#define OI_AXES 8
#endif

//: oi_element
/* An element; those of fewer than 8 bits are packed, the first in the lowest bits. */
static inline unsigned oi_get(const unsigned char *p, int bits, int64_t i)
{
    if (bits >= 8) return p[i];
    return ((unsigned)p[i * bits / 8] >> (i * bits % 8)) & ((1u << bits) - 1u);
}

static inline void oi_put(unsigned char *p, int bits, int64_t i, unsigned code)
{
    if (bits >= 8) {
        p[i] = (unsigned char)code;
        return;
    }
    const unsigned shift = (unsigned)(i * bits % 8), mask = ((1u << bits) - 1u) << shift;
    p[i * bits / 8] = (unsigned char)((p[i * bits / 8] & ~mask) | (code << shift & mask));
}

//: oi_elements oi_element
/* Copies elements, wide ones as bytes. If only one side is packed, the other has one byte per element. */
static inline void oi_elements(unsigned char *to, int to_bits, int64_t at, const unsigned char *from, int from_bits,
                               int64_t start, int64_t count)
{
    if (to_bits >= 8 && from_bits >= 8) {
        const size_t each = (size_t)to_bits / 8;
        if (count > 0) memcpy(to + (size_t)at * each, from + (size_t)start * each, (size_t)count * each);
        return;
    }
    for (int64_t i = 0; i < count; ++i) oi_put(to, to_bits, at + i, oi_get(from, from_bits, start + i));
}

//: oi_fill oi_element
static inline void oi_fill(unsigned char *to, int bits, int64_t at, int64_t count, uint64_t element)
{
    if (bits <= 8) {
        for (int64_t i = 0; i < count; ++i) oi_put(to, bits, at + i, (unsigned)element);
    } else if (bits == 16) {
        const uint16_t e = (uint16_t)element;
        for (int64_t i = 0; i < count; ++i) memcpy(to + 2 * (at + i), &e, 2);
    } else if (bits == 32) {
        const uint32_t e = (uint32_t)element;
        for (int64_t i = 0; i < count; ++i) memcpy(to + 4 * (at + i), &e, 4);
    } else {
        for (int64_t i = 0; i < count; ++i) memcpy(to + 8 * (at + i), &element, 8);
    }
}

//: oi_undo
/* The undo log of a step, a stack: each entry is the overwritten bytes, followed by an oi_kept record. Once the log is
   full, the step cannot be rolled back. */
typedef struct {
    unsigned char *memory;
    size_t room, used;
    bool is_full;
} oi_undo;

typedef struct {
    unsigned char *at;
    size_t bytes;
} oi_kept;

static inline size_t oi_kept_size(size_t bytes) { return 16 + (bytes + 15) / 16 * 16; }

static inline void oi_keep(oi_undo *undo, void *at, size_t bytes)
{
    if (undo == NULL || undo->is_full || bytes == 0) return;
    const oi_kept kept = { at, bytes };
    undo->is_full = bytes > undo->room || undo->room - undo->used < oi_kept_size(bytes);
    if (undo->is_full) return;
    memcpy(undo->memory + undo->used, at, bytes);
    undo->used += oi_kept_size(bytes);
    memcpy(undo->memory + undo->used - 16, &kept, sizeof kept);
}

//: oi_last_kept oi_undo
/* Pops the last record. */
static inline oi_kept oi_last_kept(oi_undo *undo)
{
    oi_kept kept;
    memcpy(&kept, undo->memory + undo->used - 16, sizeof kept);
    undo->used -= oi_kept_size(kept.bytes);
    return kept;
}

//: oi_roll_back OI_APART oi_undo
/* Rolls the step back, the last change first. */
OI_APART void oi_roll_back(oi_undo *undo)
{
    while (undo->used > 0) {
        const oi_kept kept = oi_last_kept(undo);
        memcpy(kept.at, undo->memory + undo->used, kept.bytes);
    }
}

//: oi_pick
/* An index of an access: a position, a slice with or without its ends, or the growth of a matrix. */
typedef enum { OI_ONE, OI_SLICE, OI_FROM, OI_UPTO, OI_ALL, OI_GROWN } oi_kind;
typedef struct {
    oi_kind kind;
    int64_t a, b;
} oi_pick;

//: oi_one
static inline oi_pick oi_one(int64_t a) { return (oi_pick){ OI_ONE, a, 0 }; }
//: oi_slice
static inline oi_pick oi_slice(int64_t a, int64_t b) { return (oi_pick){ OI_SLICE, a, b }; }
//: oi_from
static inline oi_pick oi_from(int64_t a) { return (oi_pick){ OI_FROM, a, 0 }; }
//: oi_upto
static inline oi_pick oi_upto(int64_t b) { return (oi_pick){ OI_UPTO, 0, b }; }
//: oi_all
static inline oi_pick oi_all(void) { return (oi_pick){ OI_ALL, 0, 0 }; }
//: oi_grown
static inline oi_pick oi_grown(int64_t a) { return (oi_pick){ OI_GROWN, a, 0 }; }

//: oi_part OI_AXES oi_pick
/* The cells of an access: the first index and the number of cells along each axis. */
typedef struct {
    int64_t first[OI_AXES], count[OI_AXES];
} oi_part;

/* Resolves an index along an axis; negative ends of a slice count from the extent. Returns the end; -1 if invalid. */
static inline int64_t oi_chosen(oi_pick pick, int64_t extent, int64_t start, oi_part *part, int axis)
{
    int64_t a = pick.kind == OI_SLICE || pick.kind == OI_FROM ? pick.a : 0;
    int64_t b = pick.kind == OI_SLICE || pick.kind == OI_UPTO ? pick.b : extent;
    if (pick.kind == OI_ONE || pick.kind == OI_GROWN) {
        if (pick.a < 0 || pick.a == INT64_MAX || pick.a > INT64_MAX - start) return -1;
        a = pick.kind == OI_ONE ? pick.a : 0;
        b = pick.kind == OI_ONE ? pick.a + 1 : pick.a + start;
    }
    if (a < 0) a = a + extent < 0 ? 0 : a + extent;
    if (b < 0) b = b + extent < 0 ? 0 : b + extent;
    part->first[axis] = a;
    part->count[axis] = b > a ? b - a : 0;
    return b > a ? b : a;
}

//: oi_walk OI_APART oi_part oi_undo
/* Visits the cells of a slice, row by row: reads them into a tensor, writes them from one, fills them, or copies them
   from another array of the same shape. Cells without memory read as the initial element. */
typedef enum { OI_READ, OI_WRITE, OI_FILL, OI_COPY } oi_action;
typedef struct {
    oi_action action;
    int axes;
    int cell_bits, value_bits;
    int64_t entry;
    uint64_t initial;
    const int64_t *shape;
    unsigned char *cells;
    unsigned char *value;
    oi_undo *undo; /* NULL: no rollback */
} oi_walk;

static inline void oi_rows(const oi_walk *w, int64_t cell, int64_t count, int64_t *at)
{
    const int64_t from = cell * w->entry, elements = count * w->entry;
    if (w->undo != NULL) {
        const int64_t first = from * w->cell_bits / 8, end = ((from + elements) * w->cell_bits + 7) / 8;
        oi_keep(w->undo, w->cells + first, (size_t)(end - first));
    }
    switch (w->action) {
    case OI_READ: oi_elements(w->value, w->value_bits, *at, w->cells, w->cell_bits, from, elements); break;
    case OI_WRITE: oi_elements(w->cells, w->cell_bits, from, w->value, w->value_bits, *at, elements); break;
    case OI_FILL: oi_fill(w->cells, w->cell_bits, from, elements, w->initial); break;
    case OI_COPY: oi_elements(w->cells, w->cell_bits, from, w->value, w->value_bits, from, elements); break;
    }
    *at += elements;
}

OI_APART void oi_over(const oi_walk *w, const oi_part *part)
{
    const int last = w->axes - 1;
    int64_t at = 0, index[OI_AXES] = { 0 }, count[OI_AXES] = { 0 };
    for (int axis = 0; axis <= last; ++axis) {
        const int64_t room = w->shape[axis] > part->first[axis] ? w->shape[axis] - part->first[axis] : 0;
        count[axis] = w->action == OI_READ || part->count[axis] < room ? part->count[axis] : room;
        if (count[axis] == 0) return;
    }
    for (;;) {
        bool is_inside = true;
        int64_t cell = 0;
        for (int axis = 0; axis < last && is_inside; ++axis) {
            const int64_t place = part->first[axis] + index[axis];
            is_inside = place < w->shape[axis];
            if (is_inside) cell = cell * w->shape[axis] + place;
        }
        const int64_t first = part->first[last], room = w->shape[last] > first ? w->shape[last] - first : 0;
        const int64_t inside = !is_inside ? 0 : count[last] < room ? count[last] : room;
        if (inside > 0) oi_rows(w, cell * w->shape[last] + first, inside, &at);
        if (inside < count[last]) {
            const int64_t missing = (count[last] - inside) * w->entry;
            oi_fill(w->value, w->value_bits, at, missing, w->initial);
            at += missing;
        }
        int axis = last - 1;
        for (; axis >= 0 && ++index[axis] == count[axis]; --axis) index[axis] = 0;
        if (axis < 0) return;
    }
}

//: oi_inside OI_APART oi_part
/* Resolves the indices of a tensor to a slice; false if one is out of bounds. */
OI_APART bool oi_inside(const oi_pick *pick, const int64_t *shape, int axes, oi_part *part)
{
    for (int axis = 0; axis < axes; ++axis) {
        const int64_t end = oi_chosen(pick[axis], shape[axis], 0, part, axis);
        if (end < 0 || end > shape[axis]) return false;
    }
    return true;
}

//: oi_is_negative OI_APART oi_part
/* Whether the first index that is out of bounds is negative. Only keys have upper bounds. */
OI_APART bool oi_is_negative(const oi_pick *pick, int axes, const int64_t *bound, int keys)
{
    for (int axis = 0; axis < axes; ++axis) {
        const int64_t a = pick[axis].kind == OI_UPTO ? 0 : pick[axis].a, b = pick[axis].b;
        if (pick[axis].kind == OI_ONE && a < 0) return true;
        if (axis < keys && bound[axis] >= 0 && (a > bound[axis] - (pick[axis].kind == OI_ONE) || b > bound[axis])) return false;
    }
    return false;
}

//: oi_tensor_part OI_APART oi_walk
/* Reads, writes or fills a slice of a tensor, or copies it from another tensor. */
OI_APART void oi_tensor_part(oi_action action, void *whole, const int64_t *shape, int axes, int bits,
                                  const oi_part *part, const void *value, uint64_t element, oi_undo *undo)
{
    const oi_walk walk = { action, axes, bits, bits, 1, element, shape, whole, (unsigned char *)(uintptr_t)value, undo };
    oi_over(&walk, part);
}
