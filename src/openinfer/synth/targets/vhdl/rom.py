"""The weights that are read element by element, without those that only lanes read."""

from dataclasses import dataclass, replace
from itertools import pairwise

from openinfer.loops.text import kernel_text
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.weights import weights_in
from openinfer.synth.program.ir import KernelStep, Weight
from openinfer.synth.targets.vhdl.lane_plan import LanePlan


@dataclass(frozen=True)
class RomLayout:
    """The kept ranges of the blob of all weights."""

    kept: tuple[tuple[int, int, int], ...]
    """For each range, its start and end in the blob, and its offset here."""
    size: int
    first: int = 0
    """Bytes before the first weight."""

    def at(self, offset: int) -> int:
        """Translate a blob offset. Negative offsets, which mean no tensor, are kept; dropped ranges give 0."""
        for first, end, here in self.kept:
            if first <= offset < end:
                return offset - first + here
        return offset if offset < 0 else 0

    def behind(self, nbytes: int) -> "RomLayout":
        """The same layout, shifted by a number of bytes."""
        kept = tuple((first, end, here + nbytes) for first, end, here in self.kept)
        return RomLayout(kept, self.size + nbytes, nbytes)

    def has(self, offset: int) -> bool:
        """Whether a blob offset is kept."""
        return any(first <= offset < end for first, end, _ in self.kept)

    def data(self, blob: bytes) -> bytes:
        """The kept bytes."""
        return b"".join(blob[first:end] for first, end, _ in self.kept)


def rom_layout(placed: Placed, lanes: LanePlan | None) -> RomLayout:
    """The weights of a program, without those that only lanes read."""
    size = placed.weights.size
    whole = RomLayout(((0, size, 0),), size)
    if lanes is None:
        return whole
    pieces = sorted(placed.weights.pieces.values(), key=lambda one: one.offset)
    dropped = _dropped(placed, lanes)
    ends = [one.offset for one in pieces[1:]] + [size]
    kept: list[tuple[int, int, int]] = []
    here = 0
    for piece, end in zip(pieces, ends, strict=True):
        if piece.offset not in dropped:
            kept.append((piece.offset, end, here))
            here += end - piece.offset
    found = RomLayout(tuple(kept), here)
    for family in placed.weights.families.values():
        moved = [(one, found.at(one)) for one in family.offsets if one >= 0 and one not in dropped]
        if any(other - one != there - place for (one, place), (other, there) in pairwise(moved)):
            return whole  # strides between tensors that indices select would change
    return found


def _dropped(placed: Placed, lanes: LanePlan) -> set[int]:
    """The offsets of tensors that only lanes read."""
    on_lanes: set[int] = set()
    others: set[int] = set()
    for step in placed.program.steps():
        if not isinstance(step, KernelStep):
            continue
        product = lanes.products.get(kernel_text(step.kernel))
        for at, operand in enumerate(step.inputs):
            if isinstance(operand, Weight):
                offsets = placed.weights.places(operand).offsets
                (on_lanes if product is not None and at == product.weight_at else others).update(offsets)
    kernels = {
        replace(one, index=())
        for step in placed.program.steps()
        if isinstance(step, KernelStep)
        for one in step.inputs
        if isinstance(one, Weight)
    }
    for weight, family in placed.weights.families.items():
        if weight not in kernels:
            others.update(family.offsets)
    for weight in weights_in(placed.program):
        if replace(weight, index=()) not in kernels:
            others.update(placed.weights.places(weight).offsets)
    return on_lanes - others
