/* Steps of the decoder that bench/gpu/decode.py has built, one token each, on a Vulkan device: how long they take, and
 * how long each kernel takes. Prints JSON. The weights are made here, the same ones every time. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "kernels.h"

extern int32_t decode_is_timed;
extern int64_t decode_step_nanoseconds, decode_nanoseconds[], decode_calls[];
int decode_clocked_step(decode_context *c, const decode_inputs *in, decode_outputs *out);

enum { MEASURED = 32, TIMED = 8 };

static void require(int is_good, const char *what, const char *more)
{
    if (is_good) return;
    fprintf(stderr, "%s: %s\n", what, more);
    exit(1);
}

/* Numbers of bf16 between -1/32 and 1/32, by a linear congruence. */
static void fill(uint16_t *to, size_t count)
{
    uint32_t seed = 1;
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (uint16_t)((seed >> 16 & 0x8000u) | (0x3b00u + (seed >> 20 & 0xffu)));
    }
}

static double real(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words)
{
    const double ceiling = count > 1 ? atof(words[1]) * 1e9 : 0;
    const int steps = count > 2 ? atoi(words[2]) : TOKENS;
    void *weights = malloc(DECODE_WEIGHT_BYTES), *arena = decode_memory(DECODE_ARENA_BYTES);
    void *state = decode_memory(DECODE_STATE_BYTES);
    decode_context context;
    decode_outputs out;
    require(weights && arena && state, "memory", "there is none");
    fill(weights, DECODE_WEIGHT_BYTES / 2);
    const int begun = decode_init(&context, arena, DECODE_ARENA_BYTES, state, DECODE_STATE_BYTES, weights, DECODE_WEIGHT_BYTES);
    require(begun == DECODE_OK, "init", decode_last_error(&context));
    free(weights);
    double times[MEASURED];
    int found = 0, timed = 0;
    for (int step = 0; step < steps; ++step) {
        const int32_t token = step % 97;
        const decode_inputs in = { .token = &token };
        decode_is_timed = step >= steps - TIMED;
        const int status = decode_clocked_step(&context, &in, &out);
        require(status == DECODE_OK, "step", decode_last_error(&context));
        if (step >= steps - TIMED - MEASURED && step < steps - TIMED) times[found++] = (double)decode_step_nanoseconds * 1e-3;
        timed += decode_is_timed;
    }
    qsort(times, (size_t)found, sizeof *times, by_size);
    uint32_t hash = 2166136261u;
    for (int i = 0; i < CLASSES; ++i) hash = (hash ^ out.logits[i]) * 16777619u;
    const double median = found ? times[found / 2] : 0, floor = ceiling > 0 ? READ_BYTES / ceiling * 1e6 : 0;
    printf("{\"steps\": %d, \"us_per_step\": %.1f, \"least_us\": %.1f, \"read_bytes\": %.0f, \"floor_us\": %.1f, "
           "\"percent_of_floor\": %.1f, \"hash_of_logits\": %u, \"logits\": [%g, %g, %g], \"kernels\": [\n",
        steps, median, found ? times[0] : 0, (double)READ_BYTES, floor, median > 0 ? 100 * floor / median : 0, hash,
        real(out.logits[0]), real(out.logits[1]), real(out.logits[2]));
    double all = 0;
    for (int i = 0; i < LAUNCHES; ++i) {
        const double own = timed ? (double)decode_nanoseconds[i] * 1e-3 / timed : 0;
        all += own;
        printf("  {\"name\": \"%s\", \"calls\": %.0f, \"us\": %.1f, \"us_each\": %.2f},\n", launch_names[i],
            timed ? (double)decode_calls[i] / timed : 0, own, decode_calls[i] ? own * timed / (double)decode_calls[i] : 0);
    }
    printf("  {\"name\": \"all\", \"us\": %.1f}]}\n", all);
    decode_free(&context);
    return 0;
}
