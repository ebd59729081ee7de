//: oi_codes OI_APART oi_element
/* Whether the codes of all elements are valid: their bits in allowed are set. */
OI_APART bool oi_codes(const unsigned char *p, int bits, int64_t count, uint32_t allowed)
{
    for (int64_t i = 0; i < count; ++i) {
        const unsigned code = oi_get(p, bits, i);
        if (code > 31 || (allowed >> code & 1u) == 0) return false;
    }
    return true;
}

//: oi_state_room OI_APART oi_table_bytes
/* The bytes of a growing table, given its capacity in a saved state; false if that is invalid, or exceeds the rest. */
OI_APART bool oi_state_room(const oi_table *t, const int64_t *room, size_t rest, size_t *bytes)
{
    int64_t cells = 1;
    int used = 0;
    for (int axis = 0; axis < t->axes; ++axis) {
        if (room[axis] < 0 || (t->bound[axis] >= 0 && room[axis] > t->bound[axis])) return false;
        if (room[axis] > 0 && __builtin_mul_overflow(cells, room[axis], &cells)) return false;
        used += room[axis] > 0;
    }
    *bytes = 0;
    if (used == 0) return true; /* nothing was ever written */
    if (used < t->axes || (t->entry == 0 && cells > INT32_MAX)) return false;
    return oi_table_bytes(t, room, bytes) && *bytes <= rest;
}

//: oi_state_table OI_APART oi_codes oi_grid
/* Whether the extents of a table in a saved state fit its capacity, and its cells are valid elements. */
OI_APART bool oi_state_table(const oi_table *t, const int64_t *room, const unsigned char *extents,
                             const unsigned char *memory, uint32_t allowed)
{
    const int matrix = oi_has_matrices(t) ? t->axes - t->keys : 0;
    for (int axis = 0; axis < t->axes; ++axis) {
        const bool can_grow = axis < t->axes - matrix && room[axis] > 0;
        int64_t extent;
        memcpy(&extent, extents + 8 * axis, 8);
        if (extent < t->start[axis] || extent > (can_grow ? room[axis] : t->start[axis])) return false;
        if (room[axis] > 0 && room[axis] < t->start[axis]) return false;
    }
    for (int64_t i = 0; i < oi_sets(t, room) * matrix; ++i) {
        const int axis = t->keys + (int)(i % matrix);
        int64_t extent;
        memcpy(&extent, memory + 8 * i, 8);
        if (extent < t->start[axis] || extent > room[axis]) return false;
    }
    if (allowed == 0) return true; /* every byte is valid */
    const int64_t elements = oi_cell_count(t, room) * t->entry;
    return elements == 0 || oi_codes(memory + oi_cells_at(t, room), 8, elements, allowed);
}
