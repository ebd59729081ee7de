"""Scans before launches get their forms: long ones in chunks that many groups scan, others as loops.

If there are too few rows for all units, three launches scan a row: they compute totals of chunks, a scan of these, and
a scan of each chunk.
"""

from collections.abc import Iterator
from dataclasses import replace

from openinfer.loops.build import index, load, pair, select
from openinfer.loops.dim import is_symbolic, most_elements, span
from openinfer.loops.expand import plain
from openinfer.loops.ir import (
    Alloc,
    Axis,
    Binary,
    Buffer,
    Const,
    For,
    Kernel,
    Let,
    Local,
    LoopKind,
    Result,
    Scalar,
    ScalarVar,
    Scan,
    SetLocal,
    Space,
    Statement,
    Store,
    walk,
)
from openinfer.loops.rewrite import Statements, renamed, replaced, variables_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.scan import MOST_TEAM, row_stretch
from openinfer.synth.targets.simt.scan_columns import column_stretch
from openinfer.synth.targets.simt.scan_parts import LoneScan, lone_scan
from openinfer.synth.targets.simt.threads import int_extent
from openinfer.synth.targets.simt.wide import FreshNames

_LEAST_STRETCHES = 8
"""Stretches of a row from which it is divided, if there are few rows."""
_LEAST_CHUNK = 4096
_PARTS = 16
"""Chunks per compute unit, all of which are scanned at the same time."""


def with_scans(kernel: Kernel, machine: SimtMachine) -> Kernel:
    """A kernel whose scans each have a form, with long ones in three launches; scans of few elements become loops."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    names = FreshNames(taken | {var.name for var in variables_of(kernel.body)})
    found: list[Statement] = []
    for one in kernel.body:
        scan = lone_scan(one)
        if scan is None or not _is_worthwhile(scan, machine):
            found += _without(one, kernel, names)
            continue
        chunk = _chunk(scan, machine)
        found += _chunked(scan, chunk, names) if chunk else (one,)
    return replace(kernel, body=tuple(found))


def _without(one: Statement, kernel: Kernel, names: FreshNames) -> Statements:
    """A statement with loops in place of scans; orders are already without them."""
    if not any(isinstance(each, Scan) for each in walk((one,))):
        return (one,)
    before = {var.name for var in variables_of((one,))}
    body = plain(replace(kernel, body=(one,))).body
    # Another scan at the top level has the same names.
    own = [var for var in variables_of(body) if var.name not in before]
    return renamed(body, {var.name: names.var(var.name, var.dtype) for var in own})


def _is_worthwhile(one: LoneScan, machine: SimtMachine) -> bool:
    if one.is_across and is_symbolic(int_extent(one.loops[-1].extent)):
        return False  # A thread for each column is better than threads along columns.
    return most_elements((one.scan.axis.extent,)) >= machine.least_row


def _chunk(one: LoneScan, machine: SimtMachine) -> int:
    """The length of the chunks into which rows are divided; 0 if they are not."""
    extent, is_flagged = one.scan.axis.extent, one.scan.op == "mul" and one.scan.accumulator.kind == "float"
    if is_symbolic(extent) or is_flagged or one.lets:
        return 0
    found = column_stretch(one, machine) if one.is_across else None
    if found is not None:
        threads, stretch = found
    else:
        team, stretch = row_stretch(one, machine)
        threads = team * span(one.rows)[1]
    if 2 * threads >= machine.units * MOST_TEAM or extent < _LEAST_STRETCHES * stretch:
        return 0
    wanted = extent * span(one.rows)[1] // (_PARTS * machine.units * (1 if found is None else 64))
    least = _LEAST_CHUNK if found is None else 64
    chunk = 1 << max(wanted, least, 1).bit_length() - 1
    return chunk if 2 * chunk <= extent else 0


def _chunked(one: LoneScan, each: int, names: FreshNames) -> Iterator[Statement]:
    """The three launches, and two more if the last chunk is shorter."""
    scan, extent, kind = one.scan, one.scan.axis.extent, one.scan.accumulator
    count = extent // each
    outer, columns = (one.loops[:-1], one.loops[-1:]) if one.is_across else (one.loops, ())
    shape = (*(int_extent(loop.extent) for loop in outer), count, *(int_extent(loop.extent) for loop in columns))
    totals, starts = (Buffer(names.name(hint), kind, shape, Space.SCRATCH) for hint in ("totals", "starts"))
    yield from map(Alloc, (totals, starts))
    chunk, step = names.var("part"), names.var("step")

    def at(number: Scalar) -> tuple[Scalar, ...]:
        return (*(loop.index for loop in outer), number, *(loop.index for loop in columns))

    def around(*body: Statement, number: ScalarVar | None = None) -> Statements:
        made: Statements = body
        own = () if number is None else (For(number, index(count), (), LoopKind.PARALLEL),)
        for loop in reversed((*outer, *own, *columns)):
            made = (replace(loop, body=made),)
        return made

    def first_of(place: Scalar, length: int) -> Scalar:
        """Where some steps begin in memory."""
        return index(extent - length) - place if scan.is_reversed else place

    total = names.var("total", kind)
    term = replaced(scan.term, {scan.axis.index: first_of(chunk * each, each) + step})
    add = For(step, index(each), (SetLocal(total, Binary(scan.op, total, term)),))
    yield from around(Local(total, _initial(scan)), add, Store(totals, at(chunk), total), number=chunk)
    along = Axis(names.var("part"), count)
    result = Result(starts, at(along.index), scan.total)
    yield from around(Scan(along, scan.op, kind, load(totals, *at(along.index)), result))

    def scanned(place: Scalar, length: int, before: Scalar) -> tuple[Statement, ...]:
        """A chunk, whose totals begin with that of all before it."""
        moved: dict[Scalar, Scalar] = {scan.axis.index: first_of(place, length) + scan.axis.index}
        is_named = not one.is_across and (one.loops or length == each)
        start = names.var("start", kind) if is_named else before
        whole: dict[Scalar, Scalar] = {**moved, scan.total: Binary(scan.op, start, scan.total)}
        out = Result(
            scan.out.buffer,
            tuple(replaced(part, moved) for part in scan.out.index),
            replaced(scan.out.value, whole),
        )
        made = replace(scan, axis=replace(scan.axis, extent=length), term=replaced(scan.term, moved), out=out)
        return (Let(start, before), made) if isinstance(start, ScalarVar) else (made,)

    # The last chunks were read last, so they may still be in the cache: groups begin with them.
    last = names.var("part")
    place = index(count - 1) - last
    before = select(place > 0, load(starts, *at(pair("max", place - 1, index(0)))), _initial(scan))
    yield from around(*scanned(place * each, each, before), number=last)
    if extent % each:
        yield from around(*scanned(index(count * each), extent - count * each, load(starts, *at(index(count - 1)))))


def _initial(one: Scan) -> Scalar:
    return Const(one.initial, one.accumulator)
