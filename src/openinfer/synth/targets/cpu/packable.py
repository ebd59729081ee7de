"""Finds the factors that can be stored in panels: weights that one kernel reads once, in a known order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openinfer.loops.affine import position
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Contraction, Load, Statement, scalars, visit, walk
from openinfer.synth.targets.cpu.byte_products import are_bytes
from openinfer.synth.targets.cpu.quantized import are_half_floats, integers_of


@dataclass(frozen=True)
class Packable:
    """Whether a buffer of a contraction can be stored in panels ahead of time."""

    one: Contraction
    weights: frozenset[str]
    uses: tuple[str, ...]

    def __call__(self, buffer: Buffer) -> bool:
        """Whether a factor is packable."""
        one = self.one
        value, index = (one.a_value, one.a_index) if buffer == one.a else (one.b_value, one.b_index)
        if buffer.name not in self.weights or self.uses.count(buffer.name) != 1:
            return False
        is_plain = value is None and (buffer.dtype is one.accumulator or (are_bytes(one) and buffer.dtype.bits == 8))
        is_plain = is_plain or are_half_floats(one, buffer)
        place = position(buffer, index)
        own = dict(zip((var.name for var in (*one.free, *one.bound)), (*one.extents, *one.reduced), strict=True))
        stored = integers_of(one, buffer)
        if place is None or not set(place.strides) <= set(own) or not (is_plain or stored is not None):
            return False
        if stored is not None and stored.groups is not None and not all(map(self._is_panel, stored.groups.loads)):
            return False
        # The number of rows of the other factor may only be known at run time.
        return not any(
            map(is_symbolic, (*(own[name] for name in place.strides), *buffer.shape, *buffer.actual_strides))
        )

    def _is_panel(self, load: Load) -> bool:
        """Whether group scales can be stored in panels, too."""
        name = load.buffer.name
        return name in self.weights and self.uses.count(name) == 1 and position(load.buffer, load.index) is not None


def uses_of(body: Sequence[Statement]) -> Iterator[str]:
    """The names of the buffers that are read, once per load."""
    for statement in walk(tuple(body)):
        for value in scalars(statement):
            yield from (one.buffer.name for one in visit(value) if isinstance(one, Load))
