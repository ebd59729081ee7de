/* The circuit, as the functions of the header see it: its memory has a mirror here, of which parts are looked at and
   put back. */
static oi_bus attached;

typedef struct {
    oi_bus bus;
    unsigned char *arena, *state;
    int is_lost;
} oi_circuit;

static int oi_write(oi_circuit *d, uint8_t reg, const void *bytes, size_t count)
{
    if (!d->is_lost && count > 0 && d->bus.write(d->bus.user, reg, bytes, count)) d->is_lost = 1;
    return d->is_lost;
}

static int oi_read(oi_circuit *d, uint8_t reg, void *bytes, size_t count)
{
    if (!d->is_lost && count > 0 && d->bus.read(d->bus.user, reg, bytes, count)) d->is_lost = 1;
    return d->is_lost;
}

static int oi_aim(oi_circuit *d, uint32_t address)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = (unsigned char)(address >> (8 * i));
    return oi_write(d, OI_ADDRESS, bytes, 4);
}

/* Where a byte of a mirror is in the circuit. */
__attribute__((unused)) static uint32_t oi_place(const oi_circuit *d, const void *at)
{
    const unsigned char *const p = at;
    if (OI_STATE_BYTES > 0 && p >= d->state && p < d->state + OI_STATE_BYTES) return (uint32_t)(p - d->state);
    return OI_ARENA_AT + (uint32_t)(p - d->arena);
}

__attribute__((unused)) static int oi_send(oi_circuit *d, uint32_t address, const void *from, size_t bytes)
{
    return bytes > 0 && (oi_aim(d, address) || oi_write(d, OI_DATA, from, bytes));
}

__attribute__((unused)) static int oi_receive(oi_circuit *d, uint32_t address, void *to, size_t bytes)
{
    return bytes > 0 && (oi_aim(d, address) || oi_read(d, OI_DATA, to, bytes));
}

/* Elements of a number of bits get one value, in the mirror. */
__attribute__((unused)) static void oi_set(void *device, void *at, int bits, int64_t count, uint64_t element)
{
    unsigned char *const p = at;
    (void)device;
    for (int64_t i = 0; i < count; ++i) {
        if (bits < 8) {
            const unsigned shift = (unsigned)(i * bits % 8), mask = ((1u << bits) - 1u) << shift;
            p[i * bits / 8] = (unsigned char)((p[i * bits / 8] & ~mask) | ((unsigned)element << shift & mask));
        } else {
            for (int byte = 0; byte < bits / 8; ++byte)
                p[i * (bits / 8) + byte] = (unsigned char)(element >> (8 * byte));
        }
    }
}

/* Runs a step: whether the circuit could not be reached; *failure is negative if the step has not failed. */
static int oi_step(oi_circuit *d, int32_t *failure)
{
    unsigned char status = 1, number[2];
    *failure = -1;
    if (oi_write(d, OI_CONTROL, &status, 1)) return 1;
    while (status & 1) {
        if (d->bus.wait != NULL && d->bus.wait(d->bus.user)) d->is_lost = 1;
        if (oi_read(d, OI_CONTROL, &status, 1)) return 1;
    }
    if (!(status & 2)) return 0;
    if (oi_read(d, OI_FAILURE, number, 1) || oi_read(d, OI_FAILURE + 1, number + 1, 1)) return 1;
    *failure = number[0] | number[1] << 8;
    return 0;
}
