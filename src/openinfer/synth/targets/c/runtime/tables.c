//: oi_grid OI_AXES oi_undo
/* The constants of a table: its growing axes, the first of which are keys. Where keys select matrices, each matrix has
   its own extents. A bound of -1 means none. */
typedef struct {
    int axes, keys, bits;
    int64_t entry;
    uint64_t initial;
    const int64_t *bound, *start;
} oi_table;

/* A table and its memory: extents, capacity in cells along each axis, and the cells. */
typedef struct {
    const oi_table *table;
    int64_t *extent;
    const int64_t *capacity;
    unsigned char *memory;
    int64_t *room;        /* the capacity, if it can grow */
    unsigned char **heap; /* the memory, if it can move */
    oi_undo *undo;        /* the undo log of the running step */
} oi_grid;

static inline bool oi_has_matrices(const oi_table *t) { return t->keys > 0 && t->keys < t->axes; }

static inline int oi_cell_bits(const oi_table *t) { return t->bits < 8 ? 8 : t->bits; }

/* The number of matrices, whose extents precede the cells. */
static inline int64_t oi_sets(const oi_table *t, const int64_t *capacity)
{
    int64_t sets = oi_has_matrices(t) ? 1 : 0;
    for (int key = 0; key < t->keys; ++key) sets *= capacity[key];
    return sets;
}

static inline size_t oi_cells_at(const oi_table *t, const int64_t *capacity)
{
    return ((size_t)oi_sets(t, capacity) * (size_t)(t->axes - t->keys) * 8 + OI_ALIGNMENT - 1) / OI_ALIGNMENT * OI_ALIGNMENT;
}

static inline unsigned char *oi_memory(const oi_grid *g) { return g->heap != NULL ? *g->heap : g->memory; }

static inline int64_t oi_cell_count(const oi_table *t, const int64_t *capacity)
{
    int64_t count = 1;
    for (int axis = 0; axis < t->axes; ++axis) count *= capacity[axis];
    return count;
}

//: oi_sets_over oi_grid oi_part
/* Advances to the next keys of a slice; false after the last ones. */
static inline bool oi_next_key(const oi_table *t, const oi_part *part, int64_t *key)
{
    for (int axis = t->keys; axis-- > 0;) {
        if (++key[axis] < part->first[axis] + part->count[axis]) return true;
        key[axis] = part->first[axis];
    }
    return false;
}

/* The extents of the matrix that keys select; NULL if it has no memory yet. */
static inline int64_t *oi_matrix(const oi_grid *g, const int64_t *key)
{
    const oi_table *t = g->table;
    int64_t set = 0;
    for (int axis = 0; axis < t->keys; ++axis) {
        if (key[axis] >= g->capacity[axis]) return NULL;
        set = set * g->capacity[axis] + key[axis];
    }
    return (int64_t *)(void *)oi_memory(g) + set * (t->axes - t->keys);
}

static inline bool oi_first_key(const oi_table *t, const oi_part *part, int64_t *key)
{
    for (int axis = 0; axis < t->keys; ++axis) {
        if (part->count[axis] == 0) return false;
        key[axis] = part->first[axis];
    }
    return true;
}

//: oi_select OI_APART oi_sets_over
/* The extent of an axis; of the axes of matrices, the largest in the slice. */
static inline int64_t oi_extent(const oi_grid *g, const oi_part *part, int axis)
{
    const oi_table *t = g->table;
    if (axis < t->keys || !oi_has_matrices(t)) return g->extent[axis];
    int64_t widest = t->start[axis], key[OI_AXES] = { 0 };
    oi_part there = *part;
    for (int one = 0; one < t->keys; ++one) { /* only matrices with memory have extents */
        const int64_t room = g->capacity[one] - there.first[one];
        if (there.count[one] > room) there.count[one] = room > 0 ? room : 0;
    }
    if (!oi_first_key(t, &there, key)) return widest;
    do {
        const int64_t *own = oi_matrix(g, key);
        if (own != NULL && own[axis - t->keys] > widest) widest = own[axis - t->keys];
    } while (oi_next_key(t, &there, key));
    return widest;
}

