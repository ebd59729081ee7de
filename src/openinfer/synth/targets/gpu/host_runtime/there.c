//: oi_undo
/* The undo log of a step, a sequence of records. Old contents are kept in the arena: of device memory on the device,
   of other memory on the host. Once the log is full, the step cannot be rolled back. */
typedef struct {
    unsigned char *memory;
    size_t room, used;
    bool is_full;
    oi_queue *queue;
    int64_t count;
} oi_undo;

static inline oi_kept *oi_one_more(oi_undo *undo, oi_kept_kind kind, void *at, size_t bytes)
{
    const size_t size = (bytes + 15) / 16 * 16;
    if (undo == NULL || undo->is_full) return NULL;
    oi_kept *const kept = size <= undo->room - undo->used ? oi_record(undo->queue, undo->count) : NULL;
    undo->is_full = kept == NULL;
    if (kept == NULL) return NULL;
    *kept = (oi_kept){ .kind = kind, .at = at, .bytes = bytes, .place = undo->used,
        .failing = oi_failing(undo->queue) };
    undo->used += size;
    undo->count += 1;
    return kept;
}

static inline void oi_keep(oi_undo *undo, void *at, size_t bytes)
{
    const oi_kept *const kept = bytes == 0 ? NULL : oi_one_more(undo, OI_KEPT_HERE, at, bytes);
    if (kept != NULL) memcpy(undo->memory + kept->place, at, bytes);
}

static inline void oi_keep_there(oi_undo *undo, void *at, size_t bytes)
{
    const oi_kept *const kept = bytes == 0 ? NULL : oi_one_more(undo, OI_KEPT_THERE, at, bytes);
    if (kept != NULL) oi_keep_copy(undo->queue, undo->memory + kept->place, at, bytes);
}

//: oi_keep_cells oi_undo
/* Where to save cells that are about to change; NULL if they are not saved. */
static inline void *oi_keep_cells(oi_undo *undo, const oi_cells *cells)
{
    int64_t elements = cells->entry;
    for (int axis = 0; axis < cells->axes; ++axis) elements *= cells->count[axis];
    const size_t bytes = ((size_t)elements * (size_t)cells->cell_bits + 7) / 8;
    oi_kept *const kept = bytes == 0 ? NULL : oi_one_more(undo, OI_KEPT_CELLS, cells->cells, bytes);
    if (kept == NULL) return NULL;
    kept->cells = *cells;
    kept->cells.value_bits = cells->cell_bits;
    return undo->memory + kept->place;
}

//: oi_put_back oi_undo
/* Pops the last record and restores what it keeps. */
static inline const oi_kept *oi_put_back(oi_undo *undo)
{
    const oi_kept *const kept = oi_record(undo->queue, --undo->count);
    unsigned char *const from = undo->memory + kept->place;
    if (kept->kind == OI_KEPT_HERE) memcpy(kept->at, from, kept->bytes);
    if (!oi_is_kept(undo->queue, kept)) return kept;
    if (kept->kind == OI_KEPT_THERE) oi_copy(undo->queue, kept->at, from, kept->bytes);
    if (kept->kind == OI_KEPT_CELLS) oi_move(undo->queue, 1, &kept->cells, from, NULL);
    return kept;
}

//: oi_roll_back OI_APART oi_undo
/* Rolls back all changes, the last one first. */
OI_APART void oi_roll_back(oi_undo *undo)
{
    while (undo->count > 0) oi_put_back(undo);
    oi_settle(undo->queue);
}

//: oi_keep_heap OI_APART oi_undo
/* Keeps the memory of a table that is about to be replaced, or frees it if the step cannot be rolled back. */
OI_APART void oi_keep_heap(oi_undo *undo, unsigned char **heap)
{
    oi_kept *const kept = oi_one_more(undo, OI_KEPT_HEAP, heap, 0);
    if (kept != NULL) kept->cells.cells = *heap;
    else free(*heap);
}

//: oi_roll_back_heap OI_APART oi_undo
/* Rolls back all changes, the last one first, and frees table memory that was allocated since. */
OI_APART void oi_roll_back_heap(oi_undo *undo)
{
    while (undo->count > 0) {
        const oi_kept *const kept = oi_put_back(undo);
        unsigned char **const heap = kept->kind == OI_KEPT_HEAP ? (unsigned char **)kept->at : NULL;
        if (heap == NULL) continue;
        free(*heap);
        *heap = kept->cells.cells;
    }
    oi_settle(undo->queue);
}

/* Commits all changes: frees table memory that has been replaced. */
OI_APART void oi_commit(oi_undo *undo)
{
    while (undo->count > 0) {
        const oi_kept *const kept = oi_record(undo->queue, --undo->count);
        if (kept->kind == OI_KEPT_HEAP) free(kept->cells.cells);
    }
}

