/* Reads digits without an operating system: prints some images and what the network says of them, then how many of all
 * it gets right. The images are in images.h, which the example writes. */
#include <stdint.h>
#include <stdio.h>

#include "digits.h"
#include "images.h"

static _Alignas(DIGITS_ALIGNMENT) unsigned char arena[DIGITS_ARENA_BYTES];

static void draw(const uint8_t *image)
{
    for (int row = 0; row < 8; ++row) {
        for (int column = 0; column < 8; ++column) {
            const char ink = " .:-=+*#%@"[image[8 * row + column] * 9 / 16];
            printf("%c%c", ink, ink);
        }
        printf("\n");
    }
}

int main(void)
{
    digits_context context;
    digits_outputs out;
    int right = 0;
    if (digits_init(&context, arena, sizeof arena, NULL, 0, digits_weights, DIGITS_WEIGHT_BYTES) != DIGITS_OK) {
        printf("%s\n", digits_last_error(&context));
        return 1;
    }
    for (int i = 0; i < IMAGES; ++i) {
        const digits_inputs in = { .image = images[i] };
        if (digits_step(&context, &in, &out) != DIGITS_OK) {
            printf("%s\n", digits_last_error(&context));
            return 1;
        }
        if (i >= SHOWN_FROM && i < SHOWN_TO) {
            draw(images[i]);
            printf("This is a %d.\n\n", (int)out.digit[0]);
        }
        right += out.digit[0] == labels[i];
    }
    printf("%d of %d right, with %d bytes of weights, %d of arena\n", right, IMAGES, (int)DIGITS_WEIGHT_BYTES,
            (int)DIGITS_ARENA_BYTES);
    return 0;
}