/* Resolves the indices of a table to a slice; false if one is out of bounds. Keys are always checked; cells of matrices
   only when they are written, since reads past the edge return the initial element. */
OI_APART bool oi_select(const oi_grid *g, const oi_pick *pick, bool is_write, oi_part *part)
{
    const oi_table *t = g->table;
    bool is_empty = false, is_beyond = false;
    for (int axis = 0; axis < t->axes; ++axis) {
        const int64_t extent = oi_extent(g, part, axis), bound = t->bound[axis];
        const int64_t end = oi_chosen(pick[axis], extent, t->start[axis], part, axis);
        if (end < 0) return false;
        is_empty = is_empty || part->count[axis] == 0;
        if (bound < 0 || end <= bound) continue;
        if (axis < t->keys || pick[axis].kind == OI_GROWN) return false;
        is_beyond = true;
    }
    return !is_write || !is_beyond || is_empty;
}

//: oi_table_read OI_APART oi_select oi_walk
/* Reads a slice of a table into a tensor. */
OI_APART void oi_table_read(const oi_grid *g, const oi_part *part, void *value)
{
    const oi_table *t = g->table;
    const int cell_bits = oi_cell_bits(t), axes = t->axes;
    unsigned char *const memory = oi_memory(g);
    unsigned char *const cells = memory == NULL ? NULL : memory + oi_cells_at(t, g->capacity);
    const oi_walk walk = { OI_READ, axes, cell_bits, t->bits, t->entry, t->initial, g->capacity, cells, value, NULL };
    oi_over(&walk, part);
}

//: oi_table_view OI_APART oi_grid oi_part
/* The address of a contiguous slice of a table that never moves. */
OI_APART const void *oi_table_view(const oi_grid *g, const oi_part *part)
{
    const oi_table *t = g->table;
    int64_t cell = 0;
    for (int axis = 0; axis < t->axes; ++axis) cell = cell * g->capacity[axis] + part->first[axis];
    return g->memory + oi_cells_at(t, g->capacity) + (size_t)(cell * t->entry * t->bits / 8);
}

//: oi_table_write OI_APART oi_select oi_walk
static inline void oi_reach(int64_t *extent, int64_t end)
{
    if (end > *extent) *extent = end;
}

/* Writes a tensor to a slice of a table, which has memory for it; extents grow to the end of the slice. */
OI_APART void oi_table_write(const oi_grid *g, const oi_part *part, const void *value)
{
    const oi_table *t = g->table;
    unsigned char *const source = (unsigned char *)(uintptr_t)value;
    for (int axis = 0; axis < t->axes; ++axis)
        if (part->count[axis] == 0) return;
    unsigned char *const cells = oi_memory(g) + oi_cells_at(t, g->capacity);
    const int bits = oi_cell_bits(t);
    const oi_walk walk = { OI_WRITE, t->axes, bits, t->bits, t->entry, 0, g->capacity, cells, source, g->undo };
    int64_t key[OI_AXES] = { 0 };
    oi_keep(g->undo, g->extent, (size_t)t->axes * sizeof(int64_t));
    oi_over(&walk, part);
    const bool has_matrices = oi_has_matrices(t);
    for (int axis = 0; axis < (has_matrices ? t->keys : t->axes); ++axis)
        oi_reach(&g->extent[axis], part->first[axis] + part->count[axis]);
    if (!has_matrices || !oi_first_key(t, part, key)) return;
    do {
        int64_t *const own = oi_matrix(g, key);
        if (own != NULL) oi_keep(g->undo, own, (size_t)(t->axes - t->keys) * sizeof(int64_t));
        for (int axis = t->keys; own != NULL && axis < t->axes; ++axis)
            oi_reach(&own[axis - t->keys], part->first[axis] + part->count[axis]);
    } while (oi_next_key(t, part, key));
}

