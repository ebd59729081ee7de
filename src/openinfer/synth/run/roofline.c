/* Measures the peak rates of a core: float arithmetic in registers, and memory reads.
   Compiled with the flags of generated code; VECTOR_BYTES and VECTOR_REGISTERS are those of the processor. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));

/* Enough accumulators to hide the latency of an addition, but no more than fit the registers. */
#if VECTOR_REGISTERS >= 32
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
enum { sums = 16 };
#else
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)
enum { sums = 10 };
#endif

volatile float roofline_result; /* keeps the compiler from removing the computation */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The start time of all threads: slightly in the future, so that all are running by then. */
double roofline_start(void) { return now() + 0.0005; }

static void wait_for(double start)
{
    while (now() < start) continue;
}

/* Float multiplications and additions per second, measured from a start time on for a number of seconds. */
double roofline_operations(double began, double seconds)
{
    const volatile float numbers[2] = { 0.999f, 0.001f };
    const floats factor = numbers[0] - (floats){ 0 }, term = numbers[1] - (floats){ 0 };
#define BEGIN(i) floats sum##i = term * (float)i;
    EACH(BEGIN)
    double ended = began;
    int64_t rounds = 0;
    wait_for(began);
    while (ended - began < seconds) {
        for (int i = 0; i < 4096; ++i) {
#define ADD(i) sum##i = sum##i * factor + term;
            EACH(ADD)
        }
        rounds += 4096;
        ended = now();
    }
    floats total = term;
#define TOTAL(i) total += sum##i;
    EACH(TOTAL)
    roofline_result = total[0];
    return 2.0 * sums * (VECTOR_BYTES / 4) * (double)rounds / (ended - began);
}

/* Bytes read per second, over a block that is read repeatedly: at least 4096 bytes, aligned to 64. */
double roofline_bytes(const unsigned char *memory, int64_t bytes, double began, double seconds)
{
    enum { chunk = 8 * VECTOR_BYTES };
    const int64_t chunks = bytes / chunk, passes = 1 + (1 << 20) / bytes;
    words a = { 0 }, b = a, c = a, d = a;
    double ended = began, done = 0;
    wait_for(began);
    while (ended - began < seconds) {
        for (int64_t pass = 0; pass < passes; ++pass) {
            const words *at = (const words *)(const void *)memory;
            for (int64_t i = 0; i < chunks; ++i, at += 8) {
                a += at[0] ^ at[4];
                b += at[1] ^ at[5];
                c += at[2] ^ at[6];
                d += at[3] ^ at[7];
            }
            __asm__ volatile("" ::: "memory"); /* makes the next pass read memory again */
        }
        done += (double)(passes * chunks * chunk);
        ended = now();
    }
    roofline_result = (float)(a + b + c + d)[0];
    return done / (ended - began);
}
