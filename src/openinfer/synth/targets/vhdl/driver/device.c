/* The circuit behind the functions of the header. The host mirrors its memory, and copies ranges in both directions. */
static oi_bus attached;

typedef struct {
    oi_bus bus;
    unsigned char *arena, *state;
    int is_lost;
#ifdef OI_TRACE
    unsigned char *seen; /* the value passed to the trace */
#endif
} oi_circuit;

static int oi_write(oi_circuit *d, uint8_t reg, const void *bytes, size_t count)
{
    if (!d->is_lost && count > 0 && d->bus.bus_write(d->bus.user, reg, bytes, count)) d->is_lost = 1;
    return d->is_lost;
}

static int oi_read(oi_circuit *d, uint8_t reg, void *bytes, size_t count)
{
    if (!d->is_lost && count > 0 && d->bus.bus_read(d->bus.user, reg, bytes, count)) d->is_lost = 1;
    return d->is_lost;
}

static int oi_aim(oi_circuit *d, uint32_t address)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = (unsigned char)(address >> (8 * i));
    return oi_write(d, OI_ADDRESS, bytes, 4);
}

/* The circuit's address of a byte in a mirror. */
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

/* Fills elements of `bits` bits in the mirror with one value. */
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

#ifdef OI_TRACE
/* Reads a number from a stopped circuit. */
__attribute__((unused)) static int64_t oi_number(oi_circuit *d, unsigned which)
{
    const unsigned char choice[2] = { (unsigned char)which, (unsigned char)(which >> 8) };
    unsigned char bytes[8] = { 0 };
    uint64_t number = 0;
    if (oi_write(d, OI_CHOICE, choice, 2) || oi_read(d, OI_NUMBER, bytes, 8)) return 0;
    for (int i = 7; i >= 0; --i) number = number << 8 | bytes[i];
    return (int64_t)number;
}

/* Reads a value of a stopped circuit, valid until the next call; NULL if it is empty or its sizes have no values. */
__attribute__((unused)) static const void *oi_value(oi_circuit *d, int64_t address, size_t bytes, size_t most)
{
    if (bytes == 0 || bytes > most) return NULL;
    if (d->seen == NULL) d->seen = calloc(1, OI_LARGEST);
    if (d->seen == NULL || oi_receive(d, (uint32_t)address, d->seen, bytes)) return NULL;
    return d->seen;
}

static void oi_stopped(NAME_context *c, uint32_t stop);
#endif

/* Runs a step. Returns nonzero if the bus failed; *failure is the number of the step's failure, or -1. */
static int oi_step(NAME_context *c, int32_t *failure)
{
    oi_circuit *const d = c->device;
    unsigned char status = 1, number[2];
    *failure = -1;
#ifdef OI_TRACE
    const unsigned char on = 4;
    if (c->trace != NULL) status = 3;
#endif
    if (oi_write(d, OI_CONTROL, &status, 1)) return 1;
    while (status & 1) {
        if (d->bus.bus_wait != NULL && d->bus.bus_wait(d->bus.user)) d->is_lost = 1;
        if (oi_read(d, OI_CONTROL, &status, 1)) return 1;
#ifdef OI_TRACE
        if (!(status & 4)) continue;
        if (oi_read(d, OI_STOP, number, 1) || oi_read(d, OI_STOP + 1, number + 1, 1)) return 1;
        oi_stopped(c, number[0] | (uint32_t)number[1] << 8);
        if (oi_write(d, OI_CONTROL, &on, 1)) return 1;
#endif
    }
    if (!(status & 2)) return 0;
    if (oi_read(d, OI_FAILURE, number, 1) || oi_read(d, OI_FAILURE + 1, number + 1, 1)) return 1;
    *failure = number[0] | number[1] << 8;
    return 0;
}
