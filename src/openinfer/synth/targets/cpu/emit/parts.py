"""Loops of which every part of a kernel runs a share."""

from openinfer.loops.ir import For
from openinfer.synth.targets.cstyle.templates import KernelWriter


def print_share(loop: For, writer: KernelWriter, depth: int) -> None:
    """The iterations of a divided loop that are the part's own."""
    first, last = share(writer.scalars.operand(loop.extent), writer.parts)
    writer.loop(loop, first, last, depth)


def share(count: str, parts: int) -> tuple[str, str]:
    """Where the share of a part begins and ends, out of a count.

    >>> share("12", 2), share("7", 2)
    (('part * 6', '(part + 1) * 6'), ('part * 7 / 2', '(part + 1) * 7 / 2'))
    """
    if count.isdecimal() and int(count) % parts == 0:
        each = str(int(count) // parts)
        return f"part * {each}", f"(part + 1) * {each}"
    return f"part * {count} / {parts}", f"(part + 1) * {count} / {parts}"
