"""How fast each form of launches is on a Vulkan device: ``python -m bench.gpu.forms FOLDER``, then ``FOLDER/forms``.

The program is built here and runs wherever there is a driver: its shaders are arrays in it. The first line is a plain
stream of reads by hand, 8 accesses of 16 bytes in flight for each thread; the others are single ops, lowered and
scheduled as in a graph, with the bytes that they have to move at least.
"""

import argparse
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast, load
from openinfer.loops.expand import plain
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, Kernel, ScalarVar
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled
from openinfer.synth.targets.vulkan.shader import VERSION_LINE, Argument, Given, head, launch_code, shader

HOST = Path(__file__).with_name("forms.c")
ONES, ZEROS, GOOD = 0x3F803F80, 0, 0xFFFFFFFF
"""Memory full of numbers near 1, or of zeros; and the status of a call that has not failed."""
NUMBER = 255
"""In place of a buffer: the number of a launch."""
NUMERICS = {"exact": Numerics(), "h200": Numerics("last bit", "last bit", "exact", "flushed")}


@dataclass(frozen=True)
class Measured:
    """A kernel with the name that the table has for it."""

    name: str
    kernel: Kernel
    done: int = 0
    """Operations."""
    schedules: tuple[Callable[[Kernel, SimtMachine], Launches], ...] = (scheduled,)

    @property
    def moved(self) -> int:
        """Bytes that are read or written at least."""
        return sum(_bytes(one) for one in (*self.kernel.inputs, *self.kernel.outputs))


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
    kernel = plain(kernel_of(record, call, tuple(None if one is None else one.dtype for one in (*types, *optional))))
    schedules = (scheduled, baseline) if also_baseline else (scheduled,)
    return Measured(f"{name} {', '.join(operands)}", kernel, done, schedules)


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
    return Measured(f"linear {rows} {length} x {bits} {columns}", Kernel("k", (x, w, scale), (y,), (product,)))


