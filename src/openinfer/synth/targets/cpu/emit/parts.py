"""Loops that the parts of a kernel share, and loops that copy contiguous elements."""

from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Const, For, Let, Scalar, ScalarVar
from openinfer.synth.targets.cstyle.code import ExprText, joined
from openinfer.synth.targets.cstyle.templates import KernelWriter

_PART = ScalarVar("part")
_AT_ONCE = "#pragma GCC unroll 1 /* if unrolled, gcc 12 copies element by element */"


def print_rolled(loop: For, writer: KernelWriter, depth: int) -> None:
    """A loop that copies contiguous elements; compilers turn it into a few large moves if it stays rolled."""
    writer.line(depth, _AT_ONCE)
    writer.loop(loop, "0", writer.scalars.text(loop.extent), depth)


def print_share(loop: For, writer: KernelWriter, depth: int) -> None:
    """The iterations of a divided loop that belong to the part."""
    count = count_of(loop.extent)
    if count == writer.parts:
        writer.scalars.counts(loop.index, _PART)
        writer.scalars.ranges[_PART.name] = (0, writer.parts - 1)
        writer.body((Let(loop.index, _PART), *loop.body), depth)
        return
    extent = ExprText(writer.scalars.operand(loop.extent)) if count is None else count
    first, last = share(extent, writer.parts)
    writer.loop(loop, first.text, last.text, depth)


def count_of(extent: Scalar) -> int | None:
    """The number of iterations of a loop, if no dynamic size decides it."""
    match extent:
        case Const(int() as count, _) if not is_symbolic(count):
            return count
        case _:
            return None


def share(count: int | ExprText, parts: int, unit: int = 1) -> tuple[ExprText, ExprText]:
    """The begin and end of a part's share, out of a number of units, or of an expression that computes it.

    >>> [one.text for one in (*share(12, 2), *share(2, 2), *share(7, 2), share(ExprText("n"), 2)[0])]
    ['part * 6', '(part + 1) * 6', 'part', 'part + 1', 'part * 7 / 2', '(part + 1) * 7 / 2', 'part * n / 2']
    """
    part = ExprText("part")
    ends = part, joined(part, "+", ExprText("1"))
    if isinstance(count, int) and count % parts == 0:
        first, last = (_times(end, count // parts * unit) for end in ends)
        return first, last
    whole = ExprText(str(count)) if isinstance(count, int) else count
    first, last = (_times(joined(joined(end, "*", whole), "/", ExprText(str(parts))), unit) for end in ends)
    return first, last


def _times(code: ExprText, count: int) -> ExprText:
    return code if count == 1 else joined(code, "*", ExprText(str(count)))
