"""A small program that shows how to use a project: it runs a step on simple inputs and prints the first results."""

from openinfer.check.sizes import trial_sizes
from openinfer.loops.dim import Dim, is_same, most_elements
from openinfer.loops.ir import Buffer
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.dialect import C, stored_type
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.cstyle.names import comment, string
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter, size_code
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.project import EmittedProject

SHOWN = 8


_MAPPING = """
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
"""


STATUS_OF_FILES = """
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#endif
"""


def mapped_weights(project: EmittedProject) -> str:
    """Functions that get and release the weights; a file is mapped into memory where the system supports it."""
    name, upper = project.name, project.name.upper()
    if project.options.weights != "file":
        return read_weights(project)
    return f"""#ifdef _POSIX_C_SOURCE
/* Maps the file: pages are read when they are first used, and processes share them. */
static const void *weights_of(const char *path)
{{
    static const unsigned char none[1];
    struct stat about;
    void *data = MAP_FAILED;
    if ({upper}_WEIGHT_BYTES == 0) return none;
    const int file = open(path, O_RDONLY | O_NONBLOCK); /* opening a pipe would block */
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size == {upper}_WEIGHT_BYTES)
        data = mmap(NULL, {upper}_WEIGHT_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    if (file >= 0) close(file);
    if (data != MAP_FAILED && {name}_check_weights(data, {upper}_WEIGHT_BYTES) == {upper}_OK) return data;
    fprintf(stderr, "%s does not hold the weights of this program\\n", path);
    if (data != MAP_FAILED) munmap(data, {upper}_WEIGHT_BYTES);
    return NULL;
}}

static void release(const void *weights)
{{
    if ({upper}_WEIGHT_BYTES > 0) munmap((void *)(uintptr_t)weights, {upper}_WEIGHT_BYTES);
}}
#else
{read_weights(project)}
static void release(const void *weights)
{{
    if ({upper}_WEIGHT_BYTES > 0) free((void *)(uintptr_t)weights);
}}
#endif
"""


def read_weights(project: EmittedProject) -> str:
    """A function that gets the weights: it reads a file, or takes them from the program itself."""
    name, upper = project.name, project.name.upper()
    if project.options.weights != "file":
        return f"""static const void *weights_of(const char *path)
{{
    (void)path;
    return {name}_weights;
}}
"""
    step = project.placed.rules.alignment
    room = f"({upper}_WEIGHT_BYTES + {step - 1}u) / {step}u * {step}u"
    return f"""static const void *weights_of(const char *path)
{{
    static unsigned char none[1];
    if ({upper}_WEIGHT_BYTES == 0) return none;
#ifdef S_ISREG
    struct stat about; /* opening a pipe would block */
    FILE *const file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
#else
    FILE *const file = fopen(path, "rb");
#endif
    unsigned char *const data = aligned_alloc({upper}_ALIGNMENT, {room});
    const size_t got = file != NULL && data != NULL ? fread(data, 1, {upper}_WEIGHT_BYTES, file) : 0;
    if (file != NULL) fclose(file);
    if (got == {upper}_WEIGHT_BYTES && {name}_check_weights(data, got) == {upper}_OK) return data;
    fprintf(stderr, "%s does not hold the weights of this program\\n", path);
    free(data);
    return NULL;
}}
"""


def started(project: EmittedProject) -> str:
    """The statement that starts threads, if there are any; without them a step only takes longer."""
    if project.placed.threads == 1:
        return ""
    return f'    if ({project.name}_start_threads(&context)) printf("cannot start threads: running on one\\n");\n'


def stopped(project: EmittedProject) -> str:
    """The statement that stops threads, if there are any."""
    return f"    {project.name}_stop_threads(&context);\n" * (project.placed.threads > 1)


def freed(project: EmittedProject) -> str:
    """The statements that stop threads and free the weights, if they were read from a file."""
    if project.options.weights != "file":
        return stopped(project)
    released = f"    if ({project.name.upper()}_WEIGHT_BYTES > 0) free((void *)(uintptr_t)weights);\n"
    return stopped(project) + released


def memory(project: EmittedProject) -> str:
    """The memory that the caller provides, as static arrays."""
    upper = project.name.upper()
    arena = f"static _Alignas({upper}_ALIGNMENT) unsigned char arena[{upper}_ARENA_BYTES];\n"
    state = f"static _Alignas({upper}_ALIGNMENT) unsigned char state[{upper}_STATE_BYTES];\n"
    return arena + state * project.placed.has_state


def asked(project: EmittedProject) -> str:
    """The statements that request device memory."""
    if not project.placed.rules.on_device:
        return ""
    name, upper = project.name, project.name.upper()
    lines = f"    void *const arena = {name}_memory({upper}_ARENA_BYTES);\n"
    return lines + f"    void *const state = {name}_memory({upper}_STATE_BYTES);\n" * project.placed.has_state


def released(project: EmittedProject) -> str:
    """The statements that release an instance and its device memory."""
    if not project.placed.rules.on_device:
        return ""
    name = project.name
    lines = f"    {name}_free(&context);\n    {name}_release(arena);\n"
    return lines + f"    {name}_release(state);\n" * project.placed.has_state


def _given(project: EmittedProject) -> str:
    """The memory arguments of ``NAME_init``."""
    upper = project.name.upper()
    arena, state = ("sizeof arena", "sizeof state")
    if project.placed.rules.on_device:
        arena, state = f"{upper}_ARENA_BYTES", f"{upper}_STATE_BYTES"
    return f"arena, {arena}, " + (f"state, {state}" if project.placed.has_state else "NULL, 0")