//: oi_table_clear OI_APART oi_grid
/* Resets a whole table to its initial state. */
OI_APART void oi_table_clear(const oi_grid *g)
{
    const oi_table *t = g->table;
    oi_keep(g->undo, g->extent, (size_t)t->axes * sizeof(int64_t));
    for (int axis = 0; axis < t->axes; ++axis) g->extent[axis] = t->start[axis];
    unsigned char *const memory = oi_memory(g);
    if (memory == NULL) return;
    const size_t cells_at = oi_cells_at(t, g->capacity), each = (size_t)t->entry * (size_t)oi_cell_bits(t) / 8;
    oi_keep(g->undo, memory, cells_at + (size_t)oi_cell_count(t, g->capacity) * each);
    const int matrix = t->axes - t->keys;
    int64_t *const own = (int64_t *)(void *)memory;
    for (int64_t i = 0; i < oi_sets(t, g->capacity) * matrix; ++i) own[i] = t->start[t->keys + i % matrix];
    const int64_t elements = oi_cell_count(t, g->capacity) * t->entry;
    oi_fill(memory + cells_at, oi_cell_bits(t), 0, elements, t->initial);
}

//: oi_table_reset OI_APART oi_select oi_walk
/* Resets a slice of a table to the initial element; with is_whole, resets whole matrices and their extents. */
OI_APART void oi_table_reset(const oi_grid *g, const oi_part *part, bool is_whole)
{
    const oi_table *t = g->table;
    unsigned char *const memory = oi_memory(g);
    if (memory == NULL) return;
    oi_part there = *part;
    for (int axis = 0; is_whole && axis < t->axes; ++axis) {
        if (axis < t->keys) continue;
        there.first[axis] = 0;
        there.count[axis] = g->capacity[axis];
    }
    unsigned char *const cells = memory + oi_cells_at(t, g->capacity);
    const int cell_bits = oi_cell_bits(t);
    const oi_walk walk = {
        OI_FILL, t->axes, cell_bits, cell_bits, t->entry, t->initial, g->capacity, cells, NULL, g->undo,
    };
    int64_t key[OI_AXES] = { 0 };
    oi_over(&walk, &there);
    for (int one = 0; one < t->keys; ++one) {
        const int64_t room = g->capacity[one] - there.first[one];
        if (there.count[one] > room) there.count[one] = room > 0 ? room : 0;
    }
    if (!is_whole || !oi_has_matrices(t) || !oi_first_key(t, &there, key)) return;
    do {
        int64_t *const own = oi_matrix(g, key);
        if (own != NULL) oi_keep(g->undo, own, (size_t)(t->axes - t->keys) * sizeof(int64_t));
        for (int axis = t->keys; own != NULL && axis < t->axes; ++axis) own[axis - t->keys] = t->start[axis];
    } while (oi_next_key(t, &there, key));
}

//: oi_table_bytes OI_APART oi_grid
/* The bytes of a table with this capacity; false if it is invalid or too large to allocate. */
OI_APART bool oi_table_bytes(const oi_table *t, const int64_t *capacity, size_t *bytes)
{
    int64_t cells = t->entry, sets = 1, total;
    for (int axis = 0; axis < t->axes; ++axis) {
        if (capacity[axis] < 0 || __builtin_mul_overflow(cells, capacity[axis], &cells)) return false;
        if (axis < t->keys && __builtin_mul_overflow(sets, capacity[axis], &sets)) return false;
    }
    if (__builtin_mul_overflow(sets, oi_has_matrices(t) ? (int64_t)8 * t->axes : 0, &sets)) return false;
    if (__builtin_mul_overflow(cells, (int64_t)oi_cell_bits(t) / 8, &cells)) return false;
    if (__builtin_add_overflow(cells, sets, &total) || total > (int64_t)(SIZE_MAX / 4)) return false;
    *bytes = oi_cells_at(t, capacity) + (size_t)cells;
    return true;
}

//: oi_keep_heap OI_APART oi_undo
/* Keeps memory of a table that is about to be replaced until the step commits or rolls back: logs the pointer to it,
   then a record of 0 bytes as a mark. Frees it at once if there is no log, or the log is full. */
