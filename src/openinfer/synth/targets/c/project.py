"""A C project: a program with its memory planned and its files printed."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

from openinfer._version import VERSION
from openinfer.check.saved_state import signature
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.targets.c.bare_metal import is_bare, linker_script, startup
from openinfer.synth.targets.c.buildfiles import cmake_lists, makefile, weights_array, weights_assembly
from openinfer.synth.targets.c.code_files import CodeFiles
from openinfer.synth.targets.c.entry import EntryPrinter
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.fields import Structs, trace_fields
from openinfer.synth.targets.c.header import HeaderFacts, header
from openinfer.synth.targets.c.readme import readme
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.c.source import source_printers
from openinfer.synth.targets.c.states import SAVED_HEAD
from openinfer.synth.targets.c.tables import table_definition, table_function
from openinfer.synth.targets.c.timed import TIMED_SOURCE, timed_source
from openinfer.synth.targets.c.trace_points import trace_code
from openinfer.synth.targets.cstyle.fold import folded
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
        self._structs = Structs(self.name, placed)
        self._printers = source_printers(placed, self.name, self.options.isa, self.options.index_bits)
        blocks = [block for block in self.program.blocks if block != "entry"]
        self._blocks = [self._printers.blocks.block(block) for block in (*blocks, "entry")]
        self._source = self._print_source()
        self.kernels: KernelLibrary = self._printers.calls.kernels
        """The functions of kernels, and their calls in the order of the source."""
        self.reported: tuple[Reported, ...] = tuple(self._printers.blocks.reported)
        """What the lines that trace say, in the order of the source."""

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None where tables can grow."""
        return None if self.placed.state.growing else SAVED_HEAD + self.placed.state_bytes

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""
        return self._structs.inputs

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""
        return self._structs.outputs

    @property
    def traced_context(self) -> list[Field]:
        """The fields of the context, those included that are there for traces alone."""
        return [*self._structs.context, *trace_fields(self.name)]

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
        """The sources that a compiler needs, without the weights and without the names of graph and model."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every call of a kernel, and which files of it are compiled."""
        return {**self.code(), TIMED_SOURCE: timed_source(self)}, (TIMED_SOURCE, _KERNELS)

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        name = self.name
        files = CodeFiles(
            name, self.placed, self.kernels, frozenset(self._printers.file.needs), self._printers.file.title
        )
        return {
            f"include/{name}.h": folded(self._header(banner, crc)),
            f"src/{name}.c": banner + folded(self._source),
            "src/kernels.h": banner + folded(files.kernels_header()),
            _KERNELS: banner + folded(files.kernels_source()),
            "src/support.h": banner + folded(files.support()),
            "src/runtime.h": banner + folded(files.runtime()),
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
        found["example/main.c"] = banner + folded(example(self))
        if golden:
            found["selftest/main.c"] = banner + folded(selftest(self, golden))
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
                undo=self.placed.rollback_bytes,
                can_tear=self.placed.can_tear,
                state=self.placed.state_bytes,
                weights=self.placed.weights.size,
                crc=crc,
                saved=self.saved_bytes,
                state_id=int.from_bytes(self._state_hash[:4], "big"),
                rank=max([1, *ranks]),
                inputs=self.inputs,
                outputs=self.outputs,
                context=[one for one in self._structs.context if one.text],
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
        includes = ["", f'#include "{name}.h"', "", '#include "kernels.h"', '#include "runtime.h"', ""]
        undo = "NULL" if self.placed.rollback is None else "c->undo"
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
