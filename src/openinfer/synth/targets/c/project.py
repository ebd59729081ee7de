"""A C project: a program with its memory planned and its files printed."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

from openinfer._version import VERSION
from openinfer.check.saved_state import signature
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.failures import Failure
from openinfer.synth.program.ir import PartStep
from openinfer.synth.targets.c.bare_metal import is_bare, linker_script, startup
from openinfer.synth.targets.c.buildfiles import cmake_lists, makefile, weights_array, weights_assembly
from openinfer.synth.targets.c.entry import EntryPrinter
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.header import HeaderFacts, header, size_field, tensor_field, trace_fields
from openinfer.synth.targets.c.readme import readme
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.c.source import source_printers
from openinfer.synth.targets.c.states import SAVED_HEAD
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.c.tables import table_definition, table_function
from openinfer.synth.targets.c.timed import TIMED_SOURCE, timed_source
from openinfer.synth.targets.c.trace_points import trace_code
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.names import comment, project_name
from openinfer.synth.targets.project import Field, Files, Golden, ProjectOptions

_KERNELS = "src/kernels.c"


class Project:
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions | None = None) -> None:
        self.placed = placed
        self.program = placed.program
        self.options = options or ProjectOptions()
        self.name = project_name(self.options.name)
        self._printers = source_printers(placed, self.name)
        blocks = [block for block in self.program.blocks if block != "entry"]
        self._blocks = [self._printers.blocks.block(block) for block in (*blocks, "entry")]
        self._source = self._print_source()
        self.kernels: KernelLibrary = self._printers.calls.kernels
        """The functions of kernels, and their calls in the order of the source."""
        self.reported: tuple[Reported, ...] = tuple(self._printers.blocks.reported)
        """What the lines that trace say, in the order of the source."""
        self.failures: tuple[Failure, ...] = tuple(self._printers.file.failures)
        """What can go wrong, by the numbers that the code has for it."""

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None where tables can grow."""
        return None if self.placed.state.growing else SAVED_HEAD + self.placed.state_bytes

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""
        names = self.placed.names
        found = [tensor_field(names.inputs[key], value) for key, value in self.program.inputs.items()]
        return [*found, *self._size_fields(names.input_sizes)]

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""
        names = self.placed.names
        found = [tensor_field(names.outputs[key], value) for key, value in self.program.outputs.items()]
        return [*found, *self._size_fields(names.output_sizes)]

    def _size_fields(self, sizes: Iterable[str]) -> list[Field]:
        return [size_field(self.placed.names.sizes[size], size, self.program.sizes[size]) for size in sizes]

    @property
    def context(self) -> list[Field]:
        """The fields of the context."""
        heaps = len(self.placed.state.growing)
        found = [
            Field("arena", "unsigned char *arena;", "pointer"),
            Field("state", "unsigned char *state;", "pointer"),
            Field("weights", "const unsigned char *weights;", "pointer"),
            Field("in", f"const {self.name}_inputs *in;", "pointer"),
        ]
        if self.placed.undo is not None:
            found.append(Field("undo", "void *undo; /* what the running step has changed */", "pointer"))
        if self.placed.threads > 1:
            found.append(Field("team", "void *team; /* threads, once they are started */", "pointer"))
        if heaps:
            found.append(Field("heap", f"unsigned char *heap[{heaps}]; /* tables that grow */", "pointers", heaps))
        found += [
            Field("status", "int32_t status, failure; /* what went wrong last */", "int32"),
            Field("failure", "", "int32"),
            Field("is_broken", "int32_t is_broken, has_outputs;", "int32"),
            Field("has_outputs", "", "int32"),
        ]
        if self.placed.rules.is_hosted:
            found.append(Field("is_busy", "int32_t is_busy; /* a call is running */", "int32"))
        if self.placed.is_interruptible:
            found += [
                Field("interrupt", f"{self.name}_interrupt_function *interrupt;", "pointer"),
                Field("interrupt_user", "void *interrupt_user;", "pointer"),
                Field("budget", "int64_t budget, nodes; /* what the running step may execute, and has */", "int64"),
                Field("nodes", "", "int64"),
                Field("turns", "int64_t turns, looked, asked; /* when to look at the clock again */", "int64"),
                Field("looked", "", "int64"),
                Field("asked", "", "int64"),
            ]
        return [*found, *self._size_fields(self.program.sizes)]

    @property
    def traced_context(self) -> list[Field]:
        """The fields of the context, those included that are there for traces alone."""
        return [*self.context, *trace_fields(self.name)]

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of the code that are compiled."""
        return (f"src/{self.name}.c", _KERNELS)

    @property
    def trace_flags(self) -> tuple[str, ...]:
        """What a compiler is told so that steps say what they do."""
        return (f"-D{self.name.upper()}_TRACE",)

    @property
    def build_options(self) -> ProjectOptions:
        """The options with what the compiler must be told about threads."""
        return replace(self.options, flags=(*self.options.flags, *["-pthread"] * (self.placed.threads > 1)))

    @cached_property
    def blob(self) -> bytes:
        """The weights."""
        return self.placed.weights.blob()

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
        places = [(str(home.variable), offset, home.nbytes) for home, offset in self.placed.state.homes.items()]
        tables = [(table_definition(one), one.extents_at, one.size) for one in self.placed.state.tables.values()]
        parts = (signature(self.program.bound), places, tables, self.placed.state_bytes)
        return sha256(repr(parts).encode()).digest()[:16]

    # --- files ----------------------------------------------------------------------------------------------------

    def code(self) -> dict[str, str]:
        """The sources that a compiler needs, without the weights and without saying whose they are."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every call of a kernel, and which files of it are compiled."""
        return {**self.code(), TIMED_SOURCE: timed_source(self)}, (TIMED_SOURCE, _KERNELS)

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        name = self.name
        return {
            f"include/{name}.h": self._header(banner, crc),
            f"src/{name}.c": banner + self._source,
            "src/kernels.h": banner + self._kernels_header(),
            _KERNELS: banner + self._kernels(),
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
                found["src/weights.c"] = banner + weights_array(self.name, self.blob, self.placed.rules.alignment)
            case "incbin":
                found["src/weights.S"] = weights_assembly(self.name, self.placed.rules.alignment)
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
        ranks += [layout.axes + len(layout.table.entry) for layout in self.placed.state.tables.values()]
        return header(
            HeaderFacts(
                name=self.name,
                banner=banner,
                alignment=self.placed.rules.alignment,
                arena=self.placed.arena_bytes,
                undo=self.placed.undo_bytes,
                can_tear=self.placed.can_tear,
                state=self.placed.state_bytes,
                weights=self.placed.weights.size,
                crc=crc,
                saved=self.saved_bytes,
                state_id=int.from_bytes(self._state_hash[:4], "big"),
                rank=max([1, *ranks]),
                inputs=self.inputs,
                outputs=self.outputs,
                context=[one for one in self.context if one.text],
                has_heap=bool(self.placed.state.growing),
                is_hosted=self.placed.rules.is_hosted,
                is_interruptible=self.placed.is_interruptible,
                threads=self.placed.threads,
                embeds_weights=self.options.weights != "file",
            )
        )

    def _print_source(self) -> str:
        printers, name = self._printers, self.name
        entry = EntryPrinter(
            name,
            self.placed,
            printers,
            self._state_hash,
        )
        functions = entry.functions()
        includes = [f'#include "{name}.h"', "", '#include "kernels.h"', '#include "runtime.h"', ""]
        undo = "NULL" if self.placed.undo is None else "c->undo"
        layouts = self.placed.state.tables.values()
        tables = [table_definition(layout) + table_function(layout, name, undo) for layout in layouts]
        printers.file.needs |= {"oi_grid"} if tables else set()
        others = [block for block in self.program.blocks if block != "entry"]
        prototypes = [f"static int {printers.blocks.name(block)}({name}_context *c);" for block in others]
        parts = [
            "\n".join(includes),
            entry.plumbing(),
            trace_code(name, printers.blocks.reported),
            *tables,
            *filter(None, [printers.file.lists.code()]),
            *["\n".join([*prototypes, ""])] * bool(prototypes),
        ]
        return "\n".join([*parts, *self._blocks, functions]) + entry.errors()

    def _kernels_header(self) -> str:
        prototypes = "\n".join(used.code.prototype for used in self.kernels.used.values())
        guard = f"OPENINFER_{self.name.upper()}_KERNELS_H"
        head = "#include <stdbool.h>\n#include <stdint.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{head}\n{prototypes}\n\n#endif\n"

    def _kernels(self) -> str:
        parts = ['\n#include "kernels.h"\n#include "support.h"\n']
        for used in self.kernels.used.values():
            nodes = sorted({node for step in used.steps for node in (step.nodes or (step.node,)) if node >= 0})
            where = f"/* For the node{'s' * (len(nodes) != 1)} {', '.join(map(str, nodes))}. */\n" if nodes else ""
            parts.append(where + used.code.text)
        return "\n".join(parts)

    def _support(self) -> str:
        """The functions that kernels call."""
        needs = {need for used in self.kernels.used.values() for need in used.code.needs}
        fast = '#ifdef __FAST_MATH__\n#error "results must not depend on the compiler: leave out -ffast-math"\n#endif\n'
        return self._guarded("SUPPORT", "", f"{fast}\n{support_code(needs)}")

    def _runtime(self) -> str:
        """The functions that blocks call: tables, index arithmetic."""
        tables = self.placed.state.tables.values()
        axes = max([1, *(layout.axes for layout in tables), *self._part_ranks()])
        limits = f"#define OI_AXES {axes}\n"
        limits += f"#define OI_ALIGNMENT {self.placed.rules.alignment}\n" * bool(tables)
        more = "#include <stdlib.h>\n" * (bool(self.placed.state.growing) or self.placed.threads > 1)
        more += "#include <time.h>\n" * self.placed.is_interruptible
        more += "#include <pthread.h>\n#include <stdatomic.h>\n#include <unistd.h>\n" * (self.placed.threads > 1)
        return self._guarded("RUNTIME", more, f"{limits}\n{support_code(self._printers.file.needs)}")

    def _guarded(self, what: str, more: str, body: str) -> str:
        guard = f"OPENINFER_{self.name.upper()}_{what}_H"
        includes = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{includes}{more}\n{body}\n#endif\n"

    def _part_ranks(self) -> list[int]:
        return [len(step.whole.shape) for step in self.program.steps() if isinstance(step, PartStep)]
