"""The host source, whatever runs its kernels: C code that runs steps, its header, and facts about both."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from openinfer._version import VERSION
from openinfer.check.saved_state import signature
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import Program
from openinfer.synth.program.positions import callees_first
from openinfer.synth.targets.c.device_side import DeviceSide
from openinfer.synth.targets.c.entry import EntryPrinter
from openinfer.synth.targets.c.fields import Structs
from openinfer.synth.targets.c.header import HeaderFacts, header
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.c.states import SAVED_HEAD
from openinfer.synth.targets.c.tables import table_definition, table_function
from openinfer.synth.targets.c.trace_points import trace_code
from openinfer.synth.targets.cstyle.names import comment
from openinfer.synth.targets.project import ProjectOptions


@dataclass(frozen=True, eq=False)
class HostSource:
    """The host code of a project, in C, without its kernels."""

    name: str
    placed: Placed
    options: ProjectOptions

    @property
    def program(self) -> Program:
        """The program that is printed."""
        return self.placed.program

    @cached_property
    def structs(self) -> Structs:
        """The fields of the project's structs."""
        return Structs(self.name, self.placed)

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None if tables can grow."""
        return None if self.placed.state.growing else SAVED_HEAD + self.placed.state_bytes

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
    def state_hash(self) -> bytes:
        """A hash shared by programs that can exchange states: of persistent variables, and the layout of the state."""
        places = [(str(home.variable), offset, home.nbytes) for home, offset in self.placed.state.homes.items()]
        tables = [(table_definition(one), one.extents_at, one.size) for one in self.placed.state.tables.values()]
        parts = (signature(self.program.bound), places, tables, self.placed.state_bytes)
        return sha256(repr(parts).encode()).digest()[:16]

    def banner(self) -> str:
        """The comment that says where the code comes from."""
        return "\n".join(
            [
                f"/* Made by OpenInfer {VERSION} for the device {comment(self.options.device)}: do not edit.",
                f" * model SHA-256: {self.model_hash or 'none'}",
                f" * graph SHA-256: {self.graph_hash}",
                " */",
                "",
            ]
        )

    def header(self, banner: str, crc: int) -> str:
        """The header."""
        ranks = [len(value.shape) for value in (*self.program.outputs.values(), *self.program.homes.values())]
        ranks += [layout.axes + len(layout.table.entry) for layout in self.placed.state.tables.values()]
        return header(
            HeaderFacts(
                name=self.name,
                banner=banner,
                alignment=self.placed.rules.alignment,
                arena=self.placed.arena_bytes,
                rollback=self.placed.rollback_bytes,
                can_tear=self.placed.can_tear,
                state=self.placed.state_bytes,
                weights=self.placed.weights.size,
                crc=crc,
                saved=self.saved_bytes,
                state_id=int.from_bytes(self.state_hash[:4], "big"),
                rank=max([1, *ranks]),
                inputs=tuple(self.structs.inputs),
                outputs=tuple(self.structs.outputs),
                context=tuple(one for one in self.structs.context if one.text),
                has_heap=bool(self.placed.state.growing),
                is_hosted=self.placed.rules.is_hosted,
                is_interruptible=self.placed.is_interruptible,
                threads=self.placed.threads,
                embeds_weights=self.options.weights != "file",
                on_device=self.placed.rules.on_device,
            )
        )

    def source(self, printers: SourcePrinters, kernels: str, device: DeviceSide | None = None) -> str:
        """The source; ``kernels`` is the header that declares the kernels it calls."""
        name = self.name
        others = [block for block in self.program.blocks if block != "entry"]
        blocks = {block: printers.blocks.block(block) for block in (*others, "entry")}
        entry = EntryPrinter(name, self.placed, printers, self.state_hash, device)
        functions = entry.functions()
        includes = ["", f'#include "{name}.h"', "", f'#include "{kernels}"', '#include "runtime.h"', ""]
        undo = "NULL" if self.placed.rollback is None else "c->undo"
        layouts = self.placed.state.tables.values()
        tables = [table_definition(layout) + table_function(layout, name, undo) for layout in layouts]
        printers.file.needs |= {"oi_grid"} if tables else set()
        parts = [
            "\n".join(includes),
            entry.plumbing(),
            trace_code(name, printers.blocks.reported),
            *tables,
            *filter(None, [printers.file.lists.code()]),
            *(blocks[block] for block in callees_first(self.program)),
            functions,
        ]
        return "\n".join(parts) + entry.errors()
