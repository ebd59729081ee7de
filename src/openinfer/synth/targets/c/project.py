"""A C project: a program with its memory planned and its files printed."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal

from openinfer._version import VERSION
from openinfer.check.bound import FromModel
from openinfer.check.saved_state import signature
from openinfer.loops.dim import sizes_in
from openinfer.synth.memory.place import MemoryPlan, plan_memory
from openinfer.synth.memory.rollback import undo_of
from openinfer.synth.memory.weights import WeightLayout
from openinfer.synth.program.ir import LoopStep, PartStep, Program, Store, Weight, steps_in
from openinfer.synth.targets.c.bare_metal import is_bare, linker_script, startup
from openinfer.synth.targets.c.buildfiles import cmake_lists, makefile, weights_array, weights_assembly
from openinfer.synth.targets.c.entry import EntryPrinter
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.header import Field, HeaderFacts, header, size_field, tensor_field
from openinfer.synth.targets.c.readme import readme
from openinfer.synth.targets.c.selftest import Golden, selftest
from openinfer.synth.targets.c.source import StepPrinter
from openinfer.synth.targets.c.states import SAVED_HEAD
from openinfer.synth.targets.cstyle.names import comment, field, project_name
from openinfer.synth.targets.cstyle.support import support_code

Files = dict[str, str | bytes]


@dataclass(frozen=True)
class ProjectOptions:
    """What a project is for.

    ``heap``: tables without bounds may own memory that grows. ``weights``: a file that is read at run time, an array in
    C, or a file that the assembler includes. ``flags``: what the compiler is told about the processor. ``isa``: its
    instruction set; ``cc``: the compiler that makes code for it, where that is not the usual one.
    """

    heap: bool = True
    hosted: bool = True
    """Whether there is an operating system: signals, threads, a clock."""
    undo: bool = True
    """Whether a step that fails is taken back, which takes memory."""
    weights: Literal["file", "array", "incbin"] = "file"
    device: str = "cpu"
    flags: tuple[str, ...] = ()
    isa: str = "generic"
    cc: str | None = None


class Project:
    """The files of a program, and the facts about them that others need."""

    def __init__(
        self, program: Program, name: str, options: ProjectOptions | None = None, memory: MemoryPlan | None = None
    ) -> None:
        self.program = program
        self.name = project_name(name)
        self.options = options or ProjectOptions()
        self.memory: MemoryPlan = memory or plan_memory(self.program)
        self.weights = WeightLayout(self.program)
        for weight in self._other_weights():
            self.weights.include(weight)
        self.printer = StepPrinter(self.program, self.memory, self.weights, self.name, heap=self.options.heap)
        self.printer.is_interruptible = self.is_interruptible
        needed = undo_of(self.program, self.memory, is_interruptible=self.is_interruptible)
        self.printer.undo = needed if self.options.undo else None
        self.can_tear = needed is not None and (self.printer.undo is None or not needed.is_complete)
        """Whether a step that fails can leave persistent memory changed."""
        blocks = [block for block in self.program.blocks if block != "entry"]
        self._blocks = [self.printer.block(block) for block in (*blocks, "entry")]
        outputs = enumerate(self.program.outputs)
        self.output_fields = {key: field("v_", key, place) for place, key in outputs}
        self._source = self._print_source()

    def _other_weights(self) -> list[Weight]:
        """Weights that no kernel reads: initial values, and tensors of which parts are read."""
        found = []
        for home in self.program.homes.values():
            origin = self.program.bound.vars[str(home.variable)].origin
            if home.store is Store.STATE and isinstance(origin, FromModel):
                found.append(Weight((origin.name,), home.dtype, home.shape))
        for steps in self.program.blocks.values():
            parts = [step for step in steps_in(steps) if isinstance(step, PartStep)]
            found += [one for step in parts for one in (step.whole, step.value) if isinstance(one, Weight)]
        return found

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def arena_bytes(self) -> int:
        """The bytes of memory one step works in."""
        return max(self.memory.peak, 64) + self.undo_bytes

    @property
    def undo_bytes(self) -> int:
        """The bytes, of those, for what a step changes, so that it can be taken back."""
        return 0 if self.printer.undo is None else -(-self.printer.undo.nbytes // 64) * 64

    @property
    def state_bytes(self) -> int:
        """The bytes of memory that outlives steps."""
        return max(self.printer.state_size, 64)

    @property
    def memory_bytes(self) -> dict[str, int]:
        """The memory that the caller provides, by what it is for."""
        return {"arena": self.arena_bytes, "state": self.state_bytes, "weights": self.weights.size}

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None where tables can grow."""
        return None if self.printer.heaps else SAVED_HEAD + self.state_bytes

    @property
    def input_sizes(self) -> list[str]:
        """The dynamic sizes that inputs have."""
        return self.printer.input_sizes

    @property
    def output_sizes(self) -> list[str]:
        """The dynamic sizes that outputs have."""
        extents = [extent for value in self.program.outputs.values() for extent in value.shape]
        return sorted({size for extent in extents for size in sizes_in(extent)})

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""
        fields = self.printer.input_fields
        found = [tensor_field(fields[key], value) for key, value in self.program.inputs.items()]
        return [*found, *self._size_fields(self.input_sizes)]

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""
        found = [tensor_field(self.output_fields[key], value) for key, value in self.program.outputs.items()]
        return [*found, *self._size_fields(self.output_sizes)]

    def _size_fields(self, sizes: Sequence[str]) -> list[Field]:
        return [size_field(self.printer.size_fields[size], size, self.program.sizes[size]) for size in sizes]

    @property
    def context(self) -> list[Field]:
        """The fields of the context."""
        heaps = self.printer.heaps
        found = [
            Field("arena", "unsigned char *arena;", "pointer"),
            Field("state", "unsigned char *state;", "pointer"),
            Field("weights", "const unsigned char *weights;", "pointer"),
            Field("in", f"const {self.name}_inputs *in;", "pointer"),
        ]
        if self.printer.undo is not None:
            found.append(Field("undo", "void *undo; /* what the running step has changed */", "pointer"))
        if self.printer.threads > 1:
            found.append(Field("team", "void *team; /* threads, once they are started */", "pointer"))
        if heaps:
            found.append(Field("heap", f"unsigned char *heap[{heaps}]; /* tables that grow */", "pointers", heaps))
        found += [
            Field("status", "int32_t status, failure; /* what went wrong last */", "int32"),
            Field("failure", "", "int32"),
            Field("is_broken", "int32_t is_broken, has_outputs;", "int32"),
            Field("has_outputs", "", "int32"),
        ]
        if self.options.hosted:
            found.append(Field("is_busy", "int32_t is_busy; /* a call is running */", "int32"))
        if self.is_interruptible:
            found += [
                Field("interrupt", f"{self.name}_interrupt_function *interrupt;", "pointer"),
                Field("interrupt_user", "void *interrupt_user;", "pointer"),
                Field("budget", "int64_t budget, nodes; /* what the running step may execute, and has */", "int64"),
                Field("nodes", "", "int64"),
                Field("turns", "int64_t turns, looked, asked; /* when to look at the clock again */", "int64"),
                Field("looked", "", "int64"),
                Field("asked", "", "int64"),
            ]
        return [*found, *self._size_fields(list(self.program.sizes))]

    @property
    def is_interruptible(self) -> bool:
        """Whether a step can be told to end, and counts its nodes: where it can be long, and there is a clock."""
        blocks = self.program.blocks.values()
        return self.options.hosted and any(isinstance(step, LoopStep) for block in blocks for step in steps_in(block))

    @property
    def build_options(self) -> ProjectOptions:
        """The options with what the compiler must be told about threads."""
        return replace(self.options, flags=(*self.options.flags, *["-pthread"] * (self.printer.threads > 1)))

    @cached_property
    def blob(self) -> bytes:
        """The weights."""
        return self.weights.blob()

    @cached_property
    def graph_hash(self) -> str:
        """The SHA-256 of the graph's canonical text."""
        return sha256(self.program.bound.graph.to_text().encode()).hexdigest()

    @cached_property
    def model_hash(self) -> str | None:
        """The SHA-256 of the model's file."""
        model = self.program.bound.model
        return None if model is None else sha256(model.payload(0, model.file_size).data).hexdigest()

    @property
    def _state_hash(self) -> bytes:
        """What programs that can exchange states have in common: persistent variables, and where everything lies."""
        places = [(str(home.variable), offset, home.nbytes) for home, offset in self.printer.state_offsets.items()]
        tables = [(one.definition, one.extents_at, one.size) for one in self.printer.tables.values()]
        parts = (signature(self.program.bound), places, tables, self.state_bytes)
        return sha256(repr(parts).encode()).digest()[:16]

    # --- files ----------------------------------------------------------------------------------------------------

    def code(self) -> dict[str, str]:
        """The sources that a compiler needs, without the weights and without saying whose they are."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        name = self.name
        return {
            f"include/{name}.h": self._header(banner, crc),
            f"src/{name}.c": banner + self._source,
            "src/kernels.h": banner + self._kernels_header(),
            "src/kernels.c": banner + self._kernels(),
            "src/support.h": banner + self._support(),
            "src/runtime.h": banner + self._runtime(),
        }

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by their paths; golden values make a self-test."""
        banner = self.banner()
        found: Files = {**self._code(banner, zlib.crc32(self.blob))}
        found["src/weights.bin"] = self.blob
        match self.options.weights:
            case "array":
                del found["src/weights.bin"]
                found["src/weights.c"] = banner + weights_array(self.name, self.blob)
            case "incbin":
                found["src/weights.S"] = weights_assembly(self.name)
        found["Makefile"] = makefile(self.name, self.build_options, has_selftest=bool(golden))
        found["CMakeLists.txt"] = cmake_lists(self.name, self.build_options, has_selftest=bool(golden))
        found["example/main.c"] = banner + example(self)
        if golden:
            found["selftest/main.c"] = banner + selftest(self, golden)
        if is_bare(self.options.isa):
            found |= {"bare/startup.c": startup(), "bare/mps2.ld": linker_script()}
        found["README.md"] = readme(self, has_selftest=bool(golden))
        return found

    def banner(self) -> str:
        """Where the code comes from."""
        return "\n".join(
            [
                f"/* Made by OpenInfer {VERSION} for the device {comment(self.options.device)}: do not edit.",
                f" * model SHA-256: {self.model_hash or 'none'}",
                f" * graph SHA-256: {self.graph_hash}",
                " */",
                "",
            ]
        )

    def _header(self, banner: str, crc: int) -> str:
        ranks = [len(value.shape) for value in (*self.program.outputs.values(), *self.program.homes.values())]
        ranks += [layout.axes + len(layout.table.entry) for layout in self.printer.tables.values()]
        return header(
            HeaderFacts(
                name=self.name,
                banner=banner,
                arena=self.arena_bytes,
                undo=self.undo_bytes,
                can_tear=self.can_tear,
                state=self.state_bytes,
                weights=self.weights.size,
                crc=crc,
                saved=self.saved_bytes,
                state_id=int.from_bytes(self._state_hash[:4], "big"),
                rank=max([1, *ranks]),
                inputs=self.inputs,
                outputs=self.outputs,
                context=[one for one in self.context if one.text],
                has_heap=self.printer.heaps > 0,
                is_hosted=self.options.hosted,
                is_interruptible=self.is_interruptible,
                threads=self.printer.threads,
                embeds_weights=self.options.weights != "file",
            )
        )

    def _print_source(self) -> str:
        printer, name = self.printer, self.name
        entry = EntryPrinter(
            name,
            self.program,
            self.memory,
            self.weights,
            printer,
            self.output_fields,
            self.output_sizes,
            self._state_hash,
            self.can_tear,
            self.options.hosted,
        )
        functions = entry.functions()
        includes = [f'#include "{name}.h"', "", '#include "kernels.h"', '#include "runtime.h"', ""]
        undo = "NULL" if printer.undo is None else "c->undo"
        tables = [layout.definition + layout.function(name, undo) for layout in printer.tables.values()]
        printer.needs |= {"oi_grid"} if tables else set()
        others = [block for block in self.program.blocks if block != "entry"]
        prototypes = [f"static int {printer.block_name(block)}({name}_context *c);" for block in others]
        parts = [
            "\n".join(includes),
            entry.plumbing(),
            printer.trace_code(),
            *tables,
            *filter(None, [printer.lists.code()]),
            *["\n".join([*prototypes, ""])] * bool(prototypes),
        ]
        return "\n".join([*parts, *self._blocks, functions]) + entry.errors()

    def _kernels_header(self) -> str:
        prototypes = "\n".join(used.code.prototype for used in self.printer.kernels.used.values())
        guard = f"OPENINFER_{self.name.upper()}_KERNELS_H"
        head = "#include <stdbool.h>\n#include <stdint.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{head}\n{prototypes}\n\n#endif\n"

    def _kernels(self) -> str:
        parts = ['\n#include "kernels.h"\n#include "support.h"\n']
        for used in self.printer.kernels.used.values():
            nodes = sorted({node for step in used.steps for node in (step.nodes or (step.node,)) if node >= 0})
            where = f"/* For the node{'s' * (len(nodes) != 1)} {', '.join(map(str, nodes))}. */\n" if nodes else ""
            parts.append(where + used.code.text)
        return "\n".join(parts)

    def _support(self) -> str:
        """The functions that kernels call."""
        needs = {need for used in self.printer.kernels.used.values() for need in used.code.needs}
        fast = '#ifdef __FAST_MATH__\n#error "results must not depend on the compiler: leave out -ffast-math"\n#endif\n'
        return self._guarded("SUPPORT", "", f"{fast}\n{support_code(needs)}")

    def _runtime(self) -> str:
        """The functions that blocks call: tables, index arithmetic."""
        axes = max([1, *(layout.axes for layout in self.printer.tables.values()), *self._part_ranks()])
        more = "#include <stdlib.h>\n" * (self.printer.heaps > 0 or self.printer.threads > 1)
        more += "#include <time.h>\n" * self.is_interruptible
        more += "#include <pthread.h>\n#include <stdatomic.h>\n#include <unistd.h>\n" * (self.printer.threads > 1)
        return self._guarded("RUNTIME", more, f"#define OI_AXES {axes}\n\n{support_code(self.printer.needs)}")

    def _guarded(self, what: str, more: str, body: str) -> str:
        guard = f"OPENINFER_{self.name.upper()}_{what}_H"
        includes = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{includes}{more}\n{body}\n#endif\n"

    def _part_ranks(self) -> list[int]:
        steps = [step for block in self.program.blocks.values() for step in steps_in(block)]
        return [len(step.whole.shape) for step in steps if isinstance(step, PartStep)]
