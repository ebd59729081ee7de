/* Finds faces in a picture and draws a box around each: plain C around one generated library.

   detect [-t SCORE] IN.ppm OUT.ppm

   It prints a line for every face: its score, and the left, top, width and height of its box in pixels.
   It is run in the folder that has yunet/src/weights.bin, or in the one named by $DETECT. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "yunet.h"

#define SIDE 640 /* the network looks at squares of this size */
#define MOST_FACES 256
#define MOST_PIXELS (1 << 26)
#define MARKS 5 /* eyes, nose, corners of the mouth */

typedef struct {
    int width, height;
    unsigned char *rgb;
} picture;

typedef struct {
    float score, left, top, width, height, marks[2 * MARKS];
} face;

static _Alignas(YUNET_ALIGNMENT) unsigned char arena[YUNET_ARENA_BYTES], weights[YUNET_WEIGHT_BYTES];
static float input[3 * SIDE * SIDE];

static int failed(const char *what)
{
    fprintf(stderr, "detect: %s\n", what);
    return 1;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static bool read_weights(void)
{
    char path[1024];
    const char *const folder = getenv("DETECT");
    snprintf(path, sizeof path, "%s/yunet/src/weights.bin", folder == NULL ? "." : folder);
    FILE *const file = fopen(path, "rb");
    const size_t got = file == NULL ? 0 : fread(weights, 1, sizeof weights, file);
    if (file != NULL) fclose(file);
    return got == sizeof weights;
}

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

/* --- what the network sees --------------------------------------------------------------------------------------- */

/* The picture in the upper left corner of a square, as large as fits: planes of blue, green and red, from 0 to 255.
   A picture that is made smaller is averaged, one that is made larger is interpolated. Returns the scale. */
static float fill(const picture *p)
{
    const int longer = p->width > p->height ? p->width : p->height;
    const float scale = (float)SIDE / (float)longer, step = 1 / scale, reach = step > 1 ? step : 1;
    const int width = (int)((float)p->width * scale), height = (int)((float)p->height * scale);
    memset(input, 0, sizeof input);
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x) {
            const float cx = ((float)x + 0.5f) * step - 0.5f, cy = ((float)y + 0.5f) * step - 0.5f;
            float sums[3] = { 0 }, total = 0;
            for (int v = (int)ceilf(cy - reach); v <= (int)floorf(cy + reach); ++v)
                for (int u = (int)ceilf(cx - reach); u <= (int)floorf(cx + reach); ++u) {
                    if (u < 0 || v < 0 || u >= p->width || v >= p->height) continue;
                    const float weight = (reach - fabsf((float)u - cx)) * (reach - fabsf((float)v - cy));
                    const unsigned char *const pixel = p->rgb + 3 * ((size_t)v * (size_t)p->width + (size_t)u);
                    for (int c = 0; c < 3; ++c) sums[c] += weight * (float)pixel[c];
                    total += weight;
                }
            for (int c = 0; c < 3 && total > 0; ++c) input[((2 - c) * SIDE + y) * SIDE + x] = sums[c] / total;
        }
    return scale;
}

/* --- what it says ------------------------------------------------------------------------------------------------ */

/* Faces of one grid: a cell knows whether there is one, and where it lies, in cells. */
static int gather(const float *is_face, const float *is_there, const float *box, const float *marks, int stride,
                  float least, float scale, face *faces, int count)
{
    const int cells = SIDE / stride;
    for (int i = 0; i < cells * cells && count < MOST_FACES; ++i) {
        const float score = sqrtf(is_face[i] * is_there[i]), size = (float)stride / scale;
        const float x = (float)(i % cells), y = (float)(i / cells), *const b = box + 4 * i;
        if (!(score >= least)) continue;
        face *const f = faces + count++;
        f->score = score;
        f->width = expf(b[2]) * size;
        f->height = expf(b[3]) * size;
        f->left = (x + b[0]) * size - f->width / 2;
        f->top = (y + b[1]) * size - f->height / 2;
        for (int k = 0; k < 2 * MARKS; ++k) f->marks[k] = (marks[2 * MARKS * i + k] + (k % 2 ? y : x)) * size;
    }
    return count;
}

