/* How the driver reaches the circuit: eight-bit registers on a bus that the host program provides.
 * bus_write and bus_read transfer `count` bytes to or from one register. All functions return 0 on success.
 * bus_wait may be NULL; otherwise it is called while a step runs, and may sleep until the circuit is idle. */
typedef struct {
    int (*bus_write)(void *user, uint8_t reg, const uint8_t *bytes, size_t count);
    int (*bus_read)(void *user, uint8_t reg, uint8_t *bytes, size_t count);
    int (*bus_wait)(void *user);
    void *user;
} oi_bus;

enum {
    OI_CONTROL = 0,
    OI_ADDRESS = 1,
    OI_DATA = 2,
    OI_FAILURE = 3,
    OI_CYCLES = 5,
    OI_STOP = 9,
    OI_CHOICE = 11,
    OI_NUMBER = 12,
    OI_IDENTITY = 15,
};
