"""How fast each form of launches is on a Vulkan device: ``python -m bench.gpu.forms FOLDER``, then ``FOLDER/forms``.

The program is built here and runs wherever there is a driver: its shaders are arrays in it. The first lines are plain
streams by hand, of reads and of copies; the stream of reads of as many bytes is the ceiling. The others are single ops,
lowered and scheduled as in a graph, with the bytes that they have to move at least. ``FOLDER/forms MIB FILE`` works in
so much memory, and writes what it measures into a file as JSON.
"""

import argparse
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast, load
from openinfer.loops.expand import plain
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, Kernel, ScalarVar
from openinfer.loops.teams import words_of
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu.arguments import Argument, Given
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.launches import Launches, group_of
from openinfer.synth.targets.simt.machine import SimtMachine, simt_machine
from openinfer.synth.targets.simt.schedule import STRUCTURES, scheduled
from openinfer.synth.targets.vulkan.dialect import glsl
from openinfer.synth.targets.vulkan.shader import VERSION_LINE, group_line, head, launch_code, shader
from openinfer.synth.targets.vulkan.waiting import TEAMS_AT

SIZES = (64 << 20, 256 << 20)
"""Bytes that a launch moves: from the first on, forms should reach what a plain stream does."""
HOST = Path(__file__).with_name("forms.c")
ONES, SPREAD, ZEROS, GOOD = 0x3F803F80, 0x3D803D80, 0, 0xFFFFFFFF
"""Memory full of numbers near 1, of numbers that differ, or of zeros; and the status of a call that has not failed."""
STATUS = 64
"""Bytes of the status."""
NUMBER = 255
"""In place of a buffer: the number of a launch."""


@dataclass(frozen=True)
class Measured:
    """A kernel with the name that the table has for it."""

    name: str
    lowered: Callable[[Collection[tuple[str, str]]], Kernel]
    """The kernel, given the functions that a device has for results of few bits."""
    done: int = 0
    """Operations."""
    schedules: tuple[Callable[[Kernel, SimtMachine], Launches], ...] = (scheduled,)
    word: int = ONES
    """What floats are filled with."""


def _moved(kernel: Kernel) -> int:
    """Bytes that are read or written at least."""
    return sum(_bytes(one) for one in (*kernel.inputs, *kernel.outputs))


def _bytes(buffer: Buffer) -> int:
    return buffer.dtype.nbytes(prod(buffer.shape))


def op(name: str, *operands: str, also_baseline: bool = False, done: int = 0, **params: Any) -> Measured:
    """An op on operands that are written ``f32 4 8``."""
    types = []
    for one in operands:
        dtype, *shape = one.split()
        types.append(TensorType(DTYPES[dtype], tuple(map(int, shape))))
    record = OPS[name]
    optional = [None] * (3 - len(types)) if name in ("linear", "layer_norm") else []
    call = infer(record, Call((*types, *optional), complete(record, params)))
    stored = tuple(None if one is None else one.dtype for one in (*types, *optional))

    def lowered(short: Collection[tuple[str, str]]) -> Kernel:
        return plain(kernel_of(record, call, stored, short), STRUCTURES)

    schedules = (scheduled, baseline) if also_baseline else (scheduled,)
    along = f", axis {params['axis']}" if "axis" in params else ""
    # Where an extreme is depends on the numbers: if all are the same, every thread has found it.
    word = SPREAD if name.startswith("arg") else ONES
    return Measured(f"{name} {', '.join(operands)}{along}", lowered, done, schedules, word)


