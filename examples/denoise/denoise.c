/* Takes the noise out of speech, a frame at a time: plain C around one generated library.

   denoise IN.wav OUT.wav

   Files have one channel of 16-bit samples at 16 kHz; - is standard input or output, so that it works in a pipe. A frame
   of 512 samples begins every 256: the sound comes out 16 ms after it goes in, plus what a step takes.
   It is run in the folder that has gtcrn/src/weights.bin, or in the one named by $DENOISE. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gtcrn.h"
#include "sound.h"
#include "weights.h"

#define FRAME 512
#define HOP 256
#define BINS (FRAME / 2 + 1)

static _Alignas(GTCRN_ALIGNMENT) unsigned char arena[GTCRN_ARENA_BYTES], state[GTCRN_STATE_BYTES];
static _Alignas(GTCRN_ALIGNMENT) unsigned char weights[GTCRN_WEIGHT_BYTES];
static float window[FRAME], cosine[FRAME / 2], sine[FRAME / 2];

static int failed(const char *what)
{
    fprintf(stderr, "denoise: %s\n", what);
    return 1;
}

/* --- WAV files --------------------------------------------------------------------------------------------------- */

static void put(FILE *file, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; ++i) fputc((int)(value >> 8 * i & 0xff), file);
}

static void write_head(FILE *file, uint32_t bytes)
{
    fwrite("RIFF", 1, 4, file);
    put(file, bytes + 36, 4);
    fwrite("WAVEfmt ", 1, 8, file);
    put(file, 16, 4);
    put(file, 1, 2);
    put(file, 1, 2);
    put(file, RATE, 4);
    put(file, 2 * RATE, 4);
    put(file, 2, 2);
    put(file, 16, 2);
    fwrite("data", 1, 4, file);
    put(file, bytes, 4);
}

static void write_samples(FILE *file, const float *from, int count)
{
    for (int i = 0; i < count; ++i) {
        const float scaled = roundf(from[i] * 32768);
        put(file, (uint32_t)(int32_t)(scaled > 32767 ? 32767 : scaled < -32768 ? -32768 : scaled), 2);
    }
}

/* --- spectra ----------------------------------------------------------------------------------------------------- */

static void prepare(void)
{
    const double turn = 2 * 3.14159265358979323846 / FRAME;
    for (int i = 0; i < FRAME; ++i) window[i] = (float)sin(turn * i / 2); /* the root of a Hann window */
    for (int i = 0; i < FRAME / 2; ++i) {
        cosine[i] = (float)cos(turn * i);
        sine[i] = (float)sin(turn * i);
    }
}

/* The Fourier transform of FRAME complex numbers in place, forward (-1) or backward (1), without a factor. */
static void transform(float (*z)[2], float direction)
{
    for (int i = 1, j = 0; i < FRAME; ++i) {
        int bit = FRAME / 2;
        for (; j & bit; bit /= 2) j ^= bit;
        j ^= bit;
        if (i < j) {
            float kept[2];
            memcpy(kept, z[i], sizeof kept);
            memcpy(z[i], z[j], sizeof kept);
            memcpy(z[j], kept, sizeof kept);
        }
    }
    for (int half = 1; half < FRAME; half *= 2)
        for (int first = 0; first < FRAME; first += 2 * half)
            for (int k = 0; k < half; ++k) {
                const float c = cosine[k * (FRAME / 2 / half)], s = direction * sine[k * (FRAME / 2 / half)];
                float *const a = z[first + k], *const b = z[first + k + half];
                const float re = b[0] * c - b[1] * s, im = b[0] * s + b[1] * c;
                b[0] = a[0] - re, b[1] = a[1] - im;
                a[0] += re, a[1] += im;
            }
}

/* One frame through the network: windowed, transformed, cleaned, back again, windowed. */
static int clean(gtcrn_context *context, const float *samples, float *cleaned)
{
    static float z[FRAME][2], mix[BINS][2];
    gtcrn_outputs out;
    for (int i = 0; i < FRAME; ++i) z[i][0] = samples[i] * window[i], z[i][1] = 0;
    transform(z, -1);
    memcpy(mix, z, sizeof mix);
    const int status = gtcrn_step(context, &(gtcrn_inputs){ .mix = mix[0] }, &out);
    if (status != GTCRN_OK) return status;
    memcpy(z, out.enh, sizeof mix);
    for (int i = 1; i < FRAME / 2; ++i) z[FRAME - i][0] = z[i][0], z[FRAME - i][1] = -z[i][1];
    transform(z, 1);
    for (int i = 0; i < FRAME; ++i) cleaned[i] = z[i][0] * window[i] / FRAME;
    return status;
}

/* --- the stream -------------------------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int stream(gtcrn_context *context, FILE *from, FILE *to, int64_t left)
{
    static float samples[FRAME], sum[FRAME], cleaned[FRAME];
    int64_t heard = 0, written = 0, steps = 0;
    double spent = 0;
    for (bool is_first = true; is_first || written < heard; is_first = false) {
        memmove(samples, samples + HOP, HOP * sizeof *samples);
        heard += read_samples(from, &left, samples + HOP, HOP);
        const double start = seconds();
        if (clean(context, samples, cleaned) != GTCRN_OK) return failed(gtcrn_last_error(context));
        spent += seconds() - start;
        ++steps;
        for (int i = 0; i < FRAME; ++i) sum[i] += cleaned[i];
        if (!is_first) { /* the first half of the first frame lies before the beginning */
            const int count = heard - written < HOP ? (int)(heard - written) : HOP;
            write_samples(to, sum, count);
            written += count;
        }
        memmove(sum, sum + HOP, HOP * sizeof *sum);
        memset(sum + HOP, 0, HOP * sizeof *sum);
    }
    fprintf(stderr, "%.2f s of sound in %lld frames of 16 ms, %.3f ms each\n", (double)heard / RATE, (long long)steps,
            1e3 * spent / (double)steps);
    return 0;
}

int main(int argc, char **argv)
{
    static gtcrn_context context;
    if (argc != 3) return failed("usage: denoise IN.wav OUT.wav");
    if (!read_weights("DENOISE", "gtcrn", weights, sizeof weights))
        return failed("gtcrn/src/weights.bin is not here; set DENOISE to the folder that has gtcrn");
    FILE *const from = strcmp(argv[1], "-") == 0 ? stdin : fopen(argv[1], "rb");
    if (from == NULL) return failed("the sound cannot be read");
    const int64_t bytes = read_head(from);
    if (bytes < 0) return failed("the sound is not a WAV file of 16 bits, one channel, 16 kHz");
    if (gtcrn_init(&context, arena, sizeof arena, state, sizeof state, weights, sizeof weights) != GTCRN_OK)
        return failed(gtcrn_last_error(&context));
    FILE *const to = strcmp(argv[2], "-") == 0 ? stdout : fopen(argv[2], "wb");
    if (to == NULL) return failed("the sound cannot be written");
    prepare();
    write_head(to, (uint32_t)bytes);
    const int status = stream(&context, from, to, bytes);
    fclose(from);
    return fclose(to) == 0 ? status : failed("the sound cannot be written");
}
