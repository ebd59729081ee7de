"""A program that runs steps with known inputs and compares the results with known outputs.

The caller provides the values, usually from the simulator: synthesis itself knows nothing about simulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openinfer.dtypes import Array, DType, pack
from openinfer.loops.ir import Buffer
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.dialect import C, literal, special, stored_type
from openinfer.synth.targets.c.example import STATUS_OF_FILES, freed, read_weights, started
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.cstyle.host.solve import sizes_of_shapes
from openinfer.synth.targets.cstyle.names import string
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.project import EmittedProject, Golden

_CHECK = """
static void check(int step, const char *output, int64_t i, double got, double wanted, double tolerance)
{
    ++checked;
    if (got == wanted || (got != got && wanted != wanted)) return;
    const double distance = got > wanted ? got - wanted : wanted - got;
    if (distance <= tolerance) return;
    if (++failures <= 10)
        printf("step %d: %s[%lld] is %.9g, not %.9g\\n", step, output, (long long)i, got, wanted);
}
"""
_REPORT = '    printf("%d of %d value%s right\\n", checked - failures, checked, checked == 1 ? " is" : "s are");'


def selftest(project: EmittedProject, golden: Sequence[Golden]) -> str:
    """The text of ``selftest/main.c``."""
    name, upper = project.name, project.name.upper()
    needs: set[Need] = set()
    arrays: list[str] = []
    steps: list[str] = []
    has_checks = False
    for number, one in enumerate(golden):
        checks = [] if one.is_refused else _checks(project, one, number, arrays, needs)
        has_checks = has_checks or bool(checks)
        steps += [*_step(project, one, number, arrays, needs), *checks]
    support = support_code(needs)
    body = "\n".join(f"    {line}" for line in steps)
    memory = _memory(project)
    return f"""{STATUS_OF_FILES * (project.options.weights == "file")}
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

{support}
{memory.declared}

{"".join(arrays)}
{read_weights(project)}
static int failures = 0, checked = 0;
{_CHECK * has_checks}
{memory.guard}
static int init({name}_context *c, size_t arena_bytes, size_t state_bytes, const void *weights)
{{
    return {name}_init(c, arena, arena_bytes, state, state_bytes, weights, {upper}_WEIGHT_BYTES);
}}

int main(int argc, char **argv)
{{
    const void *const weights = weights_of(argc > 1 ? argv[1] : "src/weights.bin");
    {name}_context context;
    {name}_outputs out;
    if (weights == NULL) return 1;
{memory.prepared}    if ({_refused(project)}) {{
        printf("memory that is one byte too small was not refused\\n");
        return 1;
    }}
    if (init(&context, {upper}_ARENA_BYTES, {upper}_STATE_BYTES, weights) != {upper}_OK) {{
        printf("%s\\n", {name}_last_error(&context));
        return 1;
    }}
{started(project)}{body}
{memory.ended}{freed(project)}{_REPORT}
    return failures != 0;
}}
"""


@dataclass(frozen=True)
class _TestMemory:
    """C code for the memory that steps work in: its declaration, overflow check, preparation and release."""

    declared: str
    guard: str
    prepared: str
    ended: str


def _memory(project: EmittedProject) -> _TestMemory:
    name, upper = project.name, project.name.upper()
    if project.placed.rules.on_device:
        asked = f"    arena = {name}_memory({upper}_ARENA_BYTES);\n"
        asked += f"    state = {name}_memory({upper}_STATE_BYTES);\n" * project.placed.has_state
        released = f"    {name}_free(&context);\n    {name}_release(arena);\n    {name}_release(state);\n"
        return _TestMemory("static void *arena, *state;", "", asked, released)
    declared = f"""/* Memory with arbitrary contents, and guard bytes after it that nothing may write. */
enum {{ GUARD = 64, FILL = 0xff }};
static _Alignas({upper}_ALIGNMENT) unsigned char arena[{upper}_ARENA_BYTES + GUARD];
static _Alignas({upper}_ALIGNMENT) unsigned char state[{upper}_STATE_BYTES + GUARD];"""
    guard = f"""/* Whether the guard bytes are unchanged. */
static int is_whole(void)
{{
    for (int i = 0; i < GUARD; ++i)
        if (arena[{upper}_ARENA_BYTES + i] != FILL || state[{upper}_STATE_BYTES + i] != FILL) return 0;
    return 1;
}}
"""
    filled = "    memset(arena, FILL, sizeof arena);\n    memset(state, FILL, sizeof state);\n"
    whole = """    if (!is_whole()) {
        printf("memory after the arena or the state was overwritten\\n");
        return 1;
    }
