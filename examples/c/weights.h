/* Weights of a generated library, from the folder that its project is in. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads NAME/src/weights.bin in the folder that an environment variable names, or else in this one. */
static bool read_weights(const char *variable, const char *name, void *to, size_t bytes)
{
    char path[1024];
    const char *const folder = getenv(variable);
    snprintf(path, sizeof path, "%s/%s/src/weights.bin", folder == NULL ? "." : folder, name);
    FILE *const file = fopen(path, "rb");
    const size_t got = file == NULL ? 0 : fread(to, 1, bytes, file);
    if (file != NULL) fclose(file);
    return got == bytes;
}
