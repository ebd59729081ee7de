"""Split-K: contractions with fewer blocks than the device has units compute partial sums, which are then added up.

The number of the partial sum is one more index of both factors, and so of the blocks. Partial sums go to memory of the
kernel. They are added in order, so results are bitwise reproducible.
"""

from dataclasses import replace
from math import prod

from openinfer.loops.build import index
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Buffer,
    Contraction,
    For,
    Kernel,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
)
from openinfer.loops.rewrite import Statements, replaced, variables_of
from openinfer.synth.targets.simt.blocks import least_groups
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.matrix import is_for_units
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_PARTS = 16
_LEAST_BLOCKS = 4
"""Terms per partial sum at least, as a multiple of ``least_block``."""


def with_split_sums(kernel: Kernel, machine: SimtMachine) -> Kernel:
    """A kernel with contractions split until they have enough blocks for all units, if their sums are long enough."""
    names = FreshNames({one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)})
    names.taken.update(var.name for var in variables_of(kernel.body))
    names.taken.update(one.buffer.name for one in kernel.body if isinstance(one, Alloc))
    body: list[Statement] = []
    for one in kernel.body:
        parts = _parts(one, machine) if isinstance(one, Contraction) else 1
        body += (one,) if parts == 1 or not isinstance(one, Contraction) else _split(one, parts, names)
    return replace(kernel, body=tuple(body))


def _parts(one: Contraction, machine: SimtMachine) -> int:
    """The number of partial sums: as many as keep all units busy, if these can be of equal length and long enough."""
    groups = least_groups(one, machine)
    if not groups or is_for_units(one, machine):
        return 1
    most = min(machine.units // groups, prod(one.reduced) // (_LEAST_BLOCKS * machine.least_block), _MOST_PARTS)
    return max((each for each in range(2, most + 1) if one.reduced[0] % each == 0), default=1)


def _split(one: Contraction, parts: int, names: FreshNames) -> Statements:
    part, kind, along = names.var("part"), one.accumulator, one.bound[0]
    memory = Buffer(names.name("parts"), kind, (parts, *one.extents), Space.SCRATCH)
    total, each = ScalarVar(ACCUMULATOR, kind), one.reduced[0] // parts
    moved: dict[Scalar, Scalar] = {along: part * each + along}
    a_value, b_value, valid = (
        None if value is None else replaced(value, moved) for value in (one.a_value, one.b_value, one.valid)
    )
    own = replace(
        one,
        out=memory,
        free=(part, *one.free),
        extents=(parts, *one.extents),
        reduced=(each, *one.reduced[1:]),
        out_index=(part, *one.free),
        a_index=tuple(replaced(at, moved) for at in one.a_index),
        b_index=tuple(replaced(at, moved) for at in one.b_index),
        epilogue=total,
        valid=valid,
        a_value=a_value,
        b_value=b_value,
    )
    free = tuple(names.var(var.name) for var in one.free)
    known: dict[Scalar, Scalar] = dict(zip(one.free, free, strict=True))
    whole = names.var("whole", kind)
    adds = (SetLocal(whole, whole + Load(memory, (index(number), *free))) for number in range(1, parts))
    place = tuple(replaced(at, known) for at in one.out_index)
    body: Statements = (
        Local(whole, Load(memory, (index(0), *free))),
        *adds,
        Store(one.out, place, replaced(one.epilogue, {**known, total: whole})),
    )
    for var, extent in zip(reversed(free), reversed(one.extents), strict=True):
        body = (For(var, index(extent), body, LoopKind.PARALLEL),)
    return (Alloc(memory), own, *body)
