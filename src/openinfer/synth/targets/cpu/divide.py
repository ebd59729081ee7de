"""Divides kernels into parts that run concurrently, and decides what each part gets a share of.

The shares are fixed here, once: a step computes the same bits on any number of threads. A kernel is divided if one loop
or contraction does nearly all of its work, and if that takes longer than waking a thread. A kernel of several such
statements in a row becomes several kernels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Bind,
    Const,
    Contraction,
    For,
    If,
    Kernel,
    Let,
    Load,
    LoopKind,
    Space,
    Statement,
    Store,
    walk,
)
from openinfer.synth.passes.split import split, written_by
from openinfer.synth.program.cost import cost_of
from openinfer.synth.program.ir import KernelStep, Program, Value
from openinfer.synth.targets.cpu.byte_products import are_bytes
from openinfer.synth.targets.cpu.byte_taps import ByteTaps
from openinfer.synth.targets.cpu.channel_taps import ChannelTaps
from openinfer.synth.targets.cpu.product import Product, tiled_product
from openinfer.synth.targets.cpu.tile import CpuTile

_OPERATIONS, _BYTES = 50.0, 40.0
"""What one core does per nanosecond, roughly: enough to tell large kernels from small ones."""
_AT_ONCE = 4
"""The number of byte products in the time of one float product."""
_MOST_BEFORE = 0.05
"""Every part may repeat the work before the divided loop if it is at most this share of the total."""
_COPY = 8.0
"""The cost of copying an element, in products."""
_LINE = 64
_MANY_ROWS = 32
"""With at least this many rows per part, it is cheap for all parts to read all columns."""


@dataclass(frozen=True)
class Divide:
    """The pass: large kernels get as many parts as there are threads."""

    threads: int | None = None
    """None means as many as the device has cores."""
    worth: float = 3_000.0
    """Kernels below this many nanoseconds are not divided: handing out their parts would take as long."""

    def run(self, program: Program) -> Program:
        """The program with divided kernels."""
        return program.map_kernels(self._calls) if self.threads is not None and self.threads > 1 else program

    def _calls(self, step: KernelStep) -> Sequence[KernelStep]:
        whole = self._call(step)
        if whole.parts > 1 or _nanoseconds(step.kernel) < self.worth:
            return (whole,)
        pieces = [self._call(one) for one in split(step, lambda kernel: _nanoseconds(kernel) >= self.worth)]
        return pieces if any(one.parts > 1 for one in pieces) else (whole,)

    def _call(self, step: KernelStep) -> KernelStep:
        assert self.threads is not None
        kernel = divided(step.kernel, self.threads, self.worth)
        if kernel is step.kernel:
            return step
        memory = tuple(
            Value(value.name, value.dtype, (self.threads, scratch_elements(buffer.dtype.bits, buffer.shape)))
            for value, buffer in zip(step.scratch, kernel.scratch, strict=True)
        )
        return replace(step, kernel=kernel, scratch=memory, parts=self.threads)


def scratch_elements(bits: int, shape: Sequence[int]) -> int:
    """The number of elements in the scratch memory of a part: whole cache lines, to avoid false sharing."""
    each = max(_LINE * 8 // bits, 1)
    return -(-most_elements(shape) // each) * each


def divided(kernel: Kernel, parts: int, worth: float) -> Kernel:
    """The kernel divided into parts, or unchanged if it cannot be divided or is not worth it."""
    if not _is_dividable(kernel) or _nanoseconds(kernel) < worth:
        return kernel
    *before, last = kernel.body
    if before and _nanoseconds(replace(kernel, body=tuple(before))) > _MOST_BEFORE * _nanoseconds(kernel):
        return kernel
    found = max(_ways(last, parts), key=lambda way: way.share, default=None)
    if found is None or found.share < 0.6:
        return kernel
    return replace(kernel, body=(*before, found.statement))


def _is_dividable(kernel: Kernel) -> bool:
    """Whether there is work to divide, and parts are independent: no elements share bytes, and nothing fails."""
    if any(buffer.dtype.is_packed for buffer in (*kernel.outputs, *kernel.scratch)):
        return False
    if not kernel.body or kernel.can_fail or not any(most_elements(buffer.shape) for buffer in kernel.outputs):
        return False
    scratch = {buffer.name for buffer in kernel.scratch}
    writes = (written_by(statement) for statement in walk(kernel.body[:-1]))
    return all(name is None or name in scratch for name in writes)


def _nanoseconds(kernel: Kernel) -> float:
    cost = cost_of(kernel)
    has_bytes = any(isinstance(one, Contraction) and one.template and are_bytes(one) for one in walk(kernel.body))
    return max(cost.operations / _OPERATIONS / (_AT_ONCE if has_bytes else 1), cost.nbytes / _BYTES)


# --- ways to divide a statement ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    statement: Statement
    share: float
    """The parallel efficiency: the time of a single part over the total time of all parts; 1 is perfect."""


def _ways(statement: Statement, parts: int) -> Iterator[_Way]:
    """The ways to divide a statement, outermost loops first: these are taken if nothing is better."""
    match statement:
        case For(kind=LoopKind.PARALLEL, bind=None, extent=Const(value=extent)):
            yield _Way(replace(statement, bind=Bind.PART), _balance(int(extent), parts))
            *before, last = statement.body
            if all(isinstance(one, Alloc | Let) or _is_copy(one) for one in before):
                for way in _ways(last, parts):
                    yield _Way(replace(statement, body=(*before, way.statement)), way.share)
        case Contraction(template=CpuTile() as tile):
            product = tiled_product(statement, tile)
            # The outer indices of windows run inside of the loop over panels.
            if product.outside.vars and not tile.reads_windows and tile.wanted is None:
                yield _outside(statement, statement.free.index(product.outside.vars[0]), parts)
            yield from _tiled(statement, tile, product, parts)
        case Contraction(template=ByteTaps()):
            return  # Each part would copy the whole input of the windows.
        case Contraction(template=ChannelTaps()):
            return  # The loops around it are divided, if there are any.
        case Contraction(free=(_, _, *_)):
            yield _outside(statement, 0, parts)


def _is_copy(statement: Statement) -> bool:
    """Whether a statement only copies elements to scratch memory, which each part can do for itself."""
    inside = [one for one in walk((statement,)) if not isinstance(one, For | If)]
    stores = [one for one in inside if isinstance(one, Store) and one.buffer.space is Space.SCRATCH]
    return len(stores) == len(inside) and all(isinstance(one.value, Load | Const) for one in stores)


def _balance(units: int, parts: int) -> float:
    return units / (-(-units // parts) * parts) if units else 0.0


def _outside(one: Contraction, place: int, parts: int) -> _Way:
    """A loop around the contraction in place of one of its free indices."""
    extent = one.extents[place]
    inner = replace(
        one,
        free=(*one.free[:place], *one.free[place + 1 :]),
        extents=(*one.extents[:place], *one.extents[place + 1 :]),
    )
    loop = For(one.free[place], Const(extent, INDEX), (inner,), LoopKind.PARALLEL, Bind.PART)
    return _Way(loop, _balance(int(extent), parts))


def _tiled(one: Contraction, tile: CpuTile, product: Product, parts: int) -> Iterator[_Way]:
    """The division of columns or rows of the result: every part repeats the copies for the other factor."""
    rows, columns = int(product.rows.extent), int(product.columns.extent)
    is_copied = tile.right is not None and not tile.is_direct
    choices: list[tuple[Literal["rows", "columns"], int, int, float]] = [
        ("columns", columns, tile.columns, _COPY / max(columns, 1) if tile.left is not None else 0.0),
        ("rows", rows, tile.rows, _COPY / max(rows, 1) if is_copied else 0.0),
    ]
    is_widened = tile.reads_windows and columns > product.inner.extent
    if rows >= _MANY_ROWS * parts and not is_widened:
        # Other kernels are divided by rows, too, so a thread reads what it has written. A convolution that expands
        # channels is divided by channels, like the grouped convolution that usually follows it.
        choices.reverse()
    for what, count, each, copied in choices:
        if tile.wanted not in (None, what) or (what == "rows" and is_symbolic(product.rows.extent)):
            continue
        share = _tile_balance(count, each, parts) / (1 + copied * (parts - 1))
        yield _Way(replace(one, template=replace(tile, divided=what)), share)


def _tile_balance(count: int, each: int, parts: int) -> float:
    """The same for tiles, the last of which may be small: 49 columns in tiles of 48 are little better than one tile.

    >>> _tile_balance(96, 48, 2), round(_tile_balance(49, 48, 2), 2), round(_tile_balance(144, 48, 2), 2)
    (1.0, 0.51, 0.75)
    """
    tiles = -(-count // each)
    most = max(
        (min((part + 1) * tiles // parts * each, count) - part * tiles // parts * each for part in range(parts)),
        default=0,
    )
    return count / (most * parts) if most else 0.0