static int by_score(const void *one, const void *other)
{
    const float a = ((const face *)one)->score, b = ((const face *)other)->score;
    return (a < b) - (a > b);
}

static float shared(const face *a, const face *b)
{
    const float width = fminf(a->left + a->width, b->left + b->width) - fmaxf(a->left, b->left);
    const float height = fminf(a->top + a->height, b->top + b->height) - fmaxf(a->top, b->top);
    const float both = width > 0 && height > 0 ? width * height : 0;
    return both / (a->width * a->height + b->width * b->height - both);
}

/* Of boxes that cover each other, the best; the others are the same face. */
static int distinct(face *faces, int count)
{
    int kept = 0;
    qsort(faces, (size_t)count, sizeof *faces, by_score);
    for (int i = 0; i < count; ++i) {
        bool is_new = true;
        for (int k = 0; k < kept && is_new; ++k) is_new = shared(faces + k, faces + i) < 0.3f;
        if (is_new) faces[kept++] = faces[i];
    }
    return kept;
}

/* --- drawing ----------------------------------------------------------------------------------------------------- */

static void paint(picture *p, int left, int top, int width, int height, const unsigned char *colour)
{
    for (int y = top < 0 ? 0 : top; y < top + height && y < p->height; ++y)
        for (int x = left < 0 ? 0 : left; x < left + width && x < p->width; ++x)
            memcpy(p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x), colour, 3);
}

static void draw(picture *p, const face *f)
{
    static const unsigned char green[3] = { 40, 230, 70 }, red[3] = { 240, 50, 60 };
    const int left = (int)f->left, top = (int)f->top, width = (int)f->width, height = (int)f->height;
    const int pen = 1 + (p->width + p->height) / 500;
    paint(p, left, top, width, pen, green);
    paint(p, left, top + height - pen, width, pen, green);
    paint(p, left, top, pen, height, green);
    paint(p, left + width - pen, top, pen, height, green);
    for (int k = 0; k < MARKS; ++k)
        paint(p, (int)f->marks[2 * k] - pen, (int)f->marks[2 * k + 1] - pen, 2 * pen, 2 * pen, red);
}

int main(int argc, char **argv)
{
    static face faces[MOST_FACES];
    static yunet_context context;
    float least = 0.7f;
    picture p = { 0 };
    yunet_outputs out;
    if (argc == 5 && strcmp(argv[1], "-t") == 0) {
        least = strtof(argv[2], NULL);
        argc -= 2, argv += 2;
    }
    if (argc != 3) return failed("usage: detect [-t SCORE] IN.ppm OUT.ppm");
    if (!read_weights()) return failed("yunet/src/weights.bin is not here; set DETECT to the folder that has yunet");
    if (!read_picture(argv[1], &p)) return failed("the picture is not a PPM file (P6, of bytes)");
    if (yunet_init(&context, arena, sizeof arena, NULL, 0, weights, sizeof weights) != YUNET_OK)
        return failed(yunet_last_error(&context));
    yunet_start_threads(&context); /* without them, one thread does it all */
    const float scale = fill(&p);
    const int status = yunet_step(&context, &(yunet_inputs){ .input = input }, &out);
    yunet_stop_threads(&context);
    if (status != YUNET_OK) return failed(yunet_last_error(&context));
    int count = gather(out.cls_8, out.obj_8, out.bbox_8, out.kps_8, 8, least, scale, faces, 0);
    count = gather(out.cls_16, out.obj_16, out.bbox_16, out.kps_16, 16, least, scale, faces, count);
    count = gather(out.cls_32, out.obj_32, out.bbox_32, out.kps_32, 32, least, scale, faces, count);
    count = distinct(faces, count);
    for (int i = 0; i < count; ++i) {
        const face *const f = faces + i;
        printf("%.2f %.0f %.0f %.0f %.0f\n", (double)f->score, (double)f->left, (double)f->top, (double)f->width,
               (double)f->height);
        draw(&p, f);
    }
    const bool is_written = write_picture(argv[2], &p);
    free(p.rgb);
    return is_written ? 0 : failed("the picture cannot be written");
}