OI_APART void oi_keep_heap(oi_undo *undo, unsigned char **heap)
{
    const oi_kept mark = { (unsigned char *)heap, 0 };
    if (undo != NULL && undo->room - undo->used < oi_kept_size(sizeof *heap) + 16) undo->is_full = true;
    if (undo == NULL || undo->is_full) {
        free(*heap);
        return;
    }
    oi_keep(undo, heap, sizeof *heap);
    undo->used += 16;
    memcpy(undo->memory + undo->used - 16, &mark, sizeof mark);
}

//: oi_roll_back_heap OI_APART oi_undo
/* Rolls the step back, the last change first, and frees the memory that it allocated. */
OI_APART void oi_roll_back_heap(oi_undo *undo)
{
    while (undo->used > 0) {
        const oi_kept kept = oi_last_kept(undo);
        if (kept.bytes == 0) free(*(unsigned char **)(void *)kept.at);
        else memcpy(kept.at, undo->memory + undo->used, kept.bytes);
    }
}

/* Commits the step: frees the memory that it replaced. */
OI_APART void oi_commit(oi_undo *undo)
{
    while (undo->used > 0) {
        unsigned char *old;
        if (oi_last_kept(undo).bytes > 0) continue;
        oi_last_kept(undo);
        memcpy(&old, undo->memory + undo->used, sizeof old);
        free(old);
    }
}

//: oi_table_grow OI_APART oi_table_bytes oi_select oi_walk oi_table_clear oi_keep_heap
/* Grows a table to hold a slice that is about to be written; false if out of memory. The capacity of an axis at least
   doubles, up to its bound, so that appends are amortized O(1). */
OI_APART bool oi_table_grow(const oi_grid *g, const oi_part *part)
{
    const oi_table *t = g->table;
    int64_t room[OI_AXES] = { 0 };
    bool fits = true;
    for (int axis = 0; axis < t->axes; ++axis) {
        const int64_t end = part->first[axis] + part->count[axis], own = g->capacity[axis];
        if (part->count[axis] == 0) return true;
        room[axis] = end <= own ? own : end > 2 * own ? end : 2 * own;
        if (t->bound[axis] >= 0 && room[axis] > t->bound[axis]) room[axis] = t->bound[axis];
        fits = fits && end <= own;
    }
    size_t bytes;
    if (fits) return true;
    for (int axis = t->keys; axis < t->axes; ++axis)
        if (room[axis] < t->start[axis]) room[axis] = t->start[axis];
    if (!oi_table_bytes(t, room, &bytes)) return false;
    unsigned char *const made = malloc(bytes > 0 ? bytes : 1), *const old = *g->heap;
    if (made == NULL) return false;
    int64_t extent[OI_AXES] = { 0 };
    unsigned char *memory = made;
    const oi_grid grown = { t, extent, room, NULL, NULL, &memory, NULL };
    oi_table_clear(&grown);
    if (old != NULL) {
        oi_part all = { { 0 }, { 0 } };
        for (int axis = 0; axis < t->axes; ++axis) {
            all.first[axis] = 0;
            all.count[axis] = g->capacity[axis];
        }
        /* The old cells are a tensor with the old capacity as its shape: one write moves them all. */
        unsigned char *const cells = old + oi_cells_at(t, g->capacity);
        const int bits = oi_cell_bits(t);
        unsigned char *const to = made + oi_cells_at(t, room);
        const oi_walk walk = { OI_WRITE, t->axes, bits, bits, t->entry, 0, room, to, cells, NULL };
        int64_t key[OI_AXES] = { 0 };
        oi_over(&walk, &all);
        if (oi_has_matrices(t) && oi_first_key(t, &all, key)) {
            do {
                const size_t row = (size_t)(t->axes - t->keys) * sizeof(int64_t);
                memcpy(oi_matrix(&grown, key), oi_matrix(g, key), row);
            } while (oi_next_key(t, &all, key));
        }
    }
    oi_keep(g->undo, g->room, (size_t)t->axes * sizeof(int64_t));
    oi_keep_heap(g->undo, g->heap);
    *g->heap = made;
    for (int axis = 0; axis < t->axes; ++axis) g->room[axis] = room[axis];
    return true;
}
