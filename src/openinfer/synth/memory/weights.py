"""The model data a program needs, laid out in one blob."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from openinfer.dtypes import DType, convert, pack, unpack
from openinfer.oinf.model import ModelLoader
from openinfer.synth.program.ir import FOLDED, EntryStep, KernelStep, Move, Program, Weight, steps_in
from openinfer.synth.targets.cpu.packing import Packing
from openinfer.tensor import Tensor

ALIGNMENT = 64


@dataclass(frozen=True)
class Piece:
    """One tensor in the blob."""

    name: str
    part: str
    dtype: DType
    packing: Packing | None
    offset: int
    nbytes: int


def _key(name: str, weight: Weight) -> tuple[str, str, str, Packing | None]:
    return name, weight.part, weight.dtype.name, weight.packing


@dataclass(frozen=True, eq=False)
class Places:
    """Where the tensors of a family lie; -1 for those that the model does not have."""

    offsets: tuple[int, ...]

    @cached_property
    def has_gaps(self) -> bool:
        """Whether the model does not have some of them."""
        return -1 in self.offsets

    @cached_property
    def line(self) -> tuple[int, int] | None:
        """The first offset and the step to the next, if all steps are the same and there are no gaps."""
        first, *others = self.offsets
        step = others[0] - first if others else 0
        even = all(offset == first + step * place for place, offset in enumerate(self.offsets))
        return (first, step) if even and not self.has_gaps else None


class WeightLayout:
    """Where each tensor that a program reads lies; tensors that nothing reads are left out."""

    def __init__(self, program: Program) -> None:
        self._model = program.bound.model
        self._folded = program.folded
        self.pieces: dict[tuple[str, str, str, Packing | None], Piece] = {}
        self.size = 0
        self._included: set[Weight] = set()
        self._places: dict[Weight, Places] = {}
        for weight in weights_in(program):
            self.include(weight)

    def include(self, weight: Weight) -> None:
        """Make room for the tensors of a weight operand."""
        family = replace(weight, index=())
        if family not in self._included:
            self._included.add(family)
            for name in filter(None, weight.names):
                self._add(name, weight)

    def _add(self, name: str, weight: Weight) -> None:
        key = _key(name, weight)
        if key in self.pieces:
            return
        nbytes = len(self.data(name, weight.part, weight.dtype))
        if weight.packing is not None:
            nbytes = weight.dtype.nbytes(prod(weight.packing.shape))
        self.pieces[key] = Piece(name, weight.part, weight.dtype, weight.packing, self.size, nbytes)
        self.size += -(-nbytes // ALIGNMENT) * ALIGNMENT

    def offset(self, weight: Weight, name: str) -> int:
        """The offset of one tensor of a weight operand."""
        return self.pieces[_key(name, weight)].offset

    def places(self, weight: Weight) -> Places:
        """Where all tensors that an operand can be lie."""
        family = replace(weight, index=())
        if family not in self._places:
            found = (self.offset(weight, name) if name else -1 for name in weight.names)
            self._places[family] = Places(tuple(found))
        return self._places[family]

    def data(self, name: str, part: str, dtype: DType) -> bytes:
        """The bytes of a tensor as a kernel reads them."""
        if part == FOLDED:
            return self._folded[name].raw().tobytes()
        model = self._model
        assert isinstance(model, ModelLoader)
        if part != "data":
            quant = model.tensors[name].quant
            assert quant is not None
            values = quant.scale.values if part == "scale" else quant.zero_point.values  # type: ignore[union-attr]
            return values.astype(dtype.array).tobytes()
        if name in model.tensors:
            return model.load(name).raw().tobytes()
        value = np.asarray(model.metadata[name])
        stored = convert(value, dtype) if dtype.kind != "float" else value.astype(dtype.array)
        return pack(stored, dtype).tobytes() if dtype.is_packed else np.asarray(stored).tobytes()

    def blob(self) -> bytes:
        """All pieces at their offsets."""
        out = bytearray(self.size)
        for piece in self.pieces.values():
            data = self.data(piece.name, piece.part, piece.dtype)
            if piece.packing is not None:
                data = _in_panels(data, piece.dtype, piece.packing)
            out[piece.offset : piece.offset + piece.nbytes] = data
        return bytes(out)


def _in_panels(data: bytes, dtype: DType, packing: Packing) -> bytes:
    """The bytes of a tensor in another order of its elements."""
    if not dtype.is_packed:
        return bytes(packing.packed(np.frombuffer(data, dtype.array)).tobytes())
    stream = np.frombuffer(data, np.uint8)
    elements = unpack(stream, dtype, 0, stream.size * 8 // dtype.bits)
    return pack(packing.packed(elements), dtype).tobytes()


def weights_in(program: Program) -> Iterator[Weight]:
    """Every weight operand of a program."""
    for steps in program.blocks.values():
        for step in steps_in(steps):
            if isinstance(step, KernelStep):
                yield from (operand for operand in step.inputs if isinstance(operand, Weight))
            elif isinstance(step, Move) and isinstance(step.src, Weight):
                yield step.src
            elif isinstance(step, EntryStep):
                yield step.family.entries


class FiniteWeights:
    """Which weights of a program have neither infinities nor NaN; each tensor is looked at once."""

    def __init__(self, program: Program) -> None:
        self._model = program.bound.model
        self._folded = program.folded
        self._known: dict[Weight, bool] = {}

    def __contains__(self, weight: Weight) -> bool:
        if weight.dtype.kind != "float" or weight.part not in ("data", FOLDED):
            return True
        family = replace(weight, index=())
        if family not in self._known:
            found = (np.frombuffer(one.raw(), weight.dtype.array) for one in self._tensors(weight))
            self._known[family] = all(bool(np.isfinite(one.astype(np.float64)).all()) for one in found)
        return self._known[family]

    def _tensors(self, weight: Weight) -> list[Tensor]:
        if weight.part == FOLDED:
            return [self._folded[name] for name in weight.names]
        model = self._model
        assert isinstance(model, ModelLoader)
        return [model.load(name) for name in weight.names if name in model.tensors]
