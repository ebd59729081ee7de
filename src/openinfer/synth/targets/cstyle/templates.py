"""``Templates``: what a target's schedule adds to the printer. Without any, contractions and loops are plain loops."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from openinfer.loops.cse import with_names
from openinfer.loops.expand import expanded
from openinfer.loops.ir import Bind, Contraction, For, Kernel, Statement
from openinfer.loops.rewrite import straightened
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter


class KernelWriter(Protocol):
    """The printer of a kernel, as templates see it."""

    @property
    def scalars(self) -> ScalarPrinter:
        """Prints expressions, and collects what they need."""

    @property
    def parts(self) -> int:
        """In how many parts the kernel runs."""

    def line(self, depth: int, text: str) -> None:
        """One more line."""

    def body(self, statements: tuple[Statement, ...], depth: int) -> None:
        """Statements, as the printer prints them."""

    def loop(self, loop: For, first: str, last: str, depth: int) -> None:
        """A plain loop over some of the iterations."""

    def note(self, algorithm: str) -> None:
        """Name an algorithm in the kernel's documentation."""


PrintLoop: TypeAlias = Callable[[For, KernelWriter, int], None]
PrintStatement: TypeAlias = Callable[[Any, KernelWriter, int], None]
PrintContraction: TypeAlias = Callable[[Contraction, KernelWriter, int], None]


def plain(one: Contraction, writer: KernelWriter, depth: int) -> None:
    """A contraction as loops over one accumulator."""
    as_loops(expanded(one), one, writer, depth)


def as_loops(statements: tuple[Statement, ...], one: Contraction, writer: KernelWriter, depth: int) -> None:
    """The loops that a contraction has become; without any, the accumulator gets a scope of its own."""
    if one.free:
        writer.body(statements, depth)
        return
    writer.line(depth, "{")
    writer.body(statements, depth + 1)
    writer.line(depth, "}")


def without_trivial_loops(kernel: Kernel) -> Kernel:
    """A kernel less its loops of zero or one iteration, and with names for what it repeats."""
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    return replace(kernel, body=with_names(straightened(kernel.body), {one.name for one in buffers}))


@dataclass(frozen=True)
class Templates:
    """How a target prints what its schedule has decided."""

    prepared: Callable[[Kernel], Kernel] = without_trivial_loops
    """The kernel whose statements are printed."""
    contraction: PrintContraction = plain
    loops: Mapping[Bind, PrintLoop] = field(default_factory=dict)
    """Loops by what their iterations are bound to; all others are plain ones."""
    statements: Mapping[type[Statement], PrintStatement] = field(default_factory=dict)
    """Statements by their types, which only schedules for threads have."""
    names: frozenset[str] = frozenset()
    """Variables that the templates bring: no buffer may have such a name."""


PLAIN = Templates()
"""Everything in plain loops."""
