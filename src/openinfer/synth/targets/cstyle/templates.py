"""``Templates``: what a target's schedule adds to the printer. Without any, contractions and loops are plain loops."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from openinfer.loops.clamps import without_idle_limits
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
        """The number of parts that the kernel runs in."""

    def line(self, depth: int, text: str) -> None:
        """Adds a line."""

    def body(self, statements: tuple[Statement, ...], depth: int) -> None:
        """Prints statements."""

    def loop(self, loop: For, first: str, last: str, depth: int) -> None:
        """Prints a plain loop over some of the iterations."""

    def note(self, algorithm: str) -> None:
        """Names an algorithm in the kernel's documentation."""


PrintLoop: TypeAlias = Callable[[For, KernelWriter, int], None]
PrintStatement: TypeAlias = Callable[[Any, KernelWriter, int], None]
PrintContraction: TypeAlias = Callable[[Contraction, KernelWriter, int], None]


def plain(one: Contraction, writer: KernelWriter, depth: int) -> None:
    """Prints a contraction as loops over one accumulator."""
    as_loops(expanded(one), one, writer, depth)


def as_loops(statements: tuple[Statement, ...], one: Contraction, writer: KernelWriter, depth: int) -> None:
    """Prints a contraction's loops; if it has no free indices, the accumulator gets a scope of its own."""
    with writer.scalars.widths.analysed(statements):
        if one.free:
            writer.body(statements, depth)
            return
        writer.line(depth, "{")
        writer.body(statements, depth + 1)
        writer.line(depth, "}")


def simplest(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements without zero-trip and single-iteration loops, and without limits that ranges show to be idle."""
    straight = straightened(body)
    limited = without_idle_limits(straight)
    # Each time, the names of constants and of other variables that this leaves are inlined.
    return straight if limited is straight else straightened(straightened(limited))


def without_trivial_loops(kernel: Kernel) -> Kernel:
    """A kernel without zero-trip and single-iteration loops, and with names for repeated expressions."""
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    return replace(kernel, body=with_names(simplest(kernel.body), {one.name for one in buffers}))


@dataclass(frozen=True)
class Templates:
    """How a target prints what its schedule has decided."""

    prepared: Callable[[Kernel], Kernel] = without_trivial_loops
    """Prepares the kernel whose statements are printed."""
    contraction: PrintContraction = plain
    loops: Mapping[Bind, PrintLoop] = field(default_factory=dict)
    """Printers of loops, by what iterations are bound to; all other loops are plain."""
    statements: Mapping[type[Statement], PrintStatement] = field(default_factory=dict)
    """Printers of statements, by type, for those that only schedules for threads have."""
    names: frozenset[str] = frozenset()
    """Variables that the templates introduce: no buffer may have such a name."""


PLAIN = Templates()
"""Everything in plain loops."""
