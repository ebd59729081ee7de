/* Sound: WAV files with one channel of 16-bit samples at 16 kHz. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RATE 16000

static uint32_t little(const unsigned char *p, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | p[i];
    return value;
}

/* Reads up to the first sample. Returns how many bytes of samples follow, or -1. */
static int64_t read_head(FILE *file)
{
    unsigned char riff[12], chunk[8], format[16];
    bool is_known = false;
    if (fread(riff, 1, 12, file) != 12 || memcmp(riff, "RIFF", 4) != 0 || memcmp(riff + 8, "WAVE", 4) != 0) return -1;
    while (fread(chunk, 1, 8, file) == 8) {
        uint32_t rest = little(chunk + 4, 4);
        if (memcmp(chunk, "data", 4) == 0) return is_known ? (int64_t)rest : -1;
        if (memcmp(chunk, "fmt ", 4) == 0 && rest >= 16) {
            if (fread(format, 1, 16, file) != 16) return -1;
            is_known = little(format, 2) == 1 && little(format + 2, 2) == 1 && little(format + 4, 4) == RATE &&
                       little(format + 14, 2) == 16;
            if (!is_known) return -1;
            rest -= 16;
        }
        for (rest += rest & 1; rest > 0; --rest)
            if (fgetc(file) == EOF) return -1;
    }
    return -1;
}

/* Up to `most` samples from -1 to 1; behind the last one there is silence. Returns how many there were. */
static int read_samples(FILE *file, int64_t *left, float *to, int most)
{
    int count = 0;
    unsigned char two[2];
    for (; count < most && *left >= 2 && fread(two, 1, 2, file) == 2; *left -= 2)
        to[count++] = (float)(int16_t)little(two, 2) / 32768;
    memset(to + count, 0, (size_t)(most - count) * sizeof *to);
    return count;
}