def grouped(rows: int, columns: int, length: int, bits: str, group: int = 32) -> Measured:
    """A product with numbers of few bits, which have a scale for each group."""
    f32, bf16 = DTYPES["f32"], DTYPES["bf16"]
    x, y = Buffer("x", bf16, (rows, length)), Buffer("y", bf16, (rows, columns))
    w, scale = Buffer("w", DTYPES[bits], (columns, length)), Buffer("scale", bf16, (columns, length // group))
    i, j, k = (ScalarVar(name) for name in "ijk")
    value = cast(load(w, j, k), f32) * load(scale, j, k // group)
    acc = ScalarVar(ACCUMULATOR, f32)
    product = Contraction(
        y, x, w, (i, j), (rows, columns), (k,), (length,), (i, j), (i, k), (j, k), f32, acc, b_value=value
    )
    kernel = Kernel("k", (x, w, scale), (y,), (product,))
    return Measured(f"linear {rows} {length} x {bits} {columns}", lambda _short: kernel)


def streams(size: int) -> Iterator[Measured]:
    """What is bound by memory, with about so many bytes that are read or written."""
    f32, bf16 = size // 4, size // 2
    yield op("add", f"f32 {f32 // 3}", f"f32 {f32 // 3}")
    yield op("add", f"bf16 {bf16 // 3 // 8 * 8}", f"bf16 {bf16 // 3 // 8 * 8}")
    yield op("add", f"i8 {size // 3 // 16 * 16}", f"i8 {size // 3 // 16 * 16}")
    yield op("div", f"f32 {f32 // 3 // 4 * 4}", f"f32 {f32 // 3 // 4 * 4}")
    for name in ("exp", "gelu", "silu", "tanh", "sigmoid", "sqrt", "sin", "softplus"):
        yield op(name, f"f32 {f32 // 2}")
        yield op(name, f"bf16 {bf16 // 2}")
    for name in ("gelu", "silu"):
        yield op(name, f"f16 {bf16 // 2}")
        yield op(name, f"f32 {f32 // 2 // 1000 // 8 * 8} 1000")
    yield op("cast", f"f32 {size // 6 // 8 * 8}", to=DTYPES["bf16"])
    yield op("cast", f"i8 {size // 5 // 16 * 16}", to=DTYPES["f32"])
    yield op("embedding", f"bf16 {bf16 // 2 // 2048} 2048", f"i32 {bf16 // 2 // 2048}")
    yield op("concat", f"f32 4096 {f32 // 4 // 4096}", f"f32 4096 {f32 // 4 // 4096}", axis=1)
    yield op("transpose", f"f32 {f32 // 2 // 4096} 4096", perm=(1, 0))
    yield op("transpose", f"bf16 {bf16 // 2 // 4096} 4096", perm=(1, 0))
    yield op("transpose", f"i8 {size // 2 // 4096} 4096", perm=(1, 0))
    yield op("transpose", f"f32 64 {f32 // 2 // 64 // 60} 60", perm=(0, 2, 1))
    yield from _rows(size)
    yield op("sum_axis", f"f32 {f32 // 4096} 4096", axis=1)
    yield op("sum_axis", f"f32 {f32 // 4096} 4096", axis=0)
    yield op("sum_axis", f"f32 {f32}")
    yield from _scans(size)
    yield op("linear", "bf16 1 2048", f"bf16 {bf16 // 2048} 2048")
    yield op("linear", "f32 1 4096", f"f32 {f32 // 4096} 4096")
    yield grouped(1, size // 2176 // 8 * 8, 2048, "i8")
    yield grouped(1, size // 1152 // 8 * 8, 2048, "u4")


def _rows(size: int) -> Iterator[Measured]:
    f32, bf16 = size // 4, size // 2
    for length in (64, 256, 1024, 4096, 32768, 40000, 50000, 131072):
        yield op("softmax", f"f32 {f32 // 2 // length} {length}")
    yield op("softmax", f"bf16 {bf16 // 2 // 4096} 4096")
    yield op("log_softmax", f"f32 {f32 // 2 // 4096} 4096", axis=1)
    for length in (768, 4096, 16384):
        yield op("layer_norm", f"f32 {f32 // 2 // length} {length}")
        yield op("rms_norm", f"bf16 {bf16 // 2 // length} {length}", f"bf16 {length}")
    yield op("layer_norm", f"f32 {f32 // 2 // 32768} 32768")
    for length in (1000, 5000, 12288):
        yield op("layer_norm", f"bf16 {bf16 // 2 // length} {length}")
    for length in (255, 1001, 4095, 30522, 50257):
        yield op("softmax", f"f32 {f32 // 2 // length} {length}")
        yield op("softmax", f"bf16 {bf16 // 2 // length} {length}")
    for length in (1001, 4095):
        yield op("layer_norm", f"f32 {f32 // 2 // length} {length}")
        yield op("layer_norm", f"bf16 {bf16 // 2 // length} {length}")
        yield op("rms_norm", f"bf16 {bf16 // 2 // length} {length}", f"bf16 {length}")
        yield op("sum_axis", f"bf16 {bf16 // length} {length}", axis=1)
    for length in (32768, 65536):
        yield op("softmax", f"bf16 {bf16 // 2 // length} {length}")
    yield op("rms_norm", f"bf16 {bf16 // 2 // 65536} 65536", "bf16 65536")
    yield op("argmax_axis", f"f32 {f32 // 4096} 4096", axis=1)
    yield op("argmax_axis", f"bf16 {bf16 // 4096} 4096", axis=1)
    yield op("argmax_axis", f"bf16 {bf16 // 1001} 1001", axis=1)
    yield op("argmin_axis", f"bf16 {bf16 // 65536} 65536", axis=1)


def _scans(size: int) -> Iterator[Measured]:
    f32, bf16 = size // 4, size // 2
    for length in (64, 1024, 4096, 32768):
        yield op("cumsum", f"f32 {f32 // 2 // length} {length}", axis=1)
    yield op("cumsum", f"f32 {f32 // 2}", axis=0)
    yield op("cumsum", f"f32 {f32 // 2 // 4096} 4096", axis=0)
    yield op("cumsum", f"bf16 {bf16 // 2 // 4096} 4096", axis=1)
    yield op("cumsum", f"bf16 {bf16 // 2 // 4096} 4096", axis=0)


def others(scale: int) -> Iterator[Measured]:
    """What is bound by something else; sizes are divided by ``scale``."""
    yield op("rms_norm", "bf16 1 2048", "bf16 2048")
    yield op("linear", "bf16 1 2048", f"bf16 {max(2048 // scale, 1)} 2048")
    yield op("linear", "bf16 8 2048", f"bf16 {max(128256 // scale, 1)} 2048")
    yield op("sdpa", "bf16 1 32 1 64", "bf16 1 8 1024 64", "bf16 1 8 1024 64")
    yield op("sort", f"f32 {max(4096 // scale, 4)} 1024")
    yield op("sort", f"f32 {max(1048576 // scale, 4096)}")
    yield op("topk", f"f32 1 {max(131072 // scale, 4096)}", k=50)
    side = 4096 // (4 if scale > 1 else 1) // (4 if scale > 16 else 1)
    yield op("matmul", f"f32 {side} {side}", f"f32 {side} {side}", done=2 * side**3)
    yield op("linear", f"bf16 512 {side}", f"bf16 {side} {side}", done=2 * 512 * side**2)


# --- the program ------------------------------------------------------------------------------------------------------

GIVEN = "layout(push_constant) uniform oi_given { uvec2 at[16]; } given;\n"
READ = """
void main()
{{
    oi_quads x = oi_quads(given.at[0]);
    oi_words y = oi_words(given.at[1]);
    uvec4 sum = uvec4(0u);
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < {count}u; i += 8u * step) {{
        uvec4 own[8];
        for (uint k = 0u; k < 8u; ++k) own[k] = i + k * step < {count}u ? x.v[i + k * step] : uvec4(0u);
        for (uint k = 0u; k < 8u; ++k) sum ^= own[k];
    }}
    y.v[gl_GlobalInvocationID.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}}
"""
COPY = """
void main()
{{
    oi_quads x = oi_quads(given.at[0]), y = oi_quads(given.at[1]);
    const uint i = gl_WorkGroupID.x * 4u * gl_WorkGroupSize.x + gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    if (i + 3u * step < {count}u) {{
        const uvec4 a = x.v[i], b = x.v[i + step], c = x.v[i + 2u * step], d = x.v[i + 3u * step];
        y.v[i] = a;
        y.v[i + step] = b;
        y.v[i + 2u * step] = c;
        y.v[i + 3u * step] = d;
    }}
}}
"""


def _place(one: Argument, places: Mapping[str, int]) -> int:
    """The buffer that an argument is, by its number; the status is behind all others."""
    assert one.kind is not Given.SIZE
    return {Given.MEMORY: places.get(one.name, 0), Given.STATUS: len(places)}.get(one.kind, NUMBER)


@dataclass
class Program:
    """The header of the program while it is written."""

    folder: Path
    machine: SimtMachine
    numerics: Numerics
    arrays: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    words: int = 32
    """Words through which the groups of a launch exchange values at most."""

    def code(self, text: str) -> str:
        """A shader as an array; its name."""
        name = f"code{len(self.arrays)}"
        source, result = self.folder / f"{name}.comp", self.folder / f"{name}.spv"
        source.write_text(text, encoding="ascii")
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.2", "-o", str(result), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        words = ", ".join(f"{word:#x}" for word in np.frombuffer(result.read_bytes(), np.uint32).tolist())
        self.arrays.append(f"static const uint32_t {name}[] = {{ {words} }};\n")
        return name

    def ceiling(self, size: int) -> None:
        """The streams that all is compared with: of reads, and of a copy."""
        group, count = self.machine.group, size // 16
        self._by_hand(READ.format(count=count), "read by hand", 528, (16 * count, 4 * 528 * group), size)
        count = size // 32 // (4 * group) * 4 * group
        groups = count // 4 // group
        self._by_hand(COPY.format(count=count), "copy by hand", groups, (16 * count, 16 * count), 32 * count)

    def _by_hand(self, text: str, called: str, groups: int, sizes: tuple[int, int], moved: int) -> None:
        before = head(self.numerics).split("layout(push_constant)")[0]
        name = self.code(f"{VERSION_LINE}\n{before}{group_line(self.machine.group)}{GIVEN}{text}")
        launches = f"{{ {name}, sizeof {name}, {groups}u, 2u, {{ 0, 1 }} }}"
        memory = f"{{ {sizes[0]}u, {ONES}u }}, {{ {sizes[1]}u, 0u }}"
        self._entry(f"{called} {moved}", "16 bytes each, several in flight", moved, 0, [launches], memory, 2)

    def add_all(self, found: Iterable[Measured], only: Sequence[str]) -> None:
        """Those kernels whose names begin in one of these ways."""
        for one in found:
            if one.name.startswith(tuple(only)):
                self.add(one)

    def add(self, one: Measured) -> None:
        """A kernel in each of its schedules."""
        kernel = one.lowered(glsl(self.numerics).about)
        for schedule in one.schedules:
            found = schedule(plain(kernel) if schedule is baseline else kernel, self.machine)
            buffers = [*kernel.inputs, *kernel.outputs, *found.scratch]
            places = {buffer.name: place for place, buffer in enumerate(buffers)}
            launches = []
            for launch in found.launches:
                made = launch_code(launch, "run", self.numerics)
                self.words = max(self.words, words_of(launch.kernel))
                group = group_of(launch.kernel, self.machine.group)
                name = self.code(shader([made], group, self.numerics, "run();"))
                given = [_place(one, places) for one in made.arguments]
                groups = -(-launch.threads // group)
                numbers = ", ".join(map(str, given)) or "0"
                launches.append(f"{{ {name}, sizeof {name}, {groups}u, {len(given)}u, {{ {numbers} }} }}")
            facts = [(_bytes(each), one.word if each.dtype.kind == "float" else ZEROS) for each in buffers]
            memory = ", ".join(f"{{ {size}u, {word}u }}" for size, word in (*facts, (STATUS, GOOD)))
            form = " + ".join(dict.fromkeys(launch.form for launch in found.launches))
            form = "baseline" if schedule is baseline else form
            self._entry(one.name, form, _moved(kernel), one.done, launches, memory, len(buffers) + 1)

    def _entry(
        self, name: str, form: str, moved: int, done: int, launches: Sequence[str], memory: str, count: int
    ) -> None:
        shown = name if len(name) <= 44 else f"{name[:41]}..."
        facts = f'"{shown}", "{form[:52]}", {moved}u, {done}u, {len(launches)}u, {count}u'
        self.entries.append(f"    {{ {facts},\n      {{ {', '.join(launches)} }},\n      {{ {memory} }} }},\n")

    def build(self) -> Path:
        """The program."""
        facts = f"TEAM_BYTES = {4 * self.words}, TEAMS_AT = {4 * TEAMS_AT}"
        text = "".join(
            (f"enum {{ {facts} }};\n", *self.arrays, "static const measured cases[] = {\n", *self.entries, "};\n")
        )
        (self.folder / "forms.h").write_text(text, encoding="ascii")
        program = self.folder / "forms"
        command = ["gcc", "-std=c11", "-O1", f"-I{self.folder}", "-o", str(program), str(HOST), "-lvulkan"]
        subprocess.run(command, check=True)
        return program


def main() -> None:
    """Build the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divide sizes by this: 1024 for a processor")
    parser.add_argument("--device", default="h200-vulkan", help="lavapipe for a processor")
    parser.add_argument("--only", nargs="+", default=[""], help="what a name has to begin with, one of these")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    arch = DeviceArch.named(options.device)
    program = Program(options.folder, simt_machine(arch), Numerics.of(arch))
    for size in SIZES:
        program.ceiling(size // options.scale)
        program.add_all(streams(size // options.scale), options.only)
    program.add_all(others(options.scale), options.only)
    print(program.build())


if __name__ == "__main__":
    main()