def measured(scale: int) -> Iterator[Measured]:
    """What is measured; sizes are divided by ``scale``."""
    n, rows = 67108864 // scale, 16384 // scale
    yield op("add", f"f32 {n}", f"f32 {n}", also_baseline=True)
    yield op("gelu", f"bf16 {2 * n}", also_baseline=True)
    yield op("exp", f"f32 {n}")
    yield op("cast", f"f32 {n}", to=DTYPES["bf16"])
    yield op("embedding", f"bf16 {max(128256 // scale, 1)} 2048", f"i32 {rows}")
    yield op("transpose", f"f32 {rows} 4096", perm=(1, 0))
    yield op("softmax", f"f32 {rows} 4096", also_baseline=True)
    yield op("softmax", f"f32 {rows * 16} 256")
    yield op("softmax", f"f32 {max(rows // 8, 1)} 32768")
    yield op("layer_norm", f"f32 {rows} 4096")
    yield op("rms_norm", f"bf16 {rows} 4096", "bf16 4096")
    yield op("rms_norm", "bf16 1 2048", "bf16 2048")
    yield op("sum_axis", f"f32 {rows} 4096", axis=1)
    yield op("sum_axis", f"f32 {rows} 4096", axis=0)
    yield op("sum_axis", f"f32 {n}")
    yield op("linear", "bf16 1 2048", f"bf16 {max(128256 // scale, 1)} 2048", also_baseline=True)
    yield op("linear", "bf16 1 2048", f"bf16 {max(16384 // scale, 1)} 2048")
    yield op("linear", "bf16 1 2048", f"bf16 {max(2048 // scale, 1)} 2048")
    yield op("linear", f"bf16 1 {8192}", f"bf16 {max(2048 // scale, 1)} 8192")
    yield op("linear", "bf16 8 2048", f"bf16 {max(128256 // scale, 1)} 2048")
    yield op("linear", "f32 1 4096", f"f32 {max(32000 // scale, 1)} 4096")
    yield op("linear", "f16 1 4096", f"f16 {max(32000 // scale, 1)} 4096")
    yield grouped(1, max(128256 // scale, 1), 2048, "i8")
    yield grouped(1, max(128256 // scale, 1), 2048, "u4")
    yield op("sdpa", "bf16 1 32 1 64", "bf16 1 8 1024 64", "bf16 1 8 1024 64", also_baseline=True)
    side = 4096 // (4 if scale > 1 else 1) // (4 if scale > 16 else 1)
    yield op("matmul", f"f32 {side} {side}", f"f32 {side} {side}", done=2 * side**3)
    yield op("linear", f"bf16 512 {side}", f"bf16 {side} {side}", done=2 * 512 * side**2)


# --- the program ------------------------------------------------------------------------------------------------------

READ = """
layout(push_constant) uniform oi_given {{ uvec2 at[16]; }} given;
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

    def ceiling(self, scale: int) -> None:
        """The stream of reads that all is compared with."""
        count, groups = 67108864 // scale, 528
        before = head(self.machine.group, self.numerics).split("layout(push_constant)")[0]
        name = self.code(f"{VERSION_LINE}\n{before}" + READ.format(count=count))
        launches = f"{{ {name}, sizeof {name}, {groups}u, 2u, {{ 0, 1 }} }}"
        memory = f"{{ {16 * count}u, {ONES}u }}, {{ {4 * groups * self.machine.group}u, 0u }}"
        self._entry("read by hand", "8 x 16 bytes in flight", 16 * count, 0, [launches], memory, 2)

    def add(self, one: Measured) -> None:
        """A kernel in each of its schedules."""
        for schedule in one.schedules:
            found = schedule(one.kernel, self.machine)
            buffers = [*one.kernel.inputs, *one.kernel.outputs, *found.scratch]
            places = {buffer.name: place for place, buffer in enumerate(buffers)}
            launches = []
            for launch in found.launches:
                made = launch_code(launch, "run", self.numerics)
                name = self.code(shader([made], self.machine.group, self.numerics, "run();"))
                given = [_place(one, places) for one in made.arguments]
                groups = -(-launch.threads // self.machine.group)
                numbers = ", ".join(map(str, given)) or "0"
                launches.append(f"{{ {name}, sizeof {name}, {groups}u, {len(given)}u, {{ {numbers} }} }}")
            facts = [(_bytes(one), ONES if one.dtype.kind == "float" else ZEROS) for one in buffers]
            memory = ", ".join(f"{{ {size}u, {word}u }}" for size, word in (*facts, (4, GOOD)))
            form = " + ".join(dict.fromkeys(launch.form for launch in found.launches))
            form = "baseline" if schedule is baseline else form
            self._entry(one.name, form, one.moved, one.done, launches, memory, len(buffers) + 1)

    def _entry(
        self, name: str, form: str, moved: int, done: int, launches: Sequence[str], memory: str, count: int
    ) -> None:
        shown = name if len(name) <= 34 else f"{name[:31]}..."
        facts = f'"{shown}", "{form[:34]}", {moved}u, {done}u, {len(launches)}u, {count}u'
        self.entries.append(f"    {{ {facts},\n      {{ {', '.join(launches)} }},\n      {{ {memory} }} }},\n")

    def build(self) -> Path:
        """The program."""
        text = "".join((*self.arrays, "static const measured cases[] = {\n", *self.entries, "};\n"))
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
    parser.add_argument("--subgroup", type=int, default=32, help="threads of a subgroup: 8 for lavapipe")
    parser.add_argument("--shared", type=int, default=49152, help="bytes that a group shares: 32768 for lavapipe")
    parser.add_argument("--units", type=int, default=132)
    parser.add_argument("--numerics", choices=NUMERICS, default="h200")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    group = min(256, options.subgroup**2)
    machine = SimtMachine(group, options.subgroup, shared_bytes=options.shared, units=options.units)
    program = Program(options.folder, machine, NUMERICS[options.numerics])
    program.ceiling(options.scale)
    for one in measured(options.scale):
        program.add(one)
    print(program.build())


if __name__ == "__main__":
    main()