"""
    return _TestMemory(declared, guard, filled, whole)


def _refused(project: EmittedProject) -> str:
    """A condition: whether memory that is one byte too short is accepted; the state counts only if there is one."""
    upper = project.name.upper()
    short = [(f"{upper}_ARENA_BYTES - 1", f"{upper}_STATE_BYTES")]
    short += [(f"{upper}_ARENA_BYTES", f"{upper}_STATE_BYTES - 1")] * project.placed.has_state
    tests = [f"init(&context, {arena}, {state}, weights) != {upper}_ERROR_MEMORY" for arena, state in short]
    return "\n            || ".join(tests)


def _step(project: EmittedProject, one: Golden, number: int, arrays: list[str], needs: set[Need]) -> list[str]:
    name, upper, program = project.name, project.name.upper(), project.program
    lines = [f"{name}_inputs in{number} = {{ 0 }};"]
    lines += [f"if ({name}_reset(&context) != {upper}_OK) return 1;"] * one.begins
    for place, (key, value) in enumerate(program.inputs.items()):
        arrays.append(_array(f"in{number}_{place}", np.asarray(one.inputs[key]), value.dtype, needs))
        lines.append(f"in{number}.{project.placed.names.inputs[key]} = in{number}_{place};")
    shapes = {key: np.shape(one.inputs[key]) for key in program.inputs}
    sizes = sizes_of_shapes({key: value.shape for key, value in program.inputs.items()}, shapes, program.sizes)
    fields = project.placed.names.input_sizes
    lines += [f"in{number}.{field} = {sizes[size]};" for size, field in fields.items()]
    if one.is_refused:
        return [
            *lines,
            "++checked;",
            f"if ({name}_step(&context, &in{number}, &out) == {upper}_OK) {{",
            "    ++failures;",
            f'    printf("step {number}: expected a failure, got none\\n");',
            "}",
        ]
    return [
        *lines,
        f"if ({name}_step(&context, &in{number}, &out) != {upper}_OK) {{",
        f'    printf("step {number}: %s\\n", {name}_last_error(&context));',
        "    return 1;",
        "}",
    ]


def _checks(project: EmittedProject, one: Golden, number: int, arrays: list[str], needs: set[Need]) -> list[str]:
    """Checks that the results of a step are the known ones: sizes, and elements of outputs."""
    lines = _size_checks(project, one, number)
    for place, (key, given) in enumerate(one.outputs.items()):
        wanted = np.asarray(given)
        if key in project.program.outputs and wanted.size:
            lines += _comparison(project, key, wanted, one, (number, place), arrays, needs)
    return lines


def _size_checks(project: EmittedProject, one: Golden, number: int) -> list[str]:
    """Checks that the dynamic sizes of outputs are those of the known results."""
    program = project.program
    shapes = {key: np.shape(wanted) for key, wanted in one.outputs.items() if key in program.outputs}
    sizes = sizes_of_shapes({key: program.outputs[key].shape for key in shapes}, shapes, program.sizes)
    return [
        f"check({number}, {string(size)}, 0, (double)out.{field}, {sizes[size]}, 0);"
        for size, field in project.placed.names.output_sizes.items()
        if size in sizes
    ]


def _comparison(
    project: EmittedProject,
    key: str,
    wanted: Array,
    one: Golden,
    at: tuple[int, int],
    arrays: list[str],
    needs: set[Need],
) -> list[str]:
    value = project.program.outputs[key]
    number, place = at
    arrays.append(_array(f"out{number}_{place}", wanted, value.dtype, needs))
    own = ScalarPrinter(C, lambda _buffer: f"out.{project.placed.names.outputs[key]}")
    other = ScalarPrinter(C, lambda _buffer: f"out{number}_{place}")
    buffer = Buffer("any", value.dtype, value.shape)
    position = "0" if wanted.size == 1 else "i"
    got, expected = own.load(buffer, position).atom, other.load(buffer, position).atom
    needs |= own.needs | other.needs
    tolerance = _tolerance(wanted, value, one)
    check = f"check({number}, {string(key)}, {position}, (double){got}, (double){expected}, {tolerance!r});"
    return [check if position == "0" else f"for (int64_t i = 0; i < {wanted.size}; ++i) {check}"]


def _tolerance(wanted: Array, value: Value, one: Golden) -> float:
    if value.dtype.kind != "float":
        return 0.0
    magnitudes = np.abs(wanted.astype(np.float64))
    finite = magnitudes[np.isfinite(magnitudes)]
    relative = value.dtype.tolerance * one.looser if one.tolerance is None else one.tolerance
    return float(relative * (finite.max() if finite.size else 0.0))


def _array(name: str, values: Array, dtype: DType, needs: set[Need]) -> str:
    """A constant array of elements in storage form; adds the support constants among them to ``needs``."""
    stored = np.ascontiguousarray(values).reshape(-1)
    if stored.dtype != dtype.array:
        stored = stored.astype(dtype.array)
    if dtype.is_packed:
        texts = [str(int(byte)) for byte in pack(stored, dtype)]
    elif dtype.is_small_float:
        texts = [str(int(bits)) for bits in stored.view(np.uint8 if dtype.bits == 8 else np.uint16)]
    elif dtype.kind == "bool":
        texts = [str(int(one)) for one in stored]
    else:
        texts = [literal(one.item(), dtype) for one in stored]
        specials = (special(one.item(), dtype) for one in stored)
        needs |= {one for one in specials if one is not None}
    rows = [", ".join(texts[start : start + 8]) for start in range(0, len(texts), 8)] or ["0"]
    return f"static const {stored_type(dtype)} {name}[] = {{\n    " + ",\n    ".join(rows) + "\n};\n"
