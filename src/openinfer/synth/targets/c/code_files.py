"""The files around a project's source: its kernels, and the functions that kernels and blocks call."""

from collections.abc import Callable
from dataclasses import dataclass

from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import PartStep
from openinfer.synth.targets.c.support import SUPPORT, support_code
from openinfer.synth.targets.cstyle.kernel_docs import kernel_doc
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.support import Support


@dataclass(frozen=True)
class CodeFiles:
    """Prints these files after the source, which determines what they must contain."""

    name: str
    placed: Placed
    kernels: KernelLibrary
    needs: frozenset[str]
    """The runtime functions that blocks call."""
    title: Callable[[int], str]
    """Describes a node in words."""
    of_blocks: Support = SUPPORT
    """The support code that ``needs`` are taken from."""

    def kernels_header(self) -> str:
        """The kernel prototypes that the source includes."""
        prototypes = "\n".join(used.code.prototype for used in self.kernels.used.values())
        guard = f"OPENINFER_{self.name.upper()}_KERNELS_H"
        head = "#include <stdbool.h>\n#include <stdint.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{head}\n{prototypes}\n\n#endif\n"

    def kernels_source(self) -> str:
        """The kernels."""
        parts = ['\n#include "kernels.h"\n#include "support.h"\n']
        parts += (kernel_doc(used, self.title) + used.code.text for used in self.kernels.used.values())
        return "\n".join(parts)

    def support(self) -> str:
        """The functions that kernels call."""
        needs = {need for used in self.kernels.used.values() for need in used.code.needs}
        fast = '#ifdef __FAST_MATH__\n#error "results must not depend on the compiler: leave out -ffast-math"\n#endif\n'
        return self._guarded("SUPPORT", "", f"{fast}\n{support_code(needs)}")

    def runtime(self) -> str:
        """The functions that blocks call: tables, index arithmetic."""
        tables = self.placed.state.tables.values()
        limits = f"#define OI_AXES {self.axes}\n" if tables or self._part_ranks() else ""
        limits += f"#define OI_ALIGNMENT {self.placed.rules.alignment}\n" * bool(tables)
        limits += "\n" * bool(limits)
        more = "#include <stdlib.h>\n" * (bool(self.placed.state.growing) or self.placed.threads > 1)
        more += "#include <time.h>\n" * self.placed.is_interruptible
        more += "#include <pthread.h>\n#include <stdatomic.h>\n#include <unistd.h>\n" * (self.placed.threads > 1)
        return self._guarded("RUNTIME", more, f"{limits}{self.of_blocks.code(self.needs)}")

    @property
    def axes(self) -> int:
        """The most axes of any table, or of any tensor that steps slice."""
        tables = self.placed.state.tables.values()
        return max([1, *(layout.axes for layout in tables), *self._part_ranks()])

    def _guarded(self, what: str, more: str, body: str) -> str:
        guard = f"OPENINFER_{self.name.upper()}_{what}_H"
        includes = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{includes}{more}\n{body}\n#endif\n"

    def _part_ranks(self) -> list[int]:
        return [len(step.whole.shape) for step in self.placed.program.steps() if isinstance(step, PartStep)]