def example(project: EmittedProject) -> str:
    """The text of ``example/main.c``."""
    name, upper = project.name, project.name.upper()
    program = project.program
    inputs = [_input(project, key, value, place) for place, (key, value) in enumerate(program.inputs.items())]
    shown, needs = [], set[Need]()
    for key, value in program.outputs.items():
        lines, more = _output(project, key, value)
        shown += lines
        needs |= more
    support = f"{support_code(needs)}\n" if needs else ""
    body = "\n".join(f"    {line}" for one in inputs for line in one[1])
    arrays = "".join(one[0] for one in inputs)
    run = _several_sizes(project, shown) if project.placed.names.input_sizes else _one_step(project, shown)
    from_file = project.options.weights == "file"
    freed = "    release(weights);\n" * from_file
    return f"""{_MAPPING * from_file}
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

{support}{"" if project.placed.rules.on_device else memory(project)}{arrays}
{mapped_weights(project)}
int main(int argc, char **argv)
{{
    const void *const weights = weights_of(argc > 1 ? argv[1] : "src/weights.bin");
    {name}_context context;
    {name}_inputs in = {{ 0 }};
    {name}_outputs out;
{asked(project)}    if (weights == NULL) return 1;
    if ({name}_init(&context, {_given(project)}, weights, {upper}_WEIGHT_BYTES) != {upper}_OK) {{
        fprintf(stderr, "%s\\n", {name}_last_error(&context));
        return 1;
    }}
{started(project)}{body or "    (void)in;"}
{run}
{stopped(project)}{released(project)}{freed}    return 0;
}}
"""


def _one_step(project: EmittedProject, shown: list[str]) -> str:
    name = project.name
    lines = [
        f"if ({name}_step(&context, &in, &out) != {name.upper()}_OK) {{",
        f'    fprintf(stderr, "%s\\n", {name}_last_error(&context));',
        "    return 1;",
        "}",
        *shown,
    ]
    return "\n".join(f"    {line}" for line in lines)


def _several_sizes(project: EmittedProject, shown: list[str]) -> str:
    """A step at each of several sizes, each after a reset; sizes below the bounds may be refused."""
    name, sizes = project.name, project.placed.names.input_sizes
    trials = trial_sizes({size: project.program.sizes[size] for size in sizes})
    rows = ", ".join("{ " + ", ".join(str(trial[size]) for size in sizes) + " }" for trial in trials)
    fields = list(sizes.values())
    values = ", ".join(f"(long long)in.{field}" for field in fields)
    label = ", ".join(f"{size} = %lld" for size in sizes)
    lines = [
        "/* Each step chooses its sizes: here the bounds, below them, 1 and 0. */",
        f"static const int64_t sizes[{len(trials)}][{len(sizes)}] = {{ {rows} }};",
        f"for (int trial = 0; trial < {len(trials)}; ++trial) {{",
        *(f"    in.{field} = sizes[trial][{place}];" for place, field in enumerate(fields)),
        f'    printf("{label}\\n", {values});',
        f"    if ({name}_reset(&context) != {name.upper()}_OK) return 1;",
        f"    if ({name}_step(&context, &in, &out) != {name.upper()}_OK) {{",
        f'        fprintf(stderr, "%s\\n", {name}_last_error(&context));',
        "        if (trial == 0) return 1;",
        "        continue;",
        "    }",
        *(f"    {line}" for line in shown),
        "}",
    ]
    return "\n".join(f"    {line}" for line in lines)


def _input(project: EmittedProject, key: str, value: Value, place: int) -> tuple[str, list[str]]:
    """Memory for an input: a ramp for floats that C has a type for, else zeros."""
    kind, field = stored_type(value.dtype), project.placed.names.inputs[key]
    length = max(1, value.nbytes // (1 if value.dtype.is_packed else value.dtype.bits // 8))
    shape = ", ".join(map(repr, value.shape))
    array = f"static {kind} input{place}[{length}]; /* {comment(f'{key}: {value.dtype.name}[{shape}]')} */\n"
    lines = [f"in.{field} = input{place};"]
    if value.dtype.kind == "float" and not value.dtype.is_small_float:
        ramp = f"for (int i = 0; i < {length}; ++i) input{place}[i] = ({kind})(i % 17 - 8) / 8;"
        lines.insert(0, ramp if length > 1 else f"input{place}[0] = -1;")
    return array, lines


def _output(project: EmittedProject, key: str, value: Value) -> tuple[list[str], set[Need]]:
    """Statements that print the first elements of an output."""
    printer = ScalarPrinter(C, lambda _buffer: f"out.{project.placed.names.outputs[key]}")
    is_one = all(is_same(extent, 1) for extent in value.shape)
    is_empty = any(is_same(extent, 0) for extent in value.shape)
    element = printer.load(Buffer("out", value.dtype, value.shape), "0" if is_one else "i").atom
    is_float = value.dtype.kind == "float"
    call = f'printf(" %g", (double){element})' if is_float else f'printf(" %lld", (long long){element})'
    most = min(most_elements(value.shape), SHOWN)
    is_shown = f"i < {most}"
    total: int = 1
    for extent in value.shape:
        total = extent * total
    if isinstance(total, Dim):
        # The step has succeeded, so computing the size cannot fail.
        text = size_code(total.expr, lambda size: f"out.{project.placed.names.output_sizes[size]}").text
        is_shown += f" && i < {text}"
    shape = ", ".join(map(repr, value.shape))
    label = f"{key}: {value.dtype.name}[{shape}]"
    if is_empty:
        return [f'printf("%s =\\n", {string(label)});'], set()
    return [
        f'printf("%s =", {string(label)});',
        f"{call};" if is_one else f"for (int64_t i = 0; {is_shown}; ++i) {call};",
        'printf("\\n");',
    ], printer.needs
