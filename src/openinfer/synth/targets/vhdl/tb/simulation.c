/* The bus of a circuit simulated by GHDL: attached before main; the simulation ends with the program. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "NAME_bus.h"

static FILE *told, *said;

static int put(void *user, uint8_t reg, const uint8_t *bytes, size_t count)
{
    (void)user;
    fprintf(told, "w %02x ", reg);
    for (size_t i = 0; i < count; ++i) fprintf(told, "%02x", bytes[i]);
    return fputc('\n', told) == EOF;
}

static int get(void *user, uint8_t reg, uint8_t *bytes, size_t count)
{
    (void)user;
    fprintf(told, "r %02x %zu\n", reg, count);
    if (fflush(told)) return 1;
    for (size_t i = 0; i < count; ++i) {
        unsigned byte;
        if (fscanf(said, "%2x", &byte) != 1) return 1;
        bytes[i] = (uint8_t)byte;
    }
    return 0;
}

static int step(void *user)
{
    (void)user;
    return fputs("g\n", told) == EOF;
}

/* Starts the simulation, with pipes as its input and output. */
__attribute__((constructor)) static void begin(void)
{
    int in[2], out[2];
    if (pipe(in) || pipe(out)) exit(1);
    const pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        execlp("ghdl", "ghdl", "-r", "--std=08", "--workdir=build", "NAME_tb", "--ieee-asserts=disable", (char *)NULL);
        perror("ghdl");
        _exit(1);
    }
    close(in[0]), close(out[1]);
    signal(SIGPIPE, SIG_IGN);
    told = fdopen(in[1], "w");
    said = fdopen(out[0], "r");
    if (told == NULL || said == NULL) exit(1);
    const NAME_bus bus = { put, get, step, NULL };
    NAME_attach(&bus);
}
