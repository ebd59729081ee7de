/* Pictures: PPM files, scaling and painting, for the programs that look at them. */

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS (1 << 26)

typedef struct {
    int width, height;
    unsigned char *rgb;
} picture;

typedef struct {
    float left, top, width, height;
} box;

/* The next number in the head of a PPM file; -1 where there is none. Comments begin with #. */
static int number(FILE *file)
{
    int c = fgetc(file), value = 0;
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = fgetc(file);
        c = fgetc(file);
    }
    if (c < '0' || c > '9') return -1;
    for (; c >= '0' && c <= '9'; c = fgetc(file))
        if ((value = 10 * value + c - '0') > MOST_PIXELS) return -1;
    return value;
}

static bool read_picture(const char *path, picture *p)
{
    FILE *const file = fopen(path, "rb");
    bool is_whole = file != NULL && fgetc(file) == 'P' && fgetc(file) == '6';
    if (is_whole) {
        p->width = number(file);
        p->height = number(file);
        is_whole = number(file) == 255 && p->width > 0 && p->height > 0 && p->width <= MOST_PIXELS / p->height;
    }
    if (is_whole) {
        const size_t bytes = (size_t)p->width * (size_t)p->height * 3;
        p->rgb = malloc(bytes);
        is_whole = p->rgb != NULL && fread(p->rgb, 1, bytes, file) == bytes;
    }
    if (file != NULL) fclose(file);
    return is_whole;
}

static bool write_picture(const char *path, const picture *p)
{
    FILE *const file = fopen(path, "wb");
    const size_t bytes = (size_t)p->width * (size_t)p->height * 3;
    if (file == NULL) return false;
    fprintf(file, "P6\n%d %d\n255\n", p->width, p->height);
    const bool is_whole = fwrite(p->rgb, 1, bytes, file) == bytes;
    return fclose(file) == 0 && is_whole;
}

/* A part of a picture, scaled to `width` x `height` values: planes of blue, green and red from 0 to 255, with room for
   `rows` rows of `row` values each. What is made smaller is averaged, what is made larger interpolated. */
static void scale(const picture *p, box part, int width, int height, int row, int rows, float *planes)
{
    const float across = part.width / (float)width, down = part.height / (float)height;
    const float wide = across > 1 ? across : 1, high = down > 1 ? down : 1;
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x) {
            const float cx = part.left + ((float)x + 0.5f) * across - 0.5f;
            const float cy = part.top + ((float)y + 0.5f) * down - 0.5f;
            float sums[3] = { 0 }, total = 0;
            for (int v = (int)ceilf(cy - high); v <= (int)floorf(cy + high); ++v)
                for (int u = (int)ceilf(cx - wide); u <= (int)floorf(cx + wide); ++u) {
                    if (u < 0 || v < 0 || u >= p->width || v >= p->height) continue;
                    const float weight = (wide - fabsf((float)u - cx)) * (high - fabsf((float)v - cy));
                    const unsigned char *const pixel = p->rgb + 3 * ((size_t)v * (size_t)p->width + (size_t)u);
                    for (int c = 0; c < 3; ++c) sums[c] += weight * (float)pixel[c];
                    total += weight;
                }
            for (int c = 0; c < 3; ++c) planes[((2 - c) * rows + y) * row + x] = total > 0 ? sums[c] / total : 0;
        }
}

/* All of a picture in the upper left corner of a square, as large as fits, and black beside it. Returns the scale. */
static float fit(const picture *p, int side, float *planes)
{
    const int longer = p->width > p->height ? p->width : p->height;
    const float factor = (float)side / (float)longer;
    const int width = (int)fmaxf(1, (float)p->width * factor), height = (int)fmaxf(1, (float)p->height * factor);
    memset(planes, 0, (size_t)(3 * side * side) * sizeof *planes);
    scale(p, (box){ 0, 0, (float)width / factor, (float)height / factor }, width, height, side, side, planes);
    return factor;
}

static void paint(picture *p, int left, int top, int width, int height, const unsigned char *colour)
{
    for (int y = top < 0 ? 0 : top; y < top + height && y < p->height; ++y)
        for (int x = left < 0 ? 0 : left; x < left + width && x < p->width; ++x)
            memcpy(p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x), colour, 3);
}

/* The outline of a box. */
static void outline(picture *p, box at, const unsigned char *colour)
{
    const int left = (int)at.left, top = (int)at.top, width = (int)at.width, height = (int)at.height;
    const int pen = 1 + (p->width + p->height) / 500;
    paint(p, left, top, width, pen, colour);
    paint(p, left, top + height - pen, width, pen, colour);
    paint(p, left, top, pen, height, colour);
    paint(p, left + width - pen, top, pen, height, colour);
}