//: oi_over_there OI_APART oi_walk
/* Reads, writes, fills or copies a slice of cells on the device. */
OI_APART void oi_over_there(oi_queue *queue, const oi_walk *w, const oi_part *part)
{
    oi_cells all = { .axes = w->axes, .cell_bits = w->cell_bits, .value_bits = w->value_bits, .entry = w->entry,
        .initial = w->initial, .cells = w->cells };
    for (int axis = 0; axis < w->axes; ++axis) {
        const int64_t room = w->shape[axis] > part->first[axis] ? w->shape[axis] - part->first[axis] : 0;
        all.shape[axis] = w->shape[axis];
        all.first[axis] = part->first[axis];
        all.count[axis] = w->action == OI_READ || part->count[axis] < room ? part->count[axis] : room;
    }
    void *const kept = w->action == OI_READ ? NULL : oi_keep_cells(w->undo, &all);
    oi_move(queue, (int32_t)w->action, &all, w->value, kept);
}

//: oi_part_there OI_APART oi_over_there
/* Reads, writes or fills a slice of a tensor with elements of this many bits, or copies it from another tensor. */
OI_APART void oi_part_there(oi_queue *queue, oi_action action, void *whole, const int64_t *shape, int axes, int bits,
                            const oi_part *part, const void *value, uint64_t element, oi_undo *undo)
{
    const oi_walk walk = { action, axes, bits, bits, 1, element, shape, whole, (unsigned char *)(uintptr_t)value, undo };
    oi_over_there(queue, &walk, part);
}

//: oi_read_there OI_APART oi_select oi_over_there oi_table_read
/* Reads a slice of a table into a tensor. A table that grows is in host memory. */
OI_APART void oi_read_there(oi_queue *queue, const oi_grid *g, const oi_part *part, void *value)
{
    const oi_table *t = g->table;
    if (g->heap != NULL) {
        int64_t elements = t->entry;
        for (int axis = 0; axis < t->axes; ++axis) elements *= part->count[axis];
        oi_table_read(g, part, value);
        oi_upload(queue, value, ((size_t)elements * (size_t)t->bits + 7) / 8);
        return;
    }
    unsigned char *const cells = g->memory + oi_cells_at(t, g->capacity);
    const oi_walk walk = { OI_READ, t->axes, oi_cell_bits(t), t->bits, t->entry, t->initial, g->capacity, cells, value, NULL };
    oi_over_there(queue, &walk, part);
}

//: oi_write_there OI_APART oi_select oi_over_there oi_table_write
/* Writes a tensor to a slice of a table; the extents, which are in host memory, grow to include it. */
OI_APART void oi_write_there(oi_queue *queue, const oi_grid *g, const oi_part *part, const void *value)
{
    const oi_table *t = g->table;
    if (g->heap != NULL) {
        oi_table_write(g, part, value);
        return;
    }
    for (int axis = 0; axis < t->axes; ++axis)
        if (part->count[axis] == 0) return;
    unsigned char *const cells = g->memory + oi_cells_at(t, g->capacity);
    unsigned char *const from = (unsigned char *)(uintptr_t)value;
    const oi_walk walk = { OI_WRITE, t->axes, oi_cell_bits(t), t->bits, t->entry, 0, g->capacity, cells, from, g->undo };
    const bool has_matrices = oi_has_matrices(t);
    int64_t key[OI_AXES] = { 0 };
    oi_keep(g->undo, g->extent, (size_t)t->axes * sizeof(int64_t));
    oi_over_there(queue, &walk, part);
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

//: oi_clear_there OI_APART oi_grid oi_table_clear
/* Resets a table to its initial state. */
OI_APART void oi_clear_there(oi_queue *queue, const oi_grid *g)
{
    const oi_table *t = g->table;
    if (g->heap != NULL) {
        oi_table_clear(g);
        return;
    }
    const size_t cells_at = oi_cells_at(t, g->capacity), each = (size_t)t->entry * (size_t)oi_cell_bits(t) / 8;
    const int64_t cells = oi_cell_count(t, g->capacity);
    const int matrix = t->axes - t->keys;
    int64_t *const own = (int64_t *)(void *)g->memory;
    oi_keep(g->undo, g->extent, (size_t)t->axes * sizeof(int64_t));
    oi_keep(g->undo, g->memory, cells_at);
    oi_keep_there(g->undo, g->memory + cells_at, (size_t)cells * each);
    for (int axis = 0; axis < t->axes; ++axis) g->extent[axis] = t->start[axis];
    for (int64_t i = 0; i < oi_sets(t, g->capacity) * matrix; ++i) own[i] = t->start[t->keys + i % matrix];
    oi_set(queue, g->memory + cells_at, oi_cell_bits(t), cells * t->entry, t->initial);
}

//: oi_reset_there OI_APART oi_select oi_over_there oi_table_reset
/* Resets a slice of a table to its initial state; with is_whole, the extents of its matrices as well. */
OI_APART void oi_reset_there(oi_queue *queue, const oi_grid *g, const oi_part *part, bool is_whole)
{
    const oi_table *t = g->table;
    if (g->heap != NULL) {
        oi_table_reset(g, part, is_whole);
        return;
    }
    oi_part there = *part;
    for (int axis = t->keys; is_whole && axis < t->axes; ++axis) {
        there.first[axis] = 0;
        there.count[axis] = g->capacity[axis];
    }
    unsigned char *const cells = g->memory + oi_cells_at(t, g->capacity);
    const int bits = oi_cell_bits(t);
    const oi_walk walk = { OI_FILL, t->axes, bits, bits, t->entry, t->initial, g->capacity, cells, NULL, g->undo };
    int64_t key[OI_AXES] = { 0 };
    oi_over_there(queue, &walk, &there);
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
