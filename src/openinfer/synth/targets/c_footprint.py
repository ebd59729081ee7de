"""Measures the footprint of a project on a microcontroller.

The device's compiler, where installed, gives the size of code and stack; an emulator counts the instructions of a step.
Values that cannot be measured are estimated or missing, and the footprint says so.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from openinfer.loops.ir import Contraction, walk
from openinfer.synth.program.cost import cost_of
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.report.footprint import LEVEL, Footprint, deepest
from openinfer.synth.run.build import EndedProgram, run_program, temporary_folder, tool_version
from openinfer.synth.targets.c.bare_metal import EMULATED, linker_script, startup
from openinfer.synth.targets.c.project import Project

_VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
_COUNTED = re.compile(r"^instructions (\d+)$", re.MULTILINE)
_MOST_COUNTED = 1 << 29
"""Steps with more instructions than this are not run in the emulator."""
_PLAIN, _IN_PAIRS = 2.0, 0.75
"""Instructions per operation, measured on small models: in plain loops, and where products are computed in pairs."""


def footprint(project: Project) -> Footprint:
    """The footprint of a project for a device without an operating system."""
    options, placed = project.build_options, project.placed
    found = _Measured()
    compiler = options.cc and shutil.which(options.cc)
    if compiler:
        # With weights as an array, the program needs no file; how weights are stored changes no other code.
        own = Project(placed, replace(project.options, weights="array"))
        with temporary_folder() as folder:
            found = _Bench(own, compiler, folder).run()
    else:
        found.unmeasured.append(f"code and stack are not measured: there is no {options.cc or 'compiler for it'}")
    return Footprint(
        compiler=f"{options.cc} {_version(compiler)}".strip() if compiler else None,
        code=found.code,
        stack=found.stack,
        context=found.context,
        arena=placed.arena_bytes,
        state=placed.state_bytes,
        weights=placed.weights.size,
        instructions=estimate(project) if found.instructions is None else found.instructions,
        is_counted=found.instructions is not None,
        unmeasured=tuple(found.unmeasured),
    )


def _version(compiler: str) -> str:
    found = _VERSION.search(tool_version(compiler))
    return found[0] if found else ""


def estimate(project: Project) -> int:
    """An estimate of the instructions of all kernels of the program, each called once."""
    total = 0.0
    for step in project.program.steps():
        if isinstance(step, KernelStep):
            is_paired = any(isinstance(one, Contraction) and one.template is not None for one in walk(step.kernel.body))
            total += cost_of(step.kernel).operations * (_IN_PAIRS if is_paired else _PLAIN)
    return round(total)


@dataclass
class _Measured:
    code: int | None = None
    stack: int | None = None
    context: int | None = None
    instructions: int | None = None
    unmeasured: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Bench:
    """The files of a project in a folder, and the tools that measure them."""

    project: Project
    compiler: str
    folder: Path

    @property
    def _name(self) -> str:
        return self.project.name

    def run(self) -> _Measured:
        """Everything that the tools on this machine can measure."""
        found = _Measured()
        for path, text in self.project.files(()).items():
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
        ended = self._compiled("src/kernels.c"), self._compiled(f"src/{self._name}.c")
        if any(one.status for one in ended):
            found.unmeasured.append(f"code and stack are not measured: {self.compiler} refuses the code")
            return found
        self._sizes(found)
        graphs = [(self.folder / f"{one}.ci").read_text("utf-8", "replace") for one in ("kernels", self._name)]
        found.stack = deepest("\n".join(graphs), f"{self._name}_step")
        self._count(found)
        return found

    def _compiled(self, source: str, *more: str) -> EndedProgram:
        output = str(self.folder / f"{Path(source).stem}.o")
        return self._call(["-fcallgraph-info=su", *more, "-c", "-o", output, source])

    def _call(self, arguments: Sequence[str]) -> EndedProgram:
        flags = ("-std=c11", LEVEL, *self.project.build_options.flags, "-Iinclude", "-Isrc")
        return run_program([self.compiler, *flags, *arguments], self.folder)

    def _sizes(self, found: _Measured) -> None:
        """Code size from sections; context size from a variable of its type."""
        tool = shutil.which(re.sub(r"(gcc|clang)$", "size", Path(self.compiler).name))
        if tool is None:
            found.unmeasured.append("code is not measured: the compiler's 'size' is missing")
            return
        (self.folder / "context.c").write_text(
            f'#include "{self._name}.h"\n{self._name}_context the_context;\n', encoding="ascii"
        )
        if self._compiled("context.c", "-fno-common").status:
            return
        objects = [str(self.folder / f"{one}.o") for one in ("kernels", self._name, "context")]
        rows = [line.split() for line in run_program([tool, *objects], self.folder).output.splitlines()[1:]]
        sizes = [(int(row[0]), int(row[1]) + int(row[2])) for row in rows]
        found.code = sum(text for text, _ in sizes[:2])
        found.context = sizes[2][1]

    def _count(self, found: _Measured) -> None:
        """Counts the instructions of a step in an emulator."""
        emulator = shutil.which(EMULATED[0])
        if emulator is None or estimate(self.project) > _MOST_COUNTED:
            why = f"there is no {EMULATED[0]}" if emulator is None else "an emulator would take minutes"
            found.unmeasured.append(f"instructions are not counted: {why}")
            return
        (self.folder / "count.c").write_text(counting_program(self._name), encoding="ascii")
        linked = ["--specs=rdimon.specs", "-nostartfiles", "-T", "bare/mps2.ld", "bare/startup.c", "-Wl,--gc-sections"]
        (self.folder / "bare").mkdir(exist_ok=True)
        (self.folder / "bare/startup.c").write_text(startup(), encoding="ascii")
        (self.folder / "bare/mps2.ld").write_text(linker_script(), encoding="ascii")
        sources = ["count.c", "example/main.c", *sorted(f"src/{one.name}" for one in self.folder.glob("src/*.c"))]
        wrapped = f"-Wl,--wrap={self._name}_step"
        built = self._call([wrapped, *linked, *sources, "-o", str(self.folder / "counted")])
        said = "" if built.status else self._emulated(emulator)
        match = _COUNTED.search(said)
        if match is None:
            found.unmeasured.append("instructions are not counted: the program does not run in the emulator")
            return
        found.instructions = int(match[1])

    def _emulated(self, emulator: str) -> str:
        command = [emulator, *EMULATED[1:], "-icount", "shift=6", "-kernel", str(self.folder / "counted")]
        return run_program(command, self.folder).output


def counting_program(name: str) -> str:
    """C that reads a timer before and after a step; the emulated board's timer ticks 1.6 times per instruction."""
    signature = f"{name}_context *c, const {name}_inputs *in, {name}_outputs *out"
    return f"""#include <stdint.h>
#include <stdio.h>
#include "{name}.h"
int __real_{name}_step({signature});
int __wrap_{name}_step({signature});
int __wrap_{name}_step({signature})
{{
    volatile uint32_t *const timer = (volatile uint32_t *)0x40000000;
    timer[2] = timer[1] = 0xffffffffu;
    timer[0] = 1;
    const uint32_t before = timer[1];
    const int status = __real_{name}_step(c, in, out);
    const uint32_t ticks = before - timer[1];
    static int shown;
    if (!shown++) printf("instructions %lu\\n", (unsigned long)((uint64_t)ticks * 10 / 16));
    return status;
}}
"""
