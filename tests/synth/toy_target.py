"""A target that prints pseudo-code and runs nothing: all that a new language must bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openinfer.dtypes import DTYPES
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep, Program
from openinfer.synth.targets.cpu.machine import GENERIC
from openinfer.synth.targets.cstyle.dialect import Dialect, Framed, KernelSignature
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.statements import printed
from openinfer.synth.targets.cstyle.support import Support
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.project import Files, ProjectOptions
from openinfer.synth.targets.target import Target


def _frame(_dialect: Dialect, kernel: KernelSignature, lines: Sequence[str]) -> Framed:
    head = f"kernel {kernel.name}({', '.join(f'{one.name}: {one.dtype}' for one in kernel.memory)})"
    return Framed("\n".join([head, *lines, "end", ""]), head)


TYPES = {name: name.upper() for name in (*DTYPES, "index")}
PSEUDO = Dialect(TYPES, TYPES, lambda value, _: str(value), _frame, Support((), dict), cast="{type}({value})")


@dataclass(frozen=True)
class ToyProject:
    name: str
    placed: Placed
    program: Program
    kernels: KernelLibrary
    options: ProjectOptions
    build_options: ProjectOptions
    saved_bytes, graph_hash, model_hash = None, "", None

    def code(self) -> dict[str, str]:
        return {"kernels.toy": "\n".join(used.code.text for used in self.kernels.used.values())}

    def files(self, _golden: Sequence[object] = ()) -> Files:
        return {**self.code()}


def _project(placed: Placed, options: ProjectOptions) -> ToyProject:
    library = KernelLibrary(options.name, lambda kernel, name, _: printed(kernel, name, PSEUDO))
    for step in (step for step in placed.program.steps() if isinstance(step, KernelStep)):
        library.function(step.kernel, step)
    return ToyProject(options.name, placed, placed.program, library, options, options)


def toy_target(_arch: DeviceArch) -> Target[ToyProject]:
    facts = GENERIC, PSEUDO, frozenset(Feature), Numerics(), 16, 64, 1 << 30, 1 << 30
    nothing: Any = None  # it is neither built nor timed
    return Target("toy", *facts, lambda _, __: (), _project, nothing, nothing)
